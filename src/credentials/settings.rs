//! The settings of the sign-in at one server.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};

use super::{Endpoint, Scopes};

/// `[servers.NAME.oauth]`; all of it may be left to discovery.
#[derive(Clone, Debug, Default)]
pub struct OAuthSettings {
    pub grant: GrantKind,
    pub client_id: Option<String>,
    pub client_secret: Option<SecretString>,
    /// A private key in PEM that the gateway signs with instead of having a secret.
    pub client_key_file: Option<PathBuf>,
    /// The URL of a document that describes the gateway, and is its client id.
    pub client_metadata_url: Option<Endpoint>,
    pub scopes: Option<Scopes>,
    /// With `token_url`, nothing is discovered.
    pub authorization_url: Option<Endpoint>,
    pub token_url: Option<Endpoint>,
    /// Who is to take a token that was exchanged, if not the `resource` says it (RFC 8693).
    pub audience: Option<String>,
    /// The type of the clients' tokens that are exchanged.
    pub subject_token_type: SubjectTokenType,
}

/// Who signs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrantKind {
    /// A person, in a browser.
    #[default]
    AuthorizationCode,
    /// The gateway itself, with its secret.
    ClientCredentials,
    /// Each client, with the token that it has for the gateway (RFC 8693).
    TokenExchange,
}

/// The type of a token that is exchanged for another (RFC 8693, section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubjectTokenType {
    #[default]
    AccessToken,
    IdToken,
    Jwt,
}

impl SubjectTokenType {
    /// The identifier of the type.
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
        let secret = |of: &Self| {
            let secret = of.client_secret.as_ref();
            secret.map(|secret| secret.expose_secret().to_owned())
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
    }
}
