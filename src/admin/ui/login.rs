//! `/ui/login`: sign-in with the API token or with the code of a link.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use maud::{Markup, html};
use tokio::task::spawn_blocking;

use super::assets::MARK;
use super::fields::{field, query_fields};
use super::ui_request::UiRequest;
use super::visitor::{Visitor, login_cookie, set_cookie};
use super::{frame, response};
use crate::admin::ApiToken;
use crate::admin::http::client_address;
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::{Denial, unix_millis};

/// Delay of the answer to a wrong token or code.
const FAILED_DELAY: Duration = Duration::from_secs(1);

pub(super) async fn answer(
    asked: UiRequest<'_>,
    visitor: Option<Visitor>,
) -> Result<HttpResponse, Failure> {
    let query = query_fields(asked.request.query_string());
    let next = next_page(field(&query, "next"));
    let presented = match &asked.form {
        Some(form) => field(form, "token"),
        None => field(&query, "code"),
    };
    let Some(presented) = presented else {
        return Ok(match visitor {
            Some(_) => response::see_other(&next),
            None => response::page(StatusCode::OK, page(&next, None)),
        });
    };
    // Compare first: only wrong logins wait or hit the limit.
    let is_right = match &asked.form {
        Some(_) => asked.token.matches(presented.trim()),
        None => asked.token.redeem_code(presented),
    };
    if is_right {
        let visitor = Visitor::signed_in(asked.token, unix_millis() / 1000).map_err(|error| {
            Failure::new(ErrorKind::Internal, format!("no randomness: {error}"))
        })?;
        let cookie = visitor.set_cookie(asked.request);
        return Ok(response::with_cookie(response::see_other(&next), &cookie));
    }
    Denial {
        code: ErrorKind::SessionInvalid.as_str(),
        action: "login to the dashboard",
        principal: "",
        from: client_address(asked.request),
        reason: "invalid token or link",
    }
    .record(&asked.operator.state.counters);
    let Ok(_attempt) = asked.dashboard.0.failed_logins.try_acquire() else {
        let why = "Too many failed logins. Try again in a moment.";
        return Ok(response::page(
            StatusCode::TOO_MANY_REQUESTS,
            page(&next, Some(why)),
        ));
    };
    tokio::time::sleep(FAILED_DELAY).await;
    let why = match &asked.form {
        Some(_) => "This token is invalid.",
        None => "This link was already used, or has expired.",
    };
    Ok(response::page(
        StatusCode::UNAUTHORIZED,
        page(&next, Some(why)),
    ))
}

/// Redirects to the login from a page that requires it.
pub(super) fn redirect(request: &HttpRequest) -> HttpResponse {
    let next: String = url::form_urlencoded::byte_serialize(request.path().as_bytes()).collect();
    response::see_other(&format!("/ui/login?next={next}"))
}

pub(super) async fn sign_out(
    request: &HttpRequest,
    visitor: &Visitor,
    token: &ApiToken,
) -> HttpResponse {
    visitor.sign_out(token, unix_millis() / 1000);
    let ended = Arc::clone(token.ended());
    let saved = spawn_blocking(move || ended.save()).await;
    let saved = saved.unwrap_or_else(|error| Err(error.into()));
    if let Err(error) = saved {
        log::warn!(error:%; "could not persist a sign-out; its cookie works again after a restart");
    }
    let cookie = set_cookie(request, &login_cookie(request), "", 0);
    response::with_cookie(response::see_other("/ui/login"), &cookie)
}

/// A page of the dashboard; other addresses are replaced by the overview.
fn next_page(wanted: Option<&str>) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_');
    let is_own = |path: &&str| {
        let is_below = *path == "/ui" || path.starts_with("/ui/");
        is_below && path.bytes().all(is_plain) && !path.starts_with("/ui/l") || *path == "/ui/logs"
    };
    wanted.filter(is_own).unwrap_or("/ui").to_owned()
}

fn page(next: &str, why: Option<&str>) -> Markup {
    let action = format!("/ui/login?next={next}");
    frame::bare(
        "Sign in",
        html! {
            form .login.card method="post" action=(action) {
                p .mark { (MARK) }
                h1 { "Sign in to mcpvisor" }
                @if let Some(why) = why {
                    p #login-error .notice.bad role="alert" { (why) }
                }
                label for="token" { "API token" }
                input #token name="token" type="password" required autofocus
                    autocomplete="current-password" spellcheck="false"
                    aria-invalid=[why.map(|_| "true")] aria-describedby="token-help";
                p #token-help .hint {
                    code { "mcpvisor token" } " shows it, and " code { "mcpvisor ui" }
                    " prints a link that signs you in."
                }
                button .primary type="submit" { "Sign in" }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_the_dashboard_only() {
        let table = [
            (None, "/ui"),
            (Some("/ui/servers/one"), "/ui/servers/one"),
            (Some("/ui/logs"), "/ui/logs"),
            (Some("/ui/login"), "/ui"),
            (Some("/ui/logout"), "/ui"),
            (Some("/ui/live"), "/ui"),
            (Some("//evil.example"), "/ui"),
            (Some("/ui/../api"), "/ui"),
            (Some("/uix"), "/ui"),
            (Some("https://evil.example/ui/"), "/ui"),
            (Some("/ui/a\r\nb"), "/ui"),
        ];
        for (wanted, expected) in table {
            assert_eq!(next_page(wanted), expected, "{wanted:?}");
        }
    }
}
