// Shared by the scenarios: a client of the official SDK at the gateway, waiting with a deadline.

import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { after } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  LoggingMessageNotificationSchema,
  PromptListChangedNotificationSchema,
  ResourceListChangedNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

/** Longest wait for anything, in milliseconds. */
const PATIENCE = 30_000;

export const everything = createRequire(import.meta.url).resolve(
  "@modelcontextprotocol/server-everything/dist/index.js",
);

/** Clients that are connected. One that a failed test left behind would keep Node from ending. */
const connected = new Set();
after(() => Promise.allSettled([...connected].map(leave)));

/** What stands between the client and the gateway; `TRANSPORT` names it. */
const transports = {
  http: (url, fetch) =>
    new StreamableHTTPClientTransport(url, {
      fetch,
      reconnectionOptions: {
        initialReconnectionDelay: 50,
        maxReconnectionDelay: 1000,
        reconnectionDelayGrowFactor: 2,
        maxRetries: 10,
      },
    }),
  sse: (url) => new SSEClientTransport(new URL("/sse", url)),
  relay: (url) => mcpvisor("stdio", "--connect", url.href),
  // A gateway for this client alone.
  stdio: () => mcpvisor("--config", process.env.GATEWAY_CONFIG, "stdio"),
};

const mcpvisor = (...args) =>
  new StdioClientTransport({
    command: process.env.MCPVISOR,
    args,
    env: { ...process.env },
    stderr: process.env.STDERR ?? "ignore",
  });

/**
 * A connected client. `seen` holds what it was told outside of its calls. A stream is resumed
 * after 50 ms, so that tests of it are short.
 */
export async function connect({ capabilities = {}, prepare, fetch } = {}) {
  const url = new URL(process.env.GATEWAY_URL);
  const transport = transports[process.env.TRANSPORT ?? "http"](url, fetch);
  // A client that comes before every server was listed is told of changes that it has not missed.
  const ready = new URL("/readyz", url);
  await until("the gateway is ready", async () => (await globalThis.fetch(ready)).ok);
  return open(transport, capabilities, prepare);
}

/** The same server without the gateway, to compare with. */
export async function connectDirectly(capabilities = {}) {
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [everything],
    stderr: "ignore",
  });
  return open(transport, capabilities);
}

async function open(transport, capabilities, prepare) {
  const client = new Client({ name: "interop", version: "1.0.0" }, { capabilities });
  client.seen = { lists: [], updated: [], logs: [], errors: [] };
  client.onerror = (error) => client.seen.errors.push(error);
  const lists = {
    tools: ToolListChangedNotificationSchema,
    prompts: PromptListChangedNotificationSchema,
    resources: ResourceListChangedNotificationSchema,
  };
  for (const [kind, schema] of Object.entries(lists)) {
    client.setNotificationHandler(schema, () => void client.seen.lists.push(kind));
  }
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, (note) => {
    client.seen.updated.push(note.params.uri);
  });
  client.setNotificationHandler(LoggingMessageNotificationSchema, (note) => {
    client.seen.logs.push(note.params);
  });
  prepare?.(client);
  connected.add(client);
  await client.connect(transport);
  return client;
}

/** Ends the session as a well-behaved client does. */
export async function leave(client) {
  connected.delete(client);
  await client.transport.terminateSession?.();
  await client.close();
}

/** Waits until `condition` gives something, and gives it back. */
export async function until(what, condition) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`waited without result until ${what}`);
    await new Promise((wake) => setTimeout(wake, 20));
  }
}

/** Every page of a list. One that changes between two pages is read anew. */
export async function all(client, kind) {
  for (;;) {
    try {
      return await pages(client, kind);
    } catch (error) {
      if (!/list has changed/.test(error.message)) throw error;
    }
  }
}

async function pages(client, kind) {
  const list = {
    tools: (params) => client.listTools(params),
    prompts: (params) => client.listPrompts(params),
    resources: (params) => client.listResources(params),
    resourceTemplates: (params) => client.listResourceTemplates(params),
  }[kind];
  const items = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? undefined : { cursor });
    items.push(...page[kind]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return items;
}

export async function toolNames(client) {
  return (await all(client, "tools")).map((tool) => tool.name).sort();
}

/** The text of a tool's result. */
export function text(result) {
  return result.content
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n");
}

/** What `mcpvisor status` says of the gateway. */
export function status() {
  const arguments_ = ["--config", process.env.GATEWAY_CONFIG, "status", "--json"];
  return JSON.parse(execFileSync(process.env.MCPVISOR, arguments_, { encoding: "utf8" }));
}

export function serverStatus(name) {
  return status().servers.find((server) => server.name === name);
}
