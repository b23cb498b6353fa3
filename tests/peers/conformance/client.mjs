// The client under test: `node client.mjs URL`. It starts a gateway in front of the framework's
// server at URL and does through it what the scenario wants. FRONT is the era it speaks itself.

import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const PATIENCE = 15_000;

const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const modern = process.env.FRONT === "modern";

async function until(what, condition) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const found = await condition().catch(() => undefined);
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`waited without result until ${what}`);
    await pause(20);
  }
}

/** Runs `use` with the address of a gateway in front of `url`. */
async function withGateway(url, use) {
  const directory = await mkdtemp(join(tmpdir(), "conformance-"));
  const config = join(directory, "config.toml");
  await writeFile(
    config,
    `[gateway]\nlisten = "127.0.0.1:0"\ndata_dir = "data"\nfirst_list_wait = "30s"\n[servers.framework]\nurl = "${url}"\ntools = { prefix = "" }\n`,
  );
  const gateway = spawn(process.env.MCPVISOR, ["--config", config], { stdio: ["ignore", "ignore", "inherit"] });
  const ended = new Promise((resolve) => gateway.once("exit", resolve));
  try {
    const { listen } = await until("the gateway serves", async () =>
      JSON.parse(await readFile(join(directory, "data/run.json"), "utf8")),
    );
    await until("its server is there", async () => (await fetch(`http://${listen}/readyz`)).ok);
    await use(new URL(`http://${listen}/mcp`));
  } finally {
    gateway.kill();
    await ended;
    await rm(directory, { recursive: true });
  }
}

/** Scenarios in which the client is asked something. */
const ASKED = ["elicitation-sep1034-client-defaults", "sep-2322-client-request-state"];

async function connect(url) {
  const capabilities = ASKED.includes(scenario) ? { elicitation: { form: { applyDefaults: true } } } : {};
  const versionNegotiation = { mode: modern ? { pin: "2026-07-28" } : "legacy" };
  const client = new Client({ name: "conformance", version: "1.0.0" }, { capabilities, versionNegotiation });
  // Answers that the scenarios ask for; defaults are filled in by the SDK.
  const content = scenario === "sep-2322-client-request-state" ? { confirmed: true } : {};
  if (capabilities.elicitation) {
    client.setRequestHandler("elicitation/create", () => ({ action: "accept", content }));
  }
  await client.connect(new StreamableHTTPClientTransport(url));
  return client;
}

async function callEverything(client) {
  for (const { name } of (await client.listTools()).tools) {
    await client.callTool({ name, arguments: { a: 5, b: 3, region: "us-west1" } });
  }
}

const scenarios = {
  "http-custom-headers": async (client) => {
    await client.listTools();
    for (const call of context.toolCalls) await client.callTool(call);
  },
  "http-standard-headers": async (client) => {
    await callEverything(client);
    for (const { uri } of (await client.listResources()).resources) await client.readResource({ uri });
    for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name });
  },
  "json-schema-ref-no-deref": (client) => client.listTools(),
  "json-schema-2020-12-preservation": async (client) => {
    const { tools } = await client.listTools();
    const { inputSchema: schema } = tools.find(({ name }) => name === "json_schema_2020_12_tool");
    const echo = tools.find(({ name }) => name !== "json_schema_2020_12_tool");
    await client.callTool({ name: echo.name, arguments: { schema } });
  },
};

await withGateway(process.argv.at(-1), async (url) => {
  const client = await connect(url);
  await (scenarios[scenario] ?? callEverything)(client);
  await client.close();
});
