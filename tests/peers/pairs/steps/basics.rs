//! The everyday use of servers by a client.

use mcpvisor::protocol::Revision;
use serde_json::{Value, json};

use super::{holds_name, must, text};
use crate::pairs::client::Step;
use crate::pairs::pair::Cell;
use crate::pairs::server::UNKNOWN_METHOD;

/// The resource of the scripted server.
pub(super) const RESOURCE: &str = "test://notes/today";

pub(super) async fn open(cell: &Cell) -> Step {
    let client = &cell.client;
    let result = client.open().await?;
    let agreed = match client.modern() {
        true => {
            let versions = result["supportedVersions"].as_array();
            versions.is_some_and(|all| all.contains(&json!(client.revision)))
        }
        false => result["protocolVersion"] == json!(client.revision),
    };
    must(agreed, "another revision", &result)?;
    let offered = &result["capabilities"];
    let all = ["tools", "prompts", "resources"];
    let all = all.iter().all(|kind| offered[kind]["listChanged"] == true);
    must(all, "not all capabilities", &result)?;
    must(
        offered["resources"]["subscribe"] == true,
        "no subscribe",
        &result,
    )
}

pub(super) async fn ping(cell: &Cell) -> Step {
    let result = cell.client.ask("ping", json!({})).await?;
    must(result == json!({}), "not empty", &result)
}

pub(super) async fn tools(cell: &Cell) -> Step {
    let result = cell.client.ask("tools/list", json!({})).await?;
    must(holds_name(&result["tools"], "s__echo"), "no echo", &result)
}

pub(super) async fn prompts(cell: &Cell) -> Step {
    let result = cell.client.ask("prompts/list", json!({})).await?;
    must(
        holds_name(&result["prompts"], "s__greet"),
        "no greet",
        &result,
    )
}

pub(super) async fn resources(cell: &Cell) -> Step {
    let result = cell.client.ask("resources/list", json!({})).await?;
    must(
        result["resources"][0]["uri"] == RESOURCE,
        "other resources",
        &result,
    )
}

pub(super) async fn templates(cell: &Cell) -> Step {
    let result = cell
        .client
        .ask("resources/templates/list", json!({}))
        .await?;
    let template = &result["resourceTemplates"][0]["uriTemplate"];
    must(
        *template == "test://notes/{day}",
        "other templates",
        &result,
    )
}

pub(super) async fn call(cell: &Cell) -> Step {
    let said = "grüß dich \u{1f30d}";
    let result = cell.client.call("s__echo", said).await?;
    must(text(&result) == said, "another text", &result)
}

pub(super) async fn failing_tool(cell: &Cell) -> Step {
    let result = cell.client.call("s__fail", "").await?;
    let received = result["isError"] == true && text(&result) == "it failed";
    must(received, "no failure of the tool", &result)
}

pub(super) async fn unknown_tool(cell: &Cell) -> Step {
    let error = cell
        .client
        .refused("tools/call", json!({ "name": "s__none" }))
        .await?;
    must(error["code"] == -32602, "another error", &error)
}

pub(super) async fn unknown_method(cell: &Cell) -> Step {
    let error = cell.client.refused(UNKNOWN_METHOD, json!({})).await?;
    must(error["code"] == -32601, "another error", &error)
}

pub(super) async fn progress(cell: &Cell) -> Step {
    let client = &cell.client;
    let meta = json!({ "progressToken": "a token" });
    let params = json!({ "name": "s__progress", "arguments": {}, "_meta": meta });
    let result = client.ask("tools/call", params).await?;
    must(text(&result) == "went", "another text", &result)?;
    client
        .note("notifications/progress", |it| {
            it["progressToken"] == "a token"
        })
        .await?;
    let notes = client.notes(|note| note["method"] == "notifications/progress");
    let steps: Vec<f64> = notes
        .iter()
        .filter_map(|note| note["params"]["progress"].as_f64())
        .collect();
    let grows = steps.windows(2).all(|two| two[0] < two[1]);
    must(grows, "progress that does not grow", &Value::from(steps))
}

pub(super) async fn cancel(cell: &Cell) -> Step {
    let client = &cell.client;
    let params = json!({ "name": "s__slow", "arguments": {} });
    let mut started = client.start("tools/call", params);
    cell.seen("began slow").await?;
    if client.cancels_by_closing() {
        started.sending.abort();
    } else {
        let params = json!({ "requestId": started.id, "reason": "no more" });
        client.notify("notifications/cancelled", params);
    }
    cell.seen("cancelled slow").await?;
    match started.answer.try_recv() {
        Ok(answer) => must(false, "an answer to what was cancelled", &answer),
        Err(_) => Ok(()),
    }
}

pub(super) async fn prompt(cell: &Cell) -> Step {
    let params = json!({ "name": "s__greet", "arguments": { "who": "ann" } });
    let result = cell.client.ask("prompts/get", params).await?;
    let said = &result["messages"][0]["content"]["text"];
    must(*said == "greet ann", "another prompt", &result)
}

pub(super) async fn read(cell: &Cell) -> Step {
    let result = cell
        .client
        .ask("resources/read", json!({ "uri": RESOURCE }))
        .await?;
    must(
        result["contents"][0]["text"] == "a note",
        "another text",
        &result,
    )
}

pub(super) async fn missing(cell: &Cell) -> Step {
    let params = json!({ "uri": "test://notes/never" });
    let error = cell.client.refused("resources/read", params).await?;
    let code = if cell.client.modern() { -32602 } else { -32002 };
    must(error["code"] == code, "another code", &error)
}

pub(super) async fn complete(cell: &Cell) -> Step {
    let reference = json!({ "type": "ref/prompt", "name": "s__greet" });
    let argument = json!({ "name": "who", "value": "ma" });
    let params = json!({ "ref": reference, "argument": argument });
    let result = cell.client.ask("completion/complete", params).await?;
    must(
        result["completion"]["values"][0] == "mary",
        "another completion",
        &result,
    )
}

pub(super) async fn complete_with_context(cell: &Cell) -> Step {
    if cell.pair.client < Revision::V2025_06_18 {
        return Err("such a client has no context to send".to_owned());
    }
    let reference = json!({ "type": "ref/prompt", "name": "s__greet" });
    let argument = json!({ "name": "who", "value": "ma" });
    let context = json!({ "arguments": { "mood": "merry" } });
    let params = json!({ "ref": reference, "argument": argument, "context": context });
    let result = cell.client.ask("completion/complete", params).await?;
    must(
        result["completion"]["values"][1] == "merry",
        "no context",
        &result,
    )
}
