// Tasks of the official SDK and of a public server: passed on to clients of the same revision, and
// told in the words of the newer one to a client that speaks nothing else.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  CallToolResultSchema,
  ElicitRequestSchema,
  TaskStatusNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { connect, leave, text, toolNames, until } from "./support.mjs";

const RESEARCH = "stdio__simulate-research-query";
const EXTENSION = "io.modelcontextprotocol/tasks";
const REVISION = "2026-07-28";

/** A client that keeps what it hears of tasks, and clarifies what it is asked. */
async function person() {
  const heard = [];
  const client = await connect({
    capabilities: { elicitation: { form: {} } },
    prepare: (client) => {
      client.setNotificationHandler(TaskStatusNotificationSchema, ({ params }) => {
        heard.push(params);
      });
      client.setRequestHandler(ElicitRequestSchema, () => {
        return { action: "accept", content: { interpretation: "technical" } };
      });
    },
  });
  client.heard = heard;
  return client;
}

/** Calls a tool as a task and follows it to its end. */
async function followed(client, name, args) {
  const progress = [];
  const options = {
    task: { ttl: 60_000 },
    onprogress: (told) => progress.push(told.progress),
  };
  const params = { name, arguments: args };
  const stream = client.experimental.tasks.callToolStream(params, CallToolResultSchema, options);
  const seen = { progress, statuses: [] };
  for await (const message of stream) {
    if (message.type === "taskCreated") seen.id = message.task.taskId;
    if (message.type === "taskStatus") seen.statuses.push(message.task.status);
    if (message.type === "result") seen.result = message.result;
    assert.notEqual(message.type, "error", String(message.error));
  }
  return seen;
}

test("progress and status of a task reach the client whose task it is", async () => {
  const [client, other] = [await person(), await person()];
  await until("the tool is listed", async () => (await toolNames(client)).includes("tasking__work"));
  const [seen, others] = await Promise.all([
    followed(client, "tasking__work", { text: "a" }),
    followed(other, "tasking__work", { text: "b" }),
  ]);
  for (const [one, by] of [[seen, client], [others, other]]) {
    assert.match(one.id, /^gt1\./);
    assert.equal(text(one.result), "worked");
    assert.deepEqual(one.progress, [1, 2, 3]);
    await until("the end is told", () => by.heard.some(({ status }) => status === "completed"));
    assert.deepEqual([...new Set(by.heard.map(({ taskId }) => taskId))], [one.id]);
    const said = by.heard.map(({ statusMessage }) => statusMessage).filter(Boolean);
    assert.deepEqual(said.slice(0, 3), ["step 1", "step 2", "step 3"]);
  }
  assert.notEqual(seen.id, others.id);
  await Promise.all([leave(client), leave(other)]);
});

test("a task that asks is passed on, too", async () => {
  const client = await person();
  await client.callTool({ name: "stdio__echo", arguments: { message: "hello" } });
  await until("the tool is listed", async () => (await toolNames(client)).includes(RESEARCH));
  const seen = await followed(client, RESEARCH, { topic: "python", ambiguous: true });
  assert.match(text(seen.result), /python \(technical\)/);
  assert.ok(client.heard.some(({ status }) => status === "input_required"));
  assert.ok(client.heard.every(({ taskId }) => taskId === seen.id));
  await leave(client);
});

/** A request of a client of the newer revision. */
async function asked(id, method, params) {
  const meta = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": { name: "interop", version: "1.0.0" },
    "io.modelcontextprotocol/clientCapabilities": {
      elicitation: { form: {} },
      extensions: { [EXTENSION]: {} },
    },
  };
  const response = await fetch(process.env.GATEWAY_URL, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": REVISION,
      "Mcp-Method": method,
      "Mcp-Name": params.taskId ?? params.name,
    },
    body: JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } }),
  });
  // A call that takes long is answered on a stream.
  const text = await response.text();
  const answer = JSON.parse(text.startsWith("{") ? text : text.match(/^data: (\{.*"id".*)$/m)[1]);
  assert.equal(answer.error, undefined, JSON.stringify(answer.error));
  return answer.result;
}

async function get(taskId, status) {
  let task;
  await until(`the task is ${status}`, async () => {
    task = await asked(2, "tasks/get", { taskId });
    return task.status === status;
  });
  return task;
}

const research = (ambiguous) =>
  asked(1, "tools/call", { name: RESEARCH, arguments: { topic: "python", ambiguous } });

test("a newer client follows a task of an older server, and is asked in it", async () => {
  const created = await research(true);
  assert.equal(created.resultType, "task");
  assert.equal(created.status, "working");
  assert.equal(created.ttlMs, 300_000);
  const { taskId } = created;
  const required = await get(taskId, "input_required");
  const [[key, question]] = Object.entries(required.inputRequests);
  assert.equal(question.method, "elicitation/create");
  const inputResponses = { [key]: { action: "accept", content: { interpretation: "snake" } } };
  const updated = await asked(3, "tasks/update", { taskId, inputResponses });
  assert.equal(updated.resultType, "complete");
  const completed = await get(taskId, "completed");
  assert.equal(completed.taskId, taskId);
  assert.match(text(completed.result), /python \(snake\)/);
});

test("a newer client cancels a task of an older server", async () => {
  const { taskId } = await research(false);
  await asked(4, "tasks/cancel", { taskId });
  const cancelled = await get(taskId, "cancelled");
  assert.equal(cancelled.result, undefined);
});
