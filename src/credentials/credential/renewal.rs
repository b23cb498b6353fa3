//! Replaces the token of any grant: retries, counts, and decides what a failure means.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{AccessToken, Credential, HeldSignIn, NotRenewed, SignInError};
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::credentials::{BearerChallenge, Grant, GrantKind, TokenError};
use crate::telemetry::Counter;

/// Delays between attempts to renew a token while the authorization server is unavailable.
const RETRY_AFTER: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

impl Credential {
    pub(super) async fn renew_now(
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
        if let Some(error) = held.recent_failure() {
            return Err(error.clone());
        }
        if self.is_exchanged() {
            self.look_again();
            if let Some(refused) = self.refusals.last() {
                return Err(refused);
            }
        }
        let is_person = self.oauth.settings.grant.is_interactive();
        if is_person && held.signed_in().is_none() && challenge.is_none() {
            self.refusals.clear();
            let why = "the server does not declare that it accepts tokens";
            return Err(NotRenewed::Failed(why.to_owned()));
        }
        let wants_more = challenge
            .as_ref()
            .is_some_and(BearerChallenge::wants_more_scopes);
        if let Some(challenge) = challenge {
            self.refusals.ask(challenge);
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
        let is_person = self.oauth.settings.grant.is_interactive();
        let refused = match error {
            error if self.is_exchanged() && !error.is_passing() => {
                self.sign_out(held).await;
                NotRenewed::NotExchanged(error.to_string())
            }
            SignInError::MoreScopes => NotRenewed::MoreScopes(self.login_name()),
            SignInError::Token(TokenError::UnknownClient)
                if self.oauth.settings.client_id.is_none() =>
            {
                self.sign_out(held).await;
                let forgotten = held.kept.take();
                if let (Some(user), Some(kept)) = (&self.user, forgotten) {
                    user.forget_client(&kept.client_id).await;
                }
                NotRenewed::LoginNeeded(self.login_name())
            }
            SignInError::NotSignedIn | SignInError::Token(TokenError::SignInAgain) => {
                self.sign_out(held).await;
                NotRenewed::LoginNeeded(self.login_name())
            }
            // Servers disagree on the name of the error for a refresh token that is no longer good.
            SignInError::Token(TokenError::Refused(why)) if is_person => {
                log::warn!(server = self.name.as_str(), why; "the token was not renewed; signing out");
                self.sign_out(held).await;
                NotRenewed::LoginNeeded(self.login_name())
            }
            error => held.fail(&error),
        };
        self.refusals.refuse(refused.clone());
        refused
    }

    /// Discards the client and tokens of an authorization server that the server no longer uses:
    /// they must never be sent to a different one.
    async fn discard_former_authority(&self, held: &mut HeldSignIn) {
        let (Some(kept), Some(challenge)) = (&held.kept, self.refusals.challenge()) else {
            return;
        };
        if let Ok(authority) = self.oauth.authority(Some(&challenge)).await
            && authority.server.issuer != kept.issuer
        {
            log::warn!(server = self.name.as_str(); "authorization server changed; signing out");
            self.sign_out(held).await;
            held.kept = None;
        }
    }

    /// Renews, retrying for some seconds while the authorization server is unavailable.
    async fn renew_with_retries(&self, held: &mut HeldSignIn) -> Result<(), SignInError> {
        for pause in RETRY_AFTER {
            match self.renew_once(held).await {
                Err(error) if error.is_passing() => {
                    log::info!(server = self.name.as_str(), error:%; "token renewal failed; retrying");
                    sleep(pause).await;
                }
                done => return done,
            }
        }
        self.renew_once(held).await
    }

    pub(super) async fn renew_once(&self, held: &mut HeldSignIn) -> Result<(), SignInError> {
        let renewed = match self.oauth.settings.grant {
            GrantKind::AuthorizationCode => self.redeem_refresh_token(held).await,
            GrantKind::ClientCredentials | GrantKind::JwtBearer => self.obtain(held).await,
            GrantKind::TokenExchange | GrantKind::Enterprise => self.exchange_token(held).await,
        };
        self.counters.add(match &renewed {
            Ok(()) => Counter::TokensRenewed,
            // There is nothing to renew.
            Err(SignInError::NotSignedIn | SignInError::NoSubject) => return renewed,
            Err(error) if error.is_passing() => Counter::RenewalsFailed,
            Err(_) => Counter::RenewalsRefused,
        });
        renewed
    }

    async fn redeem_refresh_token(&self, held: &mut HeldSignIn) -> Result<(), SignInError> {
        let kept = held.kept.as_ref().ok_or(SignInError::NotSignedIn)?;
        let refresh = kept.refresh.clone().ok_or(SignInError::NotSignedIn)?;
        let endpoint = kept.token_endpoint().ok_or(SignInError::NotSignedIn)?;
        let grant = Grant::RefreshToken(refresh.into());
        let mut kept = kept.clone();
        self.bind(&mut kept, None, None)?;
        let tokens = self.oauth.request_tokens(&grant, &endpoint, &kept).await?;
        kept.take(&tokens);
        self.adopt(held, kept).await
    }

    /// Obtains a token for the gateway itself.
    async fn obtain(&self, held: &mut HeldSignIn) -> Result<(), SignInError> {
        let challenge = self.refusals.challenge();
        let authority = self.oauth.authority(challenge.as_ref()).await?;
        let scopes = self.scopes(&authority, held, challenge.as_ref())?;
        let nowhere = self.oauth.url.clone();
        let client = self.client(held, &authority, &nowhere, &scopes).await?;
        let url = &self.oauth.url;
        let mut kept = StoredSignIn::new(url, &authority, &client, Some(nowhere), &scopes);
        self.bind(&mut kept, Some(&authority), held.kept.as_ref())?;
        let grant = match self.oauth.settings.grant {
            GrantKind::JwtBearer => self.masked_grant(self.oauth.workload_token(&kept)?),
            _ => Grant::ClientCredentials,
        };
        let endpoint = authority.server.token_endpoint;
        let tokens = self.oauth.request_tokens(&grant, &endpoint, &kept).await?;
        kept.take(&tokens);
        self.adopt(held, kept).await
    }
}
