//! Credentials that a session stores for its client (`auth.remember`).

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use super::api_key::TokenHash;
use super::identity::Identity;
use super::tokens::TokenVerifier;
use super::verified_token::PresentedToken;
use super::{AuthSettings, is_key, unauthorized};
use crate::id::Principal;
use crate::protocol::Failure;
use crate::telemetry::millis;

/// Whether a session authenticates requests of the client that opened it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberSettings {
    pub by_session: bool,
    /// Interval at which a token is verified again.
    pub recheck: Duration,
}

impl Default for RememberSettings {
    fn default() -> Self {
        Self {
            by_session: false,
            recheck: Duration::from_secs(5 * 60),
        }
    }
}

/// Accepted credentials, kept in memory only: the hash of a key, which is looked up each time, or a
/// token, which is verified again.
pub struct SessionCredentials {
    hash: TokenHash,
    token: Option<CheckedToken>,
    identity: Identity,
}

struct CheckedToken {
    text: SecretString,
    /// Time of the last verification, in milliseconds since 1970.
    at: u64,
    /// The verifier used; if it was replaced, the token is verified again.
    by: Weak<TokenVerifier>,
}

impl SessionCredentials {
    /// Stores credentials that were accepted at `now` for this client. `None` for a token that can
    /// no longer be verified.
    pub fn new(
        bearer: &str,
        identity: Identity,
        verifier: Option<&Arc<TokenVerifier>>,
        now: u64,
    ) -> Option<Self> {
        let token = match is_key(&identity.principal) {
            true => None,
            false => Some(CheckedToken {
                text: bearer.into(),
                at: now,
                by: Arc::downgrade(verifier?),
            }),
        };
        let hash = TokenHash::of(bearer);
        Some(Self {
            hash,
            token,
            identity,
        })
    }

    pub fn principal(&self) -> &Principal {
        &self.identity.principal
    }

    /// The client's identity; `None` if the token must be verified again.
    ///
    /// # Errors
    ///
    /// Returns the failure to send to the client.
    pub fn identify(
        &self,
        settings: &AuthSettings,
        verifier: Option<&Arc<TokenVerifier>>,
        now: u64,
    ) -> Result<Option<Identity>, Failure> {
        let Some(token) = &self.token else {
            let known = settings.identity_of_key(&self.hash, now)?;
            let known = known.filter(|it| it.principal == self.identity.principal);
            let gone = || unauthorized("the API key of this session no longer exists");
            return known.map(Some).ok_or_else(gone);
        };
        let Some(verifier) = verifier else {
            return Ok(None);
        };
        let until = token.at.saturating_add(millis(settings.remember.recheck));
        let is_good = now < self.identity.expires_at.map_or(until, |at| at.min(until))
            && Weak::ptr_eq(&token.by, &Arc::downgrade(verifier))
            && !verifier.needs_token_of(&self.identity);
        Ok(is_good.then(|| self.identity.clone()))
    }

    /// Verifies the token again, for a request from this address.
    ///
    /// # Errors
    ///
    /// Returns the failure to send to the client.
    pub async fn checked_again(
        &self,
        verifier: &Arc<TokenVerifier>,
        from: Option<IpAddr>,
        now: u64,
    ) -> Result<Self, Failure> {
        let gone = || unauthorized("the token's subject no longer matches this session");
        let token = self.token.as_ref().ok_or_else(gone)?;
        let text = token.text.expose_secret();
        let hash = self.hash;
        let presented = PresentedToken { text, hash };
        let identity = verifier.verify(presented, from, now).await?;
        if identity.principal != self.identity.principal {
            return Err(gone());
        }
        Self::new(text, identity, Some(verifier), now).ok_or_else(gone)
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl fmt::Debug for SessionCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionCredentials({})", self.principal().as_str())
    }
}
