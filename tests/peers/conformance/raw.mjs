// A server of 2026-07-28 that answers messages itself, for extensions that the official SDK lacks.

import { createServer } from "node:http";
import { json } from "node:stream/consumers";

/** An error that the client reads. */
export class Refusal extends Error {
  constructor(code, message, data) {
    super(message);
    this.body = { code, message, data };
  }
}

async function answer(methods, { id, method, params }) {
  if (!Object.hasOwn(methods, method)) return { id, error: { code: -32601, message: `unknown: ${method}` } };
  try {
    return { id, result: { resultType: "complete", ...(await methods[method](params ?? {})) } };
  } catch (error) {
    if (error instanceof Refusal) return { id, error: error.body };
    throw error;
  }
}

/** Serves these methods, and says its address in the first line of the output. */
export function serve(methods) {
  const server = createServer(async (request, response) => {
    if (request.method !== "POST") return response.writeHead(405).end();
    const message = await json(request);
    if (message.id === undefined) return response.writeHead(202).end();
    const body = JSON.stringify({ jsonrpc: "2.0", ...(await answer(methods, message)) });
    response.writeHead(200, { "Content-Type": "application/json" }).end(body);
  });
  server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
}
