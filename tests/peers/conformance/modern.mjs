// The features on version 2 of the TypeScript SDK, which speaks both eras.

import { randomBytes, randomUUID } from "node:crypto";
import { NodeStreamableHTTPServerTransport, toNodeHandler } from "@modelcontextprotocol/node";
import * as sdk from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { EventStore } from "./events.mjs";
import * as features from "./features.mjs";

/** Servers that stay: of sessions, and of standard input. Others live for one request. */
const lasting = new Set();

/** What a handler throws that needs answers of the client first. */
class Ask extends Error {
  constructor(questions, answers) {
    super("answers are missing");
    Object.assign(this, { questions, answers });
  }
}

const state = sdk.createRequestStateCodec({ key: randomBytes(32) });

const SHAPES = {
  "elicitation/create": (answer) => ["accept", "decline", "cancel"].includes(answer?.action),
  "sampling/createMessage": (answer) => answer?.content !== undefined,
  "roots/list": (answer) => Array.isArray(answer?.roots),
};

function io(ctx, server) {
  const answers = { ...ctx.mcpReq.requestState()?.answers, ...ctx.mcpReq.inputResponses };
  const progressToken = ctx.mcpReq._meta?.progressToken;
  return {
    ask: async (questions) => {
      const missing = Object.entries(questions).filter(([key, { method }]) => !SHAPES[method](answers[key]));
      if (missing.length > 0) throw new Ask(Object.fromEntries(missing), answers);
      return Object.fromEntries(Object.keys(questions).map((key) => [key, answers[key]]));
    },
    log: (data) => ctx.mcpReq.log("info", data),
    progress: async (progress, total) => {
      if (progressToken === undefined) return;
      await ctx.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total } });
    },
    declared: ctx.mcpReq.envelope?.[sdk.CLIENT_CAPABILITIES_META_KEY] ?? server.server.getClientCapabilities(),
    changed: async (kind) => {
      if (kind === "tools") handler.notify.toolsChanged();
      else handler.notify.promptsChanged();
      await Promise.allSettled(
        [...lasting].map(({ server }) => (kind === "tools" ? server.sendToolListChanged() : server.sendPromptListChanged())),
      );
    },
    updated: async (uri) => {
      handler.notify.resourceUpdated(uri);
      await Promise.allSettled(
        [...lasting].map(({ server, watches }) => watches(uri) && server.sendResourceUpdated({ uri })),
      );
    },
    hangUp: () => ctx.http?.closeSSE?.(),
  };
}

/** Runs a feature; questions that it asks become the result that asks for input. */
async function run(feature, ctx, args, server) {
  try {
    return await feature.run(io(ctx, server), args ?? {});
  } catch (error) {
    if (!(error instanceof Ask)) throw error;
    const requestState = await state.mint({ answers: error.answers, nonce: randomUUID() });
    return sdk.inputRequired({ inputRequests: error.questions, requestState });
  }
}

function build({ era }) {
  const server = new sdk.McpServer(features.INFO, {
    capabilities: features.CAPABILITIES,
    requestState: { verify: state.verify },
  });
  for (const tool of features.tools({ hidden: true })) {
    const { name, inputSchema, ...config } = features.listed(tool);
    server.registerTool(name, { ...config, inputSchema: sdk.fromJsonSchema(inputSchema) }, (args, ctx) =>
      run(tool, ctx, args, server),
    );
  }
  const watched = new Set();
  // Without a handshake the SDK keeps the books.
  server.watches = (uri) => era === "modern" || watched.has(uri);
  const on = (method, handle) => server.server.setRequestHandler(method, handle);
  on("tools/list", () => ({ tools: features.tools().map(features.listed) }));
  on("prompts/list", () => ({ prompts: features.prompts().map(features.listed) }));
  on("prompts/get", async ({ params }, ctx) => {
    const prompt = features.prompts().find(({ name }) => name === params.name);
    if (!prompt) throw new sdk.ProtocolError(sdk.ProtocolErrorCode.InvalidParams, `there is no ${params.name}`);
    const got = await run(prompt, ctx, params.arguments, server);
    return Array.isArray(got) ? { messages: got } : got;
  });
  on("resources/list", () => ({ resources: features.resources() }));
  on("resources/templates/list", () => ({ resourceTemplates: features.TEMPLATES }));
  on("resources/read", ({ params: { uri } }) => {
    const contents = features.read(uri);
    if (contents === undefined) throw new sdk.ResourceNotFoundError(uri);
    return { contents };
  });
  on("resources/subscribe", ({ params: { uri } }) => (watched.add(uri), {}));
  on("resources/unsubscribe", ({ params: { uri } }) => (watched.delete(uri), {}));
  on("completion/complete", ({ params }) => features.complete(params));
  return server;
}

const handler = sdk.createMcpHandler(build, { legacy: "reject" });
const sessionless = toNodeHandler(handler);

/** The sessionless revision only, as a handler of Node's HTTP server. */
export function modernOnly() {
  return sessionless;
}

/** Both eras on one endpoint: sessions for those who shake hands. */
export function dual() {
  const transports = new Map();
  return async (request, response, body) => {
    const inbound = sdk.classifyInboundRequest({
      httpMethod: request.method,
      protocolVersionHeader: request.headers["mcp-protocol-version"],
      mcpMethodHeader: request.headers["mcp-method"],
      body,
    });
    if (inbound.kind !== "legacy") return sessionless(request, response, body);
    const id = request.headers["mcp-session-id"];
    let transport = transports.get(id);
    if (id === undefined && sdk.isInitializeRequest(body)) {
      transport = await session(transports);
    } else if (transport === undefined) {
      const error = { code: -32001, message: "Session not found" };
      response.writeHead(id === undefined ? 400 : 404, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", error, id: null }));
      return;
    }
    await transport.handleRequest(request, response, body);
  };
}

async function session(transports) {
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new EventStore(),
    retryInterval: 500,
    onsessioninitialized: (id) => void transports.set(id, transport),
    onsessionclosed: (id) => void transports.delete(id),
  });
  await lastingServer({ era: "legacy" }).connect(transport);
  return transport;
}

function lastingServer(context) {
  const server = build(context);
  lasting.add(server);
  server.server.onclose = () => lasting.delete(server);
  return server;
}

export function stdio(legacy) {
  serveStdio(lastingServer, { legacy });
}
