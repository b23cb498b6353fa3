//! Interactive sign-in by a person: from the link to the callback.

use std::sync::atomic::Ordering;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;
use url::Url;

use super::{Credential, Granted, HeldSignIn, SignInError};
use crate::credentials::authorization::state_of;
use crate::credentials::lookup::{self, Authority};
use crate::credentials::pkce::random_text;
use crate::credentials::stored_sign_in::{StoredSignIn, unix_now};
use crate::credentials::visit::{ExpectedBrowser, page_of};
use crate::credentials::{
    Bearer, BearerChallenge, CallbackError, Endpoint, Grant, GrantKind, LinkKind, PendingSignIn,
    RegisteredClient, Scopes, SignIn, SignInLinks, SignInOffer, SignInRequest,
};

/// Lifetime of a pending sign-in.
pub const SIGN_IN_WITHIN: Duration = Duration::from_secs(10 * 60);

/// Maximum number of pending sign-ins at one server; the oldest is dropped.
const SIGN_INS_MAX: usize = 4;

/// A pending sign-in.
pub(super) struct WaitingSignIn {
    pub(super) pending: PendingSignIn,
    pub(super) kept: StoredSignIn,
    token_endpoint: Endpoint,
    pub(super) began: Instant,
    link: LinkKind,
    requester: String,
    browser: ExpectedBrowser,
}

impl WaitingSignIn {
    fn is_of(&self, state: &str) -> bool {
        self.pending.has_state(state) && self.began.elapsed() < SIGN_IN_WITHIN
    }

    pub(super) fn links(&self) -> SignInLinks {
        let authorization = self.pending.page();
        let redirect_uri = self.kept.redirect_uri.as_ref();
        let page = redirect_uri.filter(|_| self.link == LinkKind::Page);
        let page = page.map(|redirect_uri| page_of(redirect_uri, self.pending.state()));
        SignInLinks {
            link: page.unwrap_or_else(|| authorization.clone()),
            authorization,
        }
    }
}

impl Credential {
    /// Starts a sign-in: returns the link for the person to open.
    ///
    /// # Errors
    ///
    /// Returns why sign-in is not possible.
    pub async fn begin(&self, request: SignInRequest) -> Result<SignInLinks, SignInError> {
        match self.settings.grant {
            GrantKind::AuthorizationCode => {}
            GrantKind::ClientCredentials => return Err(SignInError::ByItself),
            GrantKind::TokenExchange => return Err(SignInError::ByExchange),
        }
        let mut held = self.held().await;
        let SignInRequest {
            redirect_uri,
            link,
            requester,
        } = request;
        if let Some(links) = self.recent_links(&redirect_uri) {
            return Ok(links);
        }
        let challenge = self.challenge();
        let authority = self.authority(challenge.as_ref()).await?;
        if !authority.server.checks_pkce {
            return Err(SignInError::NoPkce);
        }
        let page = authority.server.authorization_endpoint.clone();
        let scopes = self.scopes(&authority, &held, challenge.as_ref())?;
        let client = self
            .client(&held, &authority, &redirect_uri, &scopes)
            .await?;
        let kept = StoredSignIn::new(
            &self.url,
            &authority,
            &client,
            Some(redirect_uri.clone()),
            &scopes,
        );
        if held.kept.is_none() && self.user.is_none() {
            // The registration is reused, even if this sign-in fails.
            self.store(kept.clone()).await?;
            held.kept = Some(kept.clone());
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
        Ok(self.wait_for(WaitingSignIn {
            pending,
            kept,
            token_endpoint: authority.server.token_endpoint,
            began: Instant::now(),
            link,
            requester,
            browser: ExpectedBrowser::of(link),
        }))
    }

    fn wait_for(&self, sign_in: WaitingSignIn) -> SignInLinks {
        let links = sign_in.links();
        let mut waiting = self.waiting.lock();
        waiting.retain(|sign_in| sign_in.began.elapsed() < SIGN_IN_WITHIN);
        if waiting.len() >= SIGN_INS_MAX {
            waiting.remove(0);
        }
        waiting.push(sign_in);
        links
    }

    /// Whether the callback with this state belongs to a pending sign-in of this credential.
    pub fn awaits(&self, state: &str) -> bool {
        let waiting = self.waiting.lock();
        waiting.iter().any(|sign_in| sign_in.is_of(state))
    }

    /// The facts to show on the page of the sign-in with this state.
    pub fn offer(&self, state: &str) -> Option<SignInOffer> {
        let waiting = self.waiting.lock();
        let sign_in = waiting.iter().find(|sign_in| sign_in.is_of(state))?;
        Some(SignInOffer {
            server: self.name.clone(),
            principal: self.principal().cloned(),
            issuer: sign_in.pending.issuer().to_owned(),
            requester: sign_in.requester.clone(),
            redirect_uri: sign_in.kept.redirect_uri.clone()?,
        })
    }

    /// Continues the sign-in in the browser with this cookie: returns the page of the authorization
    /// server.
    pub fn continue_in(&self, state: &str, cookie: &str) -> Option<Url> {
        let mut waiting = self.waiting.lock();
        let sign_in = waiting.iter_mut().find(|sign_in| sign_in.is_of(state))?;
        sign_in.browser.bind(cookie);
        Some(sign_in.pending.page())
    }

    /// Whether this is the secret with which the last sign-in can be revoked.
    pub fn takes_back(&self, word: &str) -> bool {
        let expected = self.take_back.lock().clone();
        expected.is_some_and(|expected| {
            bool::from(expected.expose_secret().as_bytes().ct_eq(word.as_bytes()))
        })
    }

    /// Completes a sign-in with the callback's query, which is accepted once. Also returns the
    /// secret that revokes this sign-in: see [`Credential::takes_back`].
    ///
    /// # Errors
    ///
    /// Returns why the sign-in failed.
    pub async fn finish(
        &self,
        query: &str,
        bearer: Bearer<'_>,
    ) -> Result<(Granted, SecretString), SignInError> {
        let state = state_of(query)?;
        let sign_in = {
            let mut waiting = self.waiting.lock();
            let is_it = |sign_in: &WaitingSignIn| sign_in.is_of(&state);
            let place = waiting.iter().position(is_it).ok_or(CallbackError::State)?;
            // The sign-in stays pending: a callback from a different person does not end it.
            let is_admitted = |sign_in: &WaitingSignIn| sign_in.browser.admits(bearer);
            if !waiting.get(place).is_some_and(is_admitted) {
                return Err(CallbackError::Browser.into());
            }
            waiting.remove(place)
        };
        let word = random_text().map_err(|_| SignInError::Random)?;
        let redirect_uri = sign_in.kept.redirect_uri.clone();
        let (code, verifier) = sign_in.pending.finish(query)?;
        let grant = Grant::AuthorizationCode {
            code,
            verifier,
            redirect_uri: redirect_uri.unwrap_or_else(|| self.url.clone()),
        };
        let mut held = self.held().await;
        let mut kept = sign_in.kept;
        let tokens = self
            .exchange_for(&grant, &sign_in.token_endpoint, &kept)
            .await?;
        kept.take(&tokens);
        kept.signed_in_at = Some(unix_now());
        // Determined before the new token can be used.
        let is_another = self.has_token() || self.is_used.swap(false, Ordering::Relaxed);
        self.adopt(&mut held, kept).await?;
        *self.take_back.lock() = Some(word.clone());
        match self.principal() {
            None => log::info!(server = self.name.as_str(); "signed in"),
            Some(principal) => {
                let principal = principal.name();
                log::info!(server = self.name.as_str(), principal; "a user signed in");
            }
        }
        let granted = Granted {
            is_another,
            ..self.granted(&held)?
        };
        Ok((granted, word))
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
        held: &HeldSignIn,
        challenge: Option<&BearerChallenge>,
    ) -> Result<Scopes, SignInError> {
        let challenged = challenge.and_then(|challenge| challenge.scopes.as_ref());
        let signed_in = held.kept.as_ref().filter(|kept| kept.access.is_some());
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

    /// Whether a sign-in as this client was started but never completed: the authorization server
    /// has possibly forgotten the client.
    fn is_unanswered(&self, client_id: &str) -> bool {
        let waiting = self.waiting.lock();
        waiting
            .iter()
            .any(|sign_in| sign_in.kept.client_id == client_id)
    }

    /// The registered client, registering it if necessary. All users of a server share the
    /// gateway's client.
    pub(super) async fn client(
        &self,
        held: &HeldSignIn,
        authority: &Authority,
        redirect_uri: &Url,
        scopes: &Scopes,
    ) -> Result<RegisteredClient, SignInError> {
        match &self.user {
            Some(user) => user.client(authority, redirect_uri, scopes).await,
            None => {
                let client = self.own_client(held, authority, redirect_uri, scopes);
                client.await
            }
        }
    }

    pub(super) async fn own_client(
        &self,
        held: &HeldSignIn,
        authority: &Authority,
        redirect_uri: &Url,
        scopes: &Scopes,
    ) -> Result<RegisteredClient, SignInError> {
        let known = held.kept.as_ref().filter(|kept| {
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
