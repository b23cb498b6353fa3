//! Exchanges a client's token for a token of the server: at one authorization server (RFC 8693), or
//! through an ID-JAG of the client's identity provider (enterprise-managed authorization).
//!
//! The new token is kept in memory only, and follows the client's newest token. The client's token
//! is sent only to a configured URL: an authorization server that the server names could steal it.

use std::sync::Arc;

use super::{AccessToken, Credential, HeldSignIn, NotRenewed, SignInError};
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::credentials::{Grant, GrantKind, SubjectToken};

impl Credential {
    /// Whether the credential's tokens come from an exchange of client tokens.
    pub fn is_exchanged(&self) -> bool {
        self.oauth.settings.grant.exchanges()
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
        self.refusals.look_again(self.subject_token().as_ref());
    }

    fn subject_token(&self) -> Option<Arc<SubjectToken>> {
        self.user.as_ref()?.subject_token()
    }

    pub(super) async fn exchange_token(&self, held: &mut HeldSignIn) -> Result<(), SignInError> {
        if self.user.is_none() {
            return Err(SignInError::ByExchange);
        }
        let subject = self.subject_token();
        self.refusals.set_subject(subject.as_ref());
        let subject = subject.ok_or(SignInError::NoSubject)?;
        let until = subject.expires_at();
        let challenge = self.refusals.challenge();
        let oauth = &self.oauth;
        let authority = oauth.authority(self.challenge().as_ref()).await?;
        let scopes = self.scopes(&authority, held, challenge.as_ref())?;
        let client = oauth.register(&authority, &oauth.url, &scopes).await?;
        let mut kept = StoredSignIn::new(&oauth.url, &authority, &client, None, &scopes);
        self.bind(&mut kept, Some(&authority), held.kept.as_ref())?;
        let grant = match oauth.settings.grant {
            GrantKind::Enterprise => self.masked_grant(oauth.id_jag(subject, &kept).await?),
            _ => Grant::TokenExchange {
                subject,
                subject_type: oauth.settings.subject_token_type,
                audience: oauth.settings.audience.clone(),
            },
        };
        let endpoint = authority.server.token_endpoint;
        let tokens = oauth.request_tokens(&grant, &endpoint, &kept).await?;
        kept.take(&tokens);
        kept.refresh = None;
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
        if !is_current || self.subject_token().is_none() || held.recent_failure().is_some() {
            return Ok(());
        }
        let exchanged = self.renew_once(&mut held).await;
        exchanged.map_err(|error| held.fail(&error))
    }
}
