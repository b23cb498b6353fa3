//! A request from the dashboard: its progress, questions and answer.

use maud::{Markup, html};
use serde_json::json;
use url::Url;

use super::arguments::{self, Inputs, Problem};
use super::calls::duration;
use super::tools::item_link;
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::page::View;
use crate::admin::ui::playground::{
    CallProgress, Ending, Item, PlaygroundAnswer, PlaygroundCall, PlaygroundOutcome,
    PlaygroundQuestion, Stage,
};
use crate::admin::ui::{parts, text};
use crate::protocol::{ErrorKind, Failure};

/// Form field with the action for a call: `answer`, `decline` or `cancel`.
pub(super) const ORDER: &str = "order";

/// Form field with the number of the answered question.
const QUESTION: &str = "question";

/// The URL of a call's page.
pub(super) fn link(call: &PlaygroundCall) -> String {
    let item = item_link((&call.view, call.kind), &call.tool);
    format!("{item}&call={}", call.id)
}

/// Performs a form's action on the call. Returns the invalid values of an answer.
///
/// # Errors
///
/// Returns the reason for a refusal.
pub(super) async fn act(
    call: &PlaygroundCall,
    order: &str,
    form: &Fields,
) -> Result<Vec<Problem>, Failure> {
    if order == "cancel" {
        call.cancel();
        call.settled().await;
        return Ok(Vec::new());
    }
    let Stage::Asks(question) = call.state().stage else {
        return Err(answered_already());
    };
    let result = match (order, &question.url) {
        ("answer", Some(_)) => json!({"action": "accept"}),
        ("answer", None) => match arguments::read(&question.schema, form) {
            Ok(content) => json!({"action": "accept", "content": content}),
            Err(problems) => return Ok(problems),
        },
        _ => json!({"action": "decline"}),
    };
    let number = field(form, QUESTION).and_then(|number| number.parse().ok());
    if !number.is_some_and(|number| call.answer(number, result)) {
        return Err(answered_already());
    }
    call.settled().await;
    Ok(Vec::new())
}

fn answered_already() -> Failure {
    let message = "this question is no longer pending: go back and reload the page";
    Failure::new(ErrorKind::Conflict, message)
}

/// The current state of the call. `filled_in` is an answer with errors.
pub(super) fn piece(
    view: &View<'_>,
    call: &PlaygroundCall,
    (filled_in, problems): (&Fields, &[Problem]),
) -> Markup {
    let state = call.state();
    let (tone, word, time) = match &state.stage {
        Stage::Running => ("quiet", "running", None),
        Stage::Asks(_) => ("warn", "asks you", None),
        Stage::Ended(ending) => {
            let (tone, word) = verdict(ending);
            (
                tone,
                word,
                Some(duration(ending.took.as_secs_f64() * 1000.0)),
            )
        }
    };
    let time = time.unwrap_or_else(|| format!("for {}", text::age(whole_millis(call))));
    html! {
        section #result .card.padded.after aria-label="Result" {
            p .title {
                span role="status" { (parts::badge(tone, word)) } " " span .hint { (time) }
            }
            @match &state.stage {
                Stage::Ended(ending) => { (ended(call, ending)) }
                Stage::Running => { (progress(state.progress.as_ref())) (cancel(view, call)) }
                Stage::Asks(question) => {
                    (asked(view, call, question, (filled_in, problems)))
                    (cancel(view, call))
                }
            }
        }
    }
}

/// Shown instead of a call that is no longer stored.
pub(super) fn forgotten() -> Markup {
    html! {
        section #result .card.padded.after aria-label="Result" {
            p .hint { "This call has expired." }
        }
    }
}

fn whole_millis(call: &PlaygroundCall) -> u64 {
    u64::try_from(call.running_for().as_millis()).unwrap_or(u64::MAX)
}

fn verdict(ending: &Ending) -> (&'static str, &'static str) {
    match &ending.outcome {
        PlaygroundOutcome::Answered(answer) if answer.error.is_some() => ("bad", "error"),
        PlaygroundOutcome::Answered(answer) if answer.is_tool_error => ("warn", "the tool failed"),
        PlaygroundOutcome::Answered(_) => ("good", "ok"),
        PlaygroundOutcome::Failed(_) => ("bad", "failed"),
        PlaygroundOutcome::Cancelled => ("warn", "cancelled"),
    }
}

fn progress(progress: Option<&CallProgress>) -> Markup {
    html! {
        @if let Some(progress) = progress {
            div .after {
                progress aria-label="Progress" value=[progress.total.map(|_| progress.done)] max=[progress.total] {}
                p .hint {
                    @if let Some(total) = progress.total { (progress.done) " of " (total) }
                    @else { (progress.done) " so far" }
                    @if !progress.word.is_empty() { ": " (text::line(&progress.word)) }
                }
            }
        }
        noscript { p .after { a .button href="" { "Look again" } } }
    }
}

fn cancel(view: &View<'_>, call: &PlaygroundCall) -> Markup {
    html! {
        form .after method="post" action=(link(call)) {
            (parts::form_token(view))
            button type="submit" name=(ORDER) value="cancel" { "Cancel the call" }
        }
    }
}

fn asked(
    view: &View<'_>,
    call: &PlaygroundCall,
    question: &PlaygroundQuestion,
    (filled_in, problems): (&Fields, &[Problem]),
) -> Markup {
    let inputs = Inputs {
        schema: &question.schema,
        id: &format!("question-{}", question.number),
        filled_in,
        problems,
    };
    html! {
        // The id is unique per question, so that no input carries over from another question.
        form .after id=(format!("question-{}", question.number)) method="post" action=(link(call)) {
            h2 .first { "The server asks" }
            (text::paragraph(&question.text))
            (parts::form_token(view))
            input type="hidden" name=(QUESTION) value=(question.number);
            div .after {
                @match &question.url {
                    Some(url) => { (page_to_open(url)) }
                    None => { (inputs.show("No input is needed.")) }
                }
            }
            div .actions {
                button .primary type="submit" name=(ORDER) value="answer" {
                    @if question.url.is_some() { "I agree" } @else { "Answer" }
                }
                button type="submit" name=(ORDER) value="decline" { "Decline" }
            }
        }
    }
}

/// A link to an external page, with its host displayed prominently.
fn page_to_open(url: &str) -> Markup {
    let parsed = Url::parse(url).ok();
    let web = parsed.filter(|url| matches!(url.scheme(), "https" | "http"));
    html! {
        @match web.as_ref().and_then(|url| Some((url, url.host_str()?))) {
            Some((url, host)) => {
                p {
                    "The server asks you to open a page on "
                    span .strong { (text::line(host)) } ":"
                }
                (text::block(url.as_str()))
                p .field.after {
                    a .button href=(url) target="_blank" rel="noopener noreferrer" { "Open it in a new tab" }
                }
            }
            None => {
                p { "The server asks you to open an address that is not a web page:" }
                (text::block(url))
            }
        }
    }
}

fn ended(call: &PlaygroundCall, ending: &Ending) -> Markup {
    let answer = match &ending.outcome {
        PlaygroundOutcome::Answered(answer) => answer,
        PlaygroundOutcome::Failed(why) => return html! { p { (text::sentence(why)) } },
        PlaygroundOutcome::Cancelled => {
            return html! { p { "Cancelled; the tool may have run, or may still be running." } };
        }
    };
    html! {
        @match &answer.error {
            Some(message) => { (text::block(message)) }
            None => { (content(answer)) }
        }
        details .after { summary { "Full answer" } (text::block(&answer.whole)) }
        details {
            summary { "Request" }
            @let (method, params) = &call.request;
            (text::block(&serde_json::to_string_pretty(&json!({ "method": method, "params": params })).unwrap_or_default()))
        }
    }
}

fn content(answer: &PlaygroundAnswer) -> Markup {
    html! {
        @for item in &answer.items {
            @match item {
                Item::Text(shown) => { (text::block(shown)) }
                Item::Other(kind) => { p .hint { "Content of type " (text::line(kind)) } }
            }
        }
        @if answer.is_cut { p .hint { "The rest is too long to show." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_pages_are_links() {
        let table = [
            (
                "https://good.example@evil.example/x",
                "evil.example</bdi></span>",
                true,
            ),
            ("http://a.example/\"><script>", "%22%3E%3Cscript%3E", true),
            ("javascript:alert(1)", "not a web page", false),
            ("data:text/html,<b>", "not a web page", false),
            ("/ui/logout", "not a web page", false),
        ];
        for (url, expected, is_link) in table {
            let shown = page_to_open(url).into_string();
            assert!(shown.contains(expected), "{shown}");
            assert_eq!(shown.contains("<a "), is_link, "{shown}");
            assert!(
                !shown.contains("<script") && !shown.contains("href=\"j"),
                "{shown}"
            );
        }
    }
}
