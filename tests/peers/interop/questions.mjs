// Servers that ask their clients in the middle of a call: sampling, elicitation, roots. Two
// clients are asked at the same time, over stdio, HTTP and HTTP+SSE, and each hears only its own.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { all, connect, leave, serverStatus, text, toolNames, until } from "./support.mjs";

const ROUNDS = 20;
const CAPABILITIES = {
  sampling: {},
  elicitation: { form: {} },
  roots: { listChanged: true },
};

/** A client that answers every question with its own name, and keeps what it was asked. */
async function person(name) {
  const asked = { sampling: [], elicitation: 0, roots: 0 };
  const client = await connect({
    capabilities: CAPABILITIES,
    prepare: (client) => {
      client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
        asked.sampling.push(params.messages[0].content.text);
        return {
          role: "assistant",
          model: name,
          content: { type: "text", text: `${name} thinks: ${params.messages[0].content.text}` },
        };
      });
      client.setRequestHandler(ElicitRequestSchema, () => {
        asked.elicitation += 1;
        return { action: "accept", content: { name, integer: asked.elicitation } };
      });
      client.setRequestHandler(ListRootsRequestSchema, () => {
        asked.roots += 1;
        return { roots: [{ uri: `file:///home/${name}`, name }] };
      });
    },
  });
  client.asked = asked;
  client.is = name;
  return client;
}

/** What a server offers to clients that can be asked is in the first list of such a client. */
async function introduce(client, prefix) {
  const names = await toolNames(client);
  for (const wanted of ["trigger-sampling-request", "trigger-elicitation-request", "get-roots-list"]) {
    assert.ok(names.includes(prefix + wanted), `${client.is} sees no ${prefix}${wanted} among ${names}`);
  }
}

async function round(client, prefix, number) {
  const prompt = `${client.is} in round ${number}`;
  const sampled = await client.callTool({
    name: `${prefix}trigger-sampling-request`,
    arguments: { prompt },
  });
  assert.equal(sampled.isError ?? false, false, text(sampled));
  assert.match(text(sampled), new RegExp(`${client.is} thinks: [^"]*${prompt}"`));
  const elicited = await client.callTool({ name: `${prefix}trigger-elicitation-request`, arguments: {} });
  assert.equal(elicited.isError ?? false, false, text(elicited));
  assert.match(text(elicited), new RegExp(`- Name: ${client.is}\\n`));
}

/** The connections besides the shared one that two clients have, and one that cannot be asked. */
const OWN_CONNECTIONS = {
  // The server lists less to the one without capabilities.
  stdio: ["session", "session", "without"],
  // Its sessions are those of the clients, and the first list read that of their audience.
  http: ["profile", "session", "session", "session"],
  // Each client has its session, the one that cannot be asked as well.
  sse: ["session", "session", "session"],
};

for (const server of ["stdio", "http", "sse"]) {
  const prefix = `${server}__`;
  // Where the transport does not tell whose call a question belongs to.
  const ownConnections = server !== "http";

  test(`over ${server}, two clients are asked at once, each its own`, { timeout: 120_000 }, async () => {
    const plain = await connect();
    const plainTools = await toolNames(plain);
    assert.ok(!plainTools.includes(`${prefix}trigger-sampling-request`));
    const people = await Promise.all(["anna", "boris"].map(person));
    await introduce(people[0], prefix);
    if (server === "stdio") {
      // Her first list opened a connection to each server. Over stdio and HTTP+SSE these ask for
      // roots, so that from then on clients share no connection there.
      await until("anna is asked for her roots", () => people[0].asked.roots === 2);
    }
    await introduce(people[1], prefix);
    const rounds = Array.from({ length: ROUNDS }, (_, number) => number);
    const everybody = people.map((client) =>
      Promise.all(rounds.map((number) => round(client, prefix, number))),
    );
    await Promise.all(everybody);
    for (const client of people) {
      assert.equal(client.asked.elicitation, ROUNDS, client.is);
      assert.equal(client.asked.sampling.length, ROUNDS, client.is);
      assert.ok(client.asked.sampling.every((text) => text.includes(client.is)), client.is);
    }
    // One that cannot be asked stays where it was, and its list never changed.
    await plain.callTool({ name: `${prefix}echo`, arguments: { message: "still here" } });
    assert.deepEqual(await toolNames(plain), plainTools);
    // Over HTTP+SSE it has a session of its own, in which the server announces the tools that it adds
    // after the handshake.
    if (server !== "sse") {
      assert.deepEqual(plain.seen.lists, []);
    }
    const own = serverStatus(server).connection.own.map((entry) => entry.owner.split(" ")[0]);
    assert.deepEqual(own.sort(), OWN_CONNECTIONS[server]);
    await Promise.all([...people, plain].map(leave));
    if (ownConnections) {
      const stays = ({ owner }) => owner === "without capabilities";
      await until("their connections are gone", () => serverStatus(server).connection.own.every(stays));
    }
  });

  test(`over ${server}, roots are those of the client`, async () => {
    const people = await Promise.all(["carla", "dmitri"].map(person));
    await Promise.all(people.map((client) => introduce(client, prefix)));
    const ask = async (client) =>
      text(await client.callTool({ name: `${prefix}get-roots-list`, arguments: {} }));
    if (ownConnections) {
      for (const client of people) {
        await until(`${client.is} sees its roots`, async () => (await ask(client)).includes(`file:///home/${client.is}`));
        assert.ok(client.asked.roots > 0, client.is);
      }
      assert.ok(!(await ask(people[0])).includes("dmitri"));
    } else {
      // Clients with the same capabilities share this connection: its roots are the configured.
      assert.match(await ask(people[0]), /no roots|Current MCP Roots/);
    }
    await Promise.all(people.map(leave));
  });
}

test("the example server's question is answered, declined and refused", async () => {
  const answers = [
    [{ action: "accept", content: { answer: "42" } }, /answered: 42/],
    [{ action: "decline" }, /chose: decline/],
    [{ action: "cancel" }, /chose: cancel/],
  ];
  for (const [answer, expected] of answers) {
    const client = await connect({
      capabilities: { elicitation: { form: {} } },
      prepare: (client) => client.setRequestHandler(ElicitRequestSchema, () => answer),
    });
    const result = await client.callTool({ name: "example__ask", arguments: { question: "?" } });
    assert.match(text(result), expected);
    await leave(client);
  }
  const plain = await connect();
  const result = await plain.callTool({ name: "example__ask", arguments: {} });
  assert.equal(result.isError, true);
  assert.match(text(result), /did not declare `?elicitation/);
  await leave(plain);
});

test("a resource that several servers have is read from each by its own address", async () => {
  const client = await connect();
  const uris = (await all(client, "resources")).map((resource) => resource.uri);
  assert.equal(new Set(uris).size, uris.length);
  for (const server of ["stdio", "http", "sse"]) {
    const result = await client.callTool({ name: `${server}__get-resource-links`, arguments: { count: 2 } });
    for (const link of result.content.filter((part) => part.type === "resource_link")) {
      const { contents } = await client.readResource({ uri: link.uri });
      assert.equal(contents[0].uri, link.uri);
    }
  }
  for (const uri of uris) {
    const { contents } = await client.readResource({ uri });
    assert.equal(contents[0].uri, uri);
  }
  await leave(client);
});
