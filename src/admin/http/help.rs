//! `/help` and `/help/CODE`: the sections of docs/errors.md as web pages.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, PreEscaped, html};

use crate::admin::ui::{frame, response};
use crate::protocol::ErrorKind;

const ERRORS: &str = include_str!("../../../docs/errors.md");

/// The help page of an error code, which is matched without regard to case.
pub(super) async fn help(request: HttpRequest) -> HttpResponse {
    let code = request.match_info().get("code");
    let kind = code.map(|code| {
        let mut kinds = ErrorKind::ALL.iter();
        kinds.find(|kind| {
            code.eq_ignore_ascii_case(&kind.api_code()) || code.eq_ignore_ascii_case(kind.as_str())
        })
    });
    let (status, page) = match kind {
        None => (StatusCode::OK, index()),
        Some(Some(kind)) => (StatusCode::OK, page_of(*kind)),
        Some(None) => (StatusCode::NOT_FOUND, index()),
    };
    response::page(status, page)
}

fn index() -> Markup {
    let body = html! {
        div .card.message {
            h1 { "Errors" }
            ul {
                @for code in ErrorKind::ALL.iter().map(|kind| kind.api_code()) {
                    li { a href=(format!("/help/{code}")) { (code) } }
                }
            }
        }
    };
    frame::bare("Errors", body)
}

fn page_of(kind: ErrorKind) -> Markup {
    let code = kind.api_code();
    let body = html! {
        div .card.message {
            h1 { (code) }
            @for paragraph in section(kind.as_str()).split("\n\n") {
                p { (PreEscaped(inline(paragraph.trim()))) }
            }
            p { a href="/help" { "All errors" } }
        }
    };
    frame::bare(&code, body)
}

/// The text below the heading of an error code.
fn section(code: &str) -> &'static str {
    let heading = format!("\n## {code}\n");
    let after = ERRORS.split_once(heading.as_str()).map(|(_, after)| after);
    let text = after.and_then(|after| after.split("\n## ").next());
    text.unwrap_or_default().trim()
}

/// Converts inline code and bold text from Markdown to HTML, and escapes everything else.
fn inline(text: &str) -> String {
    let mut html = String::new();
    for (index, part) in text.split('`').enumerate() {
        let part = escaped(part);
        if index % 2 == 1 {
            html.push_str(&format!("<code>{part}</code>"));
            continue;
        }
        for (index, part) in part.split("**").enumerate() {
            match index % 2 {
                0 => html.push_str(part),
                _ => html.push_str(&format!("<b>{part}</b>")),
            }
        }
    }
    html
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page() {
        for kind in ErrorKind::ALL {
            let page = page_of(*kind).into_string();
            assert!(!section(kind.as_str()).is_empty(), "{kind:?}");
            assert!(page.contains(&kind.api_code()), "{page}");
            assert!(!page.contains("##") && !page.contains("**"), "{page}");
            assert!(!page.contains('`') && !page.contains("]("), "{page}");
            assert!(index().into_string().contains(&kind.api_code()));
        }
    }

    #[test]
    fn what_the_document_says_is_escaped() {
        let html = inline("a < b & **\"c\"**, `<script>`");
        assert_eq!(
            html,
            "a &lt; b &amp; <b>&quot;c&quot;</b>, <code>&lt;script&gt;</code>"
        );
    }
}
