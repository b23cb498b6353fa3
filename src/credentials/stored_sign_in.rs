//! The stored form of a sign-in: enough to renew its token without user interaction.

use ring::error::Unspecified;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::authority::Authority;
use super::dpop::DpopKey;
use super::{
    BearerChallenge, ClientSecret, Endpoint, OAuthSettings, RegisteredClient, Scopes, Tokens,
};
use crate::id::Principal;
use crate::telemetry::unix_millis;

/// The vault's serialization format. It has no `Debug`: nearly all of it is secret.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredSignIn {
    /// The server that the tokens are for; tokens of a different server are not used.
    pub(super) server: Url,
    pub(super) issuer: String,
    pub(super) resource: String,
    pub(super) scopes: String,
    token_endpoint: String,
    revocation_endpoint: Option<String>,
    pub(super) redirect_uri: Option<Url>,
    pub(super) client_id: String,
    client_secret: Option<String>,
    client_authentication: String,
    client_expires_at: Option<u64>,
    pub(super) access: Option<String>,
    pub(super) refresh: Option<String>,
    /// Expiry of the access token, in Unix seconds.
    pub(super) expires_at: Option<u64>,
    pub(super) renew_at: Option<u64>,
    pub(super) signed_in_at: Option<u64>,
    /// The user who signed in, if not the gateway.
    #[serde(default)]
    pub(super) principal: Option<Principal>,
    /// The server's last challenge, which is possibly the only source that names the authorization
    /// server.
    #[serde(default)]
    resource_metadata: Option<String>,
    #[serde(default)]
    challenged_scopes: Option<String>,
    /// The key of this credential, if the server or the configuration asks for bound tokens: see
    /// [`DpopKey::generate`].
    #[serde(default)]
    dpop_key: Option<String>,
    /// Whether requests with the access token need a proof.
    #[serde(default)]
    is_bound: bool,
}

impl StoredSignIn {
    /// A client registered at an authorization server, without tokens yet.
    pub(super) fn new(
        server: &Url,
        authority: &Authority,
        client: &RegisteredClient,
        redirect_uri: Option<Url>,
        scopes: &Scopes,
    ) -> Self {
        let secret = client.secret.secret();
        Self {
            server: server.clone(),
            issuer: authority.server.issuer.clone(),
            resource: authority.resource.clone(),
            scopes: scopes.to_string(),
            token_endpoint: authority.server.token_endpoint.to_string(),
            revocation_endpoint: authority
                .server
                .revocation_endpoint
                .as_ref()
                .map(ToString::to_string),
            redirect_uri,
            client_id: client.id.clone(),
            client_secret: secret.map(|secret| secret.expose_secret().to_owned()),
            client_authentication: client.secret.method().to_owned(),
            client_expires_at: client.expires_at,
            access: None,
            refresh: None,
            expires_at: None,
            renew_at: None,
            signed_in_at: None,
            principal: None,
            resource_metadata: None,
            challenged_scopes: None,
            dpop_key: None,
            is_bound: false,
        }
    }

    /// Prepares bound tokens: takes over the key of the previous sign-in, or else generates one.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot provide random numbers.
    pub(super) fn bind(&mut self, previous: Option<&Self>) -> Result<(), Unspecified> {
        let known = self.dpop_key.take();
        let known = known.or_else(|| previous?.dpop_key.clone());
        self.dpop_key = Some(known.map_or_else(DpopKey::generate, Ok)?);
        Ok(())
    }

    /// The key that proofs for the authorization server are signed with.
    pub(super) fn dpop_key(&self) -> Option<DpopKey> {
        DpopKey::read(self.dpop_key.as_ref()?)
    }

    /// Whether requests with the access token need a proof.
    pub(super) fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// The tokens and the client's secret.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let texts = [&self.access, &self.refresh, &self.client_secret];
        texts.into_iter().flatten().map(String::as_str)
    }

    /// The stored challenge.
    pub(super) fn challenge(&self) -> Option<BearerChallenge> {
        let metadata = self.resource_metadata.as_ref();
        let scopes = self.challenged_scopes.as_ref();
        (metadata.is_some() || scopes.is_some()).then(|| BearerChallenge {
            resource_metadata: metadata.and_then(|url| url.parse().ok()),
            scopes: scopes.and_then(|scopes| Scopes::parse(scopes).ok()),
            error: None,
            is_dpop: self.dpop_key.is_some(),
        })
    }

    pub(super) fn set_challenge(&mut self, challenge: &BearerChallenge) {
        let metadata = challenge.resource_metadata.as_ref();
        self.resource_metadata = metadata.map(ToString::to_string);
        self.challenged_scopes = challenge.scopes.as_ref().map(ToString::to_string);
    }

    /// The client, if it is still valid at this authorization server.
    pub(super) fn client(&self) -> Option<RegisteredClient> {
        let is_over = self.client_expires_at.is_some_and(|at| at <= unix_now());
        (!is_over).then(|| RegisteredClient {
            id: self.client_id.clone(),
            secret: self.secret(),
            expires_at: self.client_expires_at,
        })
    }

    pub(super) fn secret(&self) -> ClientSecret {
        let secret = self.client_secret.clone().map(SecretString::from);
        ClientSecret::sent_as(secret, &self.client_authentication)
    }

    /// Sets the secret of a configured client from the configuration, where it can have changed.
    pub(super) fn set_secret(&mut self, settings: &OAuthSettings) {
        if settings.client_id.as_ref() == Some(&self.client_id) {
            let secret = settings.client_secret.as_ref();
            self.client_secret = secret.map(|secret| secret.expose_secret().to_owned());
        }
    }

    pub(super) fn token_endpoint(&self) -> Option<Endpoint> {
        self.token_endpoint.parse().ok()
    }

    pub(super) fn revocation_endpoint(&self) -> Option<Endpoint> {
        self.revocation_endpoint.as_ref()?.parse().ok()
    }

    pub(super) fn scopes(&self) -> Scopes {
        Scopes::parse(&self.scopes).unwrap_or_default()
    }

    /// Takes over the tokens of a response; the refresh token stays unless there is a new one.
    pub(super) fn take(&mut self, tokens: &Tokens) {
        let now = unix_now();
        let later = |after: std::time::Duration| now.saturating_add(after.as_secs());
        self.access = Some(tokens.access.expose_secret().to_owned());
        self.is_bound = tokens.is_bound;
        if let Some(refresh) = &tokens.refresh {
            self.refresh = Some(refresh.expose_secret().to_owned());
        }
        if let Some(scopes) = &tokens.scopes {
            self.scopes = scopes.to_string();
        }
        self.expires_at = tokens.expires_in.map(later);
        self.renew_at = tokens.renew_after().map(later);
    }

    pub(super) fn drop_tokens(&mut self) {
        (self.access, self.refresh) = (None, None);
        (self.expires_at, self.renew_at) = (None, None);
    }
}

/// The current time in Unix seconds.
pub(super) fn unix_now() -> u64 {
    unix_millis() / 1000
}
