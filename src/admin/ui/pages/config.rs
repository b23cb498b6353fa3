//! `/ui/config`: the active configuration, and a form to replace it.

use actix_web::http::StatusCode;
use futures_util::future::OptionFuture;
use maud::{Markup, html};
use serde_json::{Map, Value};
use toml::Table;

use super::policies::{client_field, tested};
use crate::admin::config_order::{
    ConfigText, EditedFile, EntryOrder, FileContent, FileOrder, KeptFiles, PlannedChanges,
    PlannedFile, ReplacedFile,
};
use crate::admin::status::ConfigView;
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::{FormOutcome, Page, Section, View};
use crate::admin::ui::{parts, text};
use crate::protocol::{ErrorKind, Failure};

pub(super) async fn page(view: &View<'_>) -> Page {
    let status = view.operator.status();
    Page::new(Section::Config, "Configuration")
        .fixed(parts::heading("Configuration", None))
        .live("config", state(&status.config))
        .once(view, async {
            let file = current(view).await;
            replacements(view, &file.0, &file.1, None).await
        })
        .await
}

/// The file for the editor, and its entity tag; both empty if it cannot be edited.
async fn current(view: &View<'_>) -> (String, String) {
    let order = view.operator.config_orders.ask(FileOrder::Edit, None);
    let Ok(answer) = order.await else {
        return <(String, String)>::default();
    };
    let text = answer.read::<EditedFile>().unwrap_or_default().text;
    (text.unwrap_or_default(), answer.etag)
}

/// The tables of a section such as `views`, as they are written, by name.
pub(super) async fn written_tables(view: &View<'_>, section: &str) -> Map<String, Value> {
    let file = view
        .operator
        .config_orders
        .ask(EntryOrder::Text, None)
        .await;
    let file = file.and_then(|answer| answer.read::<ConfigText>());
    let file: Option<Table> = file.ok().and_then(|file| file.text.parse().ok());
    let tables = file.and_then(|mut file| serde_json::to_value(file.remove(section)?).ok());
    match tables {
        Some(Value::Object(tables)) => tables,
        _ => Map::new(),
    }
}

/// Shows what a new content would change.
///
/// # Errors
///
/// Returns the failure to show on the page.
pub(super) async fn plan(view: &View<'_>, form: &Fields) -> Result<FormOutcome, Failure> {
    let content = content_of(form)?;
    let order = FileOrder::Plan(content.clone());
    let orders = &view.operator.config_orders;
    let etag = field(form, "etag").filter(|etag| !etag.is_empty());
    let answer = match (orders.ask(order, etag.map(str::to_owned)).await, &content) {
        (Err(refused), FileContent::Text(text)) => {
            return Ok(refused_again(view, text, etag.unwrap_or_default(), &refused).await);
        }
        (answer, _) => answer?,
    };
    let planned_file: PlannedFile = answer.read()?;
    let policies = planned_file.policies.as_ref();
    let tested = OptionFuture::from(policies.map(|it| tested(view, it, form))).await;
    let page = Page::new(Section::Config, "Plan").fixed(html! {
        (parts::heading("Plan", None))
        div #planned {
            (planned(planned_file.plan.as_ref()))
            @if let Some(tested) = tested { (tested) }
            @if !planned_file.diff.is_empty() {
                h2 { "Differences" }
                // A mark can be moved to a text that is no secret elsewhere.
                (text::diff(&view.operator.state.log.secrets().masked(&planned_file.diff)))
                p .hint.after { "Comments are left out, and secrets are masked." }
            }
        }
        form .actions.after method="post" action="/ui/config/apply" {
            (parts::form_token(view))
            input type="hidden" name="etag" value=(answer.etag);
            @match &content {
                FileContent::Text(text) => { input type="hidden" name="content" value=(text); }
                FileContent::Kept(name) => { input type="hidden" name="kept" value=(name); }
            }
            button .primary type="submit" { "Apply" }
            a .button href="/ui/config" { "Cancel" }
            @if policies.is_some() { (client_field(view, form)) }
        }
    });
    Ok(FormOutcome::Page(StatusCode::OK, page))
}

/// Applies a content if the file has not changed since the comparison.
///
/// # Errors
///
/// Returns the failure to show on the page.
pub(super) async fn apply(view: &View<'_>, form: &Fields) -> Result<FormOutcome, Failure> {
    let etag = field(form, "etag").map(str::to_owned);
    let order = FileOrder::Replace(content_of(form)?);
    let orders = &view.operator.config_orders;
    let answer = orders.ask(order, etag).await.map_err(|failure| {
        let message = "the file changed after the comparison: review the changes again";
        match failure.kind {
            ErrorKind::PreconditionFailed => Failure::new(failure.kind, message),
            _ => failure,
        }
    })?;
    let message = match answer.read::<ReplacedFile>()?.changed {
        true => "The new configuration is active; the previous one is kept below.",
        false => "Nothing changed: the file already has this content.",
    };
    Ok(FormOutcome::Done {
        to: "/ui/config".to_owned(),
        message: message.to_owned(),
    })
}

fn content_of(form: &Fields) -> Result<FileContent, Failure> {
    if let Some(name) = field(form, "kept") {
        return Ok(FileContent::Kept(name.to_owned()));
    }
    // Browsers submit CRLF line endings.
    let content = field(form, "content").map(|text| text.replace("\r\n", "\n"));
    content.map(FileContent::Text).ok_or_else(|| {
        Failure::new(
            ErrorKind::InvalidRequest,
            "form: `content` or `kept` is missing",
        )
    })
}

async fn refused_again(
    view: &View<'_>,
    content: &str,
    etag: &str,
    refused: &Failure,
) -> FormOutcome {
    let page = Page::new(Section::Config, "Configuration")
        .fixed(parts::heading("Configuration", None))
        .once(view, replacements(view, content, etag, Some(refused)))
        .await;
    FormOutcome::Page(StatusCode::UNPROCESSABLE_ENTITY, page)
}

fn planned(plan: Option<&PlannedChanges>) -> Markup {
    let Some(plan) = plan else {
        return html! {
            p .notice.warn { "The current file is invalid, so the changes cannot be determined." }
        };
    };
    let servers = plan.servers.iter();
    let changes: Vec<(&String, &String)> = servers
        .flat_map(|(verb, names)| names.iter().map(move |name| (verb, name)))
        .collect();
    let nothing = changes.is_empty() && plan.needs_restart.is_empty() && !plan.gateway_changed;
    html! {
        @if nothing {
            p .notice { "Servers and clients are not affected." }
        } @else {
            p .hint { "Client sessions continue and are notified of changed lists." }
            ul .card {
                @for (verb, name) in changes {
                    li .row { (parts::badge(tone(verb), verb)) (text::code(name)) }
                }
                @if plan.gateway_changed { li .row { (parts::badge("quiet", "changed")) "gateway settings" } }
                @for key in &plan.needs_restart {
                    li .row { (parts::badge("warn", "next start")) (text::code(key)) }
                }
            }
        }
    }
}

fn tone(verb: &str) -> &'static str {
    match verb {
        "started" => "good",
        "stopped" => "bad",
        "restarted" => "warn",
        _ => "quiet",
    }
}

/// The editor, and the earlier versions.
async fn replacements(
    view: &View<'_>,
    content: &str,
    etag: &str,
    refused: Option<&Failure>,
) -> Markup {
    let orders = &view.operator.config_orders;
    let kept = match orders.ask(FileOrder::Kept, None).await {
        Ok(answer) => answer.read::<KeptFiles>().unwrap_or_default().kept,
        Err(why) => return html! { p .hint.after { (text::full_sentence(&why.message)) } },
    };
    let error = refused.map(|_| "content-error");
    html! {
        form #editor method="post" action="/ui/config/plan" {
            (parts::form_token(view))
            input type="hidden" name="etag" value=(etag);
            label for="content" { "Content of the file" }
            textarea #content .mono.editor name="content" rows="24" required spellcheck="false" wrap="off"
                aria-invalid=[error.map(|_| "true")] aria-describedby=[error] { "\n" (content) }
            p .hint.after { "A mark such as " code { "[REDACTED 1]" } " represents a secret, which stays as it is." }
            div #check aria-live="polite" {
                @if let Some(refused) = refused {
                    p #content-error .error { (text::full_sentence(&refused.message)) }
                }
            }
            div .actions.after { button .primary type="submit" { "Preview changes" } }
        }
        h2 { "Previous versions" }
        @if kept.is_empty() {
            p .hint { "Previous versions appear here when the file is replaced here or with " code { "mcpvisor apply" } "." }
        } @else {
            ul .card {
                @for name in &kept {
                    li .row {
                        div .grow { (text::code(name)) }
                        form method="post" action="/ui/config/plan" {
                            (parts::form_token(view))
                            input type="hidden" name="kept" value=(name);
                            button type="submit" aria-label={ "Compare with " (name) } { "Compare" }
                        }
                    }
                }
            }
        }
    }
}

fn state(config: &ConfigView) -> Markup {
    let ConfigView {
        path,
        warnings,
        refused,
        needs_restart,
    } = config;
    html! {
        @match refused {
            Some(refused) => {
                div .notice.bad {
                    p .strong { "The file is invalid: the previous configuration is still active" }
                    (text::block(refused))
                }
            }
            None => { p .notice.done { "The file is active." } }
        }
        @if !needs_restart.is_empty() {
            p .notice.warn { "Restart the gateway to apply: " @for key in needs_restart { (text::code(key)) " " } }
        }
        @for warning in warnings { p .notice.warn { (text::sentence(warning)) } }
        div .card {
            dl .facts {
                dt { "File" }
                dd { (text::code(path.as_deref().unwrap_or("built in"))) }
            }
        }
        @if path.is_none() {
            p .hint.after {
                "Write it to a file to change it: " code { "mcpvisor config default > config.toml" }
            }
        }
    }
}
