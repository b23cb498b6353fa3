//! Token introspection (RFC 7662): asks the authorization server whether a token is valid, and who
//! its subject is.

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::token_answer::TokenAnswer;
use super::verified_token::{TokenError, VerifiedToken};
use crate::credentials::{ClientSecret, TokenRequest, Web, WebBody, WebRequest};

/// A secret from the configuration. Comparable, so that changes can be detected.
#[derive(Clone, Debug)]
pub struct AuthSecret(SecretString);

impl AuthSecret {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The secret, for the registry of secrets to mask.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for AuthSecret {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl Eq for AuthSecret {}

/// Settings of token introspection; disabled without an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntrospectionSettings {
    pub endpoint: Option<String>,
    /// The issuer of the endpoint, spelled as in its metadata.
    pub issuer: Option<String>,
    /// The gateway's client id at the authorization server.
    pub client_id: Option<String>,
    pub client_secret: Option<AuthSecret>,
    /// Accepted values of `aud` (S-AUTHS-06); if empty, the resource.
    pub audiences: Vec<String>,
    /// How long a response is cached.
    pub cache_for: Duration,
}

impl Default for IntrospectionSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            issuer: None,
            client_id: None,
            client_secret: None,
            audiences: Vec::new(),
            cache_for: Duration::from_secs(60),
        }
    }
}

pub(super) struct Introspection {
    web: Arc<dyn Web>,
    endpoint: Url,
    client_id: String,
    client_secret: ClientSecret,
    issuer: String,
    audiences: Vec<String>,
}

impl Introspection {
    /// `None` without an endpoint.
    pub(super) fn new(
        settings: &IntrospectionSettings,
        resource: Option<&str>,
        web: &Arc<dyn Web>,
    ) -> Option<Self> {
        let secret = settings.client_secret.as_ref();
        Some(Self {
            web: Arc::clone(web),
            endpoint: Url::parse(settings.endpoint.as_deref()?).ok()?,
            client_id: settings.client_id.clone()?,
            client_secret: ClientSecret::Basic(secret?.0.clone()),
            issuer: settings.issuer.clone()?,
            audiences: match settings.audiences.is_empty() {
                true => resource.map(str::to_owned).into_iter().collect(),
                false => settings.audiences.clone(),
            },
        })
    }

    /// # Errors
    ///
    /// Returns why the token is refused, or why it cannot be verified.
    pub(super) async fn verify(
        &self,
        token: &str,
        claims: &[String],
    ) -> Result<VerifiedToken, TokenError> {
        let asked = TokenRequest::about(token, &self.client_id, &self.client_secret);
        let answer = self.web.send(WebRequest {
            authorization: asked.authorization,
            body: Some(WebBody::Form(asked.body)),
            ..WebRequest::get(self.endpoint.clone())
        });
        let unavailable = |why| TokenError::Unavailable(format!("{}: {why}", self.endpoint));
        let answer = answer.await.map_err(unavailable)?;
        if answer.status != 200 {
            let why = format!("it returns status {} to the gateway", answer.status);
            return Err(unavailable(why));
        }
        let answer = TokenAnswer::read(&answer.body, true).map_err(unavailable)?;
        let TokenAnswer::Yes(members) = answer else {
            return Err(TokenError::Inactive);
        };
        let issuer = members.text("iss").map_err(unavailable)?;
        if issuer.is_some_and(|issuer| issuer != self.issuer) {
            return Err(TokenError::Issuer);
        }
        if !members.is_for(&self.audiences) {
            return Err(TokenError::Audience);
        }
        // The token of a client that acts on its own behalf often has no subject.
        let client = members.text("client_id").map_err(unavailable)?;
        let client = client.map(str::to_owned);
        let subject = members.subject().map_err(unavailable)?.or(client);
        members.verified(subject.as_deref(), claims)
    }
}
