//! Results of the steps of a login at a server.

use serde::{Deserialize, Serialize};

use crate::auth;
use crate::id::Principal;

/// How the operator started a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum LoginOrigin {
    Api,
    CommandLine,
    Dashboard,
}

/// The page where an operator signs in.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginPage {
    pub url: String,
    /// The authorization server's page. `url` may lead to it through the gateway.
    pub authorization_url: String,
}

/// A renewed token of a server.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::admin) struct RenewedToken {
    pub(in crate::admin) success: bool,
    pub(in crate::admin) token_type: String,
    /// Lifetime in seconds.
    pub(in crate::admin) expires_in: Option<u64>,
    /// Expiry time (RFC 3339).
    pub(in crate::admin) expires_at: Option<String>,
}

/// The user whose calls use the token of a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::admin) struct LoginUser {
    /// Whether the user is the principal of one of the gateway's API keys.
    pub(in crate::admin) is_key: bool,
    pub(in crate::admin) issuer: String,
    pub(in crate::admin) name: String,
}

/// A login that waits for a person to continue.
#[derive(Clone, Debug)]
pub(in crate::admin) struct OfferedLogin {
    pub(in crate::admin) server: String,
    /// `None` where all clients use the token.
    pub(in crate::admin) user: Option<LoginUser>,
    pub(in crate::admin) issuer: String,
    /// Description of who requested the login.
    pub(in crate::admin) requester: String,
    /// The address that the browser returns to.
    pub(in crate::admin) callback: String,
}

/// A completed login.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::admin) struct FinishedLogin {
    pub(in crate::admin) success: bool,
    pub(in crate::admin) server_id: String,
    pub(in crate::admin) server_name: String,
    /// `None` where all clients use the token.
    pub(in crate::admin) user: Option<LoginUser>,
    pub(in crate::admin) token_type: String,
    /// Lifetime in seconds.
    pub(in crate::admin) expires_in: Option<u64>,
    pub(in crate::admin) scope: String,
    /// Secret that lets the last page revoke the token; no other page receives it.
    #[serde(skip)]
    pub(in crate::admin) take_back: String,
}

/// A login that was revoked by the person who signed in.
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
