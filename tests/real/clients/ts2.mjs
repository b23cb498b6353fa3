// Version 2 of the TypeScript SDK: `ts2.mjs URL`.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { ANSWER, serve } from "./lines.mjs";

const client = new Client(
  { name: "real-ts2", version: "1.0.0" },
  { capabilities: { elicitation: { form: {} } } },
);
client.setRequestHandler("elicitation/create", () => ANSWER);
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
await serve(client, (params, options) => client.callTool(params, options));
