//! The gateway as an OAuth client of one server: finds its authorization server, registers there,
//! and requests and revokes tokens.

use std::io::Read as _;
use std::sync::Arc;

use url::Url;

use super::assertion::assertion;
use super::authority::Authority;
use super::stored_sign_in::{StoredSignIn, unix_now};
use super::{
    AuthorizationServer, BearerChallenge, ClientSecret, Endpoint, Grant, GrantKind, OAuthSettings,
    ProtectedResource, RegisteredClient, Scopes, SignInError, TokenRequest, Tokens, Web, WebBody,
    WebRequest, authentication, authorization_server_urls, protected_resource_urls,
    registration_request, resource_of,
};
use crate::store::open_trusted;

/// Maximum size of a private key file, in bytes.
const KEY_MAX: u64 = 64 * 1024;

/// The OAuth client for the server at `url`. The gateway's credential and its users' share it.
pub(super) struct OAuthClient {
    pub(super) url: Url,
    pub(super) settings: OAuthSettings,
    pub(super) web: Arc<dyn Web>,
}

impl OAuthClient {
    /// Finds the authorization server: from the configuration, from the server's metadata, or at
    /// the server's own origin, where servers of 2025-03-26 have it.
    ///
    /// # Errors
    ///
    /// Returns why no usable one was found.
    pub(super) async fn authority(
        &self,
        challenge: Option<&BearerChallenge>,
    ) -> Result<Authority, SignInError> {
        let (web, url) = (&*self.web, &self.url);
        if let Some(token_url) = &self.settings.token_url {
            return Ok(configured(url, &self.settings, token_url));
        }
        let named = challenge.and_then(|challenge| challenge.resource_metadata.as_ref());
        let named = named.map(|named| named.url().clone()).into_iter();
        // A URL that the server named earlier can be outdated, so the well-known URLs follow.
        let urls = named.chain(protected_resource_urls(url)).collect();
        let Some(document) = first_document(web, urls).await? else {
            return at_own_origin(web, url).await;
        };
        let found = ProtectedResource::parse(&document, url)?;
        let mut fault = None;
        for issuer in &found.issuers {
            let endpoint: Endpoint = issuer.parse().map_err(|_| SignInError::NoMetadata)?;
            let Some(document) = first_document(web, authorization_server_urls(&endpoint)).await?
            else {
                continue;
            };
            match AuthorizationServer::parse(&document, issuer) {
                Ok(server) => {
                    return Ok(Authority {
                        resource: found.resource,
                        server,
                        scopes: found.scopes,
                    });
                }
                Err(error) => fault = Some(error),
            }
        }
        Err(fault.map_or(SignInError::NoMetadata, SignInError::Metadata))
    }

    /// The gateway's client at that authorization server: configured, described by a document, or
    /// registered now.
    ///
    /// # Errors
    ///
    /// Fails if the authorization server accepts none of these.
    pub(super) async fn register(
        &self,
        authority: &Authority,
        redirect_uri: &Url,
        scopes: &Scopes,
    ) -> Result<RegisteredClient, SignInError> {
        let settings = &self.settings;
        let methods = &authority.server.client_authentication;
        if let Some(id) = &settings.client_id {
            let method = authentication(methods, settings.client_secret.is_some());
            return Ok(RegisteredClient {
                id: id.clone(),
                secret: ClientSecret::sent_as(settings.client_secret.clone(), method),
                expires_at: None,
            });
        }
        if let Some(document) = &settings.client_metadata_url
            && authority.server.takes_metadata_url
        {
            return Ok(RegisteredClient {
                id: document.to_string(),
                secret: ClientSecret::None,
                expires_at: None,
            });
        }
        let Some(registration) = &authority.server.registration_endpoint else {
            return Err(SignInError::NoClient);
        };
        let has_secret = settings.grant == GrantKind::ClientCredentials;
        let asked = authentication(methods, has_secret);
        let body = registration_request(settings.grant, redirect_uri, asked, &scopes.to_string());
        let request = WebRequest {
            url: registration.url().clone(),
            authorization: None,
            body: Some(WebBody::Json(body.into())),
        };
        let answer = self.web.send(request).await;
        let answer = answer.map_err(SignInError::Unreachable)?;
        Ok(RegisteredClient::parse(answer.status, &answer.body, asked)?)
    }

    /// Redeems a grant for tokens, as the client of this sign-in.
    ///
    /// # Errors
    ///
    /// Returns why there are no tokens.
    pub(super) async fn request_tokens(
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

    /// Revokes the tokens of this sign-in, if the authorization server supports it (RFC 7009).
    ///
    /// # Errors
    ///
    /// Returns why the request failed.
    pub(super) async fn revoke(&self, kept: &StoredSignIn) -> Result<(), String> {
        let token = kept.refresh.as_ref().or(kept.access.as_ref());
        let (Some(token), Some(endpoint)) = (token, kept.revocation_endpoint()) else {
            return Ok(());
        };
        let secret = self.client_secret(kept).unwrap_or(ClientSecret::None);
        let request = TokenRequest::about(token, &kept.client_id, &secret);
        self.web.send(web_request(&endpoint, request)).await?;
        Ok(())
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
}

fn web_request(endpoint: &Endpoint, request: TokenRequest) -> WebRequest {
    WebRequest {
        url: endpoint.url().clone(),
        authorization: request.authorization,
        body: Some(WebBody::Form(request.body)),
    }
}

fn configured(url: &Url, settings: &OAuthSettings, token_url: &Endpoint) -> Authority {
    let issuer = token_url.url().origin().ascii_serialization();
    Authority {
        resource: resource_of(url),
        server: AuthorizationServer {
            issuer,
            authorization_endpoint: settings.authorization_url.clone(),
            token_endpoint: token_url.clone(),
            registration_endpoint: None,
            revocation_endpoint: None,
            jwks_uri: None,
            scopes: Scopes::default(),
            takes_metadata_url: settings.client_metadata_url.is_some(),
            names_issuer: false,
            checks_pkce: true,
            client_authentication: Vec::new(),
        },
        scopes: Scopes::default(),
    }
}

async fn at_own_origin(web: &dyn Web, url: &Url) -> Result<Authority, SignInError> {
    let issuer = url.origin().ascii_serialization();
    let endpoint: Endpoint = issuer.parse().map_err(|_| SignInError::NoMetadata)?;
    let document = first_document(web, authorization_server_urls(&endpoint)).await?;
    let server = match document {
        None => AuthorizationServer::without_metadata(&endpoint)?,
        Some(document) => AuthorizationServer::parse(&document, &issuer)?,
    };
    let (resource, scopes) = (resource_of(url), server.scopes.clone());
    Ok(Authority {
        resource,
        server,
        scopes,
    })
}

/// The first document that exists.
async fn first_document(
    web: &dyn Web,
    urls: Vec<Url>,
) -> Result<Option<bytes::Bytes>, SignInError> {
    for url in urls {
        let answer = web
            .send(WebRequest::get(url))
            .await
            .map_err(SignInError::Unreachable)?;
        match answer.status {
            200 => return Ok(Some(answer.body)),
            500.. | 429 => return Err(SignInError::Unavailable(answer.status)),
            _ => {}
        }
    }
    Ok(None)
}
