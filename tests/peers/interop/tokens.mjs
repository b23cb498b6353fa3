// A client of the official SDK that gets its token from a real authorization server, which it finds
// through the gateway. The authorization server runs here; the gateway is configured with its address.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { ClientCredentialsProvider } from "@modelcontextprotocol/sdk/client/auth-extensions.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { exportJWK, generateKeyPair } from "jose";
import Provider from "oidc-provider";
import { until } from "./support.mjs";

const url = new URL(process.env.GATEWAY_URL);
const { ISSUER: issuer, TOKENS: format } = process.env;
const SECRETS = { ada: "ada-secret", eve: "eve-secret", gateway: "gateway-secret" };

/** The authorization server while it runs. */
let server;

async function key(alg, kid) {
  const { privateKey } = await generateKeyPair(alg, { extractable: true });
  return { ...(await exportJWK(privateKey)), alg, use: "sig", kid };
}

/** Starts it with keys of its own; all tokens that it gave out before are forgotten. */
async function start(name, accessTokenTTL = 600) {
  const keys = [await key("ES256", `${name}-es`), await key("RS256", `${name}-rs`)];
  const client = (client_id) => ({
    client_id,
    client_secret: SECRETS[client_id],
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
    scope: client_id === "eve" ? "other" : "mcp other",
  });
  const provider = new Provider(issuer, {
    jwks: { keys },
    clients: Object.keys(SECRETS).map(client),
    scopes: ["mcp", "other"],
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true, allowedPolicy: (_, client) => client.clientId === "gateway" },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, audience) => ({
          audience,
          scope: "mcp other",
          accessTokenTTL,
          accessTokenFormat: format,
          ...(format === "jwt" && { jwt: { sign: { alg: "ES256" } } }),
        }),
      },
    },
  });
  server = createServer(provider.callback());
  await new Promise((started) => server.listen(new URL(issuer).port, "127.0.0.1", started));
}

async function stop() {
  server.closeAllConnections();
  await new Promise((stopped) => server.close(stopped));
}

const basic = (id) => `Basic ${Buffer.from(`${id}:${SECRETS[id]}`).toString("base64")}`;

/** A token of this client, by hand. */
async function token(id, { scope = "mcp", resource = url.href } = {}) {
  const response = await fetch(`${issuer}/token`, {
    method: "POST",
    headers: { authorization: basic(id) },
    body: new URLSearchParams({ grant_type: "client_credentials", scope, resource }),
  });
  const answer = await response.json();
  assert.equal(response.status, 200, JSON.stringify(answer));
  return answer.access_token;
}

/** What the gateway answers to `initialize` with this token. */
async function initialize(token) {
  const response = await fetch(url, {
    method: "POST",
    headers: {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
    }),
  });
  await response.text();
  return response;
}

async function connect(id, secret = SECRETS[id]) {
  const authProvider = new ClientCredentialsProvider({
    clientId: id,
    clientSecret: secret,
    expectedIssuer: issuer,
    // This kind of client does not read it from the challenge.
    scope: "mcp",
  });
  const client = new Client({ name: "interop", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(url, { authProvider }));
  return client;
}

before(() => start("first"));
after(stop);

test("a client finds the authorization server and signs in by itself", async () => {
  const client = await connect("ada");
  const { tools } = await client.listTools();
  assert.ok(tools.length > 0);
  const result = await client.callTool({ name: "example__echo", arguments: { message: "hi" } });
  assert.equal(result.content[0].text, "hi");
  await client.transport.terminateSession();
  await client.close();
});

test("whoever the authorization server does not know is not served", async () => {
  await assert.rejects(connect("ada", "wrong"));
  const response = await initialize("nonsense");
  assert.equal(response.status, 401);
  assert.match(response.headers.get("www-authenticate"), /error="invalid_token".*scope="mcp"/);
});

test("a token for another resource is refused", async () => {
  const response = await initialize(await token("ada", { resource: "https://other.test/mcp" }));
  assert.equal(response.status, 401);
});

test("a token without the scope is told which it needs", async () => {
  const response = await initialize(await token("eve", { scope: "other" }));
  assert.equal(response.status, 403);
  assert.match(response.headers.get("www-authenticate"), /insufficient_scope.*scope="mcp"/);
});

test("an outage keeps who is known", async () => {
  const known = await token("ada");
  assert.equal((await initialize(known)).status, 200);
  const unknown = await token("ada");
  await stop();
  assert.equal((await initialize(known)).status, 200);
  // Signatures are checked with the keys that are known; nobody can be asked about other tokens.
  assert.equal((await initialize(unknown)).status, format === "jwt" ? 200 : 503);
  await start("second");
});

test("after a change of its keys clients sign in again", async () => {
  const answer = await until("the new token is good", async () => {
    const response = await initialize(await token("ada"));
    return response.status === 200 && response;
  });
  assert.ok(answer.headers.get("mcp-session-id"));
  const client = await connect("ada");
  assert.ok((await client.listTools()).tools.length > 0);
  await client.close();
});
