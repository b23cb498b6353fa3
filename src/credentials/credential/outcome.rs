//! The outcome of a sign-in or renewal.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::credentials::{CallbackError, InvalidMetadata, RegistrationError, TokenError};
use crate::id::{Principal, ServerName};

/// A sign-in that succeeded, or a token that was renewed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Granted {
    pub server: ServerName,
    pub token_type: &'static str,
    /// Lifetime of the token, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// Expiry of the token, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    pub scope: String,
    /// The user who signed in, if not the gateway.
    #[serde(skip)]
    pub principal: Option<Principal>,
    /// Whether earlier requests used the token of a previous sign-in: sessions at the server can
    /// belong to a different user.
    #[serde(skip)]
    pub is_another: bool,
}

/// A credential as shown to operators.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CredentialView {
    pub server: String,
    /// The user, if not the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// `none`, `needs login`, `needs consent`, `needs token`, `signed in` or `wants more
    /// permissions`.
    pub state: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Expiry of the token, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Time of the sign-in, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_in_at: Option<u64>,
    /// Whether the token is renewed without user interaction.
    pub is_renewable: bool,
}

/// Server and user of a sign-in, in the form of arguments to `mcpvisor auth login`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginName {
    pub server: ServerName,
    pub principal: Option<Principal>,
}

impl fmt::Display for LoginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.server.as_str())?;
        match &self.principal {
            Some(principal) => write!(f, " --principal {}", principal.name()),
            None => Ok(()),
        }
    }
}

/// Why a refused request is not retried with a new token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRenewed {
    #[error("login needed: `mcpvisor auth login {0}`")]
    LoginNeeded(LoginName),
    #[error("more permissions needed: `mcpvisor auth login {0}`")]
    MoreScopes(LoginName),
    /// The client has to send a different token.
    #[error("the client's token could not be exchanged for a server token: {0}")]
    NotExchanged(String),
    #[error("the token cannot be renewed: {0}")]
    Failed(String),
}

impl NotRenewed {
    /// Whether a new token requires a person to sign in.
    pub fn needs_person(&self) -> bool {
        matches!(self, Self::LoginNeeded(_) | Self::NotExchanged(_))
    }
}

/// Why a sign-in failed.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    #[error("the server names no usable authorization server")]
    NoMetadata,
    #[error("the authorization server is unusable: {0}")]
    Metadata(#[from] InvalidMetadata),
    #[error("the authorization server does not support PKCE with S256, which sign-in requires")]
    NoPkce,
    #[error("the authorization server has no sign-in page")]
    NoPage,
    #[error(
        "the authorization server does not register clients: create a client there, and set \
         `client_id` in [servers.NAME.oauth]"
    )]
    NoClient,
    #[error("{0}")]
    Registration(#[from] RegistrationError),
    #[error("the authorization server is unreachable: {0}")]
    Unreachable(String),
    #[error("the authorization server timed out")]
    Late,
    #[error("the authorization server returned status {0}")]
    Unavailable(u16),
    #[error("{0}")]
    Token(#[from] TokenError),
    #[error("{0}")]
    Callback(#[from] CallbackError),
    #[error("too many scopes are requested")]
    Scopes,
    #[error("no login needed: the gateway gets its token without a person (`grant`)")]
    ByItself,
    #[error("no login needed: it exchanges the tokens of clients (`grant`)")]
    ByExchange,
    #[error(
        "no login needed: the server has not asked for one, and its address has no authorization \
         server that registers clients"
    )]
    NotAsked,
    #[error("the gateway has no valid token of this client")]
    NoSubject,
    #[error("not signed in")]
    NotSignedIn,
    #[error("the server requires more permissions than the token has")]
    MoreScopes,
    #[error("`client_key_file` {0:?} cannot be used: {1}")]
    Key(String, String),
    #[error("the authorization server issued a token that is not bound to a key (`dpop = true`)")]
    NotBound,
    #[error("`token_file` {0:?} cannot be used: {1}")]
    TokenFile(String, String),
    #[error("the tokens cannot be stored: {0}")]
    Vault(String),
    #[error("the system cannot provide random numbers")]
    Random,
    #[error(
        "no listener for the callback: set `callback_url` in [credentials], or run the gateway \
         with a listener"
    )]
    NoCallback,
}

impl SignInError {
    /// Whether a retry could succeed later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Unavailable(_) => true,
            Self::Token(error) => error.is_passing(),
            _ => false,
        }
    }
}
