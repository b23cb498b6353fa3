//! The tools of the scripted server: one for each thing that a tool can do.

use mcpvisor::protocol::Revision;
use serde_json::{Value, json};

use super::calls::{Call, Stop};

/// Icons and titles, where the revision has them.
pub(crate) fn adorn(revision: Revision, item: &mut Value) {
    if revision >= Revision::V2025_06_18 {
        item["title"] = json!("A title");
    }
    if revision >= Revision::V2025_11_25 {
        item["icons"] = json!([{ "src": "https://example.com/icon.png" }]);
    }
}

/// Each tool, and the revision that brought what it does.
const TOOLS: &[(&str, Revision)] = &[
    ("echo", Revision::V2024_11_05),
    ("progress", Revision::V2024_11_05),
    ("slow", Revision::V2024_11_05),
    ("log", Revision::V2024_11_05),
    ("fail", Revision::V2024_11_05),
    ("embedded", Revision::V2024_11_05),
    ("touch", Revision::V2024_11_05),
    ("grow", Revision::V2024_11_05),
    ("sample", Revision::V2024_11_05),
    ("roots", Revision::V2024_11_05),
    ("audio", Revision::V2025_03_26),
    ("elicit", Revision::V2025_06_18),
    ("structured", Revision::V2025_06_18),
    ("link", Revision::V2025_06_18),
    ("array", Revision::V2026_07_28),
];

pub(crate) fn list(revision: Revision, grown: bool) -> Vec<Value> {
    let known = TOOLS.iter().filter(|(_, since)| revision >= *since);
    let names = known.map(|(name, _)| *name).chain(grown.then_some("grown"));
    names.map(|name| tool(revision, name)).collect()
}

fn tool(revision: Revision, name: &str) -> Value {
    let mut tool = json!({
        "name": name,
        "description": format!("does {name}"),
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
    });
    adorn(revision, &mut tool);
    if revision >= Revision::V2025_03_26 {
        tool["annotations"] = json!({ "readOnlyHint": true });
    }
    let words = json!({ "type": "array", "items": { "type": "string" } });
    match name {
        "structured" => {
            let properties = json!({ "words": words });
            tool["outputSchema"] = json!({ "type": "object", "properties": properties });
        }
        "array" => tool["outputSchema"] = words,
        _ => {}
    }
    tool
}

fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

fn content(content: Value) -> Value {
    json!({ "content": [content] })
}

pub(crate) async fn run(call: &Call) -> Result<Value, Stop> {
    let name = call.params["name"].as_str().unwrap_or_default();
    let argument = call.params["arguments"]["text"]
        .as_str()
        .unwrap_or_default();
    Ok(match name {
        "echo" | "grown" => text(argument),
        "progress" => {
            (1..=3).for_each(|step| call.progress(step));
            text("went")
        }
        "slow" => {
            call.server.happened("began slow");
            std::future::pending().await
        }
        "log" => {
            call.log(argument);
            text("logged")
        }
        "fail" => {
            let mut result = text("it failed");
            result["isError"] = json!(true);
            result
        }
        "embedded" => content(json!({
            "type": "resource",
            "resource": { "uri": "test://notes/inside", "mimeType": "text/plain", "text": "inside" },
        })),
        "touch" => {
            call.server.touch();
            text("touched")
        }
        "grow" => {
            call.server.grow();
            text("grew")
        }
        "audio" => content(json!({ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" })),
        "link" => content(json!({
            "type": "resource_link", "uri": "test://notes/linked", "name": "linked",
        })),
        "structured" => {
            let words = json!({ "words": ["a", "b"] });
            json!({ "content": [], "structuredContent": words })
        }
        "array" => json!({ "content": [], "structuredContent": ["a", "b"] }),
        "sample" | "roots" | "elicit" => question(call, name).await?,
        _ => return Err(Stop::Error(-32602, format!("no tool {name}"))),
    })
}

/// Asks the client if it said that it can be asked, and tells what it answered.
async fn question(call: &Call, name: &str) -> Result<Value, Stop> {
    let (capability, method, params) = match name {
        "sample" => {
            let said = json!({ "type": "text", "text": "how are you?" });
            let messages = json!([{ "role": "user", "content": said }]);
            let params = json!({ "messages": messages, "maxTokens": 10 });
            ("sampling", "sampling/createMessage", params)
        }
        "roots" => ("roots", "roots/list", json!({})),
        _ => {
            let answer = json!({ "type": "string", "title": "Answer" });
            let schema = json!({ "type": "object", "properties": { "answer": answer } });
            let mut params = json!({ "message": "who are you?", "requestedSchema": schema });
            if call.since(Revision::V2025_11_25) {
                params["mode"] = json!("form");
            }
            ("elicitation", "elicitation/create", params)
        }
    };
    if !call.declared(capability) {
        let mut result = text(format!("{capability} was not declared"));
        result["isError"] = json!(true);
        return Ok(result);
    }
    let answer = call.ask(method, params).await?;
    Ok(text(answer.to_string()))
}
