//! `/ui/tool?name=NAME`: one tool, and a form to try it.

use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::arguments::{self, Problem};
use super::tools::{description, entry, link};
use crate::admin::status::ToolView;
use crate::admin::ui::fields::Fields;
use crate::admin::ui::page::{Outcome, Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure, Method, RawJson, Request, RequestId};

/// # Errors
///
/// Says that there is no such tool.
pub(super) fn page(view: &View<'_>) -> Result<Page, Failure> {
    let tool = find(view)?;
    let entry = entry(&tool);
    Ok(shown(view, &tool, &entry, &Vec::new(), &[], None))
}

fn find(view: &View<'_>) -> Result<ToolView, Failure> {
    let wanted = view.query("name").unwrap_or_default();
    let mut tools = view.operator.tools(&ViewId::Default).into_iter();
    tools.find(|tool| tool.name == wanted).ok_or_else(|| {
        let wanted: String = wanted.chars().take(64).collect();
        Failure::new(
            ErrorKind::NotFound,
            format!("there is no tool {wanted:?} now"),
        )
    })
}

fn shown(
    view: &View<'_>,
    tool: &ToolView,
    entry: &Value,
    filled_in: &Fields,
    problems: &[Problem],
    result: Option<Markup>,
) -> Page {
    let schema = &entry["inputSchema"];
    Page::new(Section::Tools, tool.name.clone()).fixed(html! {
        p .crumb { a href="/ui/tools" { "Tools" } }
        (parts::heading(&tool.name, None))
        div .spread {
            div {
                @if !description(entry).is_empty() { div .card.padded.prose { (text::paragraph(description(entry))) } }
                div .card.after {
                    dl .facts {
                        dt { "Server" } dd { a href=(format!("/ui/servers/{}", tool.server)) { (text::line(&tool.server)) } }
                        dt { "Its name there" } dd { (text::code(&tool.native_name)) }
                        dt { "Cost" } dd { "about " (text::count(tool.tokens as u64)) " tokens in each list" }
                        @let hints = hints(&entry["annotations"]);
                        @if !hints.is_empty() { dt { "It says that it" } dd { (hints.join(", ")) } }
                    }
                }
                details .card.padded.after {
                    summary { "Schema" }
                    (text::block(&serde_json::to_string_pretty(schema).unwrap_or_default()))
                }
            }
            div {
                form .card.padded method="post" action=(link(&tool.name)) {
                    h2 .first { "Try it" }
                    (parts::form_token(view))
                    (arguments::fields(schema, filled_in, problems))
                    button .primary type="submit" { "Call" }
                }
                @if let Some(result) = result { (result) }
            }
        }
    })
}

fn hints(annotations: &Value) -> Vec<&'static str> {
    let words = [
        ("readOnlyHint", true, "only reads"),
        ("destructiveHint", true, "may destroy something"),
        ("idempotentHint", true, "may be repeated"),
        ("openWorldHint", true, "reaches the outside world"),
    ];
    let said = words
        .into_iter()
        .filter(|(name, is, _)| annotations[*name] == *is);
    said.map(|(_, _, words)| words).collect()
}

/// Calls the tool with the arguments of the form.
///
/// # Errors
///
/// Says that there is no such tool.
pub(super) async fn call(view: &View<'_>, form: &Fields) -> Result<Outcome, Failure> {
    let tool = find(view)?;
    let entry = entry(&tool);
    let given = match arguments::read(&entry["inputSchema"], form) {
        Ok(given) => given,
        Err(problems) => {
            let page = shown(view, &tool, &entry, form, &problems, None);
            return Ok(Outcome::Page(StatusCode::UNPROCESSABLE_ENTITY, page));
        }
    };
    let params = json!({ "name": tool.name, "arguments": given });
    let params = RawJson::from_value(&params);
    let request = Request::new(&RequestId::from(1), Method::ToolsCall, Some(&params));
    let begun = Instant::now();
    let answer = view.operator.ask_all(request).await;
    let took = begun.elapsed().as_secs_f64() * 1000.0;
    let result = match answer {
        Ok(answer) => answered(&serde_json::from_slice(&answer).unwrap_or_default(), took),
        Err(why) => result(
            "bad",
            "failed",
            took,
            html! { p { (text::sentence(&why.message)) } },
        ),
    };
    let page = shown(view, &tool, &entry, form, &[], Some(result));
    Ok(Outcome::Page(StatusCode::OK, page))
}

fn answered(answer: &Value, took: f64) -> Markup {
    let raw = serde_json::to_string_pretty(answer).unwrap_or_default();
    let whole = html! { details .after { summary { "The whole answer" } (text::block(&raw)) } };
    let error = &answer["error"];
    if error.is_object() {
        let message = error["message"].as_str().unwrap_or_default();
        return result(
            "bad",
            "error",
            took,
            html! { (text::block(message)) (whole) },
        );
    }
    let content = answer["result"]["content"].as_array().into_iter().flatten();
    let (tone, word) = match answer["result"]["isError"] == true {
        true => ("warn", "the tool failed"),
        false => ("good", "ok"),
    };
    result(
        tone,
        word,
        took,
        html! {
            @for item in content {
                @match item["text"].as_str() {
                    Some(shown) => { (text::block(shown)) }
                    None => { p .hint { "Content of type " (text::line(item["type"].as_str().unwrap_or("?"))) } }
                }
            }
            (whole)
        },
    )
}

fn result(tone: &str, word: &str, took: f64, content: Markup) -> Markup {
    html! {
        section #result .card.padded.after aria-label="Result" {
            p .title { (parts::badge(tone, word)) " " span .hint { (super::calls::duration(&json!(took))) } }
            (content)
        }
    }
}
