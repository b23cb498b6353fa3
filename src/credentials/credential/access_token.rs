//! The token that requests to a server carry.

use secrecy::{ExposeSecret as _, SecretString};

use crate::credentials::GrantKind;
use crate::credentials::stored_sign_in::{StoredSignIn, unix_now};

/// A token for one server.
#[derive(Debug)]
pub struct AccessToken {
    /// The value of `Authorization`.
    header: SecretString,
    /// When the token is renewed, in Unix seconds; `None` if it is renewed only once it is refused.
    renew_at: Option<u64>,
    /// Expiry of the token, in Unix seconds.
    pub(super) expires_at: Option<u64>,
}

impl AccessToken {
    /// The value of `Authorization`, for the request that carries it.
    pub fn expose(&self) -> &str {
        self.header.expose_secret()
    }

    pub(super) fn of(kept: &StoredSignIn, grant: GrantKind) -> Option<Self> {
        let is_renewable = kept.refresh.is_some() || grant == GrantKind::TokenExchange;
        Some(Self {
            header: format!("Bearer {}", kept.access.as_ref()?).into(),
            renew_at: kept.renew_at.filter(|_| is_renewable),
            expires_at: kept.expires_at,
        })
    }

    pub(super) fn is_due(&self) -> bool {
        self.renew_at.is_some_and(|at| at <= unix_now())
    }

    pub(super) fn has_expired(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= unix_now())
    }
}
