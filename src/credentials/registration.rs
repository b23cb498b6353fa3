//! Dynamic client registration (RFC 7591) of the gateway at an authorization server that does not
//! know it yet.

use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::token::Refusal;
use super::token_request::{EXCHANGE_GRANT, JWT_BEARER_GRANT};
use super::{ClientSecret, GrantKind};

/// Maximum length of a client id.
const CLIENT_ID_MAX: usize = 2048;

/// The gateway's registration at an authorization server.
#[derive(Clone, Debug)]
pub struct RegisteredClient {
    pub id: String,
    pub secret: ClientSecret,
    /// Expiry in Unix seconds; `None` if the registration does not expire.
    pub expires_at: Option<u64>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    #[error(
        "the authorization server refuses to register this gateway ({0}): create a client there, \
         and set `client_id`"
    )]
    Refused(String),
    #[error("the response to the registration is unusable")]
    Invalid,
}

#[derive(Deserialize)]
struct RegistrationAnswer {
    client_id: String,
    client_secret: Option<SecretString>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

/// The body of a registration request.
pub fn registration_request(
    grant: GrantKind,
    redirect_uri: &Url,
    authentication: &str,
    scopes: &str,
) -> String {
    let mut body = json!({
        "client_name": "mcpvisor",
        "token_endpoint_auth_method": authentication,
        "application_type": "native",
    });
    match grant {
        GrantKind::AuthorizationCode => {
            body["redirect_uris"] = json!([redirect_uri.as_str()]);
            body["grant_types"] = json!(["authorization_code", "refresh_token"]);
            body["response_types"] = json!(["code"]);
        }
        GrantKind::ClientCredentials => body["grant_types"] = json!(["client_credentials"]),
        GrantKind::TokenExchange => body["grant_types"] = json!([EXCHANGE_GRANT]),
        GrantKind::JwtBearer | GrantKind::Enterprise => {
            body["grant_types"] = json!([JWT_BEARER_GRANT]);
        }
    }
    if !scopes.is_empty() {
        body["scope"] = json!(scopes);
    }
    body.to_string()
}

impl RegisteredClient {
    /// Parses the response to a registration that requested this authentication method.
    ///
    /// # Errors
    ///
    /// Returns why the registration failed.
    pub fn parse(status: u16, body: &[u8], asked: &str) -> Result<Self, RegistrationError> {
        if !matches!(status, 200 | 201) {
            let refusal = serde_json::from_slice(body).map(|it: Refusal| it.to_string());
            let why = refusal.unwrap_or_else(|_| format!("status {status}"));
            return Err(RegistrationError::Refused(why));
        }
        let answer: RegistrationAnswer =
            serde_json::from_slice(body).map_err(|_| RegistrationError::Invalid)?;
        let id = answer.client_id;
        if id.is_empty() || id.len() > CLIENT_ID_MAX || id.chars().any(char::is_control) {
            return Err(RegistrationError::Invalid);
        }
        let method = answer.token_endpoint_auth_method;
        let method = method.as_deref().unwrap_or(asked);
        Ok(Self {
            id,
            secret: ClientSecret::sent_as(answer.client_secret, method),
            expires_at: answer.client_secret_expires_at.filter(|at| *at != 0),
        })
    }
}

/// The authentication method for a token endpoint that supports these methods. Without a list,
/// `client_secret_basic` is assumed (RFC 8414).
pub fn authentication(supported: &[String], has_secret: bool) -> &'static str {
    let takes = |method: &str| supported.iter().any(|it| it == method);
    match has_secret {
        false if supported.is_empty() || takes("none") => "none",
        _ if supported.is_empty() || takes("client_secret_basic") => "client_secret_basic",
        _ if takes("client_secret_post") => "client_secret_post",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn the_response_selects_the_authentication_method() {
        let post = br#"{"client_id":"me","client_secret":"s","client_secret_expires_at":0,
            "token_endpoint_auth_method":"client_secret_post"}"#;
        let client = RegisteredClient::parse(201, post, "none").unwrap();
        assert!(matches!(&client.secret, ClientSecret::Post(s) if s.expose_secret() == "s"));
        assert_eq!(client.expires_at, None);
        let open = RegisteredClient::parse(200, br#"{"client_id":"me"}"#, "none").unwrap();
        assert!(matches!(open.secret, ClientSecret::None));
    }

    #[test]
    fn an_invalid_response_yields_no_client() {
        let refused = |why: &str| RegistrationError::Refused(why.to_owned());
        let table: [(u16, &[u8], RegistrationError); 5] = [
            (403, b"{}", refused("status 403")),
            (
                400,
                br#"{"error":"invalid_redirect_uri","error_description":"http is not allowed"}"#,
                refused("invalid_redirect_uri: http is not allowed"),
            ),
            (201, b"{}", RegistrationError::Invalid),
            (201, br#"{"client_id":""}"#, RegistrationError::Invalid),
            (
                201,
                br#"{"client_id":"a\u0007"}"#,
                RegistrationError::Invalid,
            ),
        ];
        for (status, body, expected) in table {
            let error = RegisteredClient::parse(status, body, "none").unwrap_err();
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn a_public_client_is_preferred_unless_there_is_a_secret() {
        let table = [
            (&[][..], false, "none"),
            (&[], true, "client_secret_basic"),
            (&["client_secret_post"], false, "client_secret_post"),
            (&["client_secret_post", "none"], false, "none"),
            (
                &["client_secret_post", "client_secret_basic"],
                true,
                "client_secret_basic",
            ),
        ];
        for (supported, has_secret, expected) in table {
            let supported: Vec<String> = supported.iter().map(ToString::to_string).collect();
            assert_eq!(authentication(&supported, has_secret), expected);
        }
    }
}
