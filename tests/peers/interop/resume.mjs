// The official SDK loses its streams in the middle and goes on where it stopped.

import assert from "node:assert/strict";
import { test } from "node:test";
import { connect, leave, text, toolNames, until } from "./support.mjs";

/**
 * A fetch whose event streams can be cut. Every stream is kept with its request; `cut` ends one
 * as a broken network does. `opened` are the statuses that GETs were answered with.
 */
function breakable() {
  const streams = [];
  const opened = [];
  const breakableFetch = async (url, init) => {
    const response = await fetch(url, init);
    if ((init.method ?? "GET") === "GET") opened.push(response.status);
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
    const lastEventId = new Headers(init.headers).get("last-event-id");
    const stream = { method: init.method ?? "GET", lastEventId };
    const { readable, writable } = new TransformStream({
      start: (controller) => {
        stream.cut = () => {
          controller.error(new Error("the network broke"));
          stop.abort();
        };
      },
    });
    const stop = new AbortController();
    response.body.pipeTo(writable, { signal: stop.signal }).catch(() => {});
    streams.push(stream);
    return new Response(readable, { status: response.status, headers: response.headers });
  };
  return { streams, opened, fetch: breakableFetch };
}

test("a call whose stream broke is answered on the resumed one, and nothing is missing", async () => {
  const network = breakable();
  const client = await connect({ fetch: network.fetch });
  const seen = [];
  const onprogress = ({ progress }) => {
    seen.push(progress);
    if (progress === 3 || progress === 9) network.streams.at(-1).cut();
  };
  await until("the general stream is open", () => network.streams.length === 1);
  const result = await client.callTool(
    { name: "example__slow", arguments: { steps: 20, delay_ms: 50 } },
    undefined,
    { onprogress },
  );
  assert.equal(text(result), "done after 20 steps");
  assert.deepEqual(seen, Array.from({ length: 20 }, (_, index) => index + 1));
  const resumed = network.streams.filter((stream) => stream.lastEventId !== null);
  assert.equal(resumed.length, 2);
  await leave(client);
});

test("what happened while the general stream was away is told when it is back", async () => {
  const network = breakable();
  const client = await connect({ fetch: network.fetch });
  await until("the general stream is open", () => network.streams.length === 1);
  network.streams[0].cut();
  await client.callTool({ name: "example__add_tool", arguments: { name: "meanwhile" } });
  await until("it is back", () => network.streams.some((stream) => stream.method === "GET" && stream.lastEventId));
  await until("the change is told", () => client.seen.lists.includes("tools"));
  await until("it is listed", async () => (await toolNames(client)).includes("example__meanwhile"));
  await client.callTool({ name: "example__remove_tool", arguments: { name: "meanwhile" } });
  await until("it is gone", async () => !(await toolNames(client)).includes("example__meanwhile"));
  await leave(client);
});

test("a client that comes back for a call without a result is told that nothing follows", async () => {
  const network = breakable();
  const client = await connect({ fetch: network.fetch });
  await until("the general stream is open", () => network.opened.length === 1);
  const abort = new AbortController();
  const slow = { name: "example__slow", arguments: { steps: 600, delay_ms: 100 } };
  const options = { onprogress: () => abort.abort("enough"), signal: abort.signal };
  await assert.rejects(client.callTool(slow, undefined, options));
  // The SDK resumes every stream that ended without a result.
  await until("it came back", () => network.opened.length === 2);
  assert.deepEqual(network.opened, [200, 204]);
  // Nor did that open a second general stream: there is one, and it tells things once.
  await client.callTool({ name: "example__add_tool", arguments: { name: "once" } });
  await until("the change is told", () => client.seen.lists.includes("tools"));
  await client.callTool({ name: "example__remove_tool", arguments: { name: "once" } });
  await until("this one, too", () => client.seen.lists.length === 2);
  assert.deepEqual(network.opened, [200, 204]);
  await leave(client);
});
