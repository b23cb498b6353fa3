// The dashboard of a gateway with many servers, sessions and calls, beside that of an empty one. It
// prints how soon each page shows and what an open one costs, and fails where a list is not whole
// or a page not short. SCALE=1 takes a thousand servers, ten thousand sessions and a million calls.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";

import { BROWSERS } from "./browsers.mjs";
import { endProcess } from "./end-process.mjs";
import { freePort } from "./free-port.mjs";

const MCPVISOR = process.env.MCPVISOR;
const IS_LARGE = process.env.SCALE === "1";
const SERVERS = IS_LARGE ? 1000 : 200;
const SESSIONS = IS_LARGE ? 10_000 : 200;
const CALLS = IS_LARGE ? 1_000_000 : 20_000;
const TOOLS_OF_EACH = 5;
/** The last of the servers, which fail. */
const BROKEN = 3;
/** Rows on one page of a list, and of any list. */
const PAGE_ROWS = 50;
const ROWS_MAX = 200;
/** Messages in one array, as many as the gateway takes. */
const BATCH = 64;
const WRITERS = 8;
/** How often each page is opened. */
const ROUNDS = 3;
/** How long the cost of an open page is measured, in seconds. */
const COST_SECONDS = IS_LARGE ? 10 : 2;
const WAIT_MS = 60_000;
const PAGES = [
  "/ui", "/ui/servers", "/ui/tree", "/ui/sessions", "/ui/calls", "/ui/tools", "/ui/logs", "/ui/config",
];
const LIVE_PAGES = ["/ui", "/ui/servers", "/ui/tree", "/ui/sessions", "/ui/calls"];

const directory = fs.mkdtempSync(path.join(os.tmpdir(), "mcpvisor-scale-"));
const agent = new http.Agent({ keepAlive: true, maxSockets: WRITERS });
const gateways = [];
let browser;

function nameOf(number) {
  return `s${String(number).padStart(4, "0")}`;
}

/** A process that is many servers, each at a path of its own. */
function startServers() {
  const tools = Array.from({ length: TOOLS_OF_EACH }, (_, index) => ({
    name: `tool${index}`,
    description: `Does thing ${index}, and says so in a sentence that is as long as others.`,
    inputSchema: { type: "object", properties: { text: { type: "string" } } },
  }));
  const results = {
    initialize: {
      protocolVersion: "2025-11-25",
      capabilities: { tools: {} },
      serverInfo: { name: "many", version: "1" },
    },
    ping: {},
    "tools/list": { tools },
    "tools/call": { content: [{ type: "text", text: "done" }] },
  };
  const server = http.createServer((request, response) => {
    if (request.method !== "POST") return response.writeHead(405).end();
    if (request.url === "/broken") return response.writeHead(500).end();
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      const { id, method } = JSON.parse(body);
      if (id === undefined) return response.writeHead(202).end();
      const result = results[method];
      const error = { code: -32601, message: "unknown method" };
      const answer = { jsonrpc: "2.0", id, ...(result ? { result } : { error }) };
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
    });
    return undefined;
  });
  server.keepAliveTimeout = 0;
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve(server.address().port));
  });
}

async function startGateway(name, servers) {
  const home = path.join(directory, name);
  fs.mkdirSync(home);
  const config = path.join(home, "config.toml");
  const port = await freePort();
  fs.writeFileSync(
    config,
    `[gateway]
listen = "127.0.0.1:${port}"
data_dir = "${home}/data"
[sessions]
peer_share = 100
[history]
file = true
queue = "256MiB"
max_bytes = "4GiB"
${servers}`,
  );
  const log = fs.openSync(path.join(home, "log"), "a");
  const env = { ...process.env };
  delete env.MCPVISOR_LISTEN;
  const process_ = spawn(MCPVISOR, ["--config", config, "serve"], { stdio: ["ignore", log, log], env });
  const gateway = { name, config, home, process: process_, base: `http://127.0.0.1:${port}` };
  gateways.push(gateway);
  await until(`${name} starts`, async () => (await fetch(`${gateway.base}/healthz`).catch(() => null))?.ok);
  return gateway;
}

/** Runs a command. The servers, which are in this process, answer meanwhile. */
async function run(gateway, ...words) {
  const most = { maxBuffer: 1 << 28 };
  const { stdout } = await promisify(execFile)(MCPVISOR, ["--config", gateway.config, ...words], most);
  return stdout.trim();
}

async function until(what, look) {
  const end = performance.now() + WAIT_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (performance.now() > end) throw new Error(`it never happens: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Sends a message, or several in an array; the answer with the id of the session. */
function post(gateway, message, session) {
  const headers = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    ...(session && { "mcp-session-id": session }),
  };
  return new Promise((resolve, reject) => {
    const request = http.request(`${gateway.base}/mcp`, { method: "POST", headers, agent }, (response) => {
      let text = "";
      response.on("data", (part) => (text += part));
      response.on("end", () => {
        if (response.statusCode >= 300) reject(new Error(`${response.statusCode}: ${text}`));
        else resolve({ text, session: response.headers["mcp-session-id"] });
      });
    });
    request.on("error", reject);
    request.end(JSON.stringify(message));
  });
}

async function openSession(gateway, number) {
  const params = {
    // The revision that has arrays of messages.
    protocolVersion: "2025-03-26",
    capabilities: {},
    clientInfo: { name: `client-${number}`, version: "1" },
  };
  const opened = await post(gateway, { jsonrpc: "2.0", id: 1, method: "initialize", params });
  return opened.session;
}

/** Does so many pieces of work, several at a time. */
async function inParallel(count, work) {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: WRITERS }, worker));
}

async function makeCalls(gateway, sessions) {
  await inParallel(Math.ceil(CALLS / BATCH), async (batch) => {
    const first = batch * BATCH;
    const length = Math.min(BATCH, CALLS - first);
    const calls = Array.from({ length }, (_, index) => {
      const server = nameOf((first + index) % (SERVERS - BROKEN));
      const params = { name: `${server}__tool0`, arguments: { text: `call ${first + index}` } };
      return { jsonrpc: "2.0", id: index + 1, method: "tools/call", params };
    });
    const { text } = await post(gateway, calls, sessions[batch % sessions.length]);
    if (batch === 0) assert.equal(text.split('"done"').length - 1, length, text.slice(0, 500));
  });
}

async function step(name, work) {
  const begun = performance.now();
  const done = await work();
  console.log(`  ${name} (${Math.round(performance.now() - begun)} ms)`);
  return done;
}

async function signIn(gateway) {
  const context = await browser.newContext();
  context.setDefaultTimeout(WAIT_MS);
  gateway.page = await context.newPage();
  await gateway.page.goto(await run(gateway, "ui", "--no-browser"));
  const cookies = await context.cookies();
  gateway.cookie = cookies.map(({ name, value }) => `${name}=${value}`).join("; ");
}

async function htmlOf(gateway, shown) {
  const answer = await fetch(gateway.base + shown, { headers: { cookie: gateway.cookie } });
  assert.equal(answer.status, 200, shown);
  return answer.text();
}

/** Opens a page some times; milliseconds until something shows and until it is loaded, and bytes. */
async function look(gateway, shown) {
  const looks = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await gateway.page.goto(gateway.base + shown, { waitUntil: "load" });
    await gateway.page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0);
    looks.push(
      await gateway.page.evaluate(() => {
        const [navigation] = performance.getEntriesByType("navigation");
        const [paint] = performance.getEntriesByName("first-contentful-paint");
        const count = (selector) => document.querySelectorAll(selector).length;
        const rows = Math.max(count("main tbody tr"), count("main li"), count("main option"));
        return { paint: paint.startTime, load: navigation.loadEventEnd, bytes: navigation.decodedBodySize, rows };
      }),
    );
  }
  looks.sort((one, other) => one.paint - other.paint);
  return looks[Math.floor(ROUNDS / 2)];
}

/** Follows a list from page to page, and checks that it has each row once; the keys of the rows. */
async function walk(gateway, first, row, total) {
  const seen = new Set();
  let pages = 0;
  for (let shown = first; shown; pages += 1) {
    const html = await htmlOf(gateway, shown);
    const rows = [...html.matchAll(row)].map(([, key]) => key);
    assert.ok(rows.length <= PAGE_ROWS, `${rows.length} rows on ${shown}`);
    for (const key of rows) {
      assert.ok(!seen.has(key), `${key} comes twice, on ${shown}`);
      seen.add(key);
    }
    const next = html.match(/href="([^"]*)">(?:Next|Older)</);
    shown = next?.[1].replaceAll("&amp;", "&");
  }
  assert.equal(seen.size, total, first);
  // A search in the history ends a page after some time, too.
  if (!first.startsWith("/ui/calls?")) assert.equal(pages, Math.ceil(total / PAGE_ROWS), first);
  return [...seen];
}

/** Processor time of a gateway so far, in milliseconds. */
function processorTime(gateway) {
  const stat = fs.readFileSync(`/proc/${gateway.process.pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  // In hundredths of a second.
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** Milliseconds of processor time that a gateway takes in a second, while nothing changes. */
async function costOf(gateway, shown) {
  await gateway.page.goto(shown ? gateway.base + shown : "about:blank");
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const before = processorTime(gateway);
  await new Promise((resolve) => setTimeout(resolve, COST_SECONDS * 1000));
  return (processorTime(gateway) - before) / COST_SECONDS;
}

function table(title, head, rows) {
  console.log(`  ${title}`);
  for (const row of [head, ...rows]) {
    const cells = row.map((cell) => (typeof cell === "number" ? cell.toFixed(0) : cell));
    console.log(`    ${cells.map((cell, index) => (index ? cell.padStart(12) : cell.padEnd(14))).join("")}`);
  }
}

async function test() {
  const port = await startServers();
  const servers = Array.from({ length: SERVERS }, (_, number) => {
    const place = number < SERVERS - BROKEN ? `at/${number}` : "broken";
    return `[servers.${nameOf(number)}]\nurl = "http://127.0.0.1:${port}/${place}"\nera = "legacy"\n`;
  });
  const empty = await startGateway("empty", "");
  const full = await startGateway("full", servers.join(""));
  await step(`${SERVERS} servers are up, but for ${BROKEN}`, () =>
    until("all up", async () => {
      const { servers } = JSON.parse(await run(full, "status", "--json"));
      return servers.filter(({ state }) => state === "up").length === SERVERS - BROKEN;
    }),
  );
  const sessions = [];
  await step(`${SESSIONS} sessions are open`, () =>
    inParallel(SESSIONS, async (number) => {
      sessions[number] = await openSession(full, number);
    }),
  );
  await step(`${CALLS} calls are made`, () => makeCalls(full, sessions));

  browser = await BROWSERS.chromium();
  await signIn(empty);
  await signIn(full);

  const serverRow = /id="server-(s\d+)"/g;
  await step("the list of servers has each once, and those in trouble first", async () => {
    const names = await walk(full, "/ui/servers", serverRow, SERVERS);
    const broken = Array.from({ length: BROKEN }, (_, index) => nameOf(SERVERS - BROKEN + index));
    // Among them, one that is being tried again stands behind.
    assert.deepEqual(names.slice(0, BROKEN).sort(), broken);
    const found = await walk(full, "/ui/servers?text=S007", serverRow, 10);
    assert.ok(found.every((name) => name.startsWith("s007")));
  });
  await step("so have the tree, the tools, the sessions and the calls", async () => {
    await walk(full, "/ui/tree", /id="node-(s\d+)"/g, SERVERS);
    await walk(full, "/ui/tools", /href="\/ui\/tool\?name=([^"]+)"/g, (SERVERS - BROKEN) * TOOLS_OF_EACH);
    await walk(full, "/ui/tools?server=s0001&text=thing", /name=(s0001__[^"]+)"/g, TOOLS_OF_EACH);
    await walk(full, "/ui/sessions", /id="session-(\w+)"/g, SESSIONS);
    const callRow = /id="call-(\d+)"/g;
    const ofOne = Math.ceil((CALLS - 1) / (SERVERS - BROKEN));
    await walk(full, `/ui/calls?server=${nameOf(1)}`, callRow, ofOne);
    if (!IS_LARGE) await walk(full, "/ui/calls", callRow, CALLS);
  });
  await step("pages say how many there are", async () => {
    const count = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, "\u202f");
    assert.ok((await htmlOf(full, "/ui")).includes(`of ${SERVERS}`));
    for (const [shown, words] of [
      ["/ui/servers", `${count(SERVERS)} servers`],
      ["/ui/sessions", `${count(SESSIONS)} sessions`],
      ["/ui/calls", `${count(CALLS)} calls`],
    ]) {
      assert.ok((await htmlOf(full, shown)).includes(words), `${shown}: ${words}`);
    }
  });
  await step("an open page has a server that stops first, and keeps its other rows", async () => {
    const { page } = full;
    await page.goto(`${full.base}/ui/servers`);
    const name = nameOf(1);
    const row = page.locator("tbody tr").filter({ hasText: nameOf(0) });
    await row.evaluate((it) => (globalThis.kept = it));
    await run(full, "servers", "stop", name);
    const at = BROKEN + 1;
    await page.locator(`tbody tr:nth-child(${at})#server-${name}`).getByText("stopped", { exact: true }).waitFor();
    assert.ok(await row.evaluate((it) => it === globalThis.kept));
    assert.equal(await page.locator("tbody tr").count(), PAGE_ROWS);
    await run(full, "servers", "start", name);
    await page.locator(`#server-${name}`).getByText("up", { exact: true }).waitFor();
  });

  const looks = [];
  for (const shown of PAGES) {
    const [all, none] = [await look(full, shown), await look(empty, shown)];
    assert.ok(all.rows <= ROWS_MAX, `${all.rows} rows on ${shown}`);
    looks.push([shown, all.paint, none.paint, all.load, none.load, all.bytes, none.bytes]);
  }
  const head = ["", "paint", "(empty)", "load", "(empty)", "bytes", "(empty)"];
  table("milliseconds to the first paint and to the end of loading, and bytes of HTML", head, looks);
  const costs = [];
  for (const shown of [undefined, ...LIVE_PAGES]) {
    costs.push([shown ?? "none", await costOf(full, shown), await costOf(empty, shown)]);
  }
  table("milliseconds of processor time in a second with a page open", ["", "full", "(empty)"], costs);
}

console.log(`the dashboard with ${SERVERS} servers, ${SESSIONS} sessions and ${CALLS} calls`);
try {
  await test();
} catch (error) {
  for (const { name, home } of gateways) {
    console.log(name, fs.readFileSync(path.join(home, "log"), "utf8").slice(-4000));
  }
  throw error;
} finally {
  await browser?.close();
  await Promise.all(gateways.map((gateway) => endProcess(gateway.process)));
  fs.rmSync(directory, { recursive: true, force: true });
}
console.log("passed");
process.exit(0);
