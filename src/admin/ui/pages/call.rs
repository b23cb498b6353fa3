//! `/ui/calls/ID`: one call in the history.

use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::calls::{duration, outcome};
use super::confirm::{confirm, is_sure};
use crate::admin::history::history_entry;
use crate::admin::status::ToolView;
use crate::admin::ui::fields::Fields;
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::parts::Button;
use crate::admin::ui::{parts, text};
use crate::history::RecordedCall;
use crate::id::ViewId;
use crate::protocol::Failure;

/// # Errors
///
/// Returns an error when no such call exists.
pub(super) async fn page(view: &View<'_>, id: &str) -> Result<Page, Failure> {
    let entry = history_entry(&view.operator.state.history, id).await?;
    Ok(shown(view, id, &entry))
}

fn shown(view: &View<'_>, id: &str, call: &RecordedCall) -> Page {
    let title = call.title();
    Page::new(Section::Calls, title).fixed(html! {
        p .crumb { a href="/ui/calls" { "Calls" } }
        header .heading {
            h1 { (text::line(title)) (outcome(call)) }
            div .actions {
                @if call.replayable {
                    (Button::new(&format!("/ui/calls/{id}/replay"), "Call again").primary().asks().show())
                }
            }
        }
        (facts(call))
        (body("Parameters", call.params.as_ref(), &call.params_state))
        (body("Result", call.result.as_ref(), &call.result_state))
        (curl(view, call))
    })
}

fn facts(call: &RecordedCall) -> Markup {
    let durations = &call.durations;
    html! {
        dl .figures {
            (parts::figure("Took", &duration(durations.total), ""))
            (parts::figure("At the server", &duration(durations.server), ""))
            (parts::figure("Waited", &duration(durations.queue), "in the queue"))
        }
        div .card {
            dl .facts {
                dt { "Ended" } dd { (text::moment(call.timestamp)) }
                dt { "Method" } dd { (text::code(&call.method)) }
                @if let Some(server) = &call.server_id {
                    dt { "Server" } dd { a href=(format!("/ui/servers/{server}")) { (text::line(server)) } }
                }
                dt { "Client" } dd { (text::line(call.client.as_deref().unwrap_or_default())) }
                dt { "Revision" } dd { (text::line(&call.revision)) }
                @if let Some(error) = &call.error { dt { "Error" } dd { (text::code(&error.code)) } }
                dt { "Bytes" }
                dd {
                    (text::count(call.request_bytes)) " asked, "
                    (text::count(call.answer_bytes)) " answered"
                }
            }
        }
    }
}

fn body(title: &str, body: Option<&Value>, state: &str) -> Markup {
    html! {
        h2 { (title) @if state != "whole" && state != "none" { " (" (state) ")" } }
        @match body {
            None => p .hint { "Not kept." },
            Some(body) => (text::block(&serde_json::to_string_pretty(body).unwrap_or_default())),
        }
    }
}

/// The call as a curl command, if its tool is known and its parameters are complete.
fn curl(view: &View<'_>, call: &RecordedCall) -> Markup {
    let tools = view.operator.state.tools(&ViewId::Default);
    let is_it = |tool: &&ToolView| {
        let is_of_server = call.server_id.as_ref() == Some(&tool.server);
        tool.name == call.target || (tool.native_name == call.target && is_of_server)
    };
    let found = tools.iter().find(is_it);
    let Some(tool) = found.filter(|_| call.replayable && call.method == "tools/call") else {
        return Markup::default();
    };
    let mut params = call.params.clone().unwrap_or_else(|| json!({}));
    if let Some(params) = params.as_object_mut() {
        params.insert("name".to_owned(), json!(tool.native_name));
    }
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let place = format!("{}{}?serverId={}", view.base, view.endpoint, tool.server);
    html! {
        h2 { "As a shell command" }
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
/// Returns the reason why the call cannot be replayed.
pub(super) async fn replay(
    view: &View<'_>,
    id: &str,
    form: &Fields,
) -> Result<FormOutcome, Failure> {
    if !is_sure(form) {
        let text = "Repeat this call? It may take effect a second time.";
        return Ok(confirm(view, form, Section::Calls, ("Call again", text)));
    }
    let entry = history_entry(&view.operator.state.history, id).await?;
    let answer = view.operator.replay(id).await?;
    let page = shown(view, id, &entry).fixed(html! {
        h2 { "New answer" }
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
