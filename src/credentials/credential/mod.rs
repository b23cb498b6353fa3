//! The token of one server: the value that requests carry, its renewal, and sign-in.
//!
//! Requests read it without waiting. Exchanges with the authorization server run one at a time, in
//! separate tasks, so that a rotated token is never lost when the request that triggered it ends.

mod access_token;
mod at_rest;
mod needs;
mod outcome;
mod renewal;
mod sign_in;
mod token_exchange;
mod user;
mod view;

use std::fmt;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;
use url::Url;

use super::assertion::assertion;
use super::stored_sign_in::{StoredSignIn, unix_now};
use super::{
    BearerChallenge, ClientSecret, Endpoint, Grant, GrantKind, OAuthSettings, TokenError,
    TokenRequest, Tokens, Vault, Web, WebBody, WebRequest,
};
use crate::id::ServerName;
use crate::masking::{LiveSecrets, SecretOrigin};
use crate::store::open_trusted;
use crate::telemetry::Counters;
pub use access_token::AccessToken;
use needs::Needs;
pub use outcome::{CredentialView, Granted, LoginName, NotRenewed, SignInError};
pub use sign_in::SIGN_IN_WITHIN;
use sign_in::WaitingSignIn;
use user::User;

/// Maximum size of a private key file, in bytes.
const KEY_MAX: u64 = 64 * 1024;

/// How long requests fail immediately after a failed renewal.
const FAILED_FOR: Duration = Duration::from_secs(5);

/// The credential of the gateway, or of one principal, at one server. Shared by all connections
/// that use it.
pub struct Credential {
    name: ServerName,
    /// The owner, if not the gateway.
    user: Option<User>,
    /// Name of the vault entry.
    kept_as: String,
    url: Url,
    settings: OAuthSettings,
    web: Arc<dyn Web>,
    vault: Vault,
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
    waiting: Mutex<Vec<WaitingSignIn>>,
    /// The secret with which the person of the last sign-in can revoke it.
    take_back: Mutex<Option<SecretString>>,
    needs: Mutex<Needs>,
    changes: watch::Sender<()>,
}

/// State that only one task at a time may use.
#[derive(Default)]
struct HeldSignIn {
    kept: Option<StoredSignIn>,
    failed: Option<(Instant, NotRenewed)>,
    /// When the last attempt to read the vault failed.
    unread_at: Option<Instant>,
}

impl Credential {
    /// The credential of the server at `url`. The vault entry is read on first use, because the
    /// command that prints the key can be slow.
    pub fn open(
        name: ServerName,
        url: Url,
        settings: OAuthSettings,
        web: Arc<dyn Web>,
        shared: (Vault, Counters, LiveSecrets),
    ) -> Arc<Self> {
        let kept_as = name.to_string();
        Self::open_as(name, None, kept_as, (url, settings), web, shared)
    }

    fn open_as(
        name: ServerName,
        user: Option<User>,
        kept_as: String,
        (url, settings): (Url, OAuthSettings),
        web: Arc<dyn Web>,
        (vault, counters, secrets): (Vault, Counters, LiveSecrets),
    ) -> Arc<Self> {
        // Exchanged tokens are not stored: a stored entry is from before the configuration changed.
        let is_exchanged = user.as_ref().is_some_and(|user| user.subject.is_some());
        Arc::new(Self {
            name,
            user,
            kept_as,
            url,
            settings,
            web,
            vault,
            counters,
            secrets,
            current: ArcSwapOption::empty(),
            held: AsyncMutex::default(),
            is_read: AtomicBool::new(is_exchanged),
            is_used: AtomicBool::new(false),
            is_renewing: AtomicBool::new(false),
            waiting: Mutex::default(),
            take_back: Mutex::default(),
            needs: Mutex::default(),
            changes: watch::Sender::new(()),
        })
    }

    /// Whether the credential belongs to the server at `url` with these settings.
    pub fn is_of(&self, url: &Url, settings: &OAuthSettings) -> bool {
        self.url == *url && self.settings == *settings
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

    /// Whether the server refused the credential, and a person has to sign in.
    pub fn needs_login(&self) -> bool {
        self.refused().is_some_and(|refused| refused.needs_person())
    }

    /// Why the last refused token was not replaced.
    pub fn refused(&self) -> Option<NotRenewed> {
        self.needs.lock().refused.clone()
    }

    /// Waits for the next sign-in.
    pub async fn signed_in(&self) {
        let mut changes = self.changes.subscribe();
        while self.needs_login() && changes.changed().await.is_ok() {}
    }

    async fn renew_now(
        &self,
        sent: Option<&Arc<AccessToken>>,
        challenge: Option<BearerChallenge>,
    ) -> Result<(), NotRenewed> {
        let mut held = self.held().await;
        if let Some(token) = self.current.load_full()
            && !sent.is_some_and(|sent| Arc::ptr_eq(sent, &token))
        {
            return Ok(());
        }
        if let Some((at, error)) = &held.failed
            && at.elapsed() < FAILED_FOR
        {
            return Err(error.clone());
        }
        if self.is_exchanged() {
            self.look_again();
            if let Some(refused) = self.refused() {
                return Err(refused);
            }
        }
        let has_tokens = held.kept.as_ref().is_some_and(|kept| kept.access.is_some());
        let is_person = self.settings.grant == GrantKind::AuthorizationCode;
        if is_person && !has_tokens && challenge.is_none() {
            self.needs.lock().refused = None;
            let why = "the server does not declare that it accepts tokens";
            return Err(NotRenewed::Failed(why.to_owned()));
        }
        let wants_more = challenge
            .as_ref()
            .is_some_and(BearerChallenge::wants_more_scopes);
        if let Some(challenge) = challenge {
            self.needs.lock().ask(challenge);
        }
        if is_person && wants_more {
            return Err(self.not_renewed(SignInError::MoreScopes, &mut held).await);
        }
        if is_person {
            self.discard_former_authority(&mut held).await;
        }
        match self.renew_with_retries(&mut held).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.not_renewed(error, &mut held).await),
        }
    }

    /// Records that the refused token is not replaced.
    async fn not_renewed(&self, error: SignInError, held: &mut HeldSignIn) -> NotRenewed {
        let refused = match error {
            error if self.is_exchanged() && !error.is_passing() => {
                self.sign_out(held).await;
                NotRenewed::NotExchanged(error.to_string())
            }
            SignInError::MoreScopes => NotRenewed::MoreScopes(self.login_name()),
            SignInError::Token(TokenError::UnknownClient) if self.settings.client_id.is_none() => {
                self.sign_out(held).await;
                self.forget_client(held).await;
                NotRenewed::LoginNeeded(self.login_name())
            }
            SignInError::NotSignedIn | SignInError::Token(TokenError::SignInAgain) => {
                self.sign_out(held).await;
                NotRenewed::LoginNeeded(self.login_name())
            }
            error => {
                let failed = NotRenewed::Failed(error.to_string());
                held.failed = Some((Instant::now(), failed.clone()));
                failed
            }
        };
        self.needs.lock().refuse(refused.clone());
        self.changes.send_replace(());
        refused
    }

    /// Discards the client and tokens of an authorization server that the server no longer uses:
    /// they must never be sent to a different one.
    async fn discard_former_authority(&self, held: &mut HeldSignIn) {
        let challenge = self.needs.lock().challenge.clone();
        let (Some(kept), Some(challenge)) = (&held.kept, challenge) else {
            return;
        };
        if let Ok(authority) = self.authority(Some(&challenge)).await
            && authority.server.issuer != kept.issuer
        {
            log::warn!(server = self.name.as_str(); "authorization server changed; signing out");
            self.sign_out(held).await;
            held.kept = None;
        }
    }

    async fn refresh_once(&self, held: &mut HeldSignIn) -> Result<(), SignInError> {
        let kept = held.kept.as_ref().ok_or(SignInError::NotSignedIn)?;
        let refresh = kept.refresh.clone().ok_or(SignInError::NotSignedIn)?;
        let endpoint = kept.token_endpoint().ok_or(SignInError::NotSignedIn)?;
        let grant = Grant::RefreshToken(refresh.into());
        let mut kept = kept.clone();
        let tokens = self.exchange_for(&grant, &endpoint, &kept).await?;
        kept.take(&tokens);
        self.adopt(held, kept).await
    }

    /// Obtains a token for the gateway itself.
    async fn obtain(&self, held: &mut HeldSignIn) -> Result<(), SignInError> {
        let challenge = self.needs.lock().challenge.clone();
        let authority = self.authority(challenge.as_ref()).await?;
        let scopes = self.scopes(&authority, held, challenge.as_ref())?;
        let nowhere = self.url.clone();
        let client = self.client(held, &authority, &nowhere, &scopes).await?;
        let mut kept = StoredSignIn::new(&self.url, &authority, &client, Some(nowhere), &scopes);
        let endpoint = authority.server.token_endpoint;
        let tokens = self
            .exchange_for(&Grant::ClientCredentials, &endpoint, &kept)
            .await?;
        kept.take(&tokens);
        self.adopt(held, kept).await
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
        self.granted(&held)
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
        if let Err(error) = self.vault.remove(&self.kept_as) {
            log::warn!(server = self.name.as_str(), error:%; "stored tokens could not be removed");
        }
        let token = kept.refresh.as_ref().or(kept.access.as_ref());
        let (Some(token), Some(endpoint)) = (token, kept.revocation_endpoint()) else {
            return kept.access.is_some();
        };
        let secret = self.client_secret(&kept).unwrap_or(ClientSecret::None);
        let request = TokenRequest::about(token, &kept.client_id, &secret);
        if let Err(error) = self.web.send(web_request(&endpoint, request)).await {
            log::warn!(server = self.name.as_str(), error; "token could not be revoked");
        }
        true
    }

    async fn exchange_for(
        &self,
        grant: &Grant,
        endpoint: &Endpoint,
        kept: &StoredSignIn,
    ) -> Result<Tokens, SignInError> {
        let secret = self.client_secret(kept)?;
        let (id, resource) = (&kept.client_id, &kept.resource);
        let request = TokenRequest::new(grant, id, &secret, resource, &kept.scopes());
        let answer = self.web.send(web_request(endpoint, request)).await;
        let answer = answer.map_err(SignInError::Unreachable)?;
        Ok(match grant {
            Grant::TokenExchange { .. } => Tokens::parse_exchanged(answer.status, &answer.body)?,
            _ => Tokens::parse(answer.status, &answer.body)?,
        })
    }

    fn client_secret(&self, kept: &StoredSignIn) -> Result<ClientSecret, SignInError> {
        let Some(file) = &self.settings.client_key_file else {
            return Ok(kept.secret());
        };
        let unusable = |why: String| SignInError::Key(file.display().to_string(), why);
        let mut pem = Vec::new();
        let read = open_trusted(file).and_then(|file| file.take(KEY_MAX).read_to_end(&mut pem));
        read.map_err(|error| unusable(error.to_string()))?;
        let signed = assertion(&pem, &kept.client_id, &kept.issuer, unix_now());
        let signed = signed.map_err(|error| unusable(error.to_string()))?;
        Ok(ClientSecret::Assertion(signed))
    }

    /// Makes requests carry these tokens from now on.
    async fn adopt(&self, held: &mut HeldSignIn, kept: StoredSignIn) -> Result<(), SignInError> {
        self.carry(&kept);
        held.kept = Some(kept.clone());
        held.failed = None;
        // The vault's content is older.
        self.is_read.store(true, Ordering::Release);
        self.needs.lock().answer();
        self.changes.send_replace(());
        self.store(kept).await
    }

    /// Makes requests carry the token of this sign-in, and masks it in texts from servers.
    fn carry(&self, kept: &StoredSignIn) {
        self.secrets.add_all(SecretOrigin::Server, kept.secrets());
        let token = AccessToken::of(kept, self.settings.grant);
        self.current.store(token.map(Arc::new));
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

fn web_request(endpoint: &Endpoint, request: TokenRequest) -> WebRequest {
    WebRequest {
        url: endpoint.url().clone(),
        authorization: request.authorization,
        body: Some(WebBody::Form(request.body)),
    }
}
