// A server of 2026-07-28 with tasks: `node tasks.mjs`.

import { randomUUID } from "node:crypto";
import { Refusal, serve } from "./raw.mjs";

const TASKS = "io.modelcontextprotocol/tasks";
const FRESH = { ttlMs: 60_000, cacheScope: "public" };
const tasks = new Map();

const say = (text, more) => ({ content: [{ type: "text", text }], ...more });
const ask = (message) => ({
  method: "elicitation/create",
  params: { mode: "form", message, requestedSchema: { type: "object", properties: { name: { type: "string" } } } },
});

/** The members of a task that an answer has besides its result. */
const head = ({ taskId, status, createdAt, lastUpdatedAt }) => ({
  taskId,
  status,
  createdAt,
  lastUpdatedAt,
  ttlMs: 600_000,
  pollIntervalMs: 100,
});

function change(task, changes) {
  if (!["completed", "failed", "cancelled"].includes(task.status)) {
    Object.assign(task, changes, { lastUpdatedAt: new Date().toISOString() });
  }
}

function create(begin) {
  const now = new Date().toISOString();
  const task = { taskId: randomUUID(), status: "working", createdAt: now, lastUpdatedAt: now };
  tasks.set(task.taskId, task);
  begin(task);
  return { resultType: "task", ...head(task) };
}

const after = (seconds, result) => (task) => {
  setTimeout(() => change(task, result()), seconds * 1000).unref();
};
const completed = (result) => ({ status: "completed", result });

/** Waits for answers to all of these questions. */
const asking = (inputRequests, finish) => (task) => {
  change(task, { status: "input_required", inputRequests, finish, answers: {} });
};

const tools = {
  greet: ({ name }) => say(`Hello, ${name}!`),
  slow_compute({ seconds }, { isAble }) {
    const result = say(`computed for ${seconds} s`);
    return isAble && seconds > 0 ? create(after(seconds, () => completed(result))) : result;
  },
  failing_job(_args, { require }) {
    require();
    return create(after(0.3, () => completed(say("the job failed", { isError: true }))));
  },
  protocol_error_job(_args, { require }) {
    require();
    return create(after(0.1, () => ({ status: "failed", error: { code: -32603, message: "it broke" } })));
  },
  confirm_delete({ filename }, { require }) {
    require();
    return create(asking({ confirm: ask(`Delete ${filename}?`) }, () => completed(say(`${filename} is gone`))));
  },
  multi_input(_args, { require }) {
    require();
    return create(asking({ first: ask("First?"), second: ask("Second?") }, () => completed(say("both answered"))));
  },
  test_tool_with_task(_args, { require, inputResponses }) {
    require();
    const answered = inputResponses?.user_name;
    if (!answered) {
      return { resultType: "input_required", inputRequests: { user_name: ask("Your name?") }, requestState: "asked" };
    }
    return create(after(0.1, () => completed(say(`Hello, ${JSON.stringify(answered.content)}`))));
  },
};

const isAble = (params) =>
  params._meta?.["io.modelcontextprotocol/clientCapabilities"]?.extensions?.[TASKS] !== undefined;

function require(params) {
  if (isAble(params)) return;
  const requiredCapabilities = { extensions: { [TASKS]: {} } };
  throw new Refusal(-32021, "the client does not declare tasks", { requiredCapabilities });
}

function find(params) {
  require(params);
  const task = tasks.get(params.taskId);
  if (!task) throw new Refusal(-32602, "unknown task");
  return task;
}

serve({
  "server/discover": () => ({
    supportedVersions: ["2026-07-28"],
    capabilities: { tools: {}, extensions: { [TASKS]: {} } },
    ...FRESH,
  }),
  "tools/list": () => ({
    tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: "object" } })),
    ...FRESH,
  }),
  "tools/call"(params) {
    const tool = tools[params.name];
    if (!tool) throw new Refusal(-32602, `unknown tool: ${params.name}`);
    const { inputResponses } = params;
    return tool(params.arguments ?? {}, { isAble: isAble(params), inputResponses, require: () => require(params) });
  },
  "tasks/get"(params) {
    const task = find(params);
    const { result, error, inputRequests } = task;
    return { ...head(task), ...(task.status === "input_required" ? { inputRequests } : { result, error }) };
  },
  "tasks/update"(params) {
    const task = find(params);
    for (const name of Object.keys(params.inputResponses ?? {})) {
      if (task.inputRequests) delete task.inputRequests[name];
    }
    if (task.status === "input_required" && Object.keys(task.inputRequests).length === 0) change(task, task.finish());
    return {};
  },
  "tasks/cancel"(params) {
    change(find(params), { status: "cancelled" });
    return {};
  },
});
