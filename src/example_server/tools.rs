//! Tools of the example: one for each thing that a server can do to its client.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::args::Args;
use super::resources::COUNTER;
use super::state::{ExampleSession, LEVELS, RpcError};

const STEPS_MAX: u64 = 10_000;
const DELAY_MAX_MS: u64 = 600_000;
const LINES_MAX: u64 = 1_000_000;
const BYTES_MAX: u64 = 32 * 1024 * 1024;
const ADDED_MAX: usize = 1000;
const FLOODS: [&str; 4] = ["stdout", "stderr", "both", "notifications"];

pub(super) fn list(session: &ExampleSession) -> Value {
    let mut tools = vec![
        tool(
            "echo",
            "Echo",
            "Answers with the message it was given.",
            READ_ONLY,
        )
        .with_input("message", json!({"type": "string"}), true),
        tool(
            "add",
            "Add",
            "Adds two numbers; the answer is also structured content.",
            READ_ONLY,
        )
        .with_input("a", json!({"type": "number"}), true)
        .with_input("b", json!({"type": "number"}), true)
        .with_output(json!({"sum": {"type": "number"}})),
        tool(
            "slow",
            "Slow",
            "Takes its time, reports progress and can be cancelled.",
            READ_ONLY,
        )
        .with_input("steps", integer(1, STEPS_MAX, 5), false)
        .with_input("delay_ms", integer(0, DELAY_MAX_MS, 200), false),
        tool(
            "ask",
            "Ask",
            "Asks the user a question (elicitation) and repeats the answer.",
            READ_ONLY,
        )
        .with_input(
            "question",
            json!({"type": "string", "default": QUESTION}),
            false,
        ),
        tool(
            "crash",
            "Crash",
            "Ends the process of this server with exit code 13.",
            DESTRUCTIVE,
        )
        .with_input("delay_ms", integer(0, DELAY_MAX_MS, 0), false),
        tool(
            "flood",
            "Flood",
            "Writes noise that is no answer, then answers.",
            READ_ONLY,
        )
        .with_input("lines", integer(1, LINES_MAX, 1000), false)
        .with_input(
            "kind",
            json!({"type": "string", "enum": FLOODS, "default": FLOODS[0]}),
            false,
        ),
        tool(
            "big",
            "Big",
            "Answers with a text of the given size.",
            READ_ONLY,
        )
        .with_input("bytes", integer(0, BYTES_MAX, 1024 * 1024), false),
        tool("log", "Log", "Sends a log message at a level.", READ_ONLY)
            .with_input("message", json!({"type": "string"}), true)
            .with_input(
                "level",
                json!({"type": "string", "enum": LEVELS, "default": LEVELS[0]}),
                false,
            ),
        tool(
            "touch",
            "Touch",
            "Adds one to the resource example://counter.",
            MODIFIES,
        ),
        tool(
            "add_tool",
            "Add a tool",
            "Adds a tool that echoes its arguments.",
            MODIFIES,
        )
        .with_input("name", name_schema(), true)
        .with_input("description", json!({"type": "string"}), false),
        tool(
            "remove_tool",
            "Remove a tool",
            "Removes a tool that add_tool added.",
            MODIFIES,
        )
        .with_input("name", name_schema(), true),
    ];
    for (name, description) in &session.state().added {
        let mut added = tool(name, name, description, READ_ONLY);
        added.0["inputSchema"] = json!({"type": "object"});
        tools.push(added);
    }
    let tools: Vec<Value> = tools.into_iter().map(|tool| tool.0).collect();
    json!({ "tools": tools })
}

const QUESTION: &str = "What is your name?";
pub(super) const BUILT_IN: [&str; 11] = [
    "echo",
    "add",
    "slow",
    "ask",
    "crash",
    "flood",
    "big",
    "log",
    "touch",
    "add_tool",
    "remove_tool",
];

/// What a tool does to its surroundings: read only, destructive, idempotent.
type Hints = (bool, bool, bool);
const READ_ONLY: Hints = (true, false, true);
const MODIFIES: Hints = (false, false, false);
const DESTRUCTIVE: Hints = (false, true, false);

struct Tool(Value);

fn tool(name: &str, title: &str, description: &str, hints: Hints) -> Tool {
    let (read_only, destructive, idempotent) = hints;
    Tool(json!({
        "name": name, "title": title, "description": description,
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": false},
        "annotations": {
            "readOnlyHint": read_only, "destructiveHint": destructive,
            "idempotentHint": idempotent, "openWorldHint": false,
        },
    }))
}

impl Tool {
    fn with_input(mut self, name: &str, schema: Value, required: bool) -> Self {
        let input = &mut self.0["inputSchema"];
        input["properties"][name] = schema;
        if required {
            let mut names = input["required"].as_array().cloned().unwrap_or_default();
            names.push(name.into());
            input["required"] = names.into();
        }
        self
    }

    fn with_output(mut self, properties: Value) -> Self {
        let required: Vec<&String> = properties
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .collect();
        let required = json!(required);
        self.0["outputSchema"] =
            json!({"type": "object", "properties": properties, "required": required});
        self
    }
}

fn integer(low: u64, high: u64, default: u64) -> Value {
    json!({"type": "integer", "minimum": low, "maximum": high, "default": default})
}

fn name_schema() -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"})
}

/// Runs a tool. A tool that is not there is a protocol error (S-TOOL-11), one that fails or
/// was given bad arguments is a result with `isError` (S-TOOL-12).
pub(super) async fn call(session: &Arc<ExampleSession>, params: &Value) -> Result<Value, RpcError> {
    let Some(name) = params["name"].as_str() else {
        return Err(RpcError::params("`name` is missing or not a string"));
    };
    let arguments = &params["arguments"];
    if !BUILT_IN.contains(&name) {
        if !session.state().added.contains_key(name) {
            return Err(RpcError::params(format!("unknown tool `{name:.80}`")));
        }
        return Ok(text_result(format!("{name} was called with {arguments}")));
    }
    let outcome = match name {
        "echo" => echo(arguments),
        "add" => return Ok(add(session, arguments)),
        "slow" => slow(session, arguments, &params["_meta"]["progressToken"]).await,
        "ask" => ask(session, arguments).await,
        "crash" => crash(session, arguments).await,
        "flood" => flood(session, arguments).await,
        "big" => big(arguments),
        "log" => log(session, arguments).await,
        "touch" => touch(session, arguments).await,
        "add_tool" => add_tool(session, arguments).await,
        _ => remove_tool(session, arguments).await,
    };
    Ok(outcome.map_or_else(error_result, text_result))
}

fn text_result(text: String) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn error_result(text: String) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": true})
}

fn echo(arguments: &Value) -> Result<String, String> {
    let args = Args::new(arguments, &["message"])?;
    Ok(args.text("message")?.to_owned())
}

fn add(session: &ExampleSession, arguments: &Value) -> Value {
    let sum = Args::new(arguments, &["a", "b"])
        .and_then(|args| Ok(args.number("a")? + args.number("b")?))
        .and_then(|sum| {
            let whole = sum.fract() == 0.0 && sum.abs() < 9e15;
            #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
            let number = if whole { json!(sum as i64) } else { json!(sum) };
            if number.is_null() {
                Err("the sum is too large for a number".to_owned())
            } else {
                Ok(number)
            }
        });
    match sum {
        Err(error) => error_result(error),
        Ok(sum) => {
            let structured = json!({"sum": sum});
            let mut result = text_result(structured.to_string());
            if session.since("2025-06-18") {
                result["structuredContent"] = structured;
            }
            result
        }
    }
}

async fn slow(
    session: &ExampleSession,
    arguments: &Value,
    token: &Value,
) -> Result<String, String> {
    let args = Args::new(arguments, &["steps", "delay_ms"])?;
    let steps = args.integer("steps", 5, 1..=STEPS_MAX)?;
    let delay = Duration::from_millis(args.integer("delay_ms", 200, 0..=DELAY_MAX_MS)?);
    for step in 1..=steps {
        tokio::time::sleep(delay).await;
        if token.is_string() || token.is_number() {
            let mut params = json!({"progressToken": token, "progress": step, "total": steps});
            if session.since("2025-03-26") {
                params["message"] = format!("step {step} of {steps}").into();
            }
            session.notify("notifications/progress", Some(params)).await;
        }
    }
    Ok(format!("done after {steps} steps"))
}

async fn ask(session: &Arc<ExampleSession>, arguments: &Value) -> Result<String, String> {
    let args = Args::new(arguments, &["question"])?;
    let question = args.text_or("question")?.unwrap_or(QUESTION);
    if !session.since("2025-06-18") {
        return Err(
            "the user cannot be asked: elicitation came with revision 2025-06-18".to_owned(),
        );
    }
    if !session.can_ask() {
        return Err("the user cannot be asked: the client declared no elicitation".to_owned());
    }
    let params = json!({
        "message": question,
        "requestedSchema": {
            "type": "object",
            "properties": {"answer": {"type": "string", "title": "Your answer"}},
            "required": ["answer"],
        },
    });
    let Some(answer) = session.ask("elicitation/create", params).await else {
        return Err("the session ended before an answer came".to_owned());
    };
    let result = &answer["result"];
    match (
        result["action"].as_str(),
        result["content"]["answer"].as_str(),
    ) {
        (Some("accept"), Some(given)) => Ok(format!("the user answered: {given}")),
        (Some("accept"), None) => Err("the user accepted without an `answer`".to_owned()),
        (Some(action @ ("decline" | "cancel")), _) => Ok(format!("the user chose: {action}")),
        _ => Err(format!(
            "the client could not ask: {:.400}",
            answer["error"].to_string()
        )),
    }
}

async fn crash(session: &ExampleSession, arguments: &Value) -> Result<String, String> {
    let args = Args::new(arguments, &["delay_ms"])?;
    let delay = args.integer("delay_ms", 0, 0..=DELAY_MAX_MS)?;
    tokio::time::sleep(Duration::from_millis(delay)).await;
    session.crash.notify_one();
    std::future::pending().await
}

async fn flood(session: &ExampleSession, arguments: &Value) -> Result<String, String> {
    let args = Args::new(arguments, &["lines", "kind"])?;
    let lines = args.integer("lines", 1000, 1..=LINES_MAX)?;
    let kind = args.choice("kind", &FLOODS)?;
    let mut sent = 0;
    for number in 1..=lines {
        let noise = format!("noise {number} of {lines}, not JSON");
        if kind == "notifications" {
            let said = session.log("info", "flood", noise.into()).await;
            sent += u64::from(said);
            continue;
        }
        if kind != "stdout" {
            super::log_stderr(&noise);
        }
        if kind != "stderr" {
            session.send_line(noise).await;
        }
        sent += 1;
        // A closed reader of stderr never waits, so other requests get their turn here.
        tokio::task::consume_budget().await;
    }
    Ok(format!("wrote {sent} lines of {kind}"))
}

fn big(arguments: &Value) -> Result<String, String> {
    let args = Args::new(arguments, &["bytes"])?;
    let bytes = args.integer("bytes", 1024 * 1024, 0..=BYTES_MAX)?;
    let bytes = usize::try_from(bytes).map_err(|error| error.to_string())?;
    Ok("0123456789abcdef".chars().cycle().take(bytes).collect())
}

async fn log(session: &ExampleSession, arguments: &Value) -> Result<String, String> {
    let args = Args::new(arguments, &["message", "level"])?;
    let level = args.choice("level", &LEVELS)?;
    let message = args.text("message")?;
    let sent = session.log(level, "example", message.into()).await;
    let what = if sent {
        "sent"
    } else {
        "kept back, the client asked for more severe ones only"
    };
    Ok(format!("message at level {level}: {what}"))
}

async fn touch(session: &ExampleSession, arguments: &Value) -> Result<String, String> {
    Args::new(arguments, &[])?;
    let (count, subscribed) = {
        let mut state = session.state();
        state.touched += 1;
        (state.touched, state.subscribed.contains(COUNTER))
    };
    if subscribed {
        session
            .notify(
                "notifications/resources/updated",
                Some(json!({"uri": COUNTER})),
            )
            .await;
    }
    Ok(format!("{COUNTER} is now {count}"))
}

async fn add_tool(session: &ExampleSession, arguments: &Value) -> Result<String, String> {
    let args = Args::new(arguments, &["name", "description"])?;
    let name = args.text("name")?;
    let description = args
        .text_or("description")?
        .unwrap_or("A tool that add_tool added.");
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
        return Err("`name` must be 1 to 64 of A-Z a-z 0-9 _ . -".to_owned());
    }
    if BUILT_IN.contains(&name) {
        return Err(format!("`{name}` is built in"));
    }
    {
        let added = &mut session.state().added;
        if added.len() >= ADDED_MAX && !added.contains_key(name) {
            return Err(format!("there are {ADDED_MAX} added tools already"));
        }
        added.insert(name.to_owned(), description.to_owned());
    }
    session
        .notify("notifications/tools/list_changed", None)
        .await;
    Ok(format!("added `{name}`"))
}

async fn remove_tool(session: &ExampleSession, arguments: &Value) -> Result<String, String> {
    let args = Args::new(arguments, &["name"])?;
    let name = args.text("name")?;
    if session.state().added.remove(name).is_none() {
        return Err(format!("`{name:.80}` was not added by add_tool"));
    }
    session
        .notify("notifications/tools/list_changed", None)
        .await;
    Ok(format!("removed `{name}`"))
}
