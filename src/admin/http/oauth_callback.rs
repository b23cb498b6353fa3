//! `/oauth/callback`: the pages of a login at a server. A login starts at `/oauth/callback/STATE`,
//! which shows whose login it is. A click there continues to the authorization server, which
//! redirects the browser back to `/oauth/callback`. The last page can revoke the login.

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use maud::{Markup, html};
use ring::digest::{SHA256, digest};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use url::Url;

use super::AdminEndpoints;
use super::api::{Check, note_denial};
use crate::admin::operator::{FinishedLogin, LoginUser, OfferedLogin, TakenBackLogin};
use crate::admin::ui::entrance::{check_origin, read_form, status};
use crate::admin::ui::fields::{Fields, field, query_fields};
use crate::admin::ui::visitor::cookie;
use crate::admin::ui::{frame, response, text};
use crate::auth::random_token;
use crate::credentials::{Bearer, SIGN_IN_WITHIN};
use crate::protocol::{ErrorKind, Failure};

/// Query parameter that continues from the first page.
const CONTINUE: &str = "continue";

/// Form field that authorizes the revocation of a login.
const WORD: &str = "word";

/// Maximum size of a form, in bytes.
const FORM_MAX: usize = 4 << 10;

/// Length of the truncated hashes used for cookie names and proofs, in bytes.
const TAG_BYTES: usize = 16;

/// `GET /oauth/callback/STATE`: shows whose login it is, and redirects once the person clicks.
pub(super) async fn page(
    request: HttpRequest,
    endpoints: web::Data<AdminEndpoints>,
    check: web::Data<Check>,
) -> HttpResponse {
    let state = request.match_info().get("state").unwrap_or_default();
    let answered = async {
        check(&request)?;
        // Pages that may call the MCP API must not click on a person's behalf.
        check_origin(&request)?;
        let operator = &endpoints.parts().await.operator;
        let held = cookie(&request, &cookie_name(state)).filter(|held| is_cookie(held));
        let query = query_fields(request.query_string());
        if let (Some(held), Some(proof)) = (&held, field(&query, CONTINUE))
            && proof == proof_of(held)
        {
            let page = operator.continue_login(state, held)?;
            return Ok(response::see_other(page.as_str()));
        }
        let offer = operator.offered_login(state)?;
        let held = match held {
            Some(held) => held,
            None => {
                let made = random_token().map_err(|error| {
                    Failure::new(ErrorKind::Internal, format!("no randomness: {error}"))
                })?;
                made.expose_secret().to_owned()
            }
        };
        let shown = response::page(StatusCode::OK, offer_page(&offer, &proof_of(&held)));
        Ok(response::with_cookie(
            shown,
            &set_cookie(state, &held, &offer.callback),
        ))
    };
    match answered.await {
        Ok(answer) => answer,
        Err(failure) => {
            let operator = &endpoints.parts().await.operator;
            note_denial(&request, &failure, &operator.state.counters);
            response::page(StatusCode::BAD_REQUEST, refusal_page(&failure))
        }
    }
}

/// `GET /oauth/callback`. Needs no token, because the browser is redirected here from another site.
/// The `state` must be known, and the browser must be the one that continued from the first page.
pub(super) async fn callback(
    request: HttpRequest,
    endpoints: web::Data<AdminEndpoints>,
    check: web::Data<Check>,
) -> HttpResponse {
    let operator = &endpoints.parts().await.operator;
    let returned = async {
        check(&request)?;
        let query = request.query_string();
        let fields = query_fields(query);
        let cookie = field(&fields, "state").and_then(|it| cookie(&request, &cookie_name(it)));
        let bearer = Bearer::Browser(cookie.as_deref());
        operator.finish_login(query, bearer).await
    };
    let done = returned.await;
    if let Err(failure) = &done {
        note_denial(&request, failure, &operator.state.counters);
    }
    let status = match &done {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::BAD_REQUEST,
    };
    let accept = request.headers().get(header::ACCEPT);
    let wants_page = accept.is_some_and(|it| it.to_str().is_ok_and(|it| it.contains("text/html")));
    match &done {
        Ok(granted) if wants_page => response::page(status, granted_page(granted)),
        Err(failure) if wants_page => response::page(status, refusal_page(failure)),
        Ok(granted) => response::json(status, granted),
        Err(failure) => response::json(status, &refusal(&request, failure)),
    }
}

/// `POST /oauth/callback`: revokes a login right after sign-in.
pub(super) async fn take_back(
    request: HttpRequest,
    payload: web::Payload,
    endpoints: web::Data<AdminEndpoints>,
    check: web::Data<Check>,
) -> HttpResponse {
    let operator = &endpoints.parts().await.operator;
    let taken = async {
        check(&request)?;
        check_origin(&request)?;
        let form: Fields = read_form(&request, payload, FORM_MAX).await?;
        let word = field(&form, WORD).unwrap_or_default().to_owned();
        operator.take_back_login(&word).await
    };
    match taken.await {
        Ok(taken) => response::page(StatusCode::OK, taken_back_page(&taken)),
        Err(failure) => {
            note_denial(&request, &failure, &operator.state.counters);
            let status = match failure.kind {
                ErrorKind::LoginFailed => StatusCode::BAD_REQUEST,
                _ => status(&failure),
            };
            response::page(status, refusal_page(&failure))
        }
    }
}

/// The name of a login's cookie. Each login has its own, so that one browser can take part in
/// several.
fn cookie_name(state: &str) -> String {
    format!("mcpvisor-login-{}", tag("name", state))
}

/// Proves that a click came from our page: it is derived from the cookie, which other pages cannot
/// read.
fn proof_of(cookie: &str) -> String {
    tag("continue", cookie)
}

fn tag(purpose: &str, text: &str) -> String {
    let hash = digest(&SHA256, format!("{purpose} {text}").as_bytes());
    let bytes = hash.as_ref().iter().take(TAG_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a cookie value has the expected format.
fn is_cookie(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The `Set-Cookie` header of a login, scoped to the callback path. `Lax`, because the browser
/// returns from another site.
fn set_cookie(state: &str, value: &str, callback: &str) -> String {
    let callback = Url::parse(callback).ok();
    let is_https = callback.as_ref().is_some_and(|it| it.scheme() == "https");
    let secure = if is_https { "; Secure" } else { "" };
    let path = callback.as_ref().map_or("/oauth/callback", Url::path);
    let (name, seconds) = (cookie_name(state), SIGN_IN_WITHIN.as_secs());
    format!("{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

/// A refusal in MCP Inspector's format, with the authorization server's error code if it refused.
fn refusal(request: &HttpRequest, failure: &Failure) -> Value {
    let query = query_fields(request.query_string());
    let is_plain = |code: &&str| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let code = field(&query, "error").filter(is_plain);
    let is_refused = failure.kind == ErrorKind::LoginFailed;
    let code = code.filter(|_| is_refused).unwrap_or(failure.kind.as_str());
    json!({ "success": false, "error": code, "errorDescription": failure.message })
}

/// Names the clients whose calls use the token of a login.
fn whose(user: Option<&LoginUser>) -> Markup {
    html! {
        @match user {
            None => { "all clients of this gateway" }
            Some(key) if key.is_key => { "the API key " b { (text::line(&key.name)) } }
            Some(user) => { b { (text::line(&user.name)) } " (" (text::line(&user.issuer)) ")" }
        }
    }
}

fn offer_page(offer: &OfferedLogin, proof: &str) -> Markup {
    let (server, user) = (&offer.server, offer.user.as_ref());
    let title = format!("Sign in to {server}");
    frame::bare(
        &title,
        html! {
            div .card.message {
                h1 { "Sign in to " (text::line(server)) "?" }
                p {
                    "If you sign in, calls of " (whose(user)) " to the server "
                    b { (text::line(server)) } " are made with "
                    strong { "your" } " account at " (text::code(&offer.issuer)) "."
                }
                p { "Requested by " (text::sentence(&offer.requester)) "." }
                p .notice.warn {
                    "Continue only if you asked for this yourself. If another person gave you this \
                     link, close this page."
                }
                p {
                    a .button.primary href=(format!("?{CONTINUE}={proof}")) rel="nofollow" {
                        "Continue"
                    }
                }
            }
        },
    )
}

fn granted_page(granted: &FinishedLogin) -> Markup {
    let (server, user) = (&granted.server_name, granted.user.as_ref());
    frame::bare(
        "Signed in",
        html! {
            div .card.message {
                h1 { "Signed in" }
                p {
                    "Calls of " (whose(user)) " to the server " b { (text::line(server)) }
                    " are made with your account now. You can close this page."
                }
                form method="post" action="?" {
                    input type="hidden" name=(WORD) value=(granted.take_back);
                    p { "If you did this by mistake:" }
                    button type="submit" { "Revoke this access" }
                }
            }
        },
    )
}

fn taken_back_page(taken: &TakenBackLogin) -> Markup {
    let (server, user) = (&taken.server, taken.user.as_ref());
    frame::bare(
        "Signed out",
        html! {
            div .card.message {
                h1 { "Signed out" }
                p {
                    "The gateway has forgotten the token for the server " b { (text::line(server)) }
                    " and asked the authorization server to revoke it. Calls of " (whose(user))
                    " no longer use your account."
                }
                p .hint { "Tell the operator of this gateway who gave you the link." }
            }
        },
    )
}

fn refusal_page(failure: &Failure) -> Markup {
    frame::bare(
        "Not signed in",
        html! {
            div .card.message {
                h1 { "Not signed in" }
                p { (text::full_sentence(&failure.message)) "." }
                p {
                    "Ask for a new link where you got this one, or with " code { "mcpvisor auth login" } "."
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_of_a_login_goes_only_to_the_address_that_browsers_come_back_to() {
        let of = |callback: &str| set_cookie("s", "v", callback);
        let name = cookie_name("s");
        assert_eq!(
            of("http://127.0.0.1:7420/oauth/callback"),
            format!("{name}=v; Path=/oauth/callback; Max-Age=600; HttpOnly; SameSite=Lax")
        );
        assert_eq!(
            of("https://a.example/x/oauth/callback"),
            format!(
                "{name}=v; Path=/x/oauth/callback; Max-Age=600; HttpOnly; SameSite=Lax; Secure"
            )
        );
        assert_ne!(name, cookie_name("t"));
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
    }

    #[test]
    fn pages_name_server_user_and_requester_and_nothing_of_them_is_markup() {
        let bad = "<xss>\u{202e}\u{1b}[2J";
        let users = [
            (Some(true), "the API key"),
            (Some(false), "("),
            (None, "all clients of this gateway"),
        ];
        for (user, expected) in users {
            let text = || bad.to_owned();
            let user = user.map(|is_key| LoginUser {
                is_key,
                issuer: text(),
                name: text(),
            });
            let offer = OfferedLogin {
                server: text(),
                user: user.clone(),
                issuer: text(),
                requester: text(),
                callback: text(),
            };
            let granted = FinishedLogin {
                success: true,
                server_id: text(),
                server_name: text(),
                user: user.clone(),
                token_type: text(),
                expires_in: None,
                scope: text(),
                take_back: text(),
            };
            let taken = TakenBackLogin {
                server: text(),
                user,
            };
            for page in [
                offer_page(&offer, "proof").into_string(),
                granted_page(&granted).into_string(),
                taken_back_page(&taken).into_string(),
            ] {
                assert!(
                    page.contains(expected) && page.contains("&lt;xss&gt;"),
                    "{page}"
                );
                let raw = ["<xss>", "\u{202e}", "\u{1b}"];
                let form = page.replace("value=\"&lt;xss&gt;\u{202e}\u{1b}[2J\"", "");
                assert!(raw.iter().all(|raw| !form.contains(raw)), "{page}");
            }
        }
    }
}
