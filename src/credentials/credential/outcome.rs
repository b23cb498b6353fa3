//! The outcome of a sign-in or a renewal.

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
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    pub scope: String,
    /// Who signed in, if not the gateway.
    #[serde(skip)]
    pub principal: Option<Principal>,
    /// Whether requests went with the token of a sign-in before this one: sessions at the server may
    /// be those of somebody else.
    #[serde(skip)]
    pub is_another: bool,
}

/// A credential as operators see it.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CredentialView {
    pub server: String,
    /// For whom, if not for the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// `none`, `needs login`, `needs consent`, `needs token`, `signed in` or `wants more
    /// permissions`.
    pub state: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_in_at: Option<u64>,
    /// Whether it is renewed without asking anybody.
    pub is_renewable: bool,
}

/// Where and for whom somebody signs in, as `mcpvisor auth login` reads it.
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

/// Why a refused request is not sent again with another token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRenewed {
    #[error("it needs a login: `mcpvisor auth login {0}`")]
    LoginNeeded(LoginName),
    #[error("it wants more permissions: `mcpvisor auth login {0}`")]
    MoreScopes(LoginName),
    /// The client has to come with another token of its own.
    #[error("the token of the client is not exchanged for one of the server: {0}")]
    NotExchanged(String),
    #[error("its token cannot be renewed: {0}")]
    Failed(String),
}

impl NotRenewed {
    /// Whether there is another token only once somebody has signed in.
    pub fn needs_person(&self) -> bool {
        matches!(self, Self::LoginNeeded(_) | Self::NotExchanged(_))
    }
}

/// Why nobody is signed in.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    #[error("the server names no authorization server that can be used")]
    NoMetadata,
    #[error("its authorization server cannot be used: {0}")]
    Metadata(#[from] InvalidMetadata),
    #[error("its authorization server does not check PKCE with S256, so nobody signs in there")]
    NoPkce,
    #[error("its authorization server has no page to sign in at")]
    NoPage,
    #[error(
        "its authorization server registers nobody: make a client there, and set `client_id` in \
         [servers.NAME.oauth]"
    )]
    NoClient,
    #[error("{0}")]
    Registration(#[from] RegistrationError),
    #[error("its authorization server cannot be reached: {0}")]
    Unreachable(String),
    #[error("its authorization server does not answer in time")]
    Late,
    #[error("its authorization server answers with status {0}")]
    Unavailable(u16),
    #[error("{0}")]
    Token(#[from] TokenError),
    #[error("{0}")]
    Callback(#[from] CallbackError),
    #[error("the scopes that are wanted are too many")]
    Scopes,
    #[error("it signs in by itself (`grant = \"client_credentials\"`); nobody has to")]
    ByItself,
    #[error("it takes the tokens of clients (`grant = \"token_exchange\"`); nobody signs in")]
    ByExchange,
    #[error("the gateway has no token of this client that holds")]
    NoSubject,
    #[error("nobody is signed in")]
    NotSignedIn,
    #[error("the server wants more permissions than the token has")]
    MoreScopes,
    #[error("`client_key_file` {0:?} cannot be used: {1}")]
    Key(String, String),
    #[error("the tokens cannot be kept: {0}")]
    Vault(String),
    #[error("the system gives no random numbers")]
    Random,
    #[error(
        "nothing listens for the answer: set `callback_url` in [credentials], or run the gateway with \
         a listener"
    )]
    NoCallback,
}

impl SignInError {
    /// Whether the same may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Unavailable(_) => true,
            Self::Token(error) => error.is_passing(),
            _ => false,
        }
    }
}
