//! The example's tools: one for each effect that a server can have on its client.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};

use super::args::{Args, schema};
use super::resources::COUNTER;
use super::state::{ExampleSession, LEVELS, RpcError};

const STEPS_MAX: u64 = 10_000;
const DELAY_MAX_MS: u64 = 600_000;
const LINES_MAX: u64 = 1_000_000;
const BYTES_MAX: u64 = 32 * 1024 * 1024;
const ADDED_MAX: usize = 1000;
const FLOODS: [&str; 4] = ["stdout", "stderr", "both", "notifications"];

const QUESTION: &str = "What is your name?";
const ADDED_DESCRIPTION: &str = "A tool that add_tool added.";

/// The built-in tools, as they are listed.
static TOOLS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let text = json!({"type": "string"});
    let number = json!({"type": "number"});
    let tool_name = json!({"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"});
    let output = json!({"type": "object", "properties": {"sum": number}, "required": ["sum"]});
    vec![
        json!({
            "name": "echo", "title": "Echo", "annotations": hints(true, false),
            "description": "Returns the given message.",
            "inputSchema": schema(json!({"message": text}), &["message"]),
        }),
        json!({
            "name": "add", "title": "Add", "annotations": hints(true, false),
            "description": "Adds two numbers; the result is also structured content.",
            "inputSchema": schema(json!({"a": number, "b": number}), &["a", "b"]),
            "outputSchema": output,
        }),
        json!({
            "name": "slow", "title": "Slow", "annotations": hints(true, false),
            "description": "Takes its time, reports progress and can be cancelled.",
            "inputSchema": schema(json!({
                "steps": integer(1, STEPS_MAX, 5), "delay_ms": integer(0, DELAY_MAX_MS, 200),
            }), &[]),
        }),
        json!({
            "name": "ask", "title": "Ask", "annotations": hints(true, false),
            "description": "Asks the user a question (elicitation) and repeats the answer.",
            "inputSchema": schema(json!({"question": {"type": "string", "default": QUESTION}}), &[]),
        }),
        json!({
            "name": "crash", "title": "Crash", "annotations": hints(false, true),
            "description": "Ends the process of this server with exit code 13.",
            "inputSchema": schema(json!({"delay_ms": integer(0, DELAY_MAX_MS, 0)}), &[]),
        }),
        json!({
            "name": "flood", "title": "Flood", "annotations": hints(true, false),
            "description": "Writes noise that is not a response, then responds.",
            "inputSchema": schema(json!({
                "lines": integer(1, LINES_MAX, 1000), "kind": choice(&FLOODS),
            }), &[]),
        }),
        json!({
            "name": "big", "title": "Big", "annotations": hints(true, false),
            "description": "Returns a text of the given size.",
            "inputSchema": schema(json!({"bytes": integer(0, BYTES_MAX, 1024 * 1024)}), &[]),
        }),
        json!({
            "name": "log", "title": "Log", "annotations": hints(true, false),
            "description": "Sends a log message at a level.",
            "inputSchema": schema(json!({"message": text, "level": choice(&LEVELS)}), &["message"]),
        }),
        json!({
            "name": "touch", "title": "Touch", "annotations": hints(false, false),
            "description": "Adds one to the resource example://counter.",
            "inputSchema": schema(json!({}), &[]),
        }),
        json!({
            "name": "add_tool", "title": "Add a tool", "annotations": hints(false, false),
            "description": "Adds a tool that echoes its arguments.",
            "inputSchema": schema(json!({"name": tool_name, "description": text}), &["name"]),
        }),
        json!({
            "name": "remove_tool", "title": "Remove a tool", "annotations": hints(false, false),
            "description": "Removes a tool that add_tool added.",
            "inputSchema": schema(json!({"name": tool_name}), &["name"]),
        }),
    ]
});

/// A tool's effect on its surroundings.
fn hints(read_only: bool, destructive: bool) -> Value {
    json!({
        "readOnlyHint": read_only, "destructiveHint": destructive,
        "idempotentHint": read_only, "openWorldHint": false,
    })
}

fn integer(low: u64, high: u64, default: u64) -> Value {
    json!({"type": "integer", "minimum": low, "maximum": high, "default": default})
}

/// One of these strings, of which the first is the default.
fn choice(choices: &[&str]) -> Value {
    json!({"type": "string", "enum": choices, "default": choices.first()})
}

fn built_in(name: &str) -> Option<&'static Value> {
    TOOLS.iter().find(|tool| tool["name"] == name)
}

pub(super) fn list(session: &ExampleSession) -> Value {
    let mut tools = TOOLS.clone();
    tools.extend(session.state().added.iter().map(|(name, description)| {
        json!({
            "name": name, "title": name, "description": description,
            "annotations": hints(true, false), "inputSchema": {"type": "object"},
        })
    }));
    json!({ "tools": tools })
}

/// Runs a tool. An unknown tool is a protocol error (S-TOOL-11); a failing tool or invalid
/// arguments yield a result with `isError` (S-TOOL-12).
pub(super) async fn call(session: &Arc<ExampleSession>, params: &Value) -> Result<Value, RpcError> {
    let Some(name) = params["name"].as_str() else {
        return Err(RpcError::params("`name` is missing or not a string"));
    };
    let given = &params["arguments"];
    let Some(tool) = built_in(name) else {
        if !session.state().added.contains_key(name) {
            return Err(RpcError::params(format!("unknown tool `{name:.80}`")));
        }
        return Ok(text_result(format!("{name} was called with {given}")));
    };
    let args = match Args::read(&tool["inputSchema"], given) {
        Ok(args) => args,
        Err(error) => return Ok(error_result(error)),
    };
    let outcome = match name {
        "echo" => Ok(args.text("message").to_owned()),
        "add" => return Ok(add(session, &args)),
        "slow" => Ok(slow(session, &args, &params["_meta"]["progressToken"]).await),
        "ask" => ask(session, args.text("question")).await,
        "crash" => crash(session, &args).await,
        "flood" => Ok(flood(session, &args).await),
        "big" => big(&args),
        "log" => Ok(log(session, &args).await),
        "touch" => Ok(touch(session).await),
        "add_tool" => add_tool(session, &args).await,
        _ => remove_tool(session, args.text("name")).await,
    };
    Ok(outcome.map_or_else(error_result, text_result))
}

fn text_result(text: String) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn error_result(text: String) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": true})
}

fn add(session: &ExampleSession, args: &Args) -> Value {
    let sum = args.number("a") + args.number("b");
    let whole = sum.fract() == 0.0 && sum.abs() < 9e15;
    #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
    let sum = if whole { json!(sum as i64) } else { json!(sum) };
    if sum.is_null() {
        return error_result("the sum is too large for a number".to_owned());
    }
    let structured = json!({"sum": sum});
    let mut result = text_result(structured.to_string());
    if session.since("2025-06-18") {
        result["structuredContent"] = structured;
    }
    result
}

async fn slow(session: &ExampleSession, args: &Args, token: &Value) -> String {
    let steps = args.integer("steps");
    let delay = Duration::from_millis(args.integer("delay_ms"));
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
    format!("done after {steps} steps")
}

async fn ask(session: &Arc<ExampleSession>, question: &str) -> Result<String, String> {
    if !session.since("2025-06-18") {
        return Err(
            "the user cannot be asked: elicitation needs revision 2025-06-18 or later".to_owned(),
        );
    }
    if !session.can_ask() {
        return Err("the user cannot be asked: the client did not declare elicitation".to_owned());
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
        return Err("the session ended before a response arrived".to_owned());
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

async fn crash(session: &ExampleSession, args: &Args) -> Result<String, String> {
    tokio::time::sleep(Duration::from_millis(args.integer("delay_ms"))).await;
    session.crash.notify_one();
    std::future::pending().await
}

async fn flood(session: &ExampleSession, args: &Args) -> String {
    let (lines, kind) = (args.integer("lines"), args.text("kind"));
    let mut sent = 0;
    for number in 1..=lines {
        let noise = format!("noise {number} of {lines}, not JSON");
        if kind == "notifications" {
            let is_sent = session.log("info", "flood", noise.into()).await;
            sent += u64::from(is_sent);
            continue;
        }
        if kind != "stdout" {
            super::log_stderr(&noise);
        }
        if kind != "stderr" {
            session.send_line(noise).await;
        }
        sent += 1;
        // Writing to stderr never waits: other requests run here.
        tokio::task::consume_budget().await;
    }
    format!("wrote {sent} lines of {kind}")
}

fn big(args: &Args) -> Result<String, String> {
    let bytes = usize::try_from(args.integer("bytes")).map_err(|error| error.to_string())?;
    Ok("0123456789abcdef".chars().cycle().take(bytes).collect())
}

async fn log(session: &ExampleSession, args: &Args) -> String {
    let level = args.text("level");
    let is_sent = session.log(level, "example", args.text("message").into());
    let outcome = if is_sent.await {
        "sent"
    } else {
        "not sent, the client requested only more severe ones"
    };
    format!("message at level {level}: {outcome}")
}

async fn touch(session: &ExampleSession) -> String {
    let (count, subscribed) = {
        let mut state = session.state();
        state.touched += 1;
        (state.touched, state.subscribed.contains(COUNTER))
    };
    if subscribed {
        let params = json!({"uri": COUNTER});
        session
            .notify("notifications/resources/updated", Some(params))
            .await;
    }
    format!("{COUNTER} is now {count}")
}

async fn add_tool(session: &ExampleSession, args: &Args) -> Result<String, String> {
    let name = args.text("name");
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
        return Err("`name` must be 1 to 64 of A-Z a-z 0-9 _ . -".to_owned());
    }
    if built_in(name).is_some() {
        return Err(format!("`{name}` is built in"));
    }
    {
        let added = &mut session.state().added;
        if added.len() >= ADDED_MAX && !added.contains_key(name) {
            return Err(format!("there are {ADDED_MAX} added tools already"));
        }
        let description = match args.text("description") {
            "" => ADDED_DESCRIPTION,
            given => given,
        };
        added.insert(name.to_owned(), description.to_owned());
    }
    tools_changed(session).await;
    Ok(format!("added `{name}`"))
}

async fn remove_tool(session: &ExampleSession, name: &str) -> Result<String, String> {
    if session.state().added.remove(name).is_none() {
        return Err(format!("`{name:.80}` was not added by add_tool"));
    }
    tools_changed(session).await;
    Ok(format!("removed `{name}`"))
}

async fn tools_changed(session: &ExampleSession) {
    session
        .notify("notifications/tools/list_changed", None)
        .await;
}
