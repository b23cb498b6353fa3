// Servers are killed in the middle; their clients' sessions go on.

import assert from "node:assert/strict";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { connect, everything, leave, serverStatus, text, toolNames, until } from "./support.mjs";

/** Ids of the server processes that run, oldest first. Each made a file of its name. */
function processes() {
  const directory = process.env.PIDS;
  const age = (name) => statSync(join(directory, name)).mtimeMs;
  return readdirSync(directory)
    .filter((name) => {
      try {
        process.kill(Number(name), 0);
        return true;
      } catch {
        return false;
      }
    })
    .sort((a, b) => age(a) - age(b))
    .map(Number);
}

const echo = async (client, prefix) => {
  const result = await client.callTool({ name: `${prefix}echo`, arguments: { message: "hi" } });
  return result.isError ? undefined : text(result);
};

test("kill -9 of a stdio server: the call fails at once, the session goes on", async () => {
  const client = await connect();
  const session = client.transport.sessionId;
  await until("the server is listed", async () => (await toolNames(client)).includes("stdio__echo"));
  const tools = await toolNames(client);
  client.seen.lists.length = 0;
  const uri = "demo://resource/dynamic/text/1";
  await client.subscribeResource({ uri });
  // The server lists less to a client without capabilities, which therefore has another process.
  const connection = () =>
    serverStatus("stdio").connection.own.find(({ owner }) => owner === "without capabilities").connection;
  const { generation } = connection();
  const onprogress = () => {
    started ??= performance.now();
    if (pids.length > 0) process.kill(pids.pop(), "SIGKILL");
  };
  let started;
  const pids = processes().slice(1);
  assert.equal(pids.length, 1);
  const lost = await client.callTool(
    { name: "stdio__trigger-long-running-operation", arguments: { duration: 60, steps: 600 } },
    undefined,
    { onprogress },
  );
  const took = performance.now() - started;
  assert.equal(lost.isError, true);
  assert.equal(lost._meta["io.mcpvisor/error"].code, "server_lost");
  assert.ok(took < 5000, `told after ${took} ms`);
  // Lists are there all the time, also while the server is not.
  assert.deepEqual(await toolNames(client), tools);
  await until("it is back", async () => (await echo(client, "stdio__"))?.includes("hi"));
  assert.equal(client.transport.sessionId, session);
  assert.equal(connection().generation, generation + 1);
  // The new process knows of the subscription, and of no change in the lists.
  await client.callTool({ name: "stdio__toggle-subscriber-updates", arguments: {} });
  await until("an update has come", () => client.seen.updated.includes(uri));
  assert.deepEqual(client.seen.lists, []);
  console.log(`loss told ${took.toFixed(1)} ms after the progress report that led to the kill`);
  await leave(client);
});

test("kill -9 of a client's own connection: its questions work again", async () => {
  const client = await connect({
    capabilities: { elicitation: { form: {} } },
    prepare: (client) =>
      client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: { name: "eva" } })),
  });
  await echo(client, "stdio__");
  const ask = { name: "stdio__trigger-elicitation-request", arguments: {} };
  await until("it can be asked", async () => (await toolNames(client)).includes(ask.name));
  assert.match(text(await client.callTool(ask)), /- Name: eva/);
  const own = processes();
  assert.equal(own.length, 3);
  process.kill(own[2], "SIGKILL");
  await until("it can be asked again", async () => text(await client.callTool(ask)).includes("- Name: eva"));
  assert.equal(processes()[0], own[0]);
  await leave(client);
});

test("an HTTP server that was restarted, and forgot its sessions, is used on", { timeout: 120_000 }, async () => {
  const port = process.env.HTTP_PORT;
  const start = () =>
    spawn(process.execPath, [everything, "streamableHttp"], {
      env: { ...process.env, PORT: port },
      stdio: "ignore",
    });
  let server = start();
  const exited = () => new Promise((gone) => server.once("exit", gone));
  try {
    const client = await connect();
    await until("it is there", async () => {
      const names = await toolNames(client);
      return names.includes("http__echo") && (await echo(client, "http__"));
    });
    const session = client.transport.sessionId;
    for (let times = 0; times < 3; times += 1) {
      const gone = exited();
      server.kill("SIGKILL");
      await gone;
      const away = await client.callTool({ name: "http__echo", arguments: { message: "?" } });
      assert.equal(away.isError, true);
      assert.equal(away._meta["io.mcpvisor/error"].server, "http");
      server = start();
      await until("it is back", () => echo(client, "http__"));
    }
    // Restarted so fast that nobody called in between.
    const gone = exited();
    server.kill("SIGKILL");
    await gone;
    server = start();
    await until("it is back", () => echo(client, "http__"));
    assert.equal(client.transport.sessionId, session);
    await leave(client);
  } finally {
    server.kill("SIGKILL");
  }
});
