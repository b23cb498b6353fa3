//! Tokens that others give out: who vouches for them, and which were seen before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::api_key::TokenHash;
use super::identity::Identity;
use super::introspection::{Introspection, IntrospectionSettings};
use super::jwt::{self, JwtSettings, JwtVerifier};
use super::rights::Rights;
use super::verified_token::{PresentedToken, TokenError, VerifiedToken};
use super::webhook::{Webhook, WebhookSettings};
use crate::credentials::{SubjectTokens, Web};
use crate::id::Principal;
use crate::protocol::{ErrorKind, Failure};

/// Tokens that are remembered; with more, those that have expired are forgotten, or else all.
const KNOWN_MAX: usize = 10_000;

/// A token is checked again after so long: its issuer may have taken back the key that it is signed
/// with.
const KNOWN_FOR: Duration = Duration::from_secs(10 * 60);

/// Tokens that others are asked about at a time; further ones wait.
const ASKED_MAX: usize = 32;

/// How long a token waits to be asked about.
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// The issuer in the names of principals that a webhook vouches for.
const WEBHOOK: &str = "webhook";

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
    pub introspection: IntrospectionSettings,
    pub webhook: WebhookSettings,
    /// Paths of the claims that servers are to read.
    pub claims: Vec<String>,
}

impl TokenSettings {
    /// Whether any are taken.
    pub fn is_enabled(&self) -> bool {
        self.jwt.issuer.is_some()
            || self.introspection.endpoint.is_some()
            || self.webhook.url.is_some()
    }

    /// The authorization servers that clients may get a token from.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        let (jwt, asked) = (&self.jwt.issuer, &self.introspection.issuer);
        let other = asked.as_ref().filter(|_| asked != jwt);
        [jwt.as_ref(), other]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Whether the same subject may be two people, whom two issuers vouch for.
    pub fn has_two_issuers(&self) -> bool {
        let (jwt, asked) = (&self.jwt.issuer, &self.introspection);
        let other = match &asked.endpoint {
            Some(_) => asked.issuer.as_deref().or(Some("")),
            None => self.webhook.url.as_ref().map(|_| WEBHOOK),
        };
        jwt.is_some() && other.is_some() && jwt.as_deref() != other
    }

    /// The URLs that are asked about tokens.
    pub fn asked(&self) -> impl Iterator<Item = &str> {
        let urls = [
            &self.jwt.issuer,
            &self.jwt.jwks_url,
            &self.introspection.endpoint,
            &self.webhook.url,
        ];
        urls.into_iter().flatten().map(String::as_str)
    }
}

/// Tells who tokens were given to. One that was seen before costs a look-up.
pub struct TokenVerifier {
    settings: TokenSettings,
    jwt: Option<JwtVerifier>,
    remote: Option<RemoteVerifier>,
    /// The tokens themselves, while a server wants others in exchange.
    subjects: SubjectTokens,
    known: Mutex<HashMap<TokenHash, KnownToken>>,
    /// A token is asked about by the one request that holds its lock.
    asking: [tokio::sync::Mutex<()>; ASKED_MAX],
    /// When the log last said that nobody can vouch for tokens, in milliseconds since 1970.
    warned_at: AtomicU64,
}

/// Who is asked about tokens that cannot be checked here.
enum RemoteVerifier {
    Introspection(Introspection),
    Webhook(Webhook),
}

struct KnownToken {
    identity: Identity,
    /// In milliseconds since 1970.
    until: u64,
}

impl TokenVerifier {
    pub fn new(settings: TokenSettings, web: &Arc<dyn Web>, subjects: SubjectTokens) -> Self {
        let resource = settings.resource.as_deref();
        let introspection = Introspection::new(&settings.introspection, resource, web);
        let webhook =
            || Webhook::new(&settings.webhook, resource, web).map(RemoteVerifier::Webhook);
        Self {
            jwt: JwtVerifier::new(&settings.jwt, resource, &settings.claims, web),
            remote: introspection
                .map(RemoteVerifier::Introspection)
                .or_else(webhook),
            settings,
            subjects,
            known: Mutex::default(),
            asking: Default::default(),
            warned_at: AtomicU64::new(0),
        }
    }

    pub fn settings(&self) -> &TokenSettings {
        &self.settings
    }

    /// Who a token was given to that was checked before; `now` in milliseconds since 1970.
    pub fn find(&self, token: PresentedToken<'_>, now: u64) -> Option<Identity> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(&token.hash)?;
        let identity = &found.identity;
        let is_usable = found.until > now && !self.wants_text_of(identity);
        is_usable.then(|| identity.clone())
    }

    /// Whether a server gets others for the tokens of this client, and none of them is kept.
    pub(super) fn wants_text_of(&self, identity: &Identity) -> bool {
        self.subjects.is_wanted() && self.subjects.lacks(&identity.subject())
    }

    /// Asks who a token was given to, and remembers it.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    pub async fn verify(&self, token: PresentedToken<'_>, now: u64) -> Result<Identity, Failure> {
        let failure = |error| self.failure_of(error, now);
        let remote = match (&self.jwt, &self.remote) {
            (Some(jwt), remote) if remote.is_none() || jwt::is_token(token.text) => {
                let verified = jwt.verify(token.text).await.map_err(failure)?;
                let issuer = self.settings.jwt.issuer.as_deref();
                return self.take(token, issuer, verified, KNOWN_FOR, now);
            }
            (_, Some(remote)) => remote,
            (_, None) => return Err(failure(TokenError::Inactive)),
        };
        let place = token.hash.number() % ASKED_MAX;
        let asking = timeout(ASK_WITHIN, self.asking[place].lock()).await;
        let _asking = asking.map_err(|_| {
            let why = "too many tokens are asked about".to_owned();
            failure(TokenError::Unavailable(why))
        })?;
        // Somebody else has asked meanwhile.
        if let Some(identity) = self.find(token, now) {
            return Ok(identity);
        }
        let settings = &self.settings;
        let (verified, issuer, cache_for) = match remote {
            RemoteVerifier::Introspection(introspection) => (
                introspection.verify(token.text, &settings.claims).await,
                settings.introspection.issuer.as_deref(),
                settings.introspection.cache_for,
            ),
            RemoteVerifier::Webhook(webhook) => (
                webhook.verify(token, &settings.claims).await,
                Some(WEBHOOK),
                settings.webhook.cache_for,
            ),
        };
        self.take(token, issuer, verified.map_err(failure)?, cache_for, now)
    }

    /// Remembers a good token if it holds, and allows what it must.
    fn take(
        &self,
        token: PresentedToken<'_>,
        issuer: Option<&str>,
        verified: VerifiedToken,
        cache_for: Duration,
        now: u64,
    ) -> Result<Identity, Failure> {
        // A stream that ended with its token is not opened with it again.
        if verified
            .expires_at
            .is_some_and(|at| at.saturating_mul(1000) <= now)
        {
            return Err(self.failure_of(TokenError::Expired, now));
        }
        let principal = Principal::of(issuer.unwrap_or_default(), &verified.subject);
        let needed = &self.settings.scopes;
        if !needed.iter().all(|scope| verified.scopes.contains(scope)) {
            let message = format!(
                "this gateway needs a token with the scopes `{}`",
                needed.join("`, `")
            );
            return Err(Failure::new(ErrorKind::InsufficientScope, message).principal(principal));
        }
        let expires_at = verified.expires_at.map(|at| at.saturating_mul(1000));
        // Where nothing is exchanged, nobody needs to tell tokens with the same scopes apart.
        let is_exchanged = self.subjects.is_wanted();
        let rights = match is_exchanged {
            true => Rights::of_token(verified.scopes, verified.digest),
            false => verified.scopes.into(),
        };
        let identity = Identity {
            principal,
            scopes: (is_exchanged || !rights.is_empty()).then(|| Arc::new(rights)),
            expires_at,
            claims: verified.claims,
        };
        let again = now.saturating_add(millis(cache_for));
        let until = expires_at.map_or(again, |expires| expires.min(again));
        let kept_until = expires_at.unwrap_or(until);
        (self.subjects).keep(identity.subject(), token.text, kept_until);
        self.remember(token.hash, identity.clone(), until, now);
        Ok(identity)
    }

    /// The failure for the client. An outage is logged now and then, however many clients come.
    fn failure_of(&self, error: TokenError, now: u64) -> Failure {
        let TokenError::Unavailable(why) = error else {
            return Failure::new(ErrorKind::Unauthorized, format!("{error}; sign in again"));
        };
        let warned_at = self.warned_at.load(Ordering::Relaxed);
        if now.saturating_sub(warned_at) >= millis(RETRY_AFTER) {
            self.warned_at.store(now, Ordering::Relaxed);
            log::warn!("tokens cannot be checked: {why}");
        }
        let message = "nobody can say now whether this token is good; try again later";
        Failure::new(ErrorKind::Overloaded, message).retry_after_ms(millis(RETRY_AFTER))
    }

    fn remember(&self, hash: TokenHash, identity: Identity, until: u64, now: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.retain(|_, token| token.until > now);
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(hash, KnownToken { identity, until });
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
