// The gateway signs in to a server at a real authorization server, and keeps its token good: what
// can be renewed costs no call.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { Authority, Resource, browse } from "./authority.mjs";
import { connect, leave, serverStatus, text, until } from "./support.mjs";

const { ISSUER, RESOURCE, MCPVISOR, GATEWAY_CONFIG } = process.env;

let authority;
let resource;
let client;
/** Processes of the command line. */
const commands = [];
/** Calls that were made. */
let called = 0;

before(async () => {
  authority = await Authority.start(ISSUER, RESOURCE);
  resource = await Resource.start(RESOURCE, authority);
});

after(() => {
  for (const command of commands) command.kill();
  for (const { server } of [resource, authority]) {
    server.closeAllConnections();
    server.close();
  }
});

/** `mcpvisor auth …`: what it has said so far, and how it ends. */
function auth(...args) {
  const command = spawn(MCPVISOR, ["--config", GATEWAY_CONFIG, "auth", ...args]);
  commands.push(command);
  const run = { said: "" };
  for (const output of [command.stdout, command.stderr]) {
    output.on("data", (part) => (run.said += part));
  }
  run.status = new Promise((ended) => command.on("close", ended));
  run.status.then(() => (run.ended = true));
  return run;
}

/** Signs in as a person does whom the command line shows a page. */
async function signIn() {
  await until("a login is needed", () => /auth login/.test(serverStatus("docs").reason));
  const login = auth("login", "docs", "--no-browser");
  const shown = () => login.ended || /https?:\/\/\S+/.exec(login.said)?.[0];
  const page = await until("a page is shown", shown);
  assert.ok(!login.ended, login.said);
  const end = await browse(page);
  assert.equal(end.status, 200, await end.text());
  assert.equal(await login.status, 0, login.said);
  await until("the server is up", () => serverStatus("docs").state === "up");
}

function call() {
  const n = called;
  called += 1;
  return client.callTool({ name: "docs__count", arguments: { n } });
}

/** As many calls at once; each is answered. */
async function callAtOnce(count) {
  const from = called;
  const results = await Promise.all(Array.from({ length: count }, call));
  assert.deepEqual(
    results.map((result) => text(result)),
    results.map((_, at) => `counted ${from + at}`),
  );
}

/** Every call ran, and none of them twice. */
function assertCounted() {
  const counted = [...resource.counted].sort((one, other) => one - other);
  assert.deepEqual(counted, Array.from({ length: called }, (_, n) => n));
}

test("a person signs the gateway in, and calls work", async () => {
  await signIn();
  client = await connect();
  await callAtOnce(8);
  assertCounted();
  assert.equal(authority.registered, 1);
});

test("a token that the server takes no more is renewed once for all calls that wait", async () => {
  for (let round = 1; round <= 3; round += 1) {
    resource.refuseTokens();
    await callAtOnce(8);
    assert.equal(authority.refreshed, round);
  }
  assertCounted();
});

for (const outage of [503, "reset"]) {
  test(`an outage while calls wait for a token costs none (${outage})`, async () => {
    const refreshed = authority.refreshed;
    resource.refuseTokens();
    const ended = authority.away(outage, () =>
      until("it was asked again and again", () => authority.failed >= 3),
    );
    await Promise.all([callAtOnce(8), ended]);
    assert.equal(authority.refreshed, refreshed + 1);
    assertCounted();
  });
}

test("tokens are renewed ahead of their end, through an outage, and refresh tokens are rotated", async () => {
  // With the next renewal tokens hold for seconds only.
  authority.lifetime = 4;
  resource.refuseTokens();
  await callAtOnce(1);
  const { refreshed } = authority;
  const calling = (what, condition) =>
    until(what, async () => {
      await callAtOnce(4);
      return condition();
    });
  await calling("three renewals", () => authority.refreshed >= refreshed + 3);
  // The token that is there is good for a while.
  await authority.away(503, () => calling("a renewal failed", () => authority.failed > 0));
  const later = authority.refreshed;
  await calling("a renewal after it", () => authority.refreshed > later);
  assertCounted();
  // One that comes twice would end the sign-in.
  assert.equal(authority.ended, 0);
  assert.equal(authority.registered, 1);
});

/** A call that does not run says who can help. */
async function assertLoginNeeded() {
  const refused = await client.callTool({ name: "docs__count", arguments: { n: -1 } });
  assert.ok(refused.isError && /mcpvisor auth login docs/.test(text(refused)), text(refused));
}

test("a sign-in that ended needs another, and no other registration", async () => {
  authority.lifetime = 3600;
  // Afterwards no renewal is under way, whose token the server could not know to refuse.
  resource.refuseTokens();
  await callAtOnce(1);
  await authority.endSignIn();
  resource.refuseTokens();
  await assertLoginNeeded();
  await signIn();
  await callAtOnce(8);
  assertCounted();
  assert.equal(authority.registered, 1);
});

test("a logout takes the tokens back, and forgets all", async () => {
  const logout = auth("logout", "docs");
  assert.equal(await logout.status, 0, logout.said);
  await until("the tokens are taken back", () => authority.ended > 0);
  await assertLoginNeeded();
  await signIn();
  await callAtOnce(8);
  assertCounted();
  assert.equal(authority.registered, 2);
  await leave(client);
});
