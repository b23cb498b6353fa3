//! A person signs in: the way to the page, and the way back.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use super::{Credential, Exchange, Granted, SignInError};
use crate::credentials::authorization::state_of;
use crate::credentials::lookup::{self, Authority};
use crate::credentials::stored_sign_in::{StoredSignIn, unix_now};
use crate::credentials::{
    BearerChallenge, CallbackError, Endpoint, Grant, GrantKind, PendingSignIn, RegisteredClient,
    Scopes, SignIn,
};

/// A sign-in that was begun is waited for so long.
pub const SIGN_IN_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Sign-ins at one server that may wait at the same time; the oldest is dropped.
const SIGN_INS_MAX: usize = 4;

/// A sign-in that a person was sent to.
pub(super) struct WaitingSignIn {
    pub(super) pending: PendingSignIn,
    pub(super) kept: StoredSignIn,
    token_endpoint: Endpoint,
    pub(super) began: Instant,
}

impl Credential {
    /// Begins a sign-in: returns the page that a person is to open, which leads back to
    /// `redirect_uri`.
    ///
    /// # Errors
    ///
    /// Returns why nobody can sign in.
    pub async fn begin(&self, redirect_uri: Url) -> Result<Url, SignInError> {
        match self.settings.grant {
            GrantKind::AuthorizationCode => {}
            GrantKind::ClientCredentials => return Err(SignInError::ByItself),
            GrantKind::TokenExchange => return Err(SignInError::ByExchange),
        }
        let mut exchange = self.exchange().await;
        if let Some(page) = self.recent_page(&redirect_uri) {
            return Ok(page);
        }
        let challenge = self.challenge();
        let authority = self.authority(challenge.as_ref()).await?;
        if !authority.server.checks_pkce {
            return Err(SignInError::NoPkce);
        }
        let page = authority.server.authorization_endpoint.clone();
        let scopes = self.scopes(&authority, &exchange, challenge.as_ref())?;
        let client = self
            .client(&exchange, &authority, &redirect_uri, &scopes)
            .await?;
        let kept = StoredSignIn::new(
            &self.url,
            &authority,
            &client,
            Some(redirect_uri.clone()),
            &scopes,
        );
        if exchange.kept.is_none() && self.user.is_none() {
            // The registration is used again, also when this sign-in comes to nothing.
            self.store(kept.clone()).await?;
            exchange.kept = Some(kept.clone());
        }
        let pending = PendingSignIn::begin(SignIn {
            issuer: authority.server.issuer.clone(),
            names_issuer: authority.server.names_issuer,
            authorization_endpoint: page.ok_or(SignInError::NoPage)?,
            client_id: client.id,
            redirect_uri,
            resource: authority.resource,
            scopes,
        });
        let pending = pending.map_err(|_| SignInError::Random)?;
        let page = pending.page();
        let mut waiting = self.waiting();
        waiting.retain(|sign_in| sign_in.began.elapsed() < SIGN_IN_WITHIN);
        if waiting.len() >= SIGN_INS_MAX {
            waiting.remove(0);
        }
        waiting.push(WaitingSignIn {
            pending,
            kept,
            token_endpoint: authority.server.token_endpoint,
            began: Instant::now(),
        });
        Ok(page)
    }

    /// Whether the answer with this state belongs to a sign-in that waits here.
    pub fn awaits(&self, state: &str) -> bool {
        let waiting = self.waiting();
        waiting
            .iter()
            .any(|sign_in| sign_in.pending.has_state(state))
    }

    /// Takes the query with which the authorization server sent the person back. It is good once.
    ///
    /// # Errors
    ///
    /// Returns why nobody is signed in.
    pub async fn finish(&self, query: &str) -> Result<Granted, SignInError> {
        let state = state_of(query)?;
        let sign_in = {
            let mut waiting = self.waiting();
            let is_it = |sign_in: &WaitingSignIn| sign_in.pending.has_state(&state);
            let place = waiting.iter().position(is_it).ok_or(CallbackError::State)?;
            waiting.remove(place)
        };
        if sign_in.began.elapsed() >= SIGN_IN_WITHIN {
            return Err(CallbackError::State.into());
        }
        let redirect_uri = sign_in.kept.redirect_uri.clone();
        let (code, verifier) = sign_in.pending.finish(query)?;
        let grant = Grant::AuthorizationCode {
            code,
            verifier,
            redirect_uri: redirect_uri.unwrap_or_else(|| self.url.clone()),
        };
        let mut exchange = self.exchange().await;
        let mut kept = sign_in.kept;
        let tokens = self
            .exchange_for(&grant, &sign_in.token_endpoint, &kept)
            .await?;
        kept.take(&tokens);
        kept.signed_in_at = Some(unix_now());
        // Asked before anybody can use the new token.
        let is_another = self.has_token() || self.is_used.swap(false, Ordering::Relaxed);
        self.adopt(&mut exchange, kept).await?;
        match self.principal() {
            None => log::info!(server = self.name.as_str(); "signed in"),
            Some(principal) => {
                let principal = principal.name();
                log::info!(server = self.name.as_str(), principal; "a user signed in");
            }
        }
        Ok(Granted {
            is_another,
            ..self.granted(&exchange)?
        })
    }

    pub(super) async fn authority(
        &self,
        challenge: Option<&BearerChallenge>,
    ) -> Result<Authority, SignInError> {
        lookup::find(&*self.web, &self.url, &self.settings, challenge).await
    }

    pub(super) fn scopes(
        &self,
        authority: &Authority,
        exchange: &Exchange,
        challenge: Option<&BearerChallenge>,
    ) -> Result<Scopes, SignInError> {
        let challenged = challenge.and_then(|challenge| challenge.scopes.as_ref());
        let signed_in = exchange.kept.as_ref().filter(|kept| kept.access.is_some());
        match (signed_in, challenged) {
            (Some(kept), Some(more)) => {
                kept.scopes().step_up(more).map_err(|_| SignInError::Scopes)
            }
            _ => Ok(Scopes::first(
                self.settings.scopes.as_ref(),
                challenged,
                &authority.scopes,
            )),
        }
    }

    /// Whether somebody was sent to sign in as this client and has not come back: perhaps the
    /// authorization server has forgotten it.
    fn is_unanswered(&self, client_id: &str) -> bool {
        let waiting = self.waiting();
        waiting
            .iter()
            .any(|sign_in| sign_in.kept.client_id == client_id)
    }

    /// The client that is registered already, or one that is registered now. All users of a server
    /// have that of the gateway.
    pub(super) async fn client(
        &self,
        exchange: &Exchange,
        authority: &Authority,
        redirect_uri: &Url,
        scopes: &Scopes,
    ) -> Result<RegisteredClient, SignInError> {
        match &self.user {
            Some(user) => user.client(authority, redirect_uri, scopes).await,
            None => {
                let client = self.own_client(exchange, authority, redirect_uri, scopes);
                client.await
            }
        }
    }

    pub(super) async fn own_client(
        &self,
        exchange: &Exchange,
        authority: &Authority,
        redirect_uri: &Url,
        scopes: &Scopes,
    ) -> Result<RegisteredClient, SignInError> {
        let known = exchange.kept.as_ref().filter(|kept| {
            let is_registered = self.settings.client_id.is_none();
            is_registered
                && !self.is_unanswered(&kept.client_id)
                && kept.issuer == authority.server.issuer
                && kept.redirect_uri.as_ref() == Some(redirect_uri)
        });
        if let Some(client) = known.and_then(StoredSignIn::client) {
            return Ok(client);
        }
        let (web, settings) = (&*self.web, &self.settings);
        lookup::client(web, authority, settings, redirect_uri, scopes).await
    }
}
