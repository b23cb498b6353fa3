//! Verifies tokens from external issuers, and caches the verdicts.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use tokio::time::timeout;

use super::api_key::TokenHash;
use super::identity::Identity;
use super::introspection::{Introspection, IntrospectionSettings};
use super::jwt::{self, JwtSettings, JwtVerifier};
use super::rights::Rights;
use super::verification_permits::VerificationPermits;
use super::verified_token::{PresentedToken, TokenError, VerifiedToken};
use super::webhook::{Webhook, WebhookSettings};
use crate::credentials::{SubjectTokens, Web};
use crate::id::Principal;
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::millis;

/// Maximum cached valid tokens; more evict the least used.
const KNOWN_MAX: usize = 10_000;

/// Maximum cached refusals, separate from the valid tokens.
const REFUSED_MAX: usize = 4096;

/// Lifetime of a cached refusal; `cache_for` if that is shorter.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// Maximum lifetime of a cached verdict: the issuer can have revoked the key that signed the token.
const KNOWN_FOR: Duration = Duration::from_secs(10 * 60);

/// How long a token waits for a permit to be verified remotely.
const ASK_WITHIN: Duration = Duration::from_secs(10);

/// Issuer of webhook-verified principals, in their names.
const WEBHOOK: &str = "webhook";

/// Retry delay for a client whose token could not be verified.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Settings for accepted tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSettings {
    /// The URL of this gateway's endpoint, as clients know it: the `resource` that they request
    /// tokens for.
    pub resource: Option<String>,
    /// Scopes that every token must have.
    pub scopes: Vec<String>,
    pub jwt: JwtSettings,
    pub introspection: IntrospectionSettings,
    pub webhook: WebhookSettings,
    /// Paths of the claims that servers receive.
    pub claims: Vec<String>,
}

impl TokenSettings {
    /// Whether any tokens are accepted.
    pub fn is_enabled(&self) -> bool {
        self.jwt.issuer.is_some()
            || self.introspection.endpoint.is_some()
            || self.webhook.url.is_some()
    }

    /// The authorization servers that clients can get a token from.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        let (jwt, asked) = (&self.jwt.issuer, &self.introspection.issuer);
        let other = asked.as_ref().filter(|_| asked != jwt);
        [jwt.as_ref(), other]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Whether the same subject from two issuers can be two different people.
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

/// Verifies tokens and determines their principal. A cached token costs one look-up.
pub struct TokenVerifier {
    settings: TokenSettings,
    jwt: Option<JwtVerifier>,
    remote: Option<RemoteVerifier>,
    /// The tokens themselves, while a server needs them for an exchange.
    subjects: SubjectTokens,
    known: TokenCache<Identity>,
    /// Separate, so that wrong tokens cannot evict valid ones.
    refused: TokenCache<Failure>,
    asking: VerificationPermits,
    /// When the log last reported that tokens cannot be verified, in milliseconds since 1970.
    warned_at: AtomicU64,
}

/// Keyed by SHA-256 hashes, which resist chosen collisions even with a fast hasher.
type TokenCache<T> = Cache<
    TokenHash,
    Remembered<T>,
    UnitWeighter,
    foldhash::fast::RandomState,
    DefaultLifecycle<TokenHash, Remembered<T>>,
>;

fn token_cache<T: Clone>(most: usize) -> TokenCache<T> {
    Cache::with(
        most,
        most as u64,
        UnitWeighter,
        Default::default(),
        DefaultLifecycle::default(),
    )
}

/// Verifies tokens that cannot be checked locally.
enum RemoteVerifier {
    Introspection(Introspection),
    Webhook(Webhook),
}

#[derive(Clone)]
struct Remembered<T> {
    what: T,
    /// Expiry of the verdict, in milliseconds since 1970.
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
            known: token_cache(KNOWN_MAX),
            refused: token_cache(REFUSED_MAX),
            asking: VerificationPermits::default(),
            warned_at: AtomicU64::new(0),
        }
    }

    pub fn settings(&self) -> &TokenSettings {
        &self.settings
    }

    /// Returns the cached verdict on a token; `now` is in milliseconds since 1970.
    pub fn find(&self, token: PresentedToken<'_>, now: u64) -> Option<Result<Identity, Failure>> {
        if let Some(known) = self.known.get(&token.hash)
            && known.until > now
            && !self.needs_token_of(&known.what)
        {
            return Some(Ok(known.what));
        }
        let refused = self.refused.get(&token.hash)?;
        (refused.until > now).then(|| Err(refused.what))
    }

    /// Whether a server exchanges the tokens of this client, but none is stored.
    pub(super) fn needs_token_of(&self, identity: &Identity) -> bool {
        self.subjects.is_wanted() && self.subjects.lacks(&identity.subject())
    }

    /// Verifies a token that this address sent, and caches the verdict.
    ///
    /// # Errors
    ///
    /// Returns the failure to send to the client.
    pub async fn verify(
        &self,
        token: PresentedToken<'_>,
        from: Option<IpAddr>,
        now: u64,
    ) -> Result<Identity, Failure> {
        let remote = match (&self.jwt, &self.remote) {
            (Some(jwt), remote) if remote.is_none() || jwt::is_token(token.text) => {
                let issuer = self.settings.jwt.issuer.as_deref();
                let verified = jwt.verify(token.text).await;
                return self.take(token, issuer, verified, KNOWN_FOR, now);
            }
            (_, Some(remote)) => remote,
            (_, None) => return Err(self.failure_of(TokenError::Inactive, now)),
        };
        let waiting = async {
            let alone = self.asking.token(token.hash).await;
            // Another request can have verified it in the meantime.
            if let Some(found) = self.find(token, now) {
                return Err(found);
            }
            let was_good = self.known.peek(&token.hash).is_some();
            Ok((alone, self.asking.ask(from, was_good).await))
        };
        let _places = match timeout(ASK_WITHIN, waiting).await {
            Ok(Ok(places)) => places,
            Ok(Err(found)) => return found,
            Err(_) => {
                let why = "too many tokens are waiting for verification".to_owned();
                return Err(self.failure_of(TokenError::Unavailable(why), now));
            }
        };
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
        self.take(token, issuer, verified, cache_for, now)
    }

    /// Caches the verdict, except for refusals that can be outdated a moment later.
    fn take(
        &self,
        token: PresentedToken<'_>,
        issuer: Option<&str>,
        verified: Result<VerifiedToken, TokenError>,
        cache_for: Duration,
        now: u64,
    ) -> Result<Identity, Failure> {
        let verified = match verified {
            Ok(verified) => self.identify(token, issuer, verified, cache_for, now),
            Err(
                error @ (TokenError::Unavailable(_) | TokenError::UnknownKey | TokenError::NotYet),
            ) => return Err(self.failure_of(error, now)),
            Err(error) => Err(self.failure_of(error, now)),
        };
        verified.inspect_err(|failure| {
            self.known.remove(&token.hash);
            let until = now.saturating_add(millis(cache_for.min(REFUSED_FOR)));
            let what = failure.clone();
            self.refused.insert(token.hash, Remembered { what, until });
        })
    }

    /// Caches a valid token that has not expired and has the required scopes.
    fn identify(
        &self,
        token: PresentedToken<'_>,
        issuer: Option<&str>,
        verified: VerifiedToken,
        cache_for: Duration,
        now: u64,
    ) -> Result<Identity, Failure> {
        // A stream that ended because its token expired must not be reopened with the same token.
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
        // Tokens with the same scopes need to be distinguished only for an exchange.
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
            key: verified.key,
        };
        let again = now.saturating_add(millis(cache_for));
        let until = expires_at.map_or(again, |expires| expires.min(again));
        let kept_until = expires_at.unwrap_or(until);
        (self.subjects).keep(identity.subject(), token.text, kept_until);
        let what = identity.clone();
        self.known.insert(token.hash, Remembered { what, until });
        Ok(identity)
    }

    /// The failure for the client. An outage is logged occasionally, however many clients it
    /// affects.
    fn failure_of(&self, error: TokenError, now: u64) -> Failure {
        let TokenError::Unavailable(why) = error else {
            return Failure::new(ErrorKind::Unauthorized, format!("{error}; sign in again"));
        };
        let warned_at = self.warned_at.load(Ordering::Relaxed);
        if now.saturating_sub(warned_at) >= millis(RETRY_AFTER) {
            self.warned_at.store(now, Ordering::Relaxed);
            log::warn!("token verification is unavailable: {why}");
        }
        let message = "token verification is unavailable; retry later";
        Failure::new(ErrorKind::Overloaded, message).retry_after_ms(millis(RETRY_AFTER))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{FutureExt as _, LocalBoxFuture, ready};
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::credentials::{WebAnswer, WebRequest};

    /// Accepts every token with the prefix `good`.
    struct Vouching;

    impl Web for Vouching {
        fn send(&self, request: WebRequest) -> LocalBoxFuture<'static, Result<WebAnswer, String>> {
            let token = request.authorization.unwrap();
            let is_good = token.expose_secret().starts_with("Bearer good");
            let answer = WebAnswer {
                status: if is_good { 204 } else { 403 },
                body: bytes::Bytes::new(),
                is_whole: true,
                dpop_nonce: None,
            };
            ready(Ok(answer)).boxed_local()
        }
    }

    fn verifier() -> TokenVerifier {
        let settings = TokenSettings {
            webhook: WebhookSettings {
                url: Some("https://check.example".to_owned()),
                ..WebhookSettings::default()
            },
            ..TokenSettings::default()
        };
        let web: Arc<dyn Web> = Arc::new(Vouching);
        TokenVerifier::new(settings, &web, SubjectTokens::default())
    }

    fn presented(text: &str) -> PresentedToken<'_> {
        let hash = TokenHash::of(text);
        PresentedToken { text, hash }
    }

    #[tokio::test]
    async fn a_flood_of_wrong_tokens_evicts_no_good_one() {
        let verifier = verifier();
        let is_known = |text: &str| verifier.find(presented(text), 0).map(|found| found.is_ok());
        verifier.verify(presented("good"), None, 0).await.unwrap();
        for number in 0..2 * KNOWN_MAX {
            let wrong = format!("wrong-{number}");
            verifier
                .verify(presented(&wrong), None, 0)
                .await
                .unwrap_err();
            assert_eq!(is_known(&wrong), Some(false));
        }
        assert_eq!(is_known("good"), Some(true));
        assert!(verifier.refused.len() <= REFUSED_MAX + REFUSED_MAX / 10);
        // A flood of other valid tokens does not evict one in use.
        for number in 0..2 * KNOWN_MAX {
            let other = format!("good-{number}");
            verifier.verify(presented(&other), None, 0).await.unwrap();
            assert_eq!(is_known("good"), Some(true), "{number}");
        }
        assert!(verifier.known.len() <= KNOWN_MAX + KNOWN_MAX / 10);
    }

    #[tokio::test]
    async fn a_refusal_is_cached_briefly_and_replaces_acceptance() {
        let verifier = verifier();
        verifier.verify(presented("good"), None, 0).await.unwrap();
        let inactive = Err(TokenError::Inactive);
        let cache_for = Duration::from_secs(60);
        let refused = verifier.take(presented("good"), None, inactive, cache_for, 1000);
        assert_eq!(refused.unwrap_err().kind, ErrorKind::Unauthorized);
        let found = |now| {
            verifier
                .find(presented("good"), now)
                .map(|found| found.is_ok())
        };
        let over = 1000 + millis(REFUSED_FOR);
        assert_eq!(
            [found(1000), found(over - 1), found(over)],
            [Some(false), Some(false), None]
        );
        for passing in [
            TokenError::Unavailable("it is away".to_owned()),
            TokenError::UnknownKey,
            TokenError::NotYet,
        ] {
            let token = presented("other");
            drop(
                verifier
                    .take(token, None, Err(passing), cache_for, 0)
                    .unwrap_err(),
            );
            assert!(verifier.find(token, 0).is_none());
        }
    }
}
