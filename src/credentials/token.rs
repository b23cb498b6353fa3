//! Requests to a token endpoint, and its answers.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use url::{Url, form_urlencoded};

use super::{ANSWER_MAX, Scopes, Verifier};

/// Longest token that is taken; it must fit in one header.
const TOKEN_MAX: usize = 16_384;
/// Longest code of an error that is shown.
const CODE_MAX: usize = 64;
/// A token is renewed this long before it expires, or after half of its time if that is later.
const RENEW_BEFORE: Duration = Duration::from_secs(60);

/// RFC 7523, section 2.2.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The grant that a token is given for.
#[derive(Debug)]
pub enum Grant {
    /// A user signed in.
    AuthorizationCode {
        code: SecretString,
        verifier: Verifier,
        redirect_uri: Url,
    },
    RefreshToken(SecretString),
    ClientCredentials,
}

/// The secret of a client that has one, and where the authorization server wants it.
#[derive(Clone, Debug)]
pub enum ClientSecret {
    None,
    Basic(SecretString),
    Post(SecretString),
    /// A JWT that the client signed.
    Assertion(SecretString),
}

impl ClientSecret {
    /// A secret, if there is one, for an authorization server that takes it by this method.
    pub(super) fn sent_as(secret: Option<SecretString>, method: &str) -> Self {
        match (secret, method) {
            (None, _) | (_, "none") => Self::None,
            (Some(secret), "client_secret_post") => Self::Post(secret),
            (Some(secret), _) => Self::Basic(secret),
        }
    }

    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::None | Self::Assertion(_) => "none",
            Self::Basic(_) => "client_secret_basic",
            Self::Post(_) => "client_secret_post",
        }
    }

    pub(super) fn secret(&self) -> Option<&SecretString> {
        match self {
            Self::None | Self::Assertion(_) => None,
            Self::Basic(secret) | Self::Post(secret) => Some(secret),
        }
    }
}

/// A request to a token endpoint: a form, and the header if the client's secret belongs there.
#[derive(Debug)]
pub struct TokenRequest {
    pub authorization: Option<SecretString>,
    pub body: SecretString,
}

impl TokenRequest {
    pub fn new(
        grant: &Grant,
        client_id: &str,
        secret: &ClientSecret,
        resource: &str,
        scopes: &Scopes,
    ) -> Self {
        let mut form = form_urlencoded::Serializer::new(String::new());
        match grant {
            Grant::AuthorizationCode {
                code,
                verifier,
                redirect_uri,
            } => {
                form.append_pair("grant_type", "authorization_code");
                form.append_pair("code", code.expose_secret());
                form.append_pair("code_verifier", verifier.expose());
                form.append_pair("redirect_uri", redirect_uri.as_str());
            }
            Grant::RefreshToken(token) => {
                form.append_pair("grant_type", "refresh_token");
                form.append_pair("refresh_token", token.expose_secret());
            }
            Grant::ClientCredentials => {
                form.append_pair("grant_type", "client_credentials");
                // The other grants have the scopes that the user agreed to.
                if !scopes.is_empty() {
                    form.append_pair("scope", &scopes.to_string());
                }
            }
        }
        form.append_pair("resource", resource);
        Self::authenticated(form, client_id, secret)
    }

    /// A request about a token: what is known of it (RFC 7662), or that it ends (RFC 7009).
    pub fn about(token: &str, client_id: &str, secret: &ClientSecret) -> Self {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", token);
        Self::authenticated(form, client_id, secret)
    }

    fn authenticated(
        mut form: form_urlencoded::Serializer<'_, String>,
        client_id: &str,
        secret: &ClientSecret,
    ) -> Self {
        let authorization = match secret {
            ClientSecret::Basic(secret) => Some(basic(client_id, secret)),
            ClientSecret::Post(secret) => {
                form.append_pair("client_id", client_id);
                form.append_pair("client_secret", secret.expose_secret());
                None
            }
            ClientSecret::Assertion(assertion) => {
                form.append_pair("client_id", client_id);
                form.append_pair("client_assertion_type", ASSERTION_TYPE);
                form.append_pair("client_assertion", assertion.expose_secret());
                None
            }
            ClientSecret::None => {
                form.append_pair("client_id", client_id);
                None
            }
        };
        let body = form.finish().into();
        Self {
            authorization,
            body,
        }
    }
}

/// Both parts are form-encoded before they are joined (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &SecretString) -> SecretString {
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encode(client_id), encode(secret.expose_secret()));
    format!("Basic {}", STANDARD.encode(pair)).into()
}

/// The answer of a token endpoint.
#[derive(Debug)]
pub struct Tokens {
    pub access: SecretString,
    /// Replaces the one before it; if there is none, that one stays.
    pub refresh: Option<SecretString>,
    pub expires_in: Option<Duration>,
    /// The scopes that were granted, if they are not those asked for.
    pub scopes: Option<Scopes>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the authorization server no longer takes this sign-in; sign in again")]
    SignInAgain,
    #[error("the authorization server does not know this client (any more)")]
    UnknownClient,
    #[error("the authorization server refused: {0}")]
    Refused(String),
    #[error("the token endpoint answered with status {0}")]
    Unavailable(u16),
    #[error("the answer of the token endpoint cannot be used: {0}")]
    Invalid(&'static str),
}

impl TokenError {
    /// Whether the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

#[derive(Deserialize)]
struct Answer {
    access_token: SecretString,
    token_type: String,
    expires_in: Option<u64>,
    refresh_token: Option<SecretString>,
    scope: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

impl Tokens {
    /// Reads the answer of a token endpoint.
    ///
    /// # Errors
    ///
    /// Returns why there is no token. Nothing of the answer but the code of an error is repeated.
    pub fn parse(status: u16, body: &[u8]) -> Result<Self, TokenError> {
        if body.len() > ANSWER_MAX {
            return Err(TokenError::Invalid("it is too large"));
        }
        if status != 200 {
            return Err(refusal(status, body));
        }
        let answer: Answer = serde_json::from_slice(body)
            .map_err(|_| TokenError::Invalid("it is not JSON with a token"))?;
        if !answer.token_type.eq_ignore_ascii_case("bearer") {
            return Err(TokenError::Invalid("its token is no bearer token"));
        }
        if !is_token(&answer.access_token) || answer.refresh_token.iter().any(|t| !is_token(t)) {
            return Err(TokenError::Invalid(
                "a token is empty, too long or no visible text",
            ));
        }
        let scopes = answer.scope.as_deref().map(Scopes::parse).transpose();
        Ok(Self {
            scopes: scopes.map_err(|_| TokenError::Invalid("its scopes are malformed"))?,
            access: answer.access_token,
            refresh: answer.refresh_token,
            expires_in: answer.expires_in.map(Duration::from_secs),
        })
    }

    /// When to renew the token, counted from its answer; never if it does not expire.
    pub fn renew_after(&self) -> Option<Duration> {
        let lifetime = self.expires_in?;
        Some(lifetime.saturating_sub(RENEW_BEFORE).max(lifetime / 2))
    }
}

fn refusal(status: u16, body: &[u8]) -> TokenError {
    if status == 429 || status >= 500 {
        return TokenError::Unavailable(status);
    }
    match serde_json::from_slice::<Refusal>(body) {
        Ok(refusal) if refusal.error == "invalid_grant" => TokenError::SignInAgain,
        Ok(refusal) if refusal.error == "invalid_client" => TokenError::UnknownClient,
        Ok(refusal) => TokenError::Refused(error_code(&refusal.error)),
        Err(_) => TokenError::Refused(format!("status {status}")),
    }
}

/// The code of an error as it may be shown: codes are short and plain, so anything else is not one.
pub(super) fn error_code(code: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    match !code.is_empty() && code.len() <= CODE_MAX && code.bytes().all(is_plain) {
        true => code.to_owned(),
        false => "with a code that is none".to_owned(),
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

    fn body(grant: &Grant, secret: &ClientSecret) -> (Option<String>, String) {
        let scopes = Scopes::parse("a b").unwrap();
        let request = TokenRequest::new(grant, "me", secret, "https://a.example", &scopes);
        let header = request
            .authorization
            .map(|value| value.expose_secret().to_owned());
        (header, request.body.expose_secret().to_owned())
    }

    #[test]
    fn every_grant_names_the_resource() {
        let end = "resource=https%3A%2F%2Fa.example";
        let (header, form) = body(&Grant::RefreshToken("r+1".into()), &ClientSecret::None);
        let expected = format!("grant_type=refresh_token&refresh_token=r%2B1&{end}&client_id=me");
        assert_eq!((header, form), (None, expected));
        let secret = ClientSecret::Basic("s:%".into());
        let (header, form) = body(&Grant::ClientCredentials, &secret);
        assert_eq!(
            form,
            format!("grant_type=client_credentials&scope=a+b&{end}")
        );
        let basic = format!("Basic {}", STANDARD.encode("me:s%3A%25"));
        assert_eq!(header, Some(basic));
        let (_, form) = body(&Grant::ClientCredentials, &ClientSecret::Post("s&".into()));
        assert!(form.ends_with("&client_id=me&client_secret=s%26"), "{form}");
        let verifier = Verifier::random().unwrap();
        let kept = verifier.expose().to_owned();
        let redirect_uri = Url::parse("http://127.0.0.1/cb").unwrap();
        let grant = Grant::AuthorizationCode {
            code: "c".into(),
            verifier,
            redirect_uri,
        };
        let (_, form) = body(&grant, &ClientSecret::None);
        let start = format!("grant_type=authorization_code&code=c&code_verifier={kept}&");
        assert!(form.starts_with(&start) && form.contains(end), "{form}");
    }

    #[test]
    fn an_answer_gives_tokens_that_are_not_printed() {
        let answer = br#"{"access_token":"s3cret","token_type":"bearer","expires_in":3600,
            "refresh_token":"r3fresh","scope":"a"}"#;
        let tokens = Tokens::parse(200, answer).unwrap();
        assert_eq!(tokens.access.expose_secret(), "s3cret");
        assert_eq!(tokens.renew_after(), Some(Duration::from_secs(3540)));
        let printed = format!("{tokens:?}");
        assert!(!printed.contains("s3cret") && !printed.contains("r3fresh"));
    }

    #[test]
    fn a_token_is_renewed_in_time_however_short_it_lives() {
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
    fn a_bad_answer_gives_no_token_and_says_what_helps() {
        let refused = |code: &str| TokenError::Refused(code.into());
        let none = "with a code that is none";
        let unusable = TokenError::Invalid("a token is empty, too long or no visible text");
        let table = [
            (400, r#"{"error":"invalid_grant"}"#, TokenError::SignInAgain),
            (
                401,
                r#"{"error":"invalid_client"}"#,
                TokenError::UnknownClient,
            ),
            (400, r#"{"error":"\u001b[2Jok"}"#, refused(none)),
            (404, "<html>", refused("status 404")),
            (302, "", refused("status 302")),
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
            (
                200,
                "{}",
                TokenError::Invalid("it is not JSON with a token"),
            ),
            (
                200,
                r#"{"access_token":"a","token_type":"mac"}"#,
                TokenError::Invalid("its token is no bearer token"),
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
