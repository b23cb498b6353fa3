//! `/ui/calls/ID`: one call of the history.

use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::calls::{duration, outcome};
use crate::admin::history::history_entry;
use crate::admin::status::ToolView;
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::parts::Button;
use crate::admin::ui::{parts, text};
use crate::id::ViewId;
use crate::protocol::Failure;

/// # Errors
///
/// Says that there is no such call.
pub(super) async fn page(view: &View<'_>, id: &str) -> Result<Page, Failure> {
    let entry = history_entry(&view.operator.history(), id).await?;
    Ok(shown(view, id, &entry))
}

fn shown(view: &View<'_>, id: &str, entry: &Value) -> Page {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let title = if text("target").is_empty() {
        text("method")
    } else {
        text("target")
    };
    let is_replayable = entry["replayable"] == true;
    Page::new(Section::Calls, title).fixed(html! {
        p .crumb { a href="/ui/calls" { "Calls" } }
        header .heading {
            h1 { (text::line(title)) (outcome(entry)) }
            div .actions {
                @if is_replayable {
                    (Button::new(&format!("/ui/calls/{id}/replay"), "Call again")
                        .asks("Make this call again? It may change something a second time.")
                        .show(view))
                }
            }
        }
        (facts(entry))
        (body("Parameters", &entry["params"], text("paramsState")))
        (body("Result", &entry["result"], text("resultState")))
        (curl(view, entry))
    })
}

fn facts(entry: &Value) -> Markup {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let durations = &entry["durations"];
    html! {
        dl .figures {
            (parts::figure("Took", &duration(&durations["total"]), ""))
            (parts::figure("At the server", &duration(&durations["server"]), ""))
            (parts::figure("Waited", &duration(&durations["queue"]), "in the queue"))
        }
        div .card {
            dl .facts {
                dt { "Ended" } dd { (text::moment(entry["timestamp"].as_u64().unwrap_or(0))) }
                dt { "Method" } dd { (text::code(text("method"))) }
                @if let Some(server) = Some(text("serverId")).filter(|it| !it.is_empty()) {
                    dt { "Server" } dd { a href=(format!("/ui/servers/{server}")) { (text::line(server)) } }
                }
                dt { "Client" } dd { (text::line(text("client"))) }
                dt { "Revision" } dd { (text::line(text("revision"))) }
                @if let Some(code) = entry["error"]["code"].as_str() { dt { "Error" } dd { (text::code(code)) } }
                dt { "Bytes" }
                dd {
                    (text::count(entry["requestBytes"].as_u64().unwrap_or(0))) " asked, "
                    (text::count(entry["answerBytes"].as_u64().unwrap_or(0))) " answered"
                }
            }
        }
    }
}

fn body(title: &str, body: &Value, state: &str) -> Markup {
    let shown = serde_json::to_string_pretty(body).unwrap_or_default();
    html! {
        h2 { (title) @if state != "whole" && state != "none" { " (" (state) ")" } }
        @if body.is_null() { p .hint { "Not kept." } } @else { (text::block(&shown)) }
    }
}

/// The call for a terminal, if its tool is known and its parameters are whole.
fn curl(view: &View<'_>, entry: &Value) -> Markup {
    let tools = view.operator.tools(&ViewId::Default);
    let target = entry["target"].as_str().unwrap_or_default();
    let is_it = |tool: &&ToolView| {
        let is_native = tool.native_name == target && entry["serverId"] == tool.server;
        tool.name == target || is_native
    };
    let found = tools.iter().find(is_it);
    let Some(tool) =
        found.filter(|_| entry["replayable"] == true && entry["method"] == "tools/call")
    else {
        return Markup::default();
    };
    let mut params = entry["params"].clone();
    params["name"] = json!(tool.native_name);
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let place = format!("{}{}?serverId={}", view.base, view.endpoint, tool.server);
    html! {
        h2 { "For a terminal" }
        (parts::snippet("curl", &command(&place, &request.to_string())))
    }
}

fn command(place: &str, request: &str) -> String {
    let quoted = request.replace('\'', "'\\''");
    format!(
        "curl -sS '{place}' -H 'Content-Type: application/json' \\\n  -H \"X-Session-Token: \
         $(mcpvisor token)\" -d '{quoted}'"
    )
}

/// # Errors
///
/// Says why the call cannot be made again.
pub(super) async fn replay(view: &View<'_>, id: &str) -> Result<FormOutcome, Failure> {
    let entry = history_entry(&view.operator.history(), id).await?;
    let answer = view.operator.replay(id).await?;
    let page = shown(view, id, &entry).fixed(html! {
        h2 { "Its answer now" }
        (text::block(&serde_json::to_string_pretty(&answer).unwrap_or_default()))
    });
    Ok(FormOutcome::Page(StatusCode::OK, page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_word_for_the_shell() {
        let shown = command("http://a/mcp?serverId=b", r#"{"a":"it's $(x) `y`"}"#);
        assert!(
            shown.ends_with(r#"-d '{"a":"it'\''s $(x) `y`"}'"#),
            "{shown}"
        );
    }
}
