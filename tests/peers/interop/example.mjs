// The official SDK as a client of the gateway, in front of the built-in example server.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { connect, all, leave, serverStatus, status, text, toolNames, until } from "./support.mjs";

const TOOLS = [
  "add", "add_tool", "ask", "big", "crash", "echo", "flood", "log", "remove_tool", "slow", "touch",
].map((name) => `example__${name}`);

let client;
before(async () => {
  client = await connect();
});

const call = (name, args = {}, options) =>
  client.callTool({ name: `example__${name}`, arguments: args }, undefined, options);

test("the handshake tells who answers and what it can do", () => {
  assert.equal(client.getServerVersion().name, "mcpvisor");
  assert.equal(client.transport.protocolVersion, "2025-11-25");
  assert.match(client.transport.sessionId, /^[\x21-\x7e]+$/);
  const capabilities = client.getServerCapabilities();
  for (const capability of ["tools", "prompts", "resources", "completions", "logging"]) {
    assert.ok(capabilities[capability], capability);
  }
  assert.equal(capabilities.tools.listChanged, true);
  assert.equal(capabilities.resources.subscribe, true);
});

test("lists come in pages", async () => {
  const first = await client.listTools();
  assert.equal(first.tools.length, 4);
  assert.ok(first.nextCursor);
  assert.deepEqual(await toolNames(client), TOOLS);
  await assert.rejects(client.listTools({ cursor: "no such cursor" }), { code: -32602 });
});

test("a tool is called and its structured result is valid", async () => {
  assert.equal(text(await call("echo", { message: "grüße 🦀" })), "grüße 🦀");
  await all(client, "tools"); // The SDK checks results against the schemas of the list.
  assert.deepEqual((await call("add", { a: 2, b: 40 })).structuredContent, { sum: 42 });
});

test("sixty calls at once each get their own answer", async () => {
  const words = Array.from({ length: 60 }, (_, number) => `word ${number}`);
  const answers = await Promise.all(words.map((message) => call("echo", { message })));
  assert.deepEqual(answers.map(text), words);
});

test("a result of one mebibyte passes", async () => {
  assert.equal(text(await call("big", { bytes: 1024 * 1024 })).length, 1024 * 1024);
});

test("what does not exist is an error that says so", async () => {
  await assert.rejects(call("missing"), { code: -32602 });
  await assert.rejects(client.getPrompt({ name: "missing" }), { code: -32602 });
  await assert.rejects(client.readResource({ uri: "example://missing" }), { code: -32002 });
  const failed = await call("add", { a: 1, b: "not a number" });
  assert.equal(failed.isError, true);
});

test("progress reaches the caller in order", async () => {
  const seen = [];
  const onprogress = (progress) => seen.push(progress);
  const result = await call("slow", { steps: 5, delay_ms: 20 }, { onprogress });
  assert.equal(text(result), "done after 5 steps");
  assert.deepEqual(seen.map((step) => [step.progress, step.total]), [1, 2, 3, 4, 5].map((step) => [step, 5]));
  assert.equal(seen[0].message, "step 1 of 5");
});

test("progress keeps a call alive that is longer than its timeout", async () => {
  const options = { onprogress: () => {}, timeout: 1500, resetTimeoutOnProgress: true };
  const result = await call("slow", { steps: 12, delay_ms: 200 }, options);
  assert.equal(text(result), "done after 12 steps");
});

test("a call that is aborted is taken back at the server", async () => {
  const before_ = status().counters.calls_cancelled;
  const abort = new AbortController();
  const onprogress = () => abort.abort("enough");
  const options = { onprogress, signal: abort.signal };
  await assert.rejects(call("slow", { steps: 600, delay_ms: 100 }, options));
  await until("the call is gone", () => serverStatus("example").connection.in_flight === 0);
  assert.equal(status().counters.calls_cancelled, before_ + 1);
});

test("prompts are listed, filled in and completed", async () => {
  const names = (await all(client, "prompts")).map((prompt) => prompt.name).sort();
  assert.deepEqual(names, ["example__about", "example__greeting", "example__review"]);
  const prompt = await client.getPrompt({
    name: "example__greeting",
    arguments: { name: "Ada", style: "pirate" },
  });
  assert.equal(prompt.messages[0].content.text, "Write a pirate greeting for Ada.");
  const completed = await client.complete({
    ref: { type: "ref/prompt", name: "example__greeting" },
    argument: { name: "style", value: "p" },
  });
  assert.deepEqual(completed.completion.values, ["pirate"]);
});

test("resources and templates are listed, read and completed", async () => {
  const uris = (await all(client, "resources")).map((resource) => resource.uri).sort();
  assert.deepEqual(uris, ["example://about", "example://counter", "example://dot.png"]);
  const dot = await client.readResource({ uri: "example://dot.png" });
  assert.ok(Buffer.from(dot.contents[0].blob, "base64").subarray(1, 4).equals(Buffer.from("PNG")));
  const [template] = await all(client, "resourceTemplates");
  assert.equal(template.uriTemplate, "example://greeting/{name}");
  const read = await client.readResource({ uri: "example://greeting/Grace" });
  assert.equal(read.contents[0].text, "Hello, Grace!");
  const completed = await client.complete({
    ref: { type: "ref/resource", uri: template.uriTemplate },
    argument: { name: "name", value: "g" },
  });
  assert.deepEqual(completed.completion.values, ["Grace"]);
});

test("a subscriber is told of changes, one who left is not", async () => {
  const uri = "example://counter";
  await client.subscribeResource({ uri });
  await call("touch");
  await until("the change is told", () => client.seen.updated.length > 0);
  assert.deepEqual(client.seen.updated, [uri]);
  await client.unsubscribeResource({ uri });
  await call("touch");
  // Whatever the server sent before this answer has been passed on before it.
  await call("echo", { message: "after" });
  assert.equal(client.seen.updated.length, 1);
});

test("log messages come at the level that was asked for", async () => {
  await client.setLoggingLevel("warning");
  await call("log", { message: "too quiet", level: "info" });
  await call("log", { message: "loud enough", level: "error" });
  await until("the message has come", () => client.seen.logs.length > 0);
  assert.deepEqual(client.seen.logs.map((log) => [log.level, log.data]), [["error", "loud enough"]]);
});

test("a new tool appears by itself", async () => {
  await call("add_tool", { name: "fresh" });
  await until("the change is told", () => client.seen.lists.includes("tools"));
  await until("it is listed", async () => (await toolNames(client)).includes("example__fresh"));
  assert.match(text(await call("fresh", { any: 1 })), /fresh was called/);
  await call("remove_tool", { name: "fresh" });
  await until("it is gone", async () => !(await toolNames(client)).includes("example__fresh"));
});

test("both sides answer a ping", async () => {
  assert.deepEqual(await client.ping(), {});
});

test("a server that crashes is an answer to its caller, and comes back", async () => {
  const session = client.transport.sessionId;
  const generation = serverStatus("example").connection.shared.generation;
  const started = performance.now();
  const crashed = await call("crash");
  const took = performance.now() - started;
  assert.equal(crashed.isError, true);
  const error = crashed._meta["io.mcpvisor/error"];
  assert.deepEqual([error.code, error.server], ["server_lost", "example"]);
  await until("it is back", async () => text(await call("echo", { message: "back" })) === "back");
  assert.equal(client.transport.sessionId, session);
  assert.equal(serverStatus("example").connection.shared.generation, generation + 1);
  assert.deepEqual(await toolNames(client), TOOLS);
  console.log(`crash told after ${took.toFixed(1)} ms`);
});

test("a session that was ended is gone, and another can be had", async () => {
  const other = await connect();
  const session = other.transport.sessionId;
  await other.transport.terminateSession();
  const answer = await fetch(process.env.GATEWAY_URL, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-session-id": session,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" }),
  });
  assert.equal(answer.status, 404);
  assert.equal((await answer.json()).error.data.code, "session_not_found");
  await other.close();
  await leave(await connect());
});
