//! The answers of the steps of a login at a server.

use serde::{Deserialize, Serialize};

use crate::auth;
use crate::id::Principal;

/// Where an operator begins a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginOrigin {
    Api,
    CommandLine,
    Dashboard,
}

/// The page to sign in at.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginPage {
    pub url: String,
    /// The page of the authorization server, to which `url` may lead.
    pub authorization_url: String,
}

/// A token for a server that was renewed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenewedToken {
    pub success: bool,
    pub token_type: String,
    /// In seconds.
    pub expires_in: Option<u64>,
    /// In RFC 3339.
    pub expires_at: Option<String>,
}

/// The user whose calls use the token of a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginUser {
    /// Whether it is the principal of an API key of the gateway.
    pub is_key: bool,
    pub issuer: String,
    pub name: String,
}

/// A login that waits for a person.
#[derive(Clone, Debug)]
pub struct OfferedLogin {
    pub server: String,
    /// `None` where all clients use the token.
    pub user: Option<LoginUser>,
    pub issuer: String,
    /// Who asked for the login, in words.
    pub requester: String,
    /// Where the browser comes back to.
    pub callback: String,
}

/// A login that succeeded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FinishedLogin {
    pub success: bool,
    pub server_id: String,
    pub server_name: String,
    /// `None` where all clients use the token.
    pub user: Option<LoginUser>,
    pub token_type: String,
    /// In seconds.
    pub expires_in: Option<u64>,
    pub scope: String,
    /// The word by which the last page revokes the token; nobody else gets it.
    #[serde(skip)]
    pub take_back: String,
}

/// A login that its person took back.
#[derive(Clone, Debug)]
pub struct TakenBackLogin {
    pub server: String,
    pub user: Option<LoginUser>,
}

impl LoginUser {
    pub(super) fn of(principal: &Principal) -> Self {
        let (issuer, name) = principal.parts();
        Self {
            is_key: auth::is_key(principal),
            issuer: issuer.to_owned(),
            name: name.to_owned(),
        }
    }
}
