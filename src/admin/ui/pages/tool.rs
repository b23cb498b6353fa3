//! `/ui/tool?name=NAME`, optionally with `view=NAME`: one tool, and a form to try it.

use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::arguments::{self, Inputs, Problem};
use super::playground;
use super::tools::{description, entry, item_link, queried_kind};
use crate::admin::status::ToolView;
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::pieces::Piece;
use crate::admin::ui::{parts, text};
use crate::catalog::ItemKind;
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure};

/// An item, with its view and kind.
type Found = (ViewId, ItemKind, ToolView);

/// A submitted form and its errors.
type Filled<'f> = (&'f Fields, &'f [Problem]);

/// Id of the part that shows the call from the query.
const CALL: &str = "call";

/// # Errors
///
/// Returns an error when no such tool exists.
pub(super) fn page(view: &View<'_>) -> Result<Page, Failure> {
    let Some(id) = view.query(CALL) else {
        return Ok(shown(view, &find(view)?, (&Vec::new(), &[]), None));
    };
    let called = view.playground.find(&view.form_token, id);
    let piece = match &called {
        Some(called) => playground::piece(view, called, (&Vec::new(), &[])),
        None => playground::forgotten(),
    };
    let live = (CALL.to_owned(), Piece::Whole(piece.0.clone()));
    let mut page = match view.is_update {
        true => Page::new(Section::Tools, ""),
        false => {
            let form = called.as_ref().map(|called| called.form.clone());
            let form = form.unwrap_or_default();
            shown(view, &find(view)?, (&form, &[]), Some(piece))
        }
    };
    page.live.push(live);
    Ok(page)
}

/// The tool, prompt or resource, and the view whose names apply.
fn find(view: &View<'_>) -> Result<Found, Failure> {
    let (of, wanted) = (view.queried_view()?, view.query("name").unwrap_or_default());
    let kind = queried_kind(view);
    let items = match kind {
        ItemKind::Tools => view.operator.state.tools(&of),
        kind => view.operator.state.items(kind),
    };
    let found = items.into_iter().find(|item| item.name == wanted);
    found.map(|item| (of, kind, item)).ok_or_else(|| {
        let wanted: String = wanted.chars().take(64).collect();
        Failure::new(ErrorKind::NotFound, format!("nothing is named {wanted:?}"))
    })
}

fn shown(
    view: &View<'_>,
    (of, kind, tool): &Found,
    (filled_in, problems): Filled<'_>,
    call: Option<Markup>,
) -> Page {
    let entry = &entry(tool);
    let schema = &input_schema(*kind, tool);
    let to = item_link((of, *kind), &tool.name);
    let (verb, none) = match kind {
        ItemKind::Tools => ("Call", "It takes no arguments."),
        ItemKind::Prompts => ("Get", "It takes no arguments."),
        _ => ("Read", ""),
    };
    Page::new(Section::Tools, tool.name.clone()).fixed(html! {
        p .crumb {
            @match of {
                ViewId::Named(name) => { a href=(format!("/ui/views/{name}")) { "View " (text::line(name)) } }
                _ => { a href={ "/ui/tools?kind=" (kind.member()) } { "Tools" } }
            }
        }
        (parts::heading(&tool.name, None))
        div .spread {
            div {
                @if !description(entry).is_empty() { div .card.padded.prose { (text::paragraph(description(entry))) } }
                div .card.after {
                    dl .facts {
                        dt { "Server" } dd { a href=(format!("/ui/servers/{}", tool.server)) { (text::line(&tool.server)) } }
                        dt { "Name on the server" } dd { (text::code(&tool.native_name)) }
                        dt { "Cost" } dd { "about " (text::count(tool.tokens as u64)) " tokens per list" }
                        @let hints = hints(entry.get("annotations"));
                        @if !hints.is_empty() { dt { "Declared effects" } dd { (hints.join(", ")) } }
                    }
                }
                details .card.padded.after {
                    summary { "Schema" }
                    (text::block(&serde_json::to_string_pretty(schema).unwrap_or_default()))
                }
            }
            div {
                form .card.padded method="post" action=(to) data-remember {
                    h2 .first { "Try it" }
                    (parts::form_token(view))
                    (Inputs { schema, id: "argument", filled_in, problems }.show(none))
                    button .primary type="submit" { (verb) }
                    p .hint.after {
                        "Questions of the server appear here. Sampling is not available, and roots are limited to the "
                        code { "roots" } " of its configuration."
                    }
                }
                @if let Some(call) = call { div id=(CALL) { (call) } }
            }
        }
    })
}

/// Schema of the arguments: of a tool as it declares them, of a prompt as texts, and of a resource
/// its URI, which completes a template.
fn input_schema(kind: ItemKind, item: &ToolView) -> Value {
    let entry = entry(item);
    let arguments = entry.get("arguments").and_then(Value::as_array);
    let arguments = || arguments.into_iter().flatten();
    let name = |argument: &Value| Some(argument.get("name")?.as_str()?.to_owned());
    match kind {
        ItemKind::Tools => entry.get("inputSchema").cloned().unwrap_or_default(),
        ItemKind::Prompts => {
            let text =
                |it: &Value| json!({ "type": "string", "description": it.get("description") });
            let texts = arguments().filter_map(|it| Some((name(it)?, text(it))));
            let is_required = |it: &&Value| it.get("required") == Some(&Value::Bool(true));
            let required: Vec<String> = arguments().filter(is_required).filter_map(name).collect();
            json!({ "properties": texts.collect::<Map<_, _>>(), "required": required })
        }
        _ => {
            let uri = json!({ "type": "string", "title": "URI", "default": item.name });
            json!({ "properties": { "uri": uri }, "required": ["uri"] })
        }
    }
}

fn hints(annotations: Option<&Value>) -> Vec<&'static str> {
    let words = [
        ("readOnlyHint", true, "only reads"),
        ("destructiveHint", true, "may be destructive"),
        ("idempotentHint", true, "safe to repeat"),
        ("openWorldHint", true, "reaches the outside world"),
    ];
    let said = words
        .into_iter()
        .filter(|(name, is, _)| annotations.and_then(|it| it.get(name)) == Some(&(*is).into()));
    said.map(|(_, _, words)| words).collect()
}

/// Calls the tool with the form's arguments, or performs the form's action on a running call.
///
/// # Errors
///
/// Returns the reason for a refusal.
pub(super) async fn act(view: &View<'_>, form: &Fields) -> Result<FormOutcome, Failure> {
    if let Some(order) = field(form, playground::ORDER) {
        return order_call(view, order, form).await;
    }
    let found = find(view)?;
    let (of, kind, tool) = &found;
    let arguments = match arguments::read(&input_schema(*kind, tool), form) {
        Ok(arguments) => arguments,
        Err(problems) => {
            let page = shown(view, &found, (form, &problems), None);
            return Ok(FormOutcome::Page(StatusCode::UNPROCESSABLE_ENTITY, page));
        }
    };
    let call = (of, *kind, tool.name.as_str(), arguments);
    let called = view
        .playground
        .start(view.operator, &view.form_token, call, form)?;
    called.settled().await;
    Ok(FormOutcome::Done {
        to: playground::link(&called),
        message: String::new(),
    })
}

async fn order_call(view: &View<'_>, order: &str, form: &Fields) -> Result<FormOutcome, Failure> {
    let id = view.query(CALL).unwrap_or_default();
    let called = view.playground.find(&view.form_token, id).ok_or_else(|| {
        let message = "this call has expired";
        Failure::new(ErrorKind::NotFound, message)
    })?;
    let problems = playground::act(&called, order, form).await?;
    if problems.is_empty() {
        return Ok(FormOutcome::Done {
            to: playground::link(&called),
            message: String::new(),
        });
    }
    let piece = playground::piece(view, &called, (form, &problems));
    let page = shown(view, &find(view)?, (&called.form, &[]), Some(piece));
    Ok(FormOutcome::Page(StatusCode::UNPROCESSABLE_ENTITY, page))
}
