//! Tokens that others give out: who vouches for them, and which were seen before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::api_key::TokenHash;
use super::identity::Identity;
use super::jwt::{JwtSettings, JwtVerifier};
use super::verified_token::{TokenError, VerifiedToken};
use crate::credentials::Web;
use crate::id::Principal;
use crate::protocol::{ErrorKind, Failure};

/// Tokens that are remembered; with more, those that have expired are forgotten, or else all.
const KNOWN_MAX: usize = 10_000;

/// A token is checked again after so long: its issuer may have taken back the key that it is signed
/// with.
const KNOWN_FOR: Duration = Duration::from_secs(10 * 60);

/// How soon a client may come again whose token could not be checked.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Which tokens are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSettings {
    /// The URL of this gateway's endpoint, as clients know it: the `resource` that they ask tokens for.
    pub resource: Option<String>,
    /// All of them must be in the token.
    pub scopes: Vec<String>,
    pub jwt: JwtSettings,
}

impl TokenSettings {
    /// Whether any are taken.
    pub fn is_enabled(&self) -> bool {
        self.jwt.issuer.is_some()
    }

    /// The authorization servers that clients may get a token from.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        self.jwt.issuer.as_deref().into_iter()
    }

    /// The URLs that are asked about tokens.
    pub fn asked(&self) -> impl Iterator<Item = &str> {
        let urls = [&self.jwt.issuer, &self.jwt.jwks_url];
        urls.into_iter().flatten().map(String::as_str)
    }
}

/// A token that a request presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentedToken<'a> {
    pub text: &'a str,
    pub hash: TokenHash,
}

/// Tells who tokens were given to. One that was seen before costs a look-up.
pub struct TokenVerifier {
    settings: TokenSettings,
    jwt: JwtVerifier,
    known: Mutex<HashMap<TokenHash, KnownToken>>,
}

struct KnownToken {
    identity: Identity,
    /// In milliseconds since 1970.
    until: u64,
}

impl TokenVerifier {
    pub fn new(settings: TokenSettings, web: &Arc<dyn Web>) -> Self {
        Self {
            jwt: JwtVerifier::new(&settings.jwt, settings.resource.as_deref(), web),
            settings,
            known: Mutex::default(),
        }
    }

    pub fn settings(&self) -> &TokenSettings {
        &self.settings
    }

    /// Who a token was given to that was checked before; `now` in milliseconds since 1970.
    pub fn find(&self, token: PresentedToken<'_>, now: u64) -> Option<Identity> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(&token.hash)?;
        (found.until > now).then(|| found.identity.clone())
    }

    /// Asks who a token was given to, and remembers it.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    pub async fn verify(&self, token: PresentedToken<'_>, now: u64) -> Result<Identity, Failure> {
        let verified = self.jwt.verify(token.text).await.map_err(failure_of)?;
        // A stream that ended with its token is not opened with it again.
        if verified
            .expires_at
            .is_some_and(|at| at.saturating_mul(1000) <= now)
        {
            return Err(failure_of(TokenError::Expired));
        }
        let needed = &self.settings.scopes;
        if !needed.iter().all(|scope| verified.scopes.contains(scope)) {
            let message = format!(
                "this gateway needs a token with the scopes `{}`",
                needed.join("`, `")
            );
            return Err(Failure::new(ErrorKind::InsufficientScope, message));
        }
        let issuer = self.settings.jwt.issuer.as_deref().unwrap_or_default();
        Ok(self.remember(token.hash, issuer, verified, now))
    }

    fn remember(
        &self,
        hash: TokenHash,
        issuer: &str,
        verified: VerifiedToken,
        now: u64,
    ) -> Identity {
        let expires_at = verified.expires_at.map(|at| at.saturating_mul(1000));
        let identity = Identity {
            principal: Principal::of(issuer, &verified.subject),
            scopes: (!verified.scopes.is_empty()).then(|| Arc::new(verified.scopes)),
            expires_at,
        };
        let again = now.saturating_add(millis(KNOWN_FOR));
        let token = KnownToken {
            identity: identity.clone(),
            until: expires_at.map_or(again, |expires| expires.min(again)),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.retain(|_, token| token.until > now);
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(hash, token);
        identity
    }
}

fn failure_of(error: TokenError) -> Failure {
    match error {
        TokenError::Unavailable(why) => {
            log::warn!("tokens cannot be checked: {why}");
            let message = "nobody can say now whether this token is good; try again later";
            Failure::new(ErrorKind::Overloaded, message).retry_after_ms(millis(RETRY_AFTER))
        }
        refused => Failure::new(ErrorKind::Unauthorized, format!("{refused}; sign in again")),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
