//! Metadata of a protected server (RFC 9728) and of an authorization server (RFC 8414).

use serde::Deserialize;
use url::Url;

use super::{ANSWER_MAX, Endpoint, InvalidEndpoint, InvalidScope, Scopes, resource_of};

/// Maximum number of authorization servers that one server can name.
const ISSUERS_MAX: usize = 16;

/// A protected resource's own metadata (RFC 9728).
#[derive(Debug, PartialEq, Eq)]
pub struct ProtectedResource {
    /// The `resource` that tokens are requested for.
    pub resource: String,
    /// The server's authorization servers, in its order and spelling.
    pub issuers: Vec<String>,
    pub scopes: Scopes,
    /// Whether it accepts only tokens that are bound to a key (RFC 9449).
    pub needs_dpop: bool,
}

/// An authorization server's own metadata (RFC 8414).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationServer {
    pub issuer: String,
    pub authorization_endpoint: Option<Endpoint>,
    pub token_endpoint: Endpoint,
    pub registration_endpoint: Option<Endpoint>,
    pub revocation_endpoint: Option<Endpoint>,
    /// URL of its signing keys.
    pub jwks_uri: Option<Endpoint>,
    pub scopes: Scopes,
    /// Whether it accepts the URL of a document as a client id.
    pub takes_metadata_url: bool,
    /// Whether each callback names the issuer.
    pub names_issuer: bool,
    /// Whether it supports PKCE with S256, which sign-in requires.
    pub checks_pkce: bool,
    /// Supported client authentication methods of its token endpoint.
    pub client_authentication: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMetadata {
    #[error("the metadata is larger than {ANSWER_MAX} bytes")]
    TooLarge,
    #[error("the metadata is not valid: {0}")]
    Json(String),
    #[error("`resource` is not this server")]
    OtherResource,
    #[error("`authorization_servers` is empty or has more than {ISSUERS_MAX} entries")]
    Issuers,
    #[error("`issuer` does not match the requested issuer")]
    OtherIssuer,
    #[error("`{0}` cannot be used: {1}")]
    Endpoint(&'static str, InvalidEndpoint),
    #[error("`scopes_supported` cannot be used: {0}")]
    Scopes(InvalidScope),
}

#[derive(Deserialize)]
struct ResourceDocument {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    dpop_bound_access_tokens_required: bool,
}

impl ProtectedResource {
    /// Reads the metadata of the server at a URL.
    ///
    /// # Errors
    ///
    /// Returns why the document is refused: tokens for a different server must not be requested.
    pub fn parse(document: &[u8], server: &Url) -> Result<Self, InvalidMetadata> {
        let document: ResourceDocument = read(document)?;
        if !covers(&document.resource, server) {
            return Err(InvalidMetadata::OtherResource);
        }
        let issuers = document.authorization_servers;
        if issuers.is_empty() || issuers.len() > ISSUERS_MAX {
            return Err(InvalidMetadata::Issuers);
        }
        for issuer in &issuers {
            endpoint("authorization_servers", issuer)?;
        }
        let scopes = scopes(&document.scopes_supported)?;
        Ok(Self {
            resource: document.resource,
            issuers,
            scopes,
            needs_dpop: document.dpop_bound_access_tokens_required,
        })
    }
}

#[derive(Deserialize)]
struct ServerDocument {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: String,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    jwks_uri: Option<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl AuthorizationServer {
    /// The endpoints that revision 2025-03-26 assumes for a server without metadata.
    ///
    /// # Errors
    ///
    /// Fails if this cannot be an authorization server.
    pub fn without_metadata(issuer: &Endpoint) -> Result<Self, InvalidMetadata> {
        let at = |path: &'static str| {
            let mut url = issuer.url().clone();
            url.set_path(path);
            endpoint(path, url.as_str())
        };
        Ok(Self {
            issuer: issuer.to_string().trim_end_matches('/').to_owned(),
            authorization_endpoint: Some(at("/authorize")?),
            token_endpoint: at("/token")?,
            registration_endpoint: Some(at("/register")?),
            revocation_endpoint: None,
            jwks_uri: None,
            scopes: Scopes::default(),
            takes_metadata_url: false,
            names_issuer: false,
            checks_pkce: true,
            client_authentication: Vec::new(),
        })
    }

    /// Reads the metadata of an issuer.
    ///
    /// # Errors
    ///
    /// Returns why the document is refused, for example because it belongs to a different issuer.
    pub fn parse(document: &[u8], issuer: &str) -> Result<Self, InvalidMetadata> {
        let document: ServerDocument = read(document)?;
        if !is_same_issuer(&document.issuer, issuer) {
            return Err(InvalidMetadata::OtherIssuer);
        }
        let optional =
            |name, text: Option<String>| text.map(|text| endpoint(name, &text)).transpose();
        let authorization = optional("authorization_endpoint", document.authorization_endpoint)?;
        let registration = optional("registration_endpoint", document.registration_endpoint)?;
        let revocation = optional("revocation_endpoint", document.revocation_endpoint)?;
        let jwks_uri = optional("jwks_uri", document.jwks_uri)?;
        let methods = &document.code_challenge_methods_supported;
        Ok(Self {
            authorization_endpoint: authorization,
            token_endpoint: endpoint("token_endpoint", &document.token_endpoint)?,
            registration_endpoint: registration,
            revocation_endpoint: revocation,
            jwks_uri,
            scopes: scopes(&document.scopes_supported)?,
            takes_metadata_url: document.client_id_metadata_document_supported,
            names_issuer: document.authorization_response_iss_parameter_supported,
            checks_pkce: methods.iter().any(|method| method == "S256"),
            client_authentication: document.token_endpoint_auth_methods_supported,
            issuer: document.issuer,
        })
    }
}

/// Whether two strings name the same issuer. Many authorization servers write the issuer with a
/// trailing slash in one document and without it in another.
fn is_same_issuer(one: &str, other: &str) -> bool {
    let bare = |issuer: &str| issuer.strip_suffix('/').unwrap_or(issuer).to_owned();
    bare(one) == bare(other)
}

fn read<'a, T: Deserialize<'a>>(document: &'a [u8]) -> Result<T, InvalidMetadata> {
    if document.len() > ANSWER_MAX {
        return Err(InvalidMetadata::TooLarge);
    }
    serde_json::from_slice(document).map_err(|e| InvalidMetadata::Json(e.to_string()))
}

fn endpoint(name: &'static str, text: &str) -> Result<Endpoint, InvalidMetadata> {
    text.parse().map_err(|e| InvalidMetadata::Endpoint(name, e))
}

fn scopes(list: &[String]) -> Result<Scopes, InvalidMetadata> {
    Scopes::of(list.iter().map(String::as_str)).map_err(InvalidMetadata::Scopes)
}

/// Whether a `resource` is the server itself, or a parent of it at the same origin.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else {
        return false;
    };
    if resource_of(&resource) == resource_of(server) {
        return true;
    }
    let below = resource.path().trim_end_matches('/');
    let rest = server.path().strip_prefix(below);
    resource.origin() == server.origin()
        && resource.query().is_none()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resource(document: &Value) -> Result<ProtectedResource, InvalidMetadata> {
        let server = Url::parse("https://a.example/team/mcp").unwrap();
        ProtectedResource::parse(document.to_string().as_bytes(), &server)
    }

    #[test]
    fn metadata_of_another_server_is_refused() {
        let of = |name: &str| json!({ "resource": name, "authorization_servers": ["https://as.example"] });
        for name in [
            "https://a.example/team/mcp",
            "https://a.example/team",
            "https://a.example",
        ] {
            assert_eq!(resource(&of(name)).unwrap().resource, name);
        }
        let strange = [
            "https://b.example/team/mcp",
            "https://a.example/te",
            "https://a.example/team/mcp/x",
            "http://a.example/team/mcp",
            "https://a.example:444/team/mcp",
            "mcp",
        ];
        for name in strange {
            assert_eq!(
                resource(&of(name)),
                Err(InvalidMetadata::OtherResource),
                "{name}"
            );
        }
    }

    #[test]
    fn a_server_names_its_authorization_servers() {
        let of = |issuers: Value| json!({ "resource": "https://a.example", "authorization_servers": issuers });
        assert_eq!(resource(&of(json!([]))), Err(InvalidMetadata::Issuers));
        let many = json!(vec!["https://as.example"; ISSUERS_MAX + 1]);
        assert_eq!(resource(&of(many)), Err(InvalidMetadata::Issuers));
        let bad = InvalidMetadata::Endpoint("authorization_servers", InvalidEndpoint::NotHttps);
        assert_eq!(resource(&of(json!(["http://169.254.169.254/"]))), Err(bad));
        let server = Url::parse("https://a.example").unwrap();
        let large = vec![b' '; ANSWER_MAX + 1];
        assert_eq!(
            ProtectedResource::parse(&large, &server),
            Err(InvalidMetadata::TooLarge)
        );
    }

    #[test]
    fn metadata_of_another_issuer_is_refused() {
        let mut document = json!({
            "issuer": "https://as.example",
            "authorization_endpoint": "https://as.example/authorize",
            "token_endpoint": "https://as.example/token",
            "code_challenge_methods_supported": ["plain", "S256"],
        });
        let parse = |document: &Value| {
            AuthorizationServer::parse(document.to_string().as_bytes(), "https://as.example")
        };
        assert!(parse(&document).unwrap().checks_pkce);
        document["code_challenge_methods_supported"] = json!(["plain"]);
        assert!(!parse(&document).unwrap().checks_pkce);
        document["token_endpoint"] = json!("http://as.example/token");
        let bad = InvalidMetadata::Endpoint("token_endpoint", InvalidEndpoint::NotHttps);
        assert_eq!(parse(&document), Err(bad));
        document["token_endpoint"] = json!("https://as.example/token");
        for same in ["https://as.example", "https://as.example/"] {
            document["issuer"] = json!(same);
            assert!(parse(&document).is_ok(), "{same}");
        }
        let others = [
            "https://evil.example",
            "https://as.example//",
            "https://as.example/x",
            "",
        ];
        for other in others {
            document["issuer"] = json!(other);
            assert_eq!(
                parse(&document),
                Err(InvalidMetadata::OtherIssuer),
                "{other}"
            );
        }
    }
}
