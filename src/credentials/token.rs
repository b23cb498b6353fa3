//! Parses responses of a token endpoint.

use std::fmt;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use url::form_urlencoded;

use super::token_request::ID_JAG;
use super::{ANSWER_MAX, Scopes, SubjectTokenType};

/// Maximum length of a token; it must fit in one header.
const TOKEN_MAX: usize = 16_384;
/// Maximum length of a displayed error code.
const CODE_MAX: usize = 64;
/// Maximum length of a displayed explanation of an error, in characters.
const DESCRIPTION_MAX: usize = 300;
/// A token is renewed this long before it expires, or after half of its lifetime if that is later.
const RENEW_BEFORE: Duration = Duration::from_secs(60);

/// The tokens in a token endpoint's response.
#[derive(Debug)]
pub struct Tokens {
    pub access: SecretString,
    /// Replaces the previous refresh token; if absent, the previous one stays.
    pub refresh: Option<SecretString>,
    pub expires_in: Option<Duration>,
    /// The granted scopes, if they differ from the requested ones.
    pub scopes: Option<Scopes>,
    /// Whether requests with the token need a proof (RFC 9449).
    pub is_bound: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the proof must contain the nonce of the authorization server")]
    Nonce,
    #[error("the authorization server no longer accepts this sign-in; sign in again")]
    SignInAgain,
    #[error("the authorization server does not know this client, or no longer does")]
    UnknownClient,
    #[error("the authorization server refused: {0}")]
    Refused(String),
    #[error("the token endpoint returned status {0}")]
    Status(u16),
    #[error("the token endpoint is unavailable (status {0})")]
    Unavailable(u16),
    #[error("the token endpoint's response is unusable: {0}")]
    Invalid(&'static str),
}

impl TokenError {
    /// Whether a retry could succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// The response of RFC 6749, section 5.1, and RFC 8693, section 2.2.1.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: SecretString,
    token_type: String,
    issued_token_type: Option<String>,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<u64>,
    refresh_token: Option<SecretString>,
    scope: Option<String>,
}

/// Reads seconds, which some servers write as a string or with a fraction. Any other value counts as
/// absent.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let written = match Value::deserialize(deserializer)? {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return Ok(None),
    };
    let whole = written.split('.').next().unwrap_or_default();
    let fraction = written.get(whole.len() + 1..).unwrap_or_default();
    let is_decimal = fraction.bytes().all(|byte| byte.is_ascii_digit());
    Ok(whole.parse().ok().filter(|_| is_decimal))
}

/// An error of an authorization server (RFC 6749, sections 4.1.2.1 and 5.2).
#[derive(Deserialize)]
pub(super) struct Refusal {
    pub(super) error: String,
    pub(super) error_description: Option<String>,
}

impl Tokens {
    /// Parses the response of a token endpoint.
    ///
    /// # Errors
    ///
    /// Returns why the request failed, in the authorization server's own words if it gave any.
    pub fn parse(status: u16, body: &[u8]) -> Result<Self, TokenError> {
        Self::read(status, body).map(|(tokens, _)| tokens)
    }

    /// Parses an identity provider's response to an exchange for an ID-JAG, and returns the ID-JAG.
    ///
    /// # Errors
    ///
    /// Fails like [`Tokens::parse`], and if something else was issued.
    pub fn parse_id_jag(status: u16, body: &[u8]) -> Result<SecretString, TokenError> {
        let answer = TokenResponse::read(status, body)?;
        match answer.issued_token_type.as_deref() {
            Some(ID_JAG) if is_token(&answer.access_token) => Ok(answer.access_token),
            _ => Err(TokenError::Invalid("`issued_token_type` is not an ID-JAG")),
        }
    }

    /// Parses the response to an exchange (RFC 8693, section 2.2.1).
    ///
    /// # Errors
    ///
    /// Fails like [`Tokens::parse`], and if the issued token is not an access token.
    pub fn parse_exchanged(status: u16, body: &[u8]) -> Result<Self, TokenError> {
        let (tokens, issued) = Self::read(status, body)?;
        let usable = [SubjectTokenType::AccessToken, SubjectTokenType::Jwt];
        match issued {
            Some(issued) if usable.iter().any(|it| it.uri() == issued) => Ok(Self {
                // The client's next token is exchanged instead.
                refresh: None,
                ..tokens
            }),
            Some(_) => Err(TokenError::Invalid(
                "`issued_token_type` is not an access token",
            )),
            None => Err(TokenError::Invalid("`issued_token_type` is missing")),
        }
    }

    /// The tokens, and the type of the issued one, if the response states it.
    fn read(status: u16, body: &[u8]) -> Result<(Self, Option<String>), TokenError> {
        let answer = TokenResponse::read(status, body)?;
        let is_bound = answer.token_type.eq_ignore_ascii_case("dpop");
        if !is_bound && !answer.token_type.eq_ignore_ascii_case("bearer") {
            return Err(TokenError::Invalid("its token is not a bearer token"));
        }
        if !is_token(&answer.access_token) || answer.refresh_token.iter().any(|t| !is_token(t)) {
            return Err(TokenError::Invalid(
                "a token is empty, too long or contains invalid characters",
            ));
        }
        let scopes = answer.scope.as_deref().map(Scopes::parse).transpose();
        let tokens = Self {
            scopes: scopes.map_err(|_| TokenError::Invalid("its scopes are malformed"))?,
            access: answer.access_token,
            refresh: answer.refresh_token,
            expires_in: answer.expires_in.map(Duration::from_secs),
            is_bound,
        };
        Ok((tokens, answer.issued_token_type))
    }

    /// When to renew the token, relative to the response; `None` if it does not expire.
    pub fn renew_after(&self) -> Option<Duration> {
        let lifetime = self.expires_in?;
        Some(lifetime.saturating_sub(RENEW_BEFORE).max(lifetime / 2))
    }
}

impl TokenResponse {
    fn read(status: u16, body: &[u8]) -> Result<Self, TokenError> {
        if body.len() > ANSWER_MAX {
            return Err(TokenError::Invalid("it is too large"));
        }
        // Some servers answer as if the token were a created resource.
        if !matches!(status, 200 | 201) {
            return Err(refusal(status, body));
        }
        members::<Self>(body).ok_or_else(|| match refusal(status, body) {
            TokenError::Status(_) => TokenError::Invalid("it has no token"),
            refused => refused,
        })
    }
}

/// Reads the members of a response: JSON, or a form, which some older servers send.
fn members<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok().or_else(|| {
        let form = form_urlencoded::parse(body);
        let form = form.map(|(name, value)| (name.into_owned(), Value::String(value.into_owned())));
        serde_json::from_value(Value::Object(form.collect())).ok()
    })
}

fn refusal(status: u16, body: &[u8]) -> TokenError {
    if status == 429 || status >= 500 {
        return TokenError::Unavailable(status);
    }
    let Some(refusal) = members::<Refusal>(body) else {
        return TokenError::Status(status);
    };
    match &*refusal.error {
        "invalid_grant" => TokenError::SignInAgain,
        "invalid_client" => TokenError::UnknownClient,
        "use_dpop_nonce" => TokenError::Nonce,
        "temporarily_unavailable" | "server_error" | "slow_down" => TokenError::Unavailable(status),
        _ => TokenError::Refused(refusal.to_string()),
    }
}

/// The code, and the explanation if there is one. Codes are short and plain, so any other code is
/// not shown; of an explanation, control characters are not.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let code = &self.error;
        match !code.is_empty() && code.len() <= CODE_MAX && code.bytes().all(is_plain) {
            true => f.write_str(code)?,
            false => f.write_str("with an invalid code")?,
        }
        let description = self.error_description.as_deref().unwrap_or_default();
        let shown = description.chars().filter(|it| !it.is_control());
        let shown: String = shown.take(DESCRIPTION_MAX).collect();
        match shown.trim() {
            "" => Ok(()),
            shown => write!(f, ": {shown}"),
        }
    }
}

fn is_token(token: &SecretString) -> bool {
    let token = token.expose_secret();
    let is_visible = token.bytes().all(|byte| byte.is_ascii_graphic());
    !token.is_empty() && token.len() <= TOKEN_MAX && is_visible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_access_tokens_are_accepted_from_an_exchange() {
        let prefix = "urn:ietf:params:oauth:token-type:";
        let answer = |issued: &str| {
            format!(
                r#"{{"access_token":"a","token_type":"Bearer","refresh_token":"r",
                    "issued_token_type":"{prefix}{issued}"}}"#
            )
        };
        for good in ["access_token", "jwt"] {
            let tokens = Tokens::parse_exchanged(200, answer(good).as_bytes()).unwrap();
            assert!(tokens.refresh.is_none(), "{good}");
        }
        let table = [
            (
                200,
                answer("refresh_token"),
                "`issued_token_type` is not an access token",
            ),
            (
                200,
                answer("saml2"),
                "`issued_token_type` is not an access token",
            ),
            (
                200,
                answer("access_token").replace("Bearer", "N_A"),
                "its token is not a bearer token",
            ),
            (
                200,
                r#"{"access_token":"a","token_type":"Bearer"}"#.to_owned(),
                "`issued_token_type` is missing",
            ),
        ];
        for (status, body, expected) in table {
            let error = Tokens::parse_exchanged(status, body.as_bytes()).unwrap_err();
            assert_eq!(error, TokenError::Invalid(expected), "{body}");
        }
        let refused = Tokens::parse_exchanged(400, br#"{"error":"invalid_target"}"#);
        let expected = TokenError::Refused("invalid_target".to_owned());
        assert_eq!(refused.unwrap_err(), expected);
    }

    #[test]
    fn only_an_id_jag_is_accepted_from_an_identity_provider() {
        let answer = |issued: &str| {
            format!(r#"{{"access_token":"j","token_type":"N_A","issued_token_type":"{issued}"}}"#)
        };
        let read = |body: &str| Tokens::parse_id_jag(200, body.as_bytes());
        assert_eq!(read(&answer(ID_JAG)).unwrap().expose_secret(), "j");
        let other = TokenError::Invalid("`issued_token_type` is not an ID-JAG");
        for issued in [SubjectTokenType::AccessToken.uri(), ""] {
            assert_eq!(read(&answer(issued)).unwrap_err(), other);
        }
        let refused = Tokens::parse_id_jag(400, br#"{"error":"invalid_grant"}"#);
        assert_eq!(refused.unwrap_err(), TokenError::SignInAgain);
    }

    #[test]
    fn parsed_tokens_are_not_printed() {
        let answer = br#"{"access_token":"s3cret","token_type":"bearer","expires_in":3600,
            "refresh_token":"r3fresh","scope":"a"}"#;
        let tokens = Tokens::parse(200, answer).unwrap();
        assert_eq!(tokens.access.expose_secret(), "s3cret");
        assert_eq!(tokens.renew_after(), Some(Duration::from_secs(3540)));
        let printed = format!("{tokens:?}");
        assert!(!printed.contains("s3cret") && !printed.contains("r3fresh"));
    }

    #[test]
    fn a_created_token_and_a_form_are_accepted() {
        let json = br#"{"access_token":"a","token_type":"bearer","expires_in":3600}"#;
        let form = b"access_token=a&scope=repo%20user&token_type=bearer&expires_in=3600";
        for (status, body) in [(201, &json[..]), (200, form)] {
            let tokens = Tokens::parse(status, body).unwrap();
            assert_eq!(tokens.access.expose_secret(), "a");
            assert_eq!(tokens.expires_in, Some(Duration::from_secs(3600)));
        }
    }

    #[test]
    fn tokens_are_renewed_in_time_whatever_their_lifetime() {
        for (lifetime, expected) in [(0, 0), (60, 30), (100, 50), (120, 60), (600, 540)] {
            let answer =
                format!(r#"{{"access_token":"a","token_type":"Bearer","expires_in":{lifetime}}}"#);
            let tokens = Tokens::parse(200, answer.as_bytes()).unwrap();
            assert_eq!(tokens.renew_after(), Some(Duration::from_secs(expected)));
        }
        let tokens = Tokens::parse(200, br#"{"access_token":"a","token_type":"Bearer"}"#);
        assert_eq!(tokens.unwrap().renew_after(), None);
    }

    #[test]
    fn lifetimes_can_be_strings_or_fractions() {
        let table = [
            ("3600", Some(3600)),
            ("\"3600\"", Some(3600)),
            ("\" 5250 \"", Some(5250)),
            ("3599.0", Some(3599)),
            ("\"3599.9\"", Some(3599)),
            ("null", None),
            ("\"soon\"", None),
            ("-1", None),
            ("[1]", None),
            ("\"1.x\"", None),
        ];
        for (written, expected) in table {
            let answer =
                format!(r#"{{"access_token":"a","token_type":"Bearer","expires_in":{written}}}"#);
            let tokens = Tokens::parse(200, answer.as_bytes()).unwrap();
            assert_eq!(
                tokens.expires_in,
                expected.map(Duration::from_secs),
                "{written}"
            );
        }
    }

    #[test]
    fn an_invalid_response_yields_an_actionable_error() {
        let refused = |code: &str| TokenError::Refused(code.into());
        let none = "with an invalid code";
        let unusable =
            TokenError::Invalid("a token is empty, too long or contains invalid characters");
        let table = [
            (400, r#"{"error":"invalid_grant"}"#, TokenError::SignInAgain),
            (
                401,
                r#"{"error":"invalid_client"}"#,
                TokenError::UnknownClient,
            ),
            (400, r#"{"error":"\u001b[2Jok"}"#, refused(none)),
            (404, "<html>", TokenError::Status(404)),
            (302, "", TokenError::Status(302)),
            (
                400,
                r#"{"error":"invalid_scope","error_description":"no\u001b such scope "}"#,
                refused("invalid_scope: no such scope"),
            ),
            (
                400,
                r#"{"error":"slow_down"}"#,
                TokenError::Unavailable(400),
            ),
            (
                200,
                "error=bad_code&error_description=It+expired.",
                refused("bad_code: It expired."),
            ),
            (
                503,
                r#"{"error":"invalid_grant"}"#,
                TokenError::Unavailable(503),
            ),
            (429, "", TokenError::Unavailable(429)),
            (
                200,
                r#"{"access_token":"a\r\nX: y","token_type":"Bearer"}"#,
                unusable,
            ),
            (200, "{}", TokenError::Invalid("it has no token")),
            (200, "<html>", TokenError::Invalid("it has no token")),
            (
                200,
                r#"{"access_token":"a","token_type":"mac"}"#,
                TokenError::Invalid("its token is not a bearer token"),
            ),
        ];
        for (status, body, expected) in table {
            let is_passing = matches!(expected, TokenError::Unavailable(_));
            let error = Tokens::parse(status, body.as_bytes()).unwrap_err();
            assert_eq!(error, expected, "{body}");
            assert_eq!(error.is_passing(), is_passing);
        }
        let large = vec![b' '; ANSWER_MAX + 1];
        assert_eq!(
            Tokens::parse(200, &large).unwrap_err(),
            TokenError::Invalid("it is too large")
        );
    }
}
