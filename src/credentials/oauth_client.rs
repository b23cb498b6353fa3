//! The gateway as an OAuth client of one server: finds its authorization server, registers there,
//! and requests and revokes tokens.

use std::sync::Arc;

use secrecy::SecretString;
use url::Url;

use super::assertion::assertion;
use super::authority::Authority;
use super::dpop::{DpopKey, Nonce};
use super::stored_sign_in::{StoredSignIn, unix_now};
use super::workload::{read_file, workload_token};
use super::{
    AuthorizationServer, BearerChallenge, ClientSecret, Endpoint, Grant, GrantKind, OAuthSettings,
    ProtectedResource, RegisteredClient, Scopes, SignInError, SubjectToken, TokenError,
    TokenRequest, Tokens, Web, WebBody, WebRequest, authentication, authorization_server_urls,
    protected_resource_urls, registration_request, resource_of,
};

/// The OAuth client for the server at `url`. The gateway's credential and its users' share it.
pub(super) struct OAuthClient {
    pub(super) url: Url,
    pub(super) settings: OAuthSettings,
    pub(super) web: Arc<dyn Web>,
    /// The authorization server's nonce for proofs.
    pub(super) nonce: Nonce,
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
                        needs_dpop: found.needs_dpop,
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
            body: Some(WebBody::Json(body.into())),
            ..WebRequest::get(registration.url().clone())
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
        let key = kept.dpop_key();
        let tokens = match self
            .ask_for_tokens(grant, endpoint, kept, key.as_ref())
            .await
        {
            // It refused the request only because of the nonce that it has sent by now.
            Err(SignInError::Token(TokenError::Nonce)) if key.is_some() => {
                self.ask_for_tokens(grant, endpoint, kept, key.as_ref())
                    .await?
            }
            tokens => tokens?,
        };
        match (tokens.is_bound, key) {
            (true, None) => Err(TokenError::Invalid("its token is not a bearer token").into()),
            (false, _) if self.settings.dpop => Err(SignInError::NotBound),
            _ => Ok(tokens),
        }
    }

    async fn ask_for_tokens(
        &self,
        grant: &Grant,
        endpoint: &Endpoint,
        kept: &StoredSignIn,
        key: Option<&DpopKey>,
    ) -> Result<Tokens, SignInError> {
        let secret = self.client_secret(kept)?;
        let (id, resource) = (&kept.client_id, &kept.resource);
        let request = TokenRequest::new(grant, id, &secret, resource, &kept.scopes());
        let mut request = web_request(endpoint, request);
        let nonce = self.nonce.get();
        request.dpop = key.and_then(|key| key.proof("POST", &request.url, None, nonce.as_deref()));
        let answer = self.web.send(request).await;
        let answer = answer.map_err(SignInError::Unreachable)?;
        if let Some(nonce) = &answer.dpop_nonce {
            self.nonce.set(nonce);
        }
        Ok(match grant {
            Grant::TokenExchange { .. } => Tokens::parse_exchanged(answer.status, &answer.body)?,
            _ => Tokens::parse(answer.status, &answer.body)?,
        })
    }

    /// Exchanges a client's token at its identity provider for an ID-JAG, which this sign-in's
    /// authorization server accepts as a grant.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub(super) async fn id_jag(
        &self,
        subject: Arc<SubjectToken>,
        kept: &StoredSignIn,
    ) -> Result<SecretString, SignInError> {
        let idp = self.settings.idp.as_ref().ok_or(SignInError::NoMetadata)?;
        let audience = self.settings.audience.as_ref();
        let grant = Grant::IdJag {
            subject,
            subject_type: self.settings.subject_token_type,
            audience: audience.unwrap_or(&kept.issuer).clone(),
        };
        let secret = ClientSecret::sent_as(idp.client_secret.clone(), "client_secret_basic");
        let id = &idp.client_id;
        let request = TokenRequest::new(&grant, id, &secret, &kept.resource, &kept.scopes());
        let answer = self.web.send(web_request(&idp.token_url, request)).await;
        let answer = answer.map_err(SignInError::Unreachable)?;
        Ok(Tokens::parse_id_jag(answer.status, &answer.body)?)
    }

    /// The token of the gateway's workload, to send to the authorization server of a sign-in.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub(super) fn workload_token(&self, kept: &StoredSignIn) -> Result<SecretString, SignInError> {
        let file = self.settings.token_file.as_ref();
        let file = file.ok_or(SignInError::NoMetadata)?;
        let is_named_by_server = self.settings.token_url.is_none();
        let issuer = is_named_by_server.then_some(kept.issuer.as_str());
        workload_token(file, issuer)
            .map_err(|error| SignInError::TokenFile(file.display().to_string(), error.to_string()))
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
        let is_grant = self.settings.grant == GrantKind::JwtBearer;
        if self.settings.token_file.is_some() && !is_grant {
            return Ok(ClientSecret::Assertion(self.workload_token(kept)?));
        }
        let Some(file) = &self.settings.client_key_file else {
            return Ok(kept.secret());
        };
        let unusable = |why: String| SignInError::Key(file.display().to_string(), why);
        let pem = read_file(file).map_err(|error| unusable(error.to_string()))?;
        let signed = assertion(&pem, &kept.client_id, &kept.issuer, unix_now());
        let signed = signed.map_err(|error| unusable(error.to_string()))?;
        Ok(ClientSecret::Assertion(signed))
    }
}

fn web_request(endpoint: &Endpoint, request: TokenRequest) -> WebRequest {
    WebRequest {
        authorization: request.authorization,
        body: Some(WebBody::Form(request.body)),
        ..WebRequest::get(endpoint.url().clone())
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
        needs_dpop: false,
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
        needs_dpop: false,
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
