//! Exchanges a client's token for a token of the server (RFC 8693).
//!
//! The new token is kept in memory only, and follows the client's newest token. It is exchanged
//! only at a configured authorization server: one that the server names could steal it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{AccessToken, Credential, FAILED_FOR, HeldSignIn, NotRenewed, SignInError};
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::credentials::{Grant, GrantKind, SubjectToken, lookup};

/// Delay before a refused token is tried again; a different token is tried immediately.
const REFUSED_FOR: Duration = Duration::from_secs(10);

impl Credential {
    /// Whether the credential's tokens come from an exchange of client tokens.
    pub fn is_exchanged(&self) -> bool {
        self.settings.grant == GrantKind::TokenExchange
    }

    /// Whether requests of the credential's user have to wait for a token, without which none is
    /// sent.
    pub fn lacks_token(&self) -> bool {
        let is_usable = |token: &Arc<AccessToken>| !token.has_expired();
        self.is_exchanged()
            && self.user.is_some()
            && !self.current.load().as_ref().is_some_and(is_usable)
    }

    /// Gets a token for a request that needs one. Called on an arbiter.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub async fn exchanged(self: &Arc<Self>) -> Result<(), NotRenewed> {
        self.renew(self.current.load_full(), None).await
    }

    /// Clears a failed exchange, if the client has a different token by now or some time has
    /// passed.
    pub fn look_again(&self) {
        let newest = self.subject();
        let mut needs = self.needs.lock();
        if !matches!(needs.refused, Some(NotRenewed::NotExchanged(_))) {
            return;
        }
        let is_same = match (&newest, &needs.refused_subject) {
            (Some(newest), Some(refused)) => Arc::ptr_eq(newest, refused),
            (newest, refused) => newest.is_none() && refused.is_none(),
        };
        let is_recent = needs
            .refused_at
            .is_some_and(|at| at.elapsed() < REFUSED_FOR);
        if !(is_same && is_recent) {
            needs.refused = None;
            drop(needs);
            self.changes.send_replace(());
        }
    }

    /// The newest token of the credential's user with the same rights.
    fn subject(&self) -> Option<Arc<SubjectToken>> {
        let user = self.user.as_ref()?;
        user.subjects.get(user.subject.as_ref()?)
    }

    pub(super) async fn exchange_token(&self, held: &mut HeldSignIn) -> Result<(), SignInError> {
        if self.user.is_none() {
            return Err(SignInError::ByExchange);
        }
        let subject = self.subject();
        self.needs.lock().refused_subject.clone_from(&subject);
        let subject = subject.ok_or(SignInError::NoSubject)?;
        let until = subject.expires_at();
        let challenge = self.needs.lock().challenge.clone();
        let authority = self.authority(None).await?;
        let scopes = self.scopes(&authority, held, challenge.as_ref())?;
        let (web, settings) = (&*self.web, &self.settings);
        let client = lookup::client(web, &authority, settings, &self.url, &scopes).await?;
        let mut kept = StoredSignIn::new(&self.url, &authority, &client, None, &scopes);
        let grant = Grant::TokenExchange {
            subject,
            subject_type: settings.subject_token_type,
            audience: settings.audience.clone(),
        };
        let endpoint = authority.server.token_endpoint;
        let tokens = self.exchange_for(&grant, &endpoint, &kept).await?;
        kept.take(&tokens);
        // A token without a stated lifetime is assumed to expire with the user's token.
        kept.expires_at = kept.expires_at.or(Some(until));
        self.adopt(held, kept).await
    }

    /// Replaces a token before it expires; if that fails, the old token stays in use until then.
    pub(super) async fn exchange_ahead(&self, sent: &Arc<AccessToken>) -> Result<(), NotRenewed> {
        let mut held = self.held().await;
        let current = self.current.load_full();
        let is_current = current.is_some_and(|current| Arc::ptr_eq(&current, sent));
        // A client without a valid token cannot call.
        if !is_current || self.subject().is_none() {
            return Ok(());
        }
        if let Some((at, _)) = &held.failed
            && at.elapsed() < FAILED_FOR
        {
            return Ok(());
        }
        let exchanged = self.renew_once(&mut held).await;
        exchanged.map_err(|error| {
            let failed = NotRenewed::Failed(error.to_string());
            held.failed = Some((Instant::now(), failed.clone()));
            failed
        })
    }
}
