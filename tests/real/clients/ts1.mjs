// Version 1 of the TypeScript SDK: `ts1.mjs URL`, or `ts1.mjs -- COMMAND ARGUMENT...` over stdio.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { ANSWER, serve } from "./lines.mjs";

const [first, ...rest] = process.argv.slice(2);
const transport =
  first === "--"
    ? new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env })
    : new StreamableHTTPClientTransport(new URL(first));
const capabilities = JSON.parse(process.env.CAPABILITIES ?? '{ "elicitation": { "form": {} } }');
const client = new Client({ name: "real-ts1", version: "1.0.0" }, { capabilities });
if (capabilities.elicitation) client.setRequestHandler(ElicitRequestSchema, () => ANSWER);
if (capabilities.roots) client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [] }));
await client.connect(transport);
await serve(client, (params, options) => client.callTool(params, undefined, options));
