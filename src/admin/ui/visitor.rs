//! Dashboard logins: a cookie that only the token's owner can create. Pure, except for its nonce.

use std::io;

use actix_web::HttpRequest;
use actix_web::http::header;
use secrecy::ExposeSecret as _;

use crate::admin::ApiToken;
use crate::admin::base_url::is_secure;
use crate::auth::random_token;

/// Validity of a login, in seconds.
const LOGIN_SECONDS: u64 = 12 * 3600;

/// Purposes of the tags created with the token.
const LOGIN: &str = "login";
const FORM: &str = "form";

/// A signed-in visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Visitor {
    /// Value of the cookie.
    cookie: String,
}

impl Visitor {
    /// Signs a visitor in at this time, in Unix seconds.
    ///
    /// # Errors
    ///
    /// Returns the system's error when it has no randomness.
    pub(super) fn signed_in(token: &ApiToken, now: u64) -> io::Result<Self> {
        let nonce = random_token()?;
        let expires = now.saturating_add(LOGIN_SECONDS);
        let signed = format!("{expires}.{}", nonce.expose_secret());
        let tag = token.tag(LOGIN, &signed);
        Ok(Self {
            cookie: format!("{signed}.{tag}"),
        })
    }

    /// The visitor with this cookie, if it is valid.
    pub(super) fn of_cookie(cookie: &str, token: &ApiToken, now: u64) -> Option<Self> {
        let (signed, tag) = cookie.rsplit_once('.')?;
        let (expires, nonce) = expires_and_nonce(signed)?;
        let is_good = token.has_tag(LOGIN, signed, tag)
            && now < expires
            && !token.ended().has(expires, nonce);
        is_good.then(|| Self {
            cookie: cookie.to_owned(),
        })
    }

    /// The visitor who sent a request.
    pub(super) fn of(request: &HttpRequest, token: &ApiToken, now: u64) -> Option<Self> {
        let cookie = cookie(request, &login_cookie(request))?;
        Self::of_cookie(&cookie, token, now)
    }

    /// Ends the login immediately, including copies of the cookie.
    pub(super) fn sign_out(&self, token: &ApiToken, now: u64) {
        let signed = self.cookie.rsplit_once('.');
        if let Some((expires, nonce)) = signed.and_then(|(signed, _)| expires_and_nonce(signed)) {
            token.ended().end(expires, nonce, now);
        }
    }

    /// Whether the login is still valid.
    pub(super) fn holds(&self, token: &ApiToken, now: u64) -> bool {
        Self::of_cookie(&self.cookie, token, now).is_some()
    }

    /// The token that proves that a form was rendered by the gateway for this login.
    pub(super) fn form_token(&self, token: &ApiToken) -> String {
        token.tag(FORM, &self.cookie)
    }

    pub(super) fn owns_form(&self, token: &ApiToken, presented: &str) -> bool {
        token.has_tag(FORM, &self.cookie, presented)
    }

    /// The `Set-Cookie` header for the login.
    pub(super) fn set_cookie(&self, request: &HttpRequest) -> String {
        set_cookie(request, &login_cookie(request), &self.cookie, LOGIN_SECONDS)
    }
}

/// Splits the signed part of a cookie.
fn expires_and_nonce(signed: &str) -> Option<(u64, &str)> {
    let (expires, nonce) = signed.split_once('.')?;
    Some((expires.parse().ok()?, nonce))
}

/// The name of the login cookie, which contains the port: cookies ignore ports, so two gateways on
/// one machine would otherwise sign each other out.
pub(super) fn login_cookie(request: &HttpRequest) -> String {
    format!("mcpvisor-{}", port(request))
}

/// The name of the cookie that carries a message to the next page.
pub(super) fn message_cookie(request: &HttpRequest) -> String {
    format!("mcpvisor-message-{}", port(request))
}

fn port(request: &HttpRequest) -> &str {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    let is_port = !port.is_empty() && port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    if is_port { port } else { "web" }
}

/// A `Set-Cookie` header for the dashboard; a lifetime of 0 removes the cookie.
pub(super) fn set_cookie(request: &HttpRequest, name: &str, value: &str, seconds: u64) -> String {
    let secure = if is_secure(request) { "; Secure" } else { "" };
    format!("{name}={value}; Path=/ui; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

pub(in crate::admin) fn cookie(request: &HttpRequest, name: &str) -> Option<String> {
    let headers = request.headers().get_all(header::COOKIE);
    let cookies = headers.filter_map(|header| header.to_str().ok());
    let mut cookies = cookies.flat_map(|header| header.split(';'));
    cookies.find_map(|cookie| {
        let (found, value) = cookie.trim().split_once('=')?;
        (found == name).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;
    use crate::admin::base_url::OwnScheme;

    #[tokio::test]
    async fn a_login_holds_for_its_time_and_its_token() {
        let directory = tempfile::tempdir().unwrap();
        let token = ApiToken::open(directory.path()).unwrap();
        let visitor = Visitor::signed_in(&token, 1000).unwrap();
        let is_good = |cookie: &str, now| Visitor::of_cookie(cookie, &token, now).is_some();
        let good = visitor.cookie.as_str();
        assert!(is_good(good, 1000) && is_good(good, 1000 + LOGIN_SECONDS - 1));
        assert!(!is_good(good, 1000 + LOGIN_SECONDS));
        let longer = good.replacen(&(1000 + LOGIN_SECONDS).to_string(), "99999999999", 1);
        for wrong in [
            "",
            ".",
            "..",
            "1.2.3",
            &longer,
            &format!("{good}0"),
            good.get(1..).unwrap(),
        ] {
            assert!(!is_good(wrong, 1000), "{wrong}");
        }
        let form = visitor.form_token(&token);
        assert!(visitor.owns_form(&token, &form));
        let other = Visitor::signed_in(&token, 1000).unwrap();
        assert!(!other.owns_form(&token, &form) && !visitor.owns_form(&token, ""));
        other.sign_out(&token, 1000);
        assert!(!other.holds(&token, 1000) && !is_good(&other.cookie, 1000));
        assert!(visitor.holds(&token, 1000), "no other login ends with it");
        token.rotate().await.unwrap();
        assert!(!visitor.holds(&token, 1000) && !visitor.owns_form(&token, &form));
    }

    #[test]
    fn cookies_are_named_with_the_port() {
        let table = [
            ("127.0.0.1:12006", "mcpvisor-12006"),
            ("[::1]:80", "mcpvisor-80"),
            ("gateway.example.com", "mcpvisor-web"),
            ("a:b;c", "mcpvisor-web"),
        ];
        for (host, expected) in table {
            let request = TestRequest::default().insert_header(("Host", host));
            assert_eq!(login_cookie(&request.to_http_request()), expected);
        }
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let request = TestRequest::default()
            .insert_header(("Cookie", "a=1; mcpvisor-web=x.y=z; b"))
            .to_http_request();
        assert_eq!(cookie(&request, "mcpvisor-web").as_deref(), Some("x.y=z"));
        assert_eq!(cookie(&request, "b"), None);
    }

    #[test]
    fn a_header_of_a_client_marks_its_own_cookie_only() {
        let table = [
            ("http", None, false),
            ("http", Some("http"), false),
            ("http", Some("https"), true),
            ("https", None, true),
            ("https", Some("http"), true),
        ];
        for (own, forwarded, is_secure) in table {
            let mut request = TestRequest::default().app_data(OwnScheme(own));
            if let Some(forwarded) = forwarded {
                request = request.insert_header(("X-Forwarded-Proto", forwarded));
            }
            let cookie = set_cookie(&request.to_http_request(), "a", "b", 1);
            let plain = "a=b; Path=/ui; Max-Age=1; HttpOnly; SameSite=Strict";
            let secure = if is_secure { "; Secure" } else { "" };
            assert_eq!(cookie, format!("{plain}{secure}"), "{own} {forwarded:?}");
        }
    }
}
