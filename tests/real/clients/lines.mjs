// A client is driven through lines of JSON on stdin, and answers each with one on stdout.

import { createInterface } from "node:readline";

/** The answer to every question: server-everything asks for a name, FastMCP for a value. */
export const ANSWER = { action: "accept", content: { name: "eva", value: "eva" } };

export async function serve(client, callTool) {
  client.onerror = (error) => console.error(String(error));
  for await (const line of createInterface({ input: process.stdin })) {
    let reply;
    try {
      reply = await run(client, callTool, JSON.parse(line));
    } catch (error) {
      reply = { error: String(error?.message ?? error) };
    }
    console.log(JSON.stringify(reply));
  }
  process.exit(0);
}

async function run(client, callTool, { action, name, arguments: args }) {
  const params = { name, arguments: args };
  let reports = 0;
  switch (action) {
    case "list": {
      const tools = [];
      let cursor;
      do {
        const page = await client.listTools(cursor === undefined ? undefined : { cursor });
        tools.push(...page.tools.map((tool) => tool.name));
        cursor = page.nextCursor;
      } while (cursor !== undefined);
      return { tools };
    }
    case "call":
      return result(await callTool(params, { timeout: 60_000 }));
    case "progress": {
      const done = await callTool(params, { onprogress: () => (reports += 1) });
      return { ...result(done), reports };
    }
    case "cancel": {
      const controller = new AbortController();
      const onprogress = () => controller.abort("no longer needed");
      try {
        await callTool(params, { onprogress, signal: controller.signal });
      } catch (error) {
        if (controller.signal.aborted) return { cancelled: true };
        throw error;
      }
      return { cancelled: false };
    }
    default:
      throw new Error(`unknown action ${action}`);
  }
}

function result({ content, isError }) {
  const text = content.map((part) => part.text ?? "").join("\n");
  return { text, isError: isError === true };
}
