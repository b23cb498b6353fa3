// The features on version 1 of the TypeScript SDK, which speaks the revisions with a handshake.

import { randomUUID } from "node:crypto";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import * as types from "@modelcontextprotocol/sdk/types.js";
import * as features from "./features.mjs";
import { EventStore } from "./events.mjs";

/** Servers that are connected, one for each session. */
const servers = new Set();

const ANSWERS = {
  "elicitation/create": types.ElicitResultSchema,
  "sampling/createMessage": types.CreateMessageResultSchema,
  "roots/list": types.ListRootsResultSchema,
};

function io(server, extra) {
  const ask = async ([key, { method, params }]) => [
    key,
    await extra.sendRequest({ method, params }, ANSWERS[method]),
  ];
  const progressToken = extra._meta?.progressToken;
  return {
    ask: async (questions) => Object.fromEntries(await Promise.all(Object.entries(questions).map(ask))),
    log: (data) =>
      extra.sendNotification({ method: "notifications/message", params: { level: "info", data } }),
    progress: async (progress, total) => {
      if (progressToken === undefined) return;
      const params = { progressToken, progress, total };
      await extra.sendNotification({ method: "notifications/progress", params });
    },
    declared: server.getClientCapabilities(),
    changed: (kind) => tell((server) => (kind === "tools" ? server.sendToolListChanged() : server.sendPromptListChanged())),
    updated: (uri) => tell((server) => server.watched.has(uri) && server.sendResourceUpdated({ uri })),
    hangUp: () => extra.closeSSEStream?.(),
  };
}

/** Tells every session of a change. */
export function tell(what) {
  return Promise.allSettled([...servers].map(what));
}

function build() {
  const server = new Server(features.INFO, { capabilities: features.CAPABILITIES });
  server.watched = new Set();
  const on = (schema, handle) => server.setRequestHandler(schema, handle);
  on(types.ListToolsRequestSchema, () => ({ tools: features.tools().map(features.listed) }));
  on(types.CallToolRequestSchema, async ({ params }, extra) => {
    const tool = find(features.tools(), params.name);
    try {
      return await tool.run(io(server, extra), params.arguments ?? {});
    } catch (error) {
      return { ...features.say(error.message), isError: true };
    }
  });
  on(types.ListPromptsRequestSchema, () => ({ prompts: features.prompts().map(features.listed) }));
  on(types.GetPromptRequestSchema, async ({ params }, extra) => ({
    messages: await find(features.prompts(), params.name).run(io(server, extra), params.arguments ?? {}),
  }));
  on(types.ListResourcesRequestSchema, () => ({ resources: features.resources() }));
  on(types.ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: features.TEMPLATES }));
  on(types.ReadResourceRequestSchema, ({ params: { uri } }) => {
    const contents = features.read(uri);
    if (contents === undefined) throw new types.McpError(-32002, "Resource not found", { uri });
    return { contents };
  });
  on(types.SubscribeRequestSchema, ({ params: { uri } }) => (server.watched.add(uri), {}));
  on(types.UnsubscribeRequestSchema, ({ params: { uri } }) => (server.watched.delete(uri), {}));
  on(types.CompleteRequestSchema, ({ params }) => features.complete(params));
  servers.add(server);
  server.onclose = () => servers.delete(server);
  return server;
}

function find(items, name) {
  const found = items.find((item) => item.name === name);
  if (!found) throw new types.McpError(types.ErrorCode.InvalidParams, `there is no ${name}`);
  return found;
}

/** Sessions over Streamable HTTP, as a handler of Node's HTTP server. */
export function sessions() {
  const transports = new Map();
  return async (request, response, body) => {
    const id = request.headers["mcp-session-id"];
    let transport = transports.get(id);
    if (id === undefined && types.isInitializeRequest(body)) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        eventStore: new EventStore(),
        retryInterval: 500,
        onsessioninitialized: (id) => void transports.set(id, transport),
        onsessionclosed: (id) => void transports.delete(id),
      });
      await build().connect(transport);
    } else if (transport === undefined) {
      const error = { code: -32001, message: "Session not found" };
      response.writeHead(id === undefined ? 400 : 404, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", error, id: null }));
      return;
    }
    await transport.handleRequest(request, response, body);
  };
}

export async function stdio() {
  await build().connect(new StdioServerTransport());
}
