// Version 2 of the SDK as the client, in the era that ERA names, in front of the fixture server:
// everything that a server and a client do together is the same whatever eras the two speak.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { text, until } from "./support.mjs";

const modern = process.env.ERA === "modern";
const UI = "io.modelcontextprotocol/ui";
const CLOCK = "ui://fixture/clock.html";
const WATCHED = "test://watched-resource";

const CAPABILITIES = {
  sampling: {},
  elicitation: { form: {} },
  roots: {},
  extensions: { [UI]: { mimeTypes: ["text/html;profile=mcp-app"] } },
};

let client;
const seen = { updated: [], logs: [], lists: [] };

before(async () => {
  const ready = new URL("/readyz", process.env.GATEWAY_URL);
  await until("the gateway is ready", async () => (await fetch(ready)).ok);
  client = new Client(
    { name: "eras", version: "1.0.0" },
    { capabilities: CAPABILITIES, versionNegotiation: { mode: modern ? { pin: "2026-07-28" } : "legacy" } },
  );
  client.setRequestHandler("elicitation/create", ({ params }) => ({
    action: "accept",
    content: Object.fromEntries(Object.keys(params.requestedSchema.properties).map((key) => [key, `my ${key}`])),
  }));
  client.setRequestHandler("sampling/createMessage", ({ params }) => ({
    role: "assistant",
    model: "a model",
    content: { type: "text", text: `re: ${params.messages[0].content.text}` },
  }));
  client.setRequestHandler("roots/list", () => ({ roots: [{ uri: "file:///home/me" }] }));
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => void seen.updated.push(params.uri));
  client.setNotificationHandler("notifications/message", ({ params }) => void seen.logs.push(params.data));
  client.setNotificationHandler("notifications/tools/list_changed", () => void seen.lists.push("tools"));
  await client.connect(new StreamableHTTPClientTransport(new URL(process.env.GATEWAY_URL)));
});
after(() => client.close());

const call = (name, args = {}, options) => client.callTool({ name, arguments: args }, options);

/** Hears of changes, as this era does it. */
async function watch() {
  if (modern) {
    const { honoredFilter } = await client.listen({ toolsListChanged: true, resourceSubscriptions: [WATCHED] });
    assert.deepEqual(honoredFilter, { toolsListChanged: true, resourceSubscriptions: [WATCHED] });
  } else {
    await client.subscribeResource({ uri: WATCHED });
  }
}

test("the era is the one that was asked for", () => {
  assert.equal(client.getProtocolEra(), process.env.ERA);
});

test("everything is listed, called, got and read", async () => {
  assert.ok((await client.listTools()).tools.some(({ name }) => name === "test_simple_text"));
  assert.equal(text(await call("test_simple_text")), "This is a simple text response for testing.");
  const { prompts } = await client.listPrompts();
  assert.ok(prompts.some(({ name }) => name === "test_simple_prompt"));
  const { messages } = await client.getPrompt({
    name: "test_prompt_with_arguments",
    arguments: { arg1: "one", arg2: "two" },
  });
  assert.match(messages[0].content.text, /arg1='one', arg2='two'/);
  const { resourceTemplates } = await client.listResourceTemplates();
  assert.equal(resourceTemplates[0].uriTemplate, "test://template/{id}/data");
  const { contents } = await client.readResource({ uri: "test://template/7/data" });
  assert.equal(JSON.parse(contents[0].text).id, "7");
  // The SDK makes the newer code of the older one.
  const missing = ({ code, data }) => code === -32602 && data.uri === "test://missing";
  await assert.rejects(client.readResource({ uri: "test://missing" }), missing);
  const failed = await call("test_error_handling");
  assert.equal(failed.isError, true);
});

test("progress is reported in order", async () => {
  const reports = [];
  await call("test_tool_with_progress", {}, { onprogress: ({ progress }) => void reports.push(progress) });
  assert.deepEqual(reports, [0, 50, 100]);
});

test("forms are filled in", async () => {
  const result = await call("test_elicitation", { message: "Who?" });
  assert.match(text(result), /"response":"my response"/);
});

test("one question follows another", async () => {
  assert.equal(text(await call("test_input_required_result_multi_round")), "my name likes my color");
});

test("models are asked", async () => {
  assert.equal(text(await call("test_sampling", { prompt: "Why?" })), "LLM response: re: Why?");
});

test("several questions are asked at once", async () => {
  const result = await call("test_input_required_result_multiple_inputs");
  assert.equal(text(result), "re: Generate a greeting my name, with 1 root(s)");
});

test("prompts ask, too", async () => {
  const { messages } = await client.getPrompt({ name: "test_input_required_result_prompt" });
  assert.equal(messages[0].content.text, "Use this context: my context");
});

test("arguments are completed", async () => {
  const { completion } = await client.complete({
    ref: { type: "ref/prompt", name: "test_prompt_with_arguments" },
    argument: { name: "arg1", value: "Par" },
  });
  assert.deepEqual(completion.values, ["Paris", "Park", "Party"]);
});

test("changes are heard of", async () => {
  await watch();
  await call("test_touch_resource", { uri: WATCHED });
  await until("the update has come", () => seen.updated.includes(WATCHED));
  await call("test_trigger_tool_change");
  await until("the list has changed", () => seen.lists.includes("tools"));
  const changed = async () => (await client.listTools()).tools.some(({ name }) => name === "test_added_tool");
  await until("the new tool is listed", changed);
});

test("an app is shown", async () => {
  const { tools } = await client.listTools();
  const tool = tools.find(({ name }) => name === "show_clock");
  assert.deepEqual(tool._meta, { ui: { resourceUri: CLOCK, visibility: ["model", "app"] } });
  const result = await call("show_clock");
  assert.deepEqual(result.structuredContent, { time: "12:00" });
  assert.equal(result._meta["fixture/app"], true);
  const { resources } = await client.listResources();
  const { mimeType, _meta } = resources.find(({ uri }) => uri === CLOCK);
  assert.equal(mimeType, "text/html;profile=mcp-app");
  assert.deepEqual(_meta.ui.csp, { connectDomains: ["https://time.example.com"] });
  const { contents } = await client.readResource({ uri: CLOCK });
  assert.match(contents[0].text, /^<!doctype html>/);
  assert.deepEqual(contents[0]._meta, { ui: { prefersBorder: true } });
});

test("the server knows what the client can do, and no more", async () => {
  const declared = JSON.parse(text(await call("test_declared")));
  assert.deepEqual(declared.extensions?.[UI], CAPABILITIES.extensions[UI]);
  assert.deepEqual(Object.keys(declared).sort(), Object.keys(CAPABILITIES).sort());
});
