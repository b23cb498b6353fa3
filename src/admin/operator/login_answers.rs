//! The answers of the steps of a login at a server.

use serde::{Deserialize, Serialize};

use crate::auth;
use crate::id::Principal;

/// Where an operator begins a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum LoginOrigin {
    Api,
    CommandLine,
    Dashboard,
}

/// The page to sign in at.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginPage {
    pub url: String,
    /// The page of the authorization server, to which `url` may lead.
    pub authorization_url: String,
}

/// A token for a server that was renewed.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::admin) struct RenewedToken {
    pub(in crate::admin) success: bool,
    pub(in crate::admin) token_type: String,
    /// In seconds.
    pub(in crate::admin) expires_in: Option<u64>,
    /// In RFC 3339.
    pub(in crate::admin) expires_at: Option<String>,
}

/// The user whose calls use the token of a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::admin) struct LoginUser {
    /// Whether it is the principal of an API key of the gateway.
    pub(in crate::admin) is_key: bool,
    pub(in crate::admin) issuer: String,
    pub(in crate::admin) name: String,
}

/// A login that waits for a person.
#[derive(Clone, Debug)]
pub(in crate::admin) struct OfferedLogin {
    pub(in crate::admin) server: String,
    /// `None` where all clients use the token.
    pub(in crate::admin) user: Option<LoginUser>,
    pub(in crate::admin) issuer: String,
    /// Who asked for the login, in words.
    pub(in crate::admin) requester: String,
    /// Where the browser comes back to.
    pub(in crate::admin) callback: String,
}

/// A login that succeeded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::admin) struct FinishedLogin {
    pub(in crate::admin) success: bool,
    pub(in crate::admin) server_id: String,
    pub(in crate::admin) server_name: String,
    /// `None` where all clients use the token.
    pub(in crate::admin) user: Option<LoginUser>,
    pub(in crate::admin) token_type: String,
    /// In seconds.
    pub(in crate::admin) expires_in: Option<u64>,
    pub(in crate::admin) scope: String,
    /// The word by which the last page revokes the token; nobody else gets it.
    #[serde(skip)]
    pub(in crate::admin) take_back: String,
}

/// A login that its person took back.
#[derive(Clone, Debug)]
pub(in crate::admin) struct TakenBackLogin {
    pub(in crate::admin) server: String,
    pub(in crate::admin) user: Option<LoginUser>,
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
