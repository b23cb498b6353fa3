//! Interactive sign-in by a person: from the link to the callback.

use std::sync::atomic::Ordering;

use secrecy::SecretString;
use tokio::time::Instant;
use url::Url;

use super::waiting_sign_ins::WaitingSignIn;
use super::{Credential, Granted, HeldSignIn, SignInError};
use crate::credentials::authority::Authority;
use crate::credentials::authorization::state_of;
use crate::credentials::pkce::random_text;
use crate::credentials::stored_sign_in::{StoredSignIn, unix_now};
use crate::credentials::visit::ExpectedBrowser;
use crate::credentials::{
    Bearer, BearerChallenge, Grant, GrantKind, LinkKind, PendingSignIn, RegisteredClient, Scopes,
    SignIn, SignInLinks, SignInRequest,
};

impl Credential {
    /// The page where the credential's user signs in; `requester` names who requested it.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub async fn consent_page(&self, requester: String) -> Result<Url, SignInError> {
        let callback = self.user.as_ref().and_then(|user| user.callback.get());
        let begun = self.begin(SignInRequest {
            redirect_uri: callback.ok_or(SignInError::NoCallback)?.clone(),
            link: LinkKind::Page,
            requester,
        });
        Ok(begun.await?.link)
    }

    /// Starts a sign-in: returns the link for the person to open.
    ///
    /// # Errors
    ///
    /// Returns why sign-in is not possible.
    pub async fn begin(&self, request: SignInRequest) -> Result<SignInLinks, SignInError> {
        match self.oauth.settings.grant {
            GrantKind::AuthorizationCode => {}
            GrantKind::ClientCredentials | GrantKind::JwtBearer => {
                return Err(SignInError::ByItself);
            }
            GrantKind::TokenExchange | GrantKind::Enterprise => {
                return Err(SignInError::ByExchange);
            }
        }
        let mut held = self.held().await;
        let SignInRequest {
            redirect_uri,
            link,
            requester,
        } = request;
        if self.user.is_some()
            && let Some(links) = self.waiting.recent_links(&redirect_uri)
        {
            return Ok(links);
        }
        let challenge = self.challenge();
        let authority = self.oauth.authority(challenge.as_ref()).await?;
        if !authority.server.checks_pkce {
            return Err(SignInError::NoPkce);
        }
        let page = authority.server.authorization_endpoint.clone();
        let scopes = self.scopes(&authority, &held, challenge.as_ref())?;
        let client = self.client(&held, &authority, &redirect_uri, &scopes).await;
        let client = client.map_err(|error| match error {
            SignInError::Registration(_) if challenge.is_none() => SignInError::NotAsked,
            error => error,
        })?;
        let mut kept = StoredSignIn::new(
            &self.oauth.url,
            &authority,
            &client,
            Some(redirect_uri.clone()),
            &scopes,
        );
        self.bind(&mut kept, Some(&authority), held.kept.as_ref())?;
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
        Ok(self.waiting.add(WaitingSignIn {
            pending,
            kept,
            token_endpoint: authority.server.token_endpoint,
            began: Instant::now(),
            link,
            requester,
            browser: ExpectedBrowser::of(link),
        }))
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
        let sign_in = self.waiting.take(&state_of(query)?, bearer)?;
        let word = random_text().map_err(|_| SignInError::Random)?;
        let redirect_uri = sign_in.kept.redirect_uri.clone();
        let (code, verifier) = sign_in.pending.finish(query)?;
        let grant = Grant::AuthorizationCode {
            code,
            verifier,
            redirect_uri: redirect_uri.unwrap_or_else(|| self.oauth.url.clone()),
        };
        let mut held = self.held().await;
        let mut kept = sign_in.kept;
        let endpoint = &sign_in.token_endpoint;
        let tokens = self.oauth.request_tokens(&grant, endpoint, &kept).await?;
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
            ..held.granted(self.login_name())?
        };
        Ok((granted, word))
    }

    pub(super) fn scopes(
        &self,
        authority: &Authority,
        held: &HeldSignIn,
        challenge: Option<&BearerChallenge>,
    ) -> Result<Scopes, SignInError> {
        let challenged = challenge.and_then(|challenge| challenge.scopes.as_ref());
        match (held.signed_in(), challenged) {
            (Some(kept), Some(more)) => {
                kept.scopes().step_up(more).map_err(|_| SignInError::Scopes)
            }
            _ => Ok(Scopes::first(
                self.oauth.settings.scopes.as_ref(),
                challenged,
                &authority.scopes,
            )),
        }
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
            let is_registered = self.oauth.settings.client_id.is_none();
            is_registered
                && !self.waiting.has_client(&kept.client_id)
                && kept.issuer == authority.server.issuer
                && kept.redirect_uri.as_ref() == Some(redirect_uri)
        });
        if let Some(client) = known.and_then(StoredSignIn::client) {
            return Ok(client);
        }
        self.oauth.register(authority, redirect_uri, scopes).await
    }
}
