//! `/help` and `/help/CODE`: the sections of docs/errors.md as web pages.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse};

use super::with_title_case_headers;
use crate::protocol::ErrorKind;

const ERRORS: &str = include_str!("../../../docs/errors.md");

/// A page, whatever the case of the code.
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
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    let response = HttpResponse::build(status)
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .content_type("text/html; charset=utf-8")
        .body(page);
    with_title_case_headers(response)
}

fn index() -> String {
    let links = ErrorKind::ALL.iter().map(|kind| {
        let code = kind.api_code();
        format!("<li><a href=\"/help/{code}\">{code}</a></li>\n")
    });
    let links: String = links.collect();
    document("Errors", &format!("<h1>Errors</h1>\n<ul>\n{links}</ul>\n"))
}

fn page_of(kind: ErrorKind) -> String {
    let code = kind.api_code();
    let text: String = section(kind.as_str())
        .split("\n\n")
        .map(|paragraph| format!("<p>{}</p>\n", inline(paragraph.trim())))
        .collect();
    let body = format!("<h1>{code}</h1>\n{text}<p><a href=\"/help\">All errors</a></p>\n");
    document(&code, &body)
}

pub(super) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} - mcpvisor</title>\n\
         <style>body{{font:1rem/1.5 sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem}}</style>\n\
         {body}</html>\n"
    )
}

/// The text below the heading of a code.
fn section(code: &str) -> &'static str {
    let heading = format!("\n## {code}\n");
    let after = ERRORS.split_once(heading.as_str()).map(|(_, after)| after);
    let text = after.and_then(|after| after.split("\n## ").next());
    text.unwrap_or_default().trim()
}

/// Code and bold text of Markdown as HTML; all else is escaped.
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

pub(super) fn escaped(text: &str) -> String {
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
            let page = page_of(*kind);
            assert!(!section(kind.as_str()).is_empty(), "{kind:?}");
            assert!(page.contains(&kind.api_code()), "{page}");
            assert!(!page.contains("##") && !page.contains("**"), "{page}");
            assert!(!page.contains('`') && !page.contains("]("), "{page}");
            assert!(index().contains(&kind.api_code()));
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
