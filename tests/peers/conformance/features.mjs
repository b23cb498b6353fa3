// Features of the fixture servers: every tool, prompt and resource that the scenarios of the
// conformance framework call by name. Written once, for both eras: a feature speaks only to `io`,
// and modern.mjs and legacy.mjs each bring one.
//
// io.ask({ key: request })   asks the client, and gives { key: answer } back
// io.log(text)               a log message at level info
// io.progress(done, total)   a progress report, if the caller asked for them
// io.declared                what the caller declared to be capable of
// io.changed(kind)           tells everybody that the list of that kind has changed
// io.updated(uri)            tells everybody who watches that resource
// io.hangUp()                closes the stream of this call, which goes on

import { setTimeout as pause } from "node:timers/promises";

export const INFO = { name: "mcpvisor-fixture", version: "1.0.0" };

/** A red pixel. */
const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
/** Two samples of silence. */
const WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

export const say = (text) => ({ content: [{ type: "text", text }] });

/** Lists that the trigger tools really change. */
const grown = { tools: false, prompts: false };

const NOTHING = { type: "object", properties: {} };

function object(properties, required = Object.keys(properties)) {
  return { type: "object", properties, required };
}

const form = (message, properties, required) => ({
  method: "elicitation/create",
  params: { message, requestedSchema: object(properties, required) },
});

const sample = (text, maxTokens = 100) => ({
  method: "sampling/createMessage",
  params: { messages: [{ role: "user", content: { type: "text", text } }], maxTokens },
});

const ROOTS = { method: "roots/list", params: {} };
const NAME = form("What is your name?", { name: { type: "string" } });
const CONFIRM = form("Please confirm", { ok: { type: "boolean" } });

const SCHEMA_2020_12 = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  $defs: {
    address: {
      $anchor: "addressDef",
      type: "object",
      properties: { street: { type: "string" }, city: { type: "string" } },
    },
  },
  properties: {
    name: { type: "string" },
    address: { $ref: "#/$defs/address" },
    contactMethod: { type: "string", enum: ["phone", "email"] },
    phone: { type: "string" },
    email: { type: "string" },
  },
  allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
  if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
  then: { required: ["phone"] },
  else: { required: ["email"] },
  additionalProperties: false,
};

const choices = (names) => names.map(([value, title]) => ({ const: value, title }));

const content = {
  test_simple_text: () => say("This is a simple text response for testing."),
  test_image_content: () => ({ content: [{ type: "image", data: PNG, mimeType: "image/png" }] }),
  test_audio_content: () => ({ content: [{ type: "audio", data: WAV, mimeType: "audio/wav" }] }),
  test_embedded_resource: () => ({ content: [embedded("test://embedded-resource")] }),
  test_multiple_content_types: () => ({
    content: [
      { type: "text", text: "Multiple content types test:" },
      { type: "image", data: PNG, mimeType: "image/png" },
      embedded("test://mixed-content-resource"),
    ],
  }),
  test_error_handling: () => {
    throw new Error("This tool intentionally returns an error for testing");
  },
  test_streaming_elicitation: () => say("no requests of mine are on this stream"),
};

function embedded(uri) {
  const resource = { uri, mimeType: "text/plain", text: "This is an embedded resource content." };
  return { type: "resource", resource };
}

const streams = {
  async test_tool_with_logging(io) {
    for (const text of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
      await io.log(text);
      await pause(50);
    }
    return say("logged");
  },
  async test_logging_tool(io) {
    await io.log("heard only by those who asked for it");
    return say("logged");
  },
  async test_tool_with_progress(io) {
    for (const done of [0, 50, 100]) {
      await io.progress(done, 100);
      await pause(50);
    }
    return say("progressed");
  },
  async test_reconnection(io) {
    await io.hangUp();
    // Longer than the gateway waits before it turns an answer into a stream.
    await pause(1500);
    return say("You have come back.");
  },
};

const questions = {
  async test_sampling(io, { prompt = "Hello?" }) {
    const { answer } = await io.ask({ answer: sample(prompt) });
    return say(`LLM response: ${answer.content?.text}`);
  },
  async test_elicitation(io, { message = "Yes?" }) {
    const question = form(message, { response: { type: "string", description: "User's response" } });
    const { answer } = await io.ask({ answer: question });
    return say(`User response: ${JSON.stringify(answer)}`);
  },
  async test_elicitation_sep1034_defaults(io) {
    const question = form(
      "Please review and update the form fields with defaults",
      {
        name: { type: "string", description: "User name", default: "John Doe" },
        age: { type: "integer", description: "User age", default: 30 },
        score: { type: "number", description: "User score", default: 95.5 },
        status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
        verified: { type: "boolean", description: "Verification status", default: true },
      },
      [],
    );
    const { answer } = await io.ask({ answer: question });
    return say(`Elicitation completed: ${JSON.stringify(answer)}`);
  },
  async test_elicitation_sep1330_enums(io) {
    const plain = ["option1", "option2", "option3"];
    const titled = choices([
      ["value1", "First Option"],
      ["value2", "Second Option"],
      ["value3", "Third Option"],
    ]);
    const question = form(
      "Please select options from the enum fields",
      {
        untitledSingle: { type: "string", enum: plain },
        titledSingle: { type: "string", oneOf: titled },
        legacyEnum: {
          type: "string",
          enum: ["opt1", "opt2", "opt3"],
          enumNames: ["Option One", "Option Two", "Option Three"],
        },
        untitledMulti: { type: "array", minItems: 1, maxItems: 3, items: { type: "string", enum: plain } },
        titledMulti: { type: "array", minItems: 1, maxItems: 3, items: { anyOf: titled } },
      },
      [],
    );
    const { answer } = await io.ask({ answer: question });
    return say(`Elicitation completed: ${JSON.stringify(answer)}`);
  },
  async test_missing_capability(io) {
    const { llm_answer } = await io.ask({ llm_answer: sample("Reply with the single word: pong", 16) });
    return say(`sampled: ${llm_answer.content?.text}`);
  },
  async test_input_required_result_elicitation(io) {
    const { user_name } = await io.ask({ user_name: NAME });
    return say(`Hello, ${user_name.content?.name}!`);
  },
  async test_input_required_result_sampling(io) {
    const { capital_question } = await io.ask({ capital_question: sample("What is the capital of France?") });
    return say(`Sampling response: ${capital_question.content?.text}`);
  },
  async test_input_required_result_list_roots(io) {
    const { client_roots } = await io.ask({ client_roots: ROOTS });
    return say(`Roots: ${client_roots.roots.map((root) => root.uri).join(", ")}`);
  },
  async test_input_required_result_request_state(io) {
    await io.ask({ confirm: CONFIRM });
    return say("state-ok");
  },
  async test_input_required_result_multiple_inputs(io) {
    const { user_name, greeting, client_roots } = await io.ask({
      user_name: NAME,
      greeting: sample("Generate a greeting", 50),
      client_roots: ROOTS,
    });
    const roots = client_roots.roots.length;
    return say(`${greeting.content?.text} ${user_name.content?.name}, with ${roots} root(s)`);
  },
  async test_input_required_result_multi_round(io) {
    const { step1 } = await io.ask({ step1: form("Step 1: What is your name?", { name: { type: "string" } }) });
    const { step2 } = await io.ask({
      step2: form("Step 2: What is your favorite color?", { color: { type: "string" } }),
    });
    return say(`${step1.content?.name} likes ${step2.content?.color}`);
  },
  async test_input_required_result_tampered_state(io) {
    await io.ask({ confirm: CONFIRM });
    return say("untampered");
  },
  async test_input_required_result_capabilities(io) {
    const all = { elicitation: NAME, sampling: sample("Generate a short greeting", 50), roots: ROOTS };
    const able = Object.entries(all).filter(([capability]) => io.declared?.[capability] !== undefined);
    if (able.length === 0) return say("There is nothing that you could be asked.");
    const answers = await io.ask(Object.fromEntries(able));
    return say(`Answered: ${Object.keys(answers).join(", ")}`);
  },
};

const triggers = {
  async test_trigger_tool_change(io) {
    grown.tools = !grown.tools;
    await io.changed("tools");
    return say("The list of tools has changed.");
  },
  async test_trigger_prompt_change(io) {
    grown.prompts = !grown.prompts;
    await io.changed("prompts");
    return say("The list of prompts has changed.");
  },
  async test_touch_resource(io, { uri }) {
    await io.updated(uri);
    return say(`${uri} has changed.`);
  },
};

const schemas = {
  test_sampling: object({ prompt: { type: "string" } }),
  test_elicitation: object({ message: { type: "string" } }),
  test_touch_resource: object({ uri: { type: "string" } }),
  json_schema_2020_12_tool: SCHEMA_2020_12,
  test_x_mcp_header: {
    type: "object",
    properties: {
      region: { type: "string", "x-mcp-header": "Region" },
      level: { type: "integer" },
    },
  },
};

const more = {
  test_declared: (io) => say(JSON.stringify(io.declared ?? {})),
  json_schema_2020_12_tool: (_io, args) => say(JSON.stringify(args)),
  test_x_mcp_header: (_io, args) => say(`region=${args.region}`),
};

const APP = "ui://fixture/clock.html";

/** Tools: { name, description, inputSchema, _meta?, run(io, args) }. */
export function tools({ hidden = false } = {}) {
  const all = Object.entries({ ...content, ...streams, ...questions, ...triggers, ...more });
  const described = all.map(([name, run]) => ({
    name,
    description: `A scenario calls it: ${name}`,
    inputSchema: schemas[name] ?? NOTHING,
    run,
  }));
  described.push({
    name: "show_clock",
    description: "Shows a clock in the host's window (MCP Apps)",
    inputSchema: NOTHING,
    _meta: { ui: { resourceUri: APP, visibility: ["model", "app"] } },
    run: () => ({ ...say("12:00"), structuredContent: { time: "12:00" }, _meta: { "fixture/app": true } }),
  });
  if (grown.tools || hidden) {
    described.push({ ...described[0], name: "test_added_tool" });
  }
  return described;
}

const user = (content) => ({ role: "user", content });
const userSays = (text) => user({ type: "text", text });

/** Prompts: { name, description, arguments?, run(io, args) }. */
export function prompts() {
  const argument = (name) => ({ name, description: name, required: true });
  const all = [
    {
      name: "test_simple_prompt",
      run: () => [userSays("This is a simple prompt for testing.")],
    },
    {
      name: "test_prompt_with_arguments",
      arguments: [argument("arg1"), argument("arg2")],
      run: (_io, { arg1, arg2 }) => [userSays(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
    },
    {
      name: "test_prompt_with_embedded_resource",
      arguments: [argument("resourceUri")],
      run: (_io, { resourceUri }) => [
        user(embedded(resourceUri)),
        userSays("Please process the embedded resource above."),
      ],
    },
    {
      name: "test_prompt_with_image",
      run: () => [
        user({ type: "image", data: PNG, mimeType: "image/png" }),
        userSays("Please analyze the image above."),
      ],
    },
    {
      name: "test_input_required_result_prompt",
      run: async (io) => {
        const question = form("What context should the prompt use?", { context: { type: "string" } });
        const { user_context } = await io.ask({ user_context: question });
        return [userSays(`Use this context: ${user_context.content?.context}`)];
      },
    },
  ];
  if (grown.prompts) {
    all.push({ name: "test_added_prompt", run: () => [userSays("I was added.")] });
  }
  return all.map((prompt) => ({ description: `A scenario gets it: ${prompt.name}`, ...prompt }));
}

/** What a list shows of a tool or prompt. */
export function listed({ run: _, ...item }) {
  return item;
}

const TEXTS = {
  "test://static-text": "This is the content of the static text resource.",
  "test://watched-resource": "Watched resource content",
  // A resource that the scenario of embedded resources names.
  "test://example-resource": "An example",
};

export function resources() {
  const texts = Object.keys(TEXTS).map((uri) => ({ uri, name: uri.slice(7), mimeType: "text/plain" }));
  return [
    ...texts,
    { uri: "test://static-binary", name: "static-binary", mimeType: "image/png" },
    {
      uri: APP,
      name: "clock",
      mimeType: "text/html;profile=mcp-app",
      _meta: { ui: { prefersBorder: true, csp: { connectDomains: ["https://time.example.com"] } } },
    },
  ];
}

export const TEMPLATES = [
  { uriTemplate: "test://template/{id}/data", name: "template", mimeType: "application/json" },
];

/** The contents of a resource, or nothing if there is none. */
export function read(uri) {
  if (TEXTS[uri] !== undefined) {
    return [{ uri, mimeType: "text/plain", text: TEXTS[uri] }];
  }
  if (uri === "test://static-binary") {
    return [{ uri, mimeType: "image/png", blob: PNG }];
  }
  if (uri === APP) {
    const text = "<!doctype html><title>Clock</title><p>12:00</p>";
    return [{ uri, mimeType: "text/html;profile=mcp-app", text, _meta: { ui: { prefersBorder: true } } }];
  }
  const [, id] = /^test:\/\/template\/([^/]+)\/data$/.exec(uri) ?? [];
  if (id !== undefined) {
    return [{ uri, mimeType: "application/json", text: JSON.stringify({ id, data: `Data for ID: ${id}` }) }];
  }
  return undefined;
}

/** Values that complete an argument. */
export function complete({ argument }) {
  const values = ["Paris", "Park", "Party"].filter((value) => value.startsWith(argument.value));
  return { completion: { values, total: values.length, hasMore: false } };
}

export const CAPABILITIES = {
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { listChanged: true, subscribe: true },
  completions: {},
  logging: {},
};
