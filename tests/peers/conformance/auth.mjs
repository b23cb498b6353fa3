// The client of the scenarios about authorization: `node auth.mjs URL`. It starts a gateway in front
// of the framework's server at URL, signs in as a person with a browser would, and calls the tools.

import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const PATIENCE = 15_000;
/** The document that the framework knows the client by. */
const CLIENT_METADATA = "https://conformance-test.local/client-metadata.json";
/** Logins after which a person gives up. */
const LOGINS_MAX = 4;

const scenario = process.env.MCP_CONFORMANCE_SCENARIO;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");

async function until(what, condition) {
  const deadline = Date.now() + PATIENCE;
  for (;;) {
    const found = await condition().catch(() => undefined);
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`waited without result until ${what}`);
    await pause(20);
  }
}

/** What the operator of the gateway would have written for this server. */
async function oauthOf(directory) {
  const lines = [];
  if (context.private_key_pem) {
    await writeFile(join(directory, "key.pem"), context.private_key_pem);
    lines.push('client_key_file = "key.pem"');
  }
  if (scenario === "auth/basic-cimd") lines.push(`client_metadata_url = "${CLIENT_METADATA}"`);
  if (context.client_id) lines.push(`client_id = "${context.client_id}"`);
  if (context.client_secret) lines.push(`client_secret = "${context.client_secret}"`);
  if (scenario.startsWith("auth/client-credentials")) lines.push('grant = "client_credentials"');
  if (context.valid_jwt) {
    await writeFile(join(directory, "workload"), context.valid_jwt);
    lines.push('grant = "jwt_bearer"', 'token_file = "workload"');
  }
  if (context.idp_id_token) {
    lines.push('grant = "enterprise"', `idp_client_id = "${context.idp_client_id}"`);
    lines.push(`idp_token_url = "${context.idp_token_endpoint}"`);
  }
  return lines.length ? `[servers.framework.oauth]\n${lines.join("\n")}\n` : "";
}

/** Vouches for the ID token of the scenario: its identity provider publishes no keys. */
async function withWebhook(use) {
  if (!context.idp_id_token) return use("", "");
  const webhook = createServer((request, response) => {
    const isKnown = request.headers.authorization === `Bearer ${context.idp_id_token}`;
    response.writeHead(isKnown ? 200 : 401, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ sub: "demo-user@example.com" }));
  });
  await new Promise((resolve) => webhook.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${webhook.address().port}/`;
  await use(`[auth.webhook]\nurl = "${url}"\n`, 'credentials = "user"\n');
  webhook.close();
}

async function withGateway(url, auth, more, use) {
  const directory = await mkdtemp(join(tmpdir(), "conformance-"));
  const config = join(directory, "config.toml");
  await writeFile(
    config,
    `[gateway]\nlisten = "127.0.0.1:0"\ndata_dir = "data"\nfirst_list_wait = "30s"\n` +
      `[credentials]\nkey_file = "key"\n${auth}[servers.framework]\nurl = "${url}"\n` +
      `tools = { prefix = "" }\n${more}${await oauthOf(directory)}`,
  );
  const gateway = spawn(process.env.MCPVISOR, ["--config", config], { stdio: ["ignore", "ignore", "inherit"] });
  const ended = new Promise((resolve) => gateway.once("exit", resolve));
  try {
    const { listen } = await until("the gateway serves", async () =>
      JSON.parse(await readFile(join(directory, "data/run.json"), "utf8")),
    );
    const token = await until("it has a token", async () =>
      (await readFile(join(directory, "data/api-token"), "utf8")).trim(),
    );
    const api = (method, path) =>
      fetch(`http://${listen}${path}`, { method, redirect: "manual", headers: { "X-Session-Token": token } });
    await use(new URL(`http://${listen}/mcp`), api);
  } finally {
    gateway.kill();
    await ended;
    await rm(directory, { recursive: true });
  }
}

async function loginState(api) {
  const { logins } = await (await api("GET", "/api/logins")).json();
  return logins[0]?.state;
}

async function serverState(api) {
  return (await (await api("GET", "/api/servers/framework")).json()).state;
}

/** Opens the page, which agrees at once, and follows it back to the gateway. */
async function logIn(api) {
  const begun = await api("POST", "/api/servers/framework/login");
  const { url, error } = await begun.json();
  if (!url) throw new Error(`no login: ${error.message}`);
  const page = await fetch(url, { redirect: "manual" });
  const back = await fetch(page.headers.get("location"));
  const answer = await back.json();
  if (!answer.success) throw new Error(`not signed in: ${answer.errorDescription}`);
}

async function callEverything(endpoint) {
  const client = new Client({ name: "conformance", version: "1.0.0" });
  const token = context.idp_id_token;
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  await client.connect(new StreamableHTTPClientTransport(endpoint, { requestInit: { headers } }));
  let allowed = true;
  for (const { name } of (await client.listTools()).tools) {
    const result = await client.callTool({ name, arguments: {} });
    allowed &&= !result.isError;
  }
  await client.close();
  return allowed;
}

async function run(endpoint, api) {
  // The server shows nothing before a client has come with a token.
  if (context.idp_id_token) return callEverything(endpoint);
  for (let logins = 0; logins < LOGINS_MAX; logins++) {
    const next = await until("there are tools or a login is needed", async () => {
      if ((await loginState(api)) === "needs login") return "login";
      const { tools } = await (await api("GET", "/api/tools")).json();
      return tools.length > 0 && (await serverState(api)) === "up" && "call";
    });
    if (next === "call") {
      if (await callEverything(endpoint)) return;
      await until("a login is wanted", async () => (await loginState(api)) !== "signed in");
    }
    await logIn(api);
  }
}

await withWebhook((auth, more) => withGateway(process.argv.at(-1), auth, more, run));
