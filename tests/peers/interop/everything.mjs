// server-everything behind the gateway: the same as without it, but for the prefix of the names.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { all, connect, connectDirectly, leave, text, until } from "./support.mjs";

const PREFIX = `${process.env.SERVER}__`;

let client;
let direct;
before(async () => {
  if (process.env.TRANSPORT === "stdio") {
    // Its first gateway lists the servers for those after it.
    const first = await connect();
    await all(first, "tools");
    await leave(first);
  }
  // The gateway answers for roots itself, so its server offers what needs them to everybody.
  [client, direct] = await Promise.all([connect(), connectDirectly({ roots: {} })]);
});

const call = (name, args = {}, options) =>
  client.callTool({ name: PREFIX + name, arguments: args }, undefined, options);

test("every item is listed, unchanged but for its name", async () => {
  for (const kind of ["tools", "prompts", "resources", "resourceTemplates"]) {
    const renamed = kind === "tools" || kind === "prompts";
    const expected = (await all(direct, kind)).map((item) =>
      renamed ? { ...item, name: PREFIX + item.name } : item,
    );
    const byKey = (a, b) => (key(a) < key(b) ? -1 : 1);
    const key = (item) => item.uri ?? item.uriTemplate ?? item.name;
    assert.ok(expected.length > 0, kind);
    assert.deepEqual((await all(client, kind)).sort(byKey), expected.sort(byKey), kind);
  }
  assert.ok(client.getInstructions().includes(direct.getInstructions().slice(0, 100)));
});

test("results are what the server said", async () => {
  const table = [
    ["echo", { message: "hello" }],
    ["get-sum", { a: 1, b: 2 }],
    ["get-tiny-image"],
    ["get-annotated-message", { messageType: "error", includeImage: true }],
    ["get-structured-content", { location: "Chicago" }],
    ["get-resource-links", { count: 4 }],
  ];
  for (const [name, args] of table) {
    const expected = await direct.callTool({ name, arguments: args ?? {} });
    assert.deepEqual(await call(name, args), expected, name);
  }
  const structured = await call("get-structured-content", { location: "New York" });
  assert.equal(structured.structuredContent.conditions, "Cloudy");
});

test("the server's own errors pass", async () => {
  for (const client_ of [direct, client]) {
    const name = client_ === client ? `${PREFIX}get-sum` : "get-sum";
    const failed = await client_.callTool({ name, arguments: { a: "x", b: 1 } });
    assert.equal(failed.isError, true);
    assert.match(text(failed), /Invalid arguments/);
  }
});

test("resource links of a result can be read", async () => {
  const links = (await call("get-resource-links", { count: 3 })).content.filter(
    (part) => part.type === "resource_link",
  );
  assert.equal(links.length, 3);
  for (const link of links) {
    const { contents } = await client.readResource({ uri: link.uri });
    assert.equal(contents[0].uri, link.uri);
  }
  const [embedded] = (
    await call("get-resource-reference", { resourceType: "Text", resourceId: 7 })
  ).content.filter((part) => part.type === "resource");
  assert.match(embedded.resource.text, /^Resource 7/);
});

test("every listed resource can be read", async () => {
  for (const { uri } of await all(client, "resources")) {
    const [through, expected] = await Promise.all([
      client.readResource({ uri }),
      direct.readResource({ uri }),
    ]);
    assert.deepEqual(through, expected, uri);
  }
});

test("a long operation reports its progress", async () => {
  const seen = [];
  const result = await call(
    "trigger-long-running-operation",
    { duration: 1, steps: 5 },
    { onprogress: ({ progress, total }) => seen.push([progress, total]) },
  );
  assert.match(text(result), /completed/);
  // The SDK sends its answer without a look at whether its last report is out.
  assert.deepEqual(seen.slice(0, 4), [1, 2, 3, 4].map((step) => [step, 5]));
});

test("prompts take arguments and complete them, one with regard to another", async () => {
  const name = `${PREFIX}args-prompt`;
  const prompt = await client.getPrompt({ name, arguments: { city: "Oslo", state: "Norway" } });
  assert.equal(prompt.messages[0].content.text, "What's weather in Oslo, Norway?");
  const resource = await client.getPrompt({
    name: `${PREFIX}resource-prompt`,
    arguments: { resourceType: "Text", resourceId: "3" },
  });
  assert.equal(resource.messages[1].content.resource.uri, "demo://resource/dynamic/text/3");
  const completed = await client.complete({
    ref: { type: "ref/prompt", name: `${PREFIX}completable-prompt` },
    argument: { name: "name", value: "" },
    context: { arguments: { department: "Sales" } },
  });
  assert.deepEqual(completed.completion.values, ["David", "Eve", "Frank"]);
  const id = await client.complete({
    ref: { type: "ref/resource", uri: "demo://resource/dynamic/text/{resourceId}" },
    argument: { name: "resourceId", value: "12" },
  });
  assert.deepEqual(id.completion.values, ["12"]);
});

test("updates of a resource reach its subscriber only", async () => {
  const other = await connect();
  const uri = "demo://resource/dynamic/text/1";
  await client.subscribeResource({ uri });
  await call("toggle-subscriber-updates");
  await until("an update has come", () => client.seen.updated.includes(uri));
  await call("toggle-subscriber-updates");
  await client.unsubscribeResource({ uri });
  assert.deepEqual(other.seen.updated, []);
  await leave(other);
});
