// The dashboard, as somebody uses it: each step needs the one before it. Its argument is the browser,
// chromium or firefox.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { createRequire } from "node:module";

import { BROWSERS } from "./browsers.mjs";
import { endProcess } from "./end-process.mjs";
import { freePort } from "./free-port.mjs";

const MCPVISOR = process.env.MCPVISOR;
const BROWSER = process.argv[2];
const SHOTS = process.env.SHOTS && path.resolve(process.env.SHOTS, BROWSER);
/** The digest of `body {}`, a style that playwright tries to put into a page of Firefox for a picture. */
const STYLE_OF_SHOTS = "sha256-YjaKGiklmzC6wjXA513HAMmzus8VE61XCOT+SmwNZWA=";
/** Longest wait for anything in a page, in milliseconds. */
const WAIT_MS = 60_000;
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

const directory = fs.mkdtempSync(path.join(os.tmpdir(), "mcpvisor-browser-"));
const config = path.join(directory, "config.toml");
const port = await freePort();
const base = `http://127.0.0.1:${port}`;
/** A registry with one server, which asks for a key. */
const registry = http.createServer((request, response) => {
  const server = {
    name: "io.example/searched", description: "Finds <b>things</b>.",
    packages: [{
      registryType: "npm", identifier: "@example/searched", version: "1.2.3", transport: { type: "stdio" },
      environmentVariables: [{ name: "SEARCHED_KEY", isRequired: true, isSecret: true }],
    }],
  };
  const isOne = request.url.includes("io.example%2Fsearched");
  const found = request.url.includes("search=nothing") ? [] : [{ server }];
  response.end(JSON.stringify(isOne ? { server } : { servers: found }));
});
await new Promise((listens) => registry.listen(0, "127.0.0.1", () => listens(undefined)));
let gateway;
/** Those that run, by their theme. */
const browsers = {};

const BARE = `[gateway]
listen = "127.0.0.1:${port}"
data_dir = "${directory}/data"
[history]
file = true
`;
const SERVERS = `[supervision]
backoff_initial = "300ms"
backoff_max = "1s"
jitter = 0.0
[servers.example]
command = "\${MCPVISOR_EXE}"
args = ["example-server"]
pin_tools = "warn"
[views.reading]
servers = ["example"]
allow = ["example__e*"]
[views.found]
expose = "search"
[servers.broken]
command = "sh"
args = ["-c", "exit 3"]
[servers.lacks]
command = "sh"
env = { A = "\${NOT_SET_ANYWHERE}" }
`;

async function startGateway() {
  const log = fs.openSync(path.join(directory, "log"), "a");
  const MCPVISOR_REGISTRY = `http://127.0.0.1:${registry.address().port}`;
  const env = { ...process.env, MCPVISOR_EXE: MCPVISOR, MCPVISOR_REGISTRY };
  delete env.MCPVISOR_LISTEN;
  gateway = spawn(MCPVISOR, ["--config", config, "serve"], { stdio: ["ignore", log, log], env });
  for (let tries = 0; tries < 400; tries += 1) {
    const answer = await fetch(`${base}/readyz`).catch(() => null);
    if (answer?.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("the gateway does not start");
}

function run(...words) {
  return execFileSync(MCPVISOR, ["--config", config, ...words]).toString().trim();
}

async function step(name, work) {
  const begun = performance.now();
  await work();
  console.log(`  ${name} (${Math.round(performance.now() - begun)} ms)`);
}

/** Errors that pages report; none is expected but where a step says so. */
const errors = [];

async function newPage({ colorScheme = "light", ...options } = {}) {
  browsers[colorScheme] ??= await BROWSERS[BROWSER](colorScheme);
  const context = await browsers[colorScheme].newContext({ colorScheme, ...options });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  page.on("pageerror", ({ message }) => {
    if (!message.includes(STYLE_OF_SHOTS)) errors.push(`${page.url()}: ${message}`);
  });
  page.on("console", (message) => {
    // Chromium's word for an answer such as 404.
    if (message.type() !== "error" || message.text().startsWith("Failed to load resource")) return;
    errors.push(`${page.url()}: ${message.text()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith("data:")) {
      errors.push(`a request to ${request.url()}`);
    }
  });
  return page;
}

/** The page that is open: it fits, and axe, which is in the page, finds nothing. */
async function checkPage(page, name, colorScheme) {
  const { width } = page.viewportSize();
  const isDark = await page.evaluate(() => matchMedia("(prefers-color-scheme: dark)").matches);
  assert.equal(isDark, colorScheme === "dark", name);
  const overflow = await page.evaluate(
    () => document.documentElement.scrollWidth - window.innerWidth,
  );
  assert.ok(overflow <= 0, `${name} is ${overflow} pixels too wide`);
  if (SHOTS) {
    // Without what is another each time.
    const file = `${name.replace(/[0-9a-f]{16,}/g, "").replace(/[^\w-]+/g, "_")}-${width}.png`;
    await page.screenshot({ path: path.join(SHOTS, file), fullPage: true });
  }
  await page.evaluate(() => document.querySelectorAll("details").forEach((it) => { it.open = true; }));
  if (width === 390) return;
  const violations = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run();
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((it) => it.html).join(" ")}`);
  });
  assert.deepEqual(violations, [], name);
}

/** Opens pages in both themes, and as on a phone, and has each of them checked. */
async function inAllForms(storageState, work) {
  for (const [colorScheme, width] of [["light", 1280], ["dark", 1280], ["dark", 390]]) {
    const viewport = { width, height: 844 };
    const page = await newPage({ colorScheme, viewport, storageState });
    // The policy of a page forbids it as an element.
    await page.addInitScript({ path: AXE });
    await work(page, (name) => checkPage(page, `${name}-${colorScheme}`, colorScheme));
    await page.context().close();
  }
}

/** Reads a page again until something is there, as somebody without JavaScript does. */
async function untilShown(page, locator) {
  const begun = performance.now();
  while (!(await locator.isVisible())) {
    assert.ok(performance.now() - begun < WAIT_MS, `${page.url()}: ${await page.content()}`);
    await page.reload();
  }
}

async function checkPages(storageState, paths, prefix = "") {
  await inAllForms(storageState, async (page, check) => {
    for (const shown of paths) {
      await page.goto(base + shown);
      await check(prefix + shown);
    }
  });
}

async function test() {
  fs.writeFileSync(config, BARE);
  await startGateway();
  const page = await newPage();

  await step("what a page does wrong is noticed", async () => {
    await page.goto(`${base}/ui/login`);
    // A policy that is broken.
    const noticed = page.waitForEvent(BROWSER === "firefox" ? "pageerror" : "console");
    await page.evaluate(() => document.body.setAttribute("style", "color: red"));
    await noticed;
    assert.match(errors.pop(), /style-src/);
  });

  await step("a wrong token is refused, the right one signs in", async () => {
    await page.goto(`${base}/ui/servers`);
    await page.getByLabel("API token").fill("wrong");
    await page.keyboard.press("Enter");
    await page.getByText("This token is invalid").waitFor();
    await page.getByLabel("API token").fill(run("token"));
    await page.keyboard.press("Enter");
    await page.waitForURL(`${base}/ui/servers`);
    await page.getByText("No server is configured").waitFor();
  });

  await step("pages with nothing to show are accessible, too", async () => {
    await checkPages(await page.context().storageState(), [
      "/ui", "/ui/servers", "/ui/tree", "/ui/sessions", "/ui/calls", "/ui/tools", "/ui/tools?kind=prompts",
      "/ui/pins", "/ui/views", "/ui/keys", "/ui/policies",
    ], "empty-");
    await endProcess(gateway, "SIGKILL");
    fs.appendFileSync(config, SERVERS);
    await startGateway();
    await page.reload();
    await page.getByRole("link", { name: "example" }).waitFor();
  });

  await step("the link of `mcpvisor ui` signs in once", async () => {
    const link = run("ui", "--no-browser");
    const other = await newPage();
    await other.goto(link);
    await other.waitForURL(`${base}/ui`);
    await other.getByRole("heading", { name: "2 servers need attention" }).waitFor();
    await other.context().clearCookies();
    await other.goto(link);
    await other.getByText("already used").waitFor();
    await other.context().close();
  });

  await step("a server is added, and what is wrong is said beside its field", async () => {
    await page.getByRole("link", { name: "Add a server" }).click();
    await page.getByText("Write it yourself").click();
    await page.getByLabel("Name", { exact: true }).fill("not a name");
    await page.getByLabel("Command").fill(MCPVISOR);
    assert.equal(await page.getByLabel("URL", { exact: true }).isVisible(), false);
    await page.getByRole("button", { name: "Add" }).click();
    const name = page.getByLabel("Name", { exact: true });
    assert.equal(await name.getAttribute("aria-invalid"), "true");
    await page.getByText("a server name is 1 to 32 characters").waitFor();
    await name.fill("added");
    await page.getByLabel("Arguments").fill("example-server");
    await page.getByRole("button", { name: "Add" }).click();
    await page.getByText("was added").waitFor();
    await page.locator("#server-head").getByText("up", { exact: true }).waitFor();
  });

  await step("a crash shows in the tree within a second, and that it is back", async () => {
    await page.getByRole("link", { name: "Servers", exact: true }).first().click();
    await page.getByRole("link", { name: "Supervision tree" }).click();
    const node = page.locator('[data-server="added"]');
    await node.getByText("0 restarts").waitFor();
    const link = node.getByRole("link");
    await link.focus();
    run("servers", "kill", "added");
    const killed = performance.now();
    await node.getByText(/backoff|starting/).or(node.getByText("1 restart")).first().waitFor();
    const seen = performance.now() - killed;
    console.log(`    seen after ${Math.round(seen)} ms`);
    await node.getByText("1 restart", { exact: true }).waitFor();
    await node.getByText("up", { exact: true }).waitFor();
    // What somebody reads and has in hand stays.
    assert.ok(await link.evaluate((it) => it === document.activeElement));
  });

  await step("a tool is called", async () => {
    await page.getByRole("link", { name: "Tools" }).click();
    await page.getByLabel("Search").fill("added add");
    await page.keyboard.press("Enter");
    await page.waitForURL(/text=added/);
    await page.getByRole("link", { name: "added__add", exact: true }).click();
    await page.getByLabel(/^a/).fill("2");
    await page.getByLabel(/^b/).fill("forty");
    await page.getByRole("button", { name: "Call" }).click();
    await page.getByText("must be a number").waitFor();
    await page.getByLabel(/^b/).fill("40");
    await page.getByRole("button", { name: "Call" }).click();
    const result = page.getByRole("region", { name: "Result" });
    await result.getByText("42").first().waitFor();
    await result.getByText(" ms").first().waitFor();
  });

  async function callTool(shown, tool, fields) {
    await shown.goto(`${base}/ui/tool?name=example__${tool}`);
    for (const [label, value] of Object.entries(fields)) {
      await shown.getByLabel(new RegExp(`^${label}`)).fill(value);
    }
    await shown.getByRole("button", { name: "Call" }).click();
    const result = shown.getByRole("region", { name: "Result" });
    await result.waitFor();
    return result;
  }

  /** Calls a tool that asks. */
  async function ask(shown) {
    const result = await callTool(shown, "ask", { question: "Which colour?" });
    return { result, question: result.getByText("Which colour?") };
  }

  /** Calls a tool; the path of its answer. */
  async function tried(tool, fields, answer) {
    const result = await callTool(page, tool, fields);
    await result.getByText(answer).first().waitFor();
    return page.url().slice(base.length);
  }

  await step("a question of the server is answered in the page", async () => {
    const { result, question } = await ask(page);
    await question.waitFor();
    // What somebody types stays while the page is live.
    await result.getByLabel("Your answer").pressSequentially("dark blue", { delay: 80 });
    await result.getByRole("button", { name: "Answer" }).click();
    await result.getByText("the user answered: dark blue").first().waitFor();
  });

  await step("a call shows its progress and is cancelled", async () => {
    await page.goto(`${base}/ui/tool?name=example__slow`);
    await page.getByLabel("steps").fill("1000");
    await page.getByRole("button", { name: "Call" }).click();
    await page.getByText(/^[3-9] of 1000: step/).waitFor();
    const bar = page.getByRole("progressbar", { name: "Progress" });
    assert.ok((await bar.evaluate((it) => it.value)) >= 3);
    await page.getByRole("button", { name: "Cancel the call" }).click();
    await page.getByText("cancelled", { exact: true }).waitFor();
  });

  await step("everything is found with the keyboard, and an action is carried out", async () => {
    await page.goto(`${base}/ui/logs`);
    await page.keyboard.press("Control+k");
    const finder = page.getByRole("dialog", { name: "Search" });
    await page.keyboard.type("example echo");
    await finder.getByRole("link", { name: "example__echo" }).first().waitFor();
    await page.keyboard.press("Escape");
    await finder.waitFor({ state: "detached" });
    await page.getByRole("link", { name: /^Search/ }).click();
    await page.keyboard.type("added");
    await finder.getByRole("button", { name: "Restart added" }).waitFor();
    await page.keyboard.press("ArrowDown");
    const focused = () => page.evaluate(() => document.activeElement?.textContent);
    assert.match(await focused(), /added/);
    await page.keyboard.press("ArrowUp");
    await page.keyboard.type(" stop");
    await finder.getByRole("button", { name: "Restart added" }).waitFor({ state: "detached" });
    await page.keyboard.press("Enter");
    await page.getByText("Stop added? Its calls fail").waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await finder.waitFor({ state: "detached" });
    await page.keyboard.press("Control+k");
    await page.keyboard.type("restart added");
    await finder.getByRole("button", { name: "Restart added" }).waitFor();
    await page.keyboard.press("Enter");
    const message = page.getByText("server added is up");
    await message.waitFor();
    await message.waitFor({ state: "hidden" });
  });

  await step("its call appears in the history, and can be copied", async () => {
    await page.getByRole("link", { name: "Calls" }).first().click();
    await page.getByRole("heading", { name: "Calls" }).waitFor();
    await page.locator("main").getByRole("link", { name: /add/ }).first().click();
    await page.getByRole("heading", { name: "Result" }).waitFor();
    await page.getByRole("button", { name: "Copy" }).first().click();
    await page.getByText("Copied").waitFor();
  });

  await step("a question is asked before a server is stopped", async () => {
    await page.goto(`${base}/ui/servers/added`);
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("dialog").getByRole("link", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
    await page.locator("#server-head").getByText("stopped", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Start" }).click();
    await page.locator("#server-head").getByText("up", { exact: true }).waitFor();
  });

  await step("a server is switched off and on, sorted, and restarted from its menu", async () => {
    await page.goto(`${base}/ui/servers`);
    const row = page.locator("#server-added");
    const toggle = row.getByRole("switch", { name: "added is enabled" });
    await toggle.click();
    await row.getByText("disabled", { exact: true }).waitFor();
    assert.equal(await toggle.getAttribute("aria-checked"), "false");
    await toggle.click();
    await row.getByText("up", { exact: true }).waitFor();
    await page.getByRole("link", { name: "Tools", exact: true }).last().click();
    await page.getByRole("columnheader", { name: "Tools ↓" }).waitFor();
    await row.getByRole("button", { name: "Actions for added" }).click();
    // An open menu stays while its row is live.
    await page.locator("#menu-added").getByRole("button", { name: "Restart" }).click();
    await page.getByText("server added is up").waitFor();
    for (const tab of ["Tools", "Calls", "Logs", "Crashes", "Settings"]) {
      const link = page.getByRole("navigation", { name: "Parts of added" }).getByRole("link", { name: tab });
      await link.click();
      await page.waitForURL(new RegExp(`tab=${tab.toLowerCase()}`));
    }
    await page.getByText("[servers.added]").waitFor();
  });

  await step("a gateway that is killed is missed, and comes back", async () => {
    await page.goto(`${base}/ui`);
    await page.getByRole("heading", { name: /need attention/ }).waitFor();
    await endProcess(gateway, "SIGKILL");
    await page.getByText("Connection to the gateway lost").waitFor();
    await startGateway();
    await page.getByText("Connected again").waitFor();
    await page.getByRole("link", { name: "added" }).waitFor();
    await page.getByText("Connected again").waitFor({ state: "hidden" });
  });

  await step("all works with the keyboard alone", async () => {
    await page.goto(`${base}/ui`);
    await page.keyboard.press("Tab");
    const focused = () => page.evaluate(() => document.activeElement?.textContent);
    assert.equal(await focused(), "Skip to content");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForURL(`${base}/ui/servers/new`);
  });

  await step("what goes wrong is said on the page, which stays", async () => {
    await page.goto(`${base}/ui/servers/added`);
    run("servers", "rm", "added");
    await page.getByText("What this page shows is gone").waitFor();
    await page.getByRole("button", { name: "Restart" }).click();
    await page.getByRole("alert").filter({ hasText: "is not configured" }).waitFor();
    await page.waitForURL(`${base}/ui/servers`);
    await page.getByRole("link", { name: "broken", exact: true }).waitFor();
  });

  await step("a pasted configuration fills in the form", async () => {
    await page.getByRole("link", { name: "Add a server" }).click();
    const server = { command: MCPVISOR, args: ["example-server"] };
    await page.getByLabel("Paste what you have").fill(JSON.stringify({ mcpServers: { added: server } }));
    await page.getByRole("button", { name: "Fill in" }).click();
    assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "added");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await page.locator("#server-head").getByText("up", { exact: true }).waitFor();
  });

  await step("a server of the registry is found, and fills in the form", async () => {
    await page.goto(`${base}/ui/servers/new`);
    await page.getByLabel("Search the registry").fill("nothing");
    await page.getByRole("button", { name: "Search", exact: true }).click();
    await page.getByText("no server with such a name").waitFor();
    await page.getByLabel("Search the registry").fill("searched");
    await page.getByRole("button", { name: "Search", exact: true }).click();
    await page.getByText("Finds <b>things</b>.").waitFor();
    await checkPages(await page.context().storageState(), ["/ui/servers/new?text=searched"]);
    await page.getByRole("button", { name: "Fill in io.example/searched" }).click();
    assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "searched");
    assert.match(await page.getByLabel("Arguments").inputValue(), /@example\/searched@1\.2\.3/);
    assert.match(await page.getByLabel("Environment").inputValue(), /SEARCHED_KEY=/);
  });

  /** A task as a new user does it, within this many seconds. */
  async function timed(seconds, work) {
    const begun = performance.now();
    await work();
    const took = (performance.now() - begun) / 1000;
    console.log(`    done after ${took.toFixed(1)} s of ${seconds}`);
    assert.ok(took < seconds);
  }

  await step("a tool is disabled for all clients", async () => {
    await page.goto(`${base}/ui`);
    await timed(10, async () => {
      await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Tools" }).click();
      await page.getByRole("switch", { name: "added__crash is shown" }).click();
      await page.getByText("is hidden from all clients").waitFor();
    });
    const off = page.getByRole("switch", { name: "crash is shown to clients", exact: true });
    assert.equal(await off.getAttribute("aria-checked"), "false");
    await off.click();
    await page.getByText("is shown to all clients").waitFor();
  });

  await step("a resource is read, and the last arguments come back", async () => {
    await page.goto(`${base}/ui/tools?kind=resources`);
    await page.locator("main .rows a").first().click();
    await page.getByRole("button", { name: "Read" }).click();
    const result = page.getByRole("region", { name: "Result" });
    await result.getByText("ok", { exact: true }).waitFor();
    await page.goto(`${base}/ui/tool?name=added__add`);
    assert.equal(await page.getByLabel(/^b/).inputValue(), "40");
  });

  const storageState = await page.context().storageState();
  await step("every page is accessible, in both themes, and fits a phone", async () => {
    await page.goto(`${base}/ui/calls`);
    const call = await page.locator('a[href^="/ui/calls/"]').first().getAttribute("href");
    const added = await tried("add", { a: "1", b: "2" }, "3");
    await tried("add_tool", { name: "extra" }, "added");
    await page.goto(`${base}/ui/pins`);
    await untilShown(page, page.getByRole("button", { name: "Approve extra" }));
    await page.getByRole("button", { name: "Approve extra" }).click();
    await page.getByText("extra of example is approved").waitFor();
    await tried("add_tool", { name: "extra", description: "Another one." }, "added");
    await tried("add_tool", { name: "further" }, "added");
    const failed = await tried("remove_tool", { name: "nothing" }, "the tool failed");
    await page.goto(`${base}/ui/pins`);
    await untilShown(page, page.getByRole("button", { name: "Approve all 2 of example" }));
    await ask(page);
    const asking = page.url().slice(base.length);
    await page.goto(`${base}/ui/sessions`);
    const session = await page.locator('a[href^="/ui/sessions/"]').first().getAttribute("href");
    await page.getByRole("columnheader", { name: "Last call" }).waitFor();
    await checkPages(storageState, [
      "/ui/servers", "/ui/servers?sort=-calls", "/ui/servers/example", "/ui/servers/broken", "/ui/servers/new",
      "/ui/servers/example?tab=tools", "/ui/servers/example?tab=calls", "/ui/servers/example?tab=logs",
      "/ui/servers/broken?tab=crashes", "/ui/servers/example?tab=settings",
      "/ui/servers/example/edit", "/ui/tree", "/ui/sessions", session, "/ui/calls", call, "/ui/tools", "/ui/tools?kind=prompts",
      "/ui/tools?kind=resources", "/ui/keys", "/ui/policies",
      "/ui/tool?name=example__add", added, failed, asking, "/ui/pins", "/ui/views", "/ui/views/reading", "/ui/views/found",
      "/ui/tool?name=example__echo&view=reading", "/ui/connect?view=reading", "/ui/logs", "/ui/config", "/ui/connect", "/ui/nothing",
      "/ui/search", "/ui/search?text=example", "/ui/search?text=nothing+such",
    ]);
    await checkPages(undefined, ["/ui/login"]);
    // As long as it is asked, no other client of the same connection can be.
    await page.goto(base + asking);
    await page.getByRole("button", { name: "Decline" }).click();
    await page.getByText("the user chose: decline").first().waitFor();
  });

  await step("another content is planned, put in force, and put back", async () => {
    const content = fs.readFileSync(config, "utf8")
      + "[servers.planned]\ncommand = \"true\"\nenabled = false\n[limits]\nbody = \"1MiB\"\n";
    await inAllForms(storageState, async (page, check) => {
      await page.goto(`${base}/ui/config`);
      await page.getByLabel("Content of the file").fill("[servers.x]\ncomand = \"x\"");
      await page.getByRole("button", { name: "Preview changes" }).click();
      await page.getByText("unknown key").waitFor();
      await check("refused");
      await page.getByLabel("Content of the file").fill(content);
      await page.getByRole("button", { name: "Preview changes" }).click();
      await page.getByText("+ [servers.planned]").waitFor();
      await check("plan");
    });
    await page.goto(`${base}/ui/config?at=servers.broken`);
    const editor = page.getByLabel("Content of the file");
    assert.match(await editor.inputValue(), /\[servers\.broken\]/);
    const start = await editor.evaluate((it) => it.value.slice(it.selectionStart));
    assert.match(start, /^\[servers\.broken\]/);
    // It is checked while somebody types.
    await editor.fill(`${content}nonsense = 1\n`);
    await page.locator("#check").getByText("unknown key").waitFor();
    await editor.fill(content);
    await page.locator("#check").getByText("+ [servers.planned]").waitFor();
    await page.getByRole("button", { name: "Preview changes" }).click();
    await page.getByRole("button", { name: "Apply" }).click();
    await page.getByText("The new configuration is active").waitFor();
    await page.getByRole("button", { name: "Compare" }).first().click();
    await page.getByText("- [servers.planned]").waitFor();
    await page.getByRole("button", { name: "Apply" }).click();
    await page.getByText("The new configuration is active").waitFor();
  });

  await step("a changed policy is tested with recorded calls, applied, and taken back", async () => {
    const before = fs.readFileSync(config, "utf8");
    await page.goto(`${base}/ui/policies`);
    await page.getByRole("link", { name: "Edit policies" }).click();
    const policy = "[policies.careful]\nwhen = 'tool.name == \"add\"'\neffect = \"deny\"\n";
    await page.getByLabel("Content of the file").fill(before + policy);
    await page.locator("#check").getByText("would be decided differently").waitFor();
    await page.getByRole("button", { name: "Preview changes" }).click();
    await page.getByText("the policy `careful` denies it".replaceAll("`", "")).first().waitFor();
    await inAllForms(storageState, async (other, check) => {
      await other.goto(`${base}/ui/config`);
      await other.getByLabel("Content of the file").fill(before + policy);
      await other.getByRole("button", { name: "Preview changes" }).click();
      await other.getByText("would be decided differently").waitFor();
      await check("tested-policies");
    });
    await page.getByRole("button", { name: "Apply" }).click();
    await page.getByText("The new configuration is active").waitFor();
    await page.getByRole("link", { name: "Policies" }).click();
    await page.getByText('tool.name == "add"').waitFor();
    await checkPages(storageState, ["/ui/policies"], "some-");
    await page.locator("main").getByRole("link", { name: "Edit", exact: true }).click();
    await page.getByLabel("Content of the file").fill(before);
    await page.getByRole("button", { name: "Preview changes" }).click();
    await page.getByRole("button", { name: "Apply" }).click();
    await page.getByText("The new configuration is active").waitFor();
  });

  await step("the overview plots what there was, with axes and values", async () => {
    await page.goto(`${base}/ui`);
    const calls = page.getByRole("img", { name: "Plot: Calls" });
    await calls.locator("canvas").waitFor();
    assert.equal(await page.locator(".plot canvas").count(), 4);
    await calls.locator(".u-over").hover();
    await calls.getByText("tool errors").waitFor();
    await page.getByRole("link", { name: "1 hour" }).click();
    await page.waitForURL(/range=1h/);
    await page.getByRole("img", { name: "Plot: Memory" }).locator("canvas").waitFor();
    await checkPages(storageState, ["/ui"]);
  });

  await step("without JavaScript a question is answered, a server is restarted and removed", async () => {
    // WebDriver BiDi cannot turn it off; the only script does not come, which is the same but for `noscript`.
    const plain = await newPage({ storageState, javaScriptEnabled: BROWSER === "firefox" });
    await plain.route("**/*.js", (route) => route.abort());
    const { result, question } = await ask(plain);
    await untilShown(plain, question);
    await result.getByLabel("Your answer").fill("red");
    const answered = plain.waitForEvent("load");
    await result.getByRole("button", { name: "Answer" }).click();
    await answered;
    await untilShown(plain, result.getByText("the user answered: red").first());
    await plain.goto(`${base}/ui/logs`);
    await plain.getByRole("link", { name: /^Search/ }).click();
    await plain.getByLabel(/^Servers, tools/).fill("stop added");
    await plain.getByRole("button", { name: "Search" }).click();
    await plain.getByRole("button", { name: "Stop added" }).click();
    await plain.getByText("Stop added?").waitFor();
    await plain.goto(`${base}/ui/servers`);
    await plain.getByRole("button", { name: "Actions for added" }).click();
    await plain.locator("#menu-added").getByRole("link", { name: "Logs" }).click();
    await plain.waitForURL(`${base}/ui/servers/added?tab=logs`);
    await plain.goto(`${base}/ui/servers/added`);
    await plain.getByRole("button", { name: "Stop" }).click();
    await plain.getByRole("link", { name: "Cancel" }).click();
    await plain.waitForURL(`${base}/ui/servers/added`);
    await plain.getByRole("button", { name: "Restart" }).click();
    await plain.getByRole("status").filter({ hasText: /\w/ }).waitFor();
    await plain.goto(`${base}/ui/servers/added?tab=settings`);
    await plain.getByRole("button", { name: "Remove" }).click();
    await plain.getByText("Remove added from the configuration?").waitFor();
    await plain.getByRole("button", { name: "Remove" }).click();
    await plain.getByText("was removed").waitFor();
    await plain.context().close();
  });

  await step("a key for two servers is made, shown once and revoked", async () => {
    await page.goto(`${base}/ui`);
    await timed(40, async () => {
      await page.getByRole("link", { name: "API keys" }).click();
      await page.getByLabel("Name", { exact: true }).fill("laptop");
      await page.getByLabel("example", { exact: true }).check();
      await page.getByLabel("broken", { exact: true }).check();
      await page.getByRole("button", { name: "Create key" }).click();
      await page.getByText("it is not shown again").waitFor();
    });
    await page.getByText("Authorization: Bearer mcpvisor_").waitFor();
    await checkPages(storageState, ["/ui/keys"], "made-");
    await page.getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
    await page.getByText("is revoked").waitFor();
  });

  await step("a log is paused, wrapped and copied", async () => {
    await page.goto(`${base}/ui/logs`);
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByRole("button", { name: "Wrap" }).click();
    // Firefox reports no download of a link that leaves the page at once.
    if (BROWSER === "firefox") return;
    const saved = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download" }).click();
    assert.equal((await saved).suggestedFilename(), "mcpvisor.log");
  });

  await step("an open page learns that its login has ended", async () => {
    await page.goto(`${base}/ui/tree`);
    run("token", "--rotate");
    await page.waitForURL(/\/ui\/login/);
  });
  assert.deepEqual(errors, []);
}

console.log(`the dashboard in ${BROWSER}`);
try {
  await test();
} catch (error) {
  console.log(fs.readFileSync(path.join(directory, "log"), "utf8").slice(-4000));
  throw error;
} finally {
  for (const browser of Object.values(browsers)) await browser.close();
  if (gateway) await endProcess(gateway);
  fs.rmSync(directory, { recursive: true, force: true });
}
console.log("passed");
process.exit(0);
