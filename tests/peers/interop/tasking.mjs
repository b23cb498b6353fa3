// A server of the official SDK whose tool may run as a task, and reports progress while it does.

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import {
  InMemoryTaskMessageQueue,
  InMemoryTaskStore,
} from "@modelcontextprotocol/sdk/experimental/tasks";
import { z } from "zod";

const STEPS = 3;
const PAUSE_MS = 100;

const server = new McpServer(
  { name: "tasking", version: "1.0.0" },
  {
    capabilities: { tools: {}, tasks: { cancel: {}, requests: { tools: { call: {} } } } },
    taskStore: new InMemoryTaskStore(),
    taskMessageQueue: new InMemoryTaskMessageQueue(),
  },
);

const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));

/** Works on a task after the call was answered; progress goes on under the call's token. */
async function work(taskId, token, store) {
  for (let step = 1; step <= STEPS; step += 1) {
    await pause();
    await store.updateTaskStatus(taskId, "working", `step ${step}`);
    const related = { "io.modelcontextprotocol/related-task": { taskId } };
    const params = { progressToken: token, progress: step, total: STEPS, _meta: related };
    await server.server.notification({ method: "notifications/progress", params });
  }
  await pause();
  await store.storeTaskResult(taskId, "completed", { content: [{ type: "text", text: "worked" }] });
}

server.experimental.tasks.registerToolTask(
  "work",
  { inputSchema: { text: z.string() }, execution: { taskSupport: "optional" } },
  {
    createTask: async (_, { taskStore, _meta }) => {
      const task = await taskStore.createTask({ ttl: 60_000, pollInterval: 100 });
      work(task.taskId, _meta?.progressToken, taskStore).catch(console.error);
      return { task };
    },
    getTask: (_, { taskId, taskStore }) => taskStore.getTask(taskId),
    getTaskResult: (_, { taskId, taskStore }) => taskStore.getTaskResult(taskId),
  },
);

await server.connect(new StdioServerTransport());
