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
    ("echo", Revision::V2024_10_07),
    ("progress", Revision::V2024_10_07),
    ("slow", Revision::V2024_10_07),
    ("log", Revision::V2024_10_07),
    ("fail", Revision::V2024_10_07),
    ("embedded", Revision::V2024_10_07),
    ("touch", Revision::V2024_10_07),
    ("grow", Revision::V2024_10_07),
    ("sample", Revision::V2024_10_07),
    ("roots", Revision::V2024_10_07),
    ("audio", Revision::V2025_03_26),
    ("elicit", Revision::V2025_06_18),
    ("elicit_twice", Revision::V2025_06_18),
    ("open_page", Revision::V2025_11_25),
    ("structured", Revision::V2025_06_18),
    ("link", Revision::V2025_06_18),
    ("array", Revision::V2026_07_28),
];

pub(crate) fn list(revision: Revision, grown: bool) -> Vec<Value> {
    let known = TOOLS.iter().filter(|(_, since)| revision >= *since);
    // Only this revision refuses a call in this way.
    let refuses = revision == Revision::V2025_11_25;
    let names = known
        .map(|(name, _)| *name)
        .chain(refuses.then_some("page_first"))
        .chain(grown.then_some("grown"));
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
    // A name that is not listed is passed on by the gateway, and is for the server to refuse.
    let mut later = TOOLS.iter().filter(|(_, since)| !call.since(*since));
    if later.any(|(tool, _)| *tool == name) {
        return Err(Stop::Error(-32602, format!("no tool {name}")));
    }
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
        "sample" | "roots" | "elicit" | "open_page" => text(question(call, name).await?),
        "elicit_twice" => {
            let first = question(call, "elicit").await?;
            let second = question(call, "elicit").await?;
            text(format!("first {first}, second {second}"))
        }
        "page_first" if call.server.revision == Revision::V2025_11_25 => page_first(call)?,
        _ => return Err(Stop::Error(-32602, format!("no tool {name}"))),
    })
}

const PAGE: &str = "https://example.com/sign-in";

fn page(call: &Call) -> Value {
    let mut params = json!({ "mode": "url", "message": "sign in", "url": PAGE });
    if !call.server.modern() {
        params["elicitationId"] = json!("a page");
    }
    params
}

/// Refuses once, until the client has been told of the page.
fn page_first(call: &Call) -> Result<Value, Stop> {
    if call.server.saw("page first") {
        return Ok(text("signed in"));
    }
    call.server.happened("page first");
    Err(Stop::First(json!([page(call)])))
}

/// Asks the client, if it said that it can be asked; its answer as a text.
async fn question(call: &Call, name: &str) -> Result<String, Stop> {
    let (capability, method, params) = match name {
        "sample" => {
            let said = json!({ "type": "text", "text": "how are you?" });
            let messages = json!([{ "role": "user", "content": said }]);
            let params = json!({ "messages": messages, "maxTokens": 10 });
            ("/sampling", "sampling/createMessage", params)
        }
        "roots" => ("/roots", "roots/list", json!({})),
        "open_page" => ("/elicitation/url", "elicitation/create", page(call)),
        _ => ("/elicitation", "elicitation/create", form(call)),
    };
    if !call.declared(capability) {
        return Ok(format!("{capability} was not declared"));
    }
    let answer = call.ask(method, params).await?;
    if name == "open_page" && !call.server.modern() {
        let params = json!({ "elicitationId": "a page" });
        call.say("notifications/elicitation/complete", params);
    }
    Ok(answer.to_string())
}

fn form(call: &Call) -> Value {
    let answer = json!({ "type": "string", "title": "Answer" });
    let schema = json!({ "type": "object", "properties": { "answer": answer } });
    let mut params = json!({ "message": "who are you?", "requestedSchema": schema });
    if call.since(Revision::V2025_11_25) {
        params["mode"] = json!("form");
    }
    params
}
