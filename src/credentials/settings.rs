//! Sign-in settings of one server.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};

use super::{Endpoint, Scopes};

/// `[servers.NAME.oauth]`; all of it can be left to discovery.
#[derive(Clone, Debug, Default)]
pub struct OAuthSettings {
    pub grant: GrantKind,
    pub client_id: Option<String>,
    pub client_secret: Option<SecretString>,
    /// A PEM private key that the gateway signs with instead of using a secret.
    pub client_key_file: Option<PathBuf>,
    /// URL of a document that describes the gateway and serves as its client id.
    pub client_metadata_url: Option<Endpoint>,
    pub scopes: Option<Scopes>,
    /// Disables discovery if `token_url` is also set.
    pub authorization_url: Option<Endpoint>,
    pub token_url: Option<Endpoint>,
    /// The recipient of an exchanged token, if the `resource` does not determine it (RFC 8693).
    pub audience: Option<String>,
    /// The type of the client tokens to exchange.
    pub subject_token_type: SubjectTokenType,
    /// A file with a JWT of this workload, such as Kubernetes and SPIFFE provide. Read at each use,
    /// because the platform replaces it.
    pub token_file: Option<PathBuf>,
    /// Whether tokens are bound to a key, even if the server does not ask for it (RFC 9449).
    pub dpop: bool,
    /// The identity provider that issues ID-JAGs.
    pub idp: Option<IdentityProvider>,
}

/// The identity provider of enterprise-managed authorization, and the gateway's client there.
#[derive(Clone, Debug)]
pub struct IdentityProvider {
    pub token_url: Endpoint,
    pub client_id: String,
    pub client_secret: Option<SecretString>,
}

/// The party that signs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrantKind {
    /// A person, in a browser.
    #[default]
    AuthorizationCode,
    /// The gateway itself, with its secret.
    ClientCredentials,
    /// Each client, with its token for the gateway (RFC 8693).
    TokenExchange,
    /// The gateway itself, with its workload's token as the grant (RFC 7523).
    JwtBearer,
    /// Each client, with an ID-JAG that the identity provider issues for its token.
    Enterprise,
}

impl GrantKind {
    /// Whether a person signs in.
    pub fn is_interactive(self) -> bool {
        self == Self::AuthorizationCode
    }

    /// Whether tokens of clients are exchanged.
    pub fn exchanges(self) -> bool {
        matches!(self, Self::TokenExchange | Self::Enterprise)
    }
}

/// The type of a token in an exchange (RFC 8693, section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubjectTokenType {
    #[default]
    AccessToken,
    IdToken,
    Jwt,
}

impl SubjectTokenType {
    /// The type's identifier.
    pub fn uri(self) -> &'static str {
        match self {
            Self::AccessToken => "urn:ietf:params:oauth:token-type:access_token",
            Self::IdToken => "urn:ietf:params:oauth:token-type:id_token",
            Self::Jwt => "urn:ietf:params:oauth:token-type:jwt",
        }
    }
}

impl PartialEq for OAuthSettings {
    fn eq(&self, other: &Self) -> bool {
        let text = |secret: &SecretString| secret.expose_secret().to_owned();
        let secret = |of: &Self| of.client_secret.as_ref().map(text);
        let idp = |of: &Self| {
            let idp = of.idp.as_ref();
            idp.map(|idp| {
                let secret = idp.client_secret.as_ref().map(text);
                (idp.token_url.clone(), idp.client_id.clone(), secret)
            })
        };
        self.grant == other.grant
            && self.client_id == other.client_id
            && secret(self) == secret(other)
            && self.client_key_file == other.client_key_file
            && self.client_metadata_url == other.client_metadata_url
            && self.scopes == other.scopes
            && self.authorization_url == other.authorization_url
            && self.token_url == other.token_url
            && self.audience == other.audience
            && self.subject_token_type == other.subject_token_type
            && self.token_file == other.token_file
            && self.dpop == other.dpop
            && idp(self) == idp(other)
    }
}
