//! The token of one server: the value that requests carry, its renewal, and sign-in.
//!
//! Requests read it without waiting. Exchanges with the authorization server run one at a time, in
//! separate tasks, so that a rotated token is never lost when the request that triggered it ends.

mod access_token;
mod outcome;
mod refusals;
mod renewal;
mod sign_in;
#[cfg(test)]
mod tests;
mod token_exchange;
mod user;
mod vault_entry;
mod waiting_sign_ins;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};
use tokio::time::Instant;
use url::Url;

use super::authority::Authority;
use super::dpop::Nonce;
use super::oauth_client::OAuthClient;
use super::stored_sign_in::{StoredSignIn, unix_now};
use super::{BearerChallenge, Grant, OAuthSettings, SubjectTokens, Vault, Web};
use crate::id::{Principal, ServerName, Subject};
use crate::masking::{LiveSecrets, SecretOrigin};
use crate::telemetry::Counters;
pub use access_token::AccessToken;
pub use outcome::{CredentialView, Granted, LoginName, NotRenewed, SignInError};
pub use refusals::Refusals;
use user::User;
use vault_entry::VaultEntry;
pub use waiting_sign_ins::SIGN_IN_WITHIN;
use waiting_sign_ins::WaitingSignIns;

/// How long requests fail immediately after a failed renewal.
const FAILED_FOR: Duration = Duration::from_secs(5);

/// Delay before a failed read of the vault is retried: the keyring can be unlocked by then.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The credential of the gateway, or of one principal, at one server. Shared by all connections
/// that use it.
pub struct Credential {
    name: ServerName,
    /// The owner, if not the gateway.
    user: Option<User>,
    oauth: Arc<OAuthClient>,
    pub(super) entry: VaultEntry,
    counters: Counters,
    /// Secrets to mask; every token is added before a request carries it.
    secrets: LiveSecrets,
    current: ArcSwapOption<AccessToken>,
    held: AsyncMutex<HeldSignIn>,
    /// Whether the vault entry has been read.
    is_read: AtomicBool,
    /// Whether a request has carried a token since the last sign-in.
    is_used: AtomicBool,
    is_renewing: AtomicBool,
    pub(super) waiting: WaitingSignIns,
    /// The secret with which the person of the last sign-in can revoke it.
    take_back: Mutex<Option<SecretString>>,
    refusals: Refusals,
}

/// State that only one task at a time may use.
#[derive(Default)]
struct HeldSignIn {
    kept: Option<StoredSignIn>,
    failed: Option<(Instant, NotRenewed)>,
    /// When the last attempt to read the vault failed.
    unread_at: Option<Instant>,
}

impl HeldSignIn {
    /// The stored sign-in, if it has a token.
    fn signed_in(&self) -> Option<&StoredSignIn> {
        self.kept.as_ref().filter(|kept| kept.access.is_some())
    }

    /// The last failed renewal, while requests fail because of it.
    fn recent_failure(&self) -> Option<&NotRenewed> {
        let failed = self.failed.as_ref();
        let recent = failed.filter(|(at, _)| at.elapsed() < FAILED_FOR);
        recent.map(|(_, error)| error)
    }

    fn fail(&mut self, error: &SignInError) -> NotRenewed {
        let failed = NotRenewed::Failed(error.to_string());
        self.failed = Some((Instant::now(), failed.clone()));
        failed
    }

    fn granted(&self, login: LoginName) -> Result<Granted, SignInError> {
        let kept = self.kept.as_ref().ok_or(SignInError::NotSignedIn)?;
        Ok(Granted {
            server: login.server,
            token_type: if kept.is_bound() { "DPoP" } else { "Bearer" },
            expires_in: kept.expires_at.map(|at| at.saturating_sub(unix_now())),
            expires_at: kept.expires_at,
            scope: kept.scopes.clone(),
            principal: login.principal,
            is_another: false,
        })
    }
}

impl Credential {
    /// The credential of the server at `url`. The vault entry is read on first use, because the
    /// command that prints the key can be slow.
    pub fn open(
        name: ServerName,
        url: Url,
        settings: OAuthSettings,
        web: Arc<dyn Web>,
        (vault, counters, secrets): (Vault, Counters, LiveSecrets),
    ) -> Arc<Self> {
        let nonce = Nonce::default();
        let oauth = Arc::new(OAuthClient {
            url,
            settings,
            web,
            nonce,
        });
        let entry = VaultEntry::new(vault, name);
        Self::open_entry(None, oauth, entry, (counters, secrets))
    }

    /// The credential of a principal at the same server as the gateway's credential, with its vault
    /// entry.
    pub fn of_user(
        gateway: &Arc<Self>,
        (principal, subject): (&Principal, Option<&Subject>),
        callback: &Arc<OnceLock<Url>>,
        subjects: &SubjectTokens,
    ) -> Arc<Self> {
        let user = User {
            principal: principal.clone(),
            subject: subject.cloned(),
            gateway: Arc::clone(gateway),
            callback: Arc::clone(callback),
            subjects: subjects.clone(),
        };
        let entry = gateway.entry.of_user(principal);
        let shared = (gateway.counters.clone(), gateway.secrets.clone());
        Self::open_entry(Some(user), Arc::clone(&gateway.oauth), entry, shared)
    }

    fn open_entry(
        user: Option<User>,
        oauth: Arc<OAuthClient>,
        entry: VaultEntry,
        (counters, secrets): (Counters, LiveSecrets),
    ) -> Arc<Self> {
        // Exchanged tokens are not stored: a stored entry is from before the configuration changed.
        let is_exchanged = user.as_ref().is_some_and(|user| user.subject.is_some());
        Arc::new(Self {
            name: entry.server.clone(),
            user,
            oauth,
            entry,
            counters,
            secrets,
            current: ArcSwapOption::empty(),
            held: AsyncMutex::default(),
            is_read: AtomicBool::new(is_exchanged),
            is_used: AtomicBool::new(false),
            is_renewing: AtomicBool::new(false),
            waiting: WaitingSignIns::default(),
            take_back: Mutex::default(),
            refusals: Refusals::default(),
        })
    }

    /// Whether the credential belongs to the server at `url` with these settings.
    pub fn is_of(&self, url: &Url, settings: &OAuthSettings) -> bool {
        self.oauth.url == *url && self.oauth.settings == *settings
    }

    /// The token that requests carry; `None` if not signed in. A token that expires soon is renewed
    /// in the background. Called on an arbiter.
    pub fn token(self: &Arc<Self>) -> Option<Arc<AccessToken>> {
        let token = self.current.load_full()?;
        self.is_used.store(true, Ordering::Relaxed);
        if token.is_due() && !self.is_renewing.swap(true, Ordering::AcqRel) {
            let (this, sent) = (Arc::clone(self), Arc::clone(&token));
            actix_rt::spawn(async move {
                let renewed = match this.is_exchanged() {
                    true => this.exchange_ahead(&sent).await,
                    false => this.renew_now(Some(&sent), None).await,
                };
                if let Err(error) = renewed {
                    log::warn!(server = this.name.as_str(), error:%; "early token refresh failed");
                }
                this.is_renewing.store(false, Ordering::Release);
            });
        }
        Some(token)
    }

    /// Whether a token is available.
    pub fn has_token(&self) -> bool {
        self.current.load().is_some()
    }

    /// Expiry of the current token, in Unix seconds, if known.
    pub fn expires_at(&self) -> Option<u64> {
        self.current.load().as_ref()?.expires_at
    }

    /// The server's refusals of the token, and the sign-in that they require.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Replaces the token that was refused; `challenge` is the server's `WWW-Authenticate`. Called
    /// on an arbiter.
    ///
    /// # Errors
    ///
    /// Returns why the token was not replaced.
    pub async fn renew(
        self: &Arc<Self>,
        sent: Option<Arc<AccessToken>>,
        challenge: Option<&str>,
    ) -> Result<(), NotRenewed> {
        let challenge = challenge.and_then(|text| BearerChallenge::parse(text).ok().flatten());
        let this = Arc::clone(self);
        // A separate task: the request can be dropped, but the new token must not be lost.
        let renewing =
            actix_rt::spawn(async move { this.renew_now(sent.as_ref(), challenge).await });
        let stopped = |_| Err(NotRenewed::Failed("the gateway is stopping".to_owned()));
        renewing.await.unwrap_or_else(stopped)
    }

    /// Renews the token immediately.
    ///
    /// # Errors
    ///
    /// Returns why it was not renewed; the old token stays in use.
    pub async fn refresh(&self) -> Result<Granted, SignInError> {
        let mut held = self.held().await;
        self.renew_once(&mut held).await?;
        held.failed = None;
        held.granted(self.login_name())
    }

    /// Deletes the tokens, and revokes them if the authorization server supports it (RFC 7009).
    /// Returns whether there were any.
    pub async fn forget(&self) -> bool {
        let mut held = self.held().await;
        let Some(kept) = held.kept.clone() else {
            return false;
        };
        self.sign_out(&mut held).await;
        held.kept = None;
        *self.take_back.lock() = None;
        self.entry.remove();
        if let Err(error) = self.oauth.revoke(&kept).await {
            log::warn!(server = self.name.as_str(), error; "token could not be revoked");
        }
        kept.refresh.is_some() || kept.access.is_some()
    }

    /// The owner, if not the gateway.
    pub fn principal(&self) -> Option<&Principal> {
        self.user.as_ref().map(|user| &user.principal)
    }

    pub(super) fn login_name(&self) -> LoginName {
        LoginName {
            server: self.name.clone(),
            principal: self.principal().cloned(),
        }
    }

    /// Whether the credential can be dropped without losing state.
    pub fn is_unused(&self) -> bool {
        self.is_exchanged() || !self.has_token() && self.waiting.is_empty()
    }

    /// Whether this is the secret with which the last sign-in can be revoked.
    pub fn takes_back(&self, word: &str) -> bool {
        let expected = self.take_back.lock().clone();
        expected.is_some_and(|expected| {
            bool::from(expected.expose_secret().as_bytes().ct_eq(word.as_bytes()))
        })
    }

    /// The server's last challenge to this user, or else to the gateway.
    fn challenge(&self) -> Option<BearerChallenge> {
        let of_gateway = || self.user.as_ref()?.gateway.refusals.last_challenge();
        self.refusals.last_challenge().or_else(of_gateway)
    }

    /// The state shown to operators.
    pub async fn view(&self) -> CredentialView {
        let held = self.held().await;
        let kept = held.signed_in();
        CredentialView {
            server: self.name.to_string(),
            principal: self.principal().map(|it| it.name().to_owned()),
            state: match (kept, self.refusals.last()) {
                (Some(_), Some(NotRenewed::MoreScopes(_))) => "wants more permissions",
                (Some(_), _) => "signed in",
                (None, Some(NotRenewed::LoginNeeded(_))) if self.user.is_none() => "needs login",
                (None, _) if self.user.is_some() => self.refusals.need().unwrap_or("none"),
                (None, _) => "none",
            }
            .into(),
            issuer: kept.map(|kept| kept.issuer.clone()),
            scope: kept.map(|kept| kept.scopes.clone()),
            expires_at: kept.and_then(|kept| kept.expires_at),
            signed_in_at: kept.and_then(|kept| kept.signed_in_at),
            is_renewable: kept.is_some_and(|kept| kept.refresh.is_some())
                || !self.oauth.settings.grant.is_interactive(),
        }
    }

    /// Waits until a stored token is loaded.
    pub async fn opened(&self) {
        if !self.is_read.load(Ordering::Acquire) {
            drop(Box::pin(self.held()).await);
        }
    }

    /// Locks the state that only one task at a time may use, after reading the vault.
    async fn held(&self) -> MutexGuard<'_, HeldSignIn> {
        let mut held = self.held.lock().await;
        let is_due = |at: Instant| at.elapsed() >= READ_AGAIN_AFTER;
        if !self.is_read.load(Ordering::Acquire) && held.unread_at.is_none_or(is_due) {
            match self.entry.read().await {
                Ok(kept) => self.take_kept(kept, &mut held),
                Err(_) => held.unread_at = Some(Instant::now()),
            }
        }
        held
    }

    fn take_kept(&self, kept: Option<StoredSignIn>, held: &mut HeldSignIn) {
        held.kept = kept.filter(|kept| {
            kept.server == self.oauth.url && kept.principal.as_ref() == self.principal()
        });
        if let Some(kept) = &mut held.kept {
            kept.set_secret(&self.oauth.settings);
            self.carry(kept);
            self.refusals.restore(kept.challenge());
        }
        self.is_read.store(true, Ordering::Release);
    }

    /// Stores the sign-in, unless its token can be exchanged again.
    async fn store(&self, mut kept: StoredSignIn) -> Result<(), SignInError> {
        if self.is_exchanged() {
            return Ok(());
        }
        kept.principal = self.principal().cloned();
        if let Some(challenge) = self.challenge() {
            kept.set_challenge(&challenge);
        }
        self.entry.write(&kept).await
    }

    /// Makes requests carry these tokens from now on.
    async fn adopt(&self, held: &mut HeldSignIn, kept: StoredSignIn) -> Result<(), SignInError> {
        self.carry(&kept);
        held.kept = Some(kept.clone());
        held.failed = None;
        // The vault's content is older.
        self.is_read.store(true, Ordering::Release);
        self.refusals.answer();
        self.store(kept).await
    }

    /// Makes requests carry the token of this sign-in, and masks it in texts from servers.
    fn carry(&self, kept: &StoredSignIn) {
        self.secrets.add_all(SecretOrigin::Server, kept.secrets());
        let former = self.current.load();
        let token = AccessToken::of(kept, self.oauth.settings.grant, former.as_deref());
        self.current.store(token.map(Arc::new));
    }

    /// Prepares a sign-in for tokens that are bound to a key, if the server or the configuration
    /// asks for them.
    fn bind(
        &self,
        kept: &mut StoredSignIn,
        authority: Option<&Authority>,
        previous: Option<&StoredSignIn>,
    ) -> Result<(), SignInError> {
        let is_asked = self.oauth.settings.dpop
            || authority.is_some_and(|it| it.needs_dpop)
            || self.challenge().is_some_and(|it| it.is_dpop);
        match is_asked {
            true => kept.bind(previous).map_err(|_| SignInError::Random),
            false => Ok(()),
        }
    }

    /// A grant by a JWT, which is masked in texts from servers.
    fn masked_grant(&self, jwt: SecretString) -> Grant {
        let texts = [jwt.expose_secret()].into_iter();
        self.secrets.add_all(SecretOrigin::Server, texts);
        Grant::JwtBearer(jwt)
    }

    async fn sign_out(&self, held: &mut HeldSignIn) {
        self.current.store(None);
        if let Some(kept) = &mut held.kept
            && kept.access.is_some()
        {
            kept.drop_tokens();
            if let Err(error) = self.store(kept.clone()).await {
                log::warn!(server = self.name.as_str(), error:%; "stored tokens could not be removed");
            }
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.login_name())
    }
}
