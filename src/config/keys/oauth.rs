//! `[credentials]` and `[servers.NAME.oauth]`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::checks::{FILE, NO_NUL, NOT_EMPTY, file, not_empty, secret, secret_no_nul};
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{ChoiceKind, choice, flag, optional};
use crate::config::declaration::texts::{SecretText, text, texts};
use crate::config::section::{Section, ValueError};
use crate::credentials::{
    Endpoint, GrantKind, IdentityProvider, OAuthSettings, Scopes, SubjectTokenType,
};

/// How the gateway signs in to servers.
#[derive(Clone, Default, PartialEq)]
pub struct CredentialsKeys {
    pub key_file: Option<PathBuf>,
    pub(crate) key_command: Vec<SecretText>,
    pub callback_url: Option<String>,
}

/// Omits the values, because some are secret.
impl fmt::Debug for CredentialsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsKeys").finish_non_exhaustive()
    }
}

keys! {
    /// How the gateway signs in to servers that require OAuth: `mcpvisor auth login NAME`.
    CredentialsTable for CredentialsKeys, check_key {
        /// File with the key that encrypts stored tokens, created if missing (docs/oauth.md);
        /// MCPVISOR_CREDENTIALS_KEY in the environment overrides it. Default:
        /// mcpvisor/credentials.key in XDG_CONFIG_HOME or ~/.config.
        key_file: optional(text(FILE, file), "\"/run/secrets/mcpvisor.key\""), NeedsRestart;
        /// Program and arguments that print the key, such as a keyring's; not run by a shell.
        key_command: texts(NO_NUL, secret_no_nul)
            .such_as("[\"secret-tool\", \"lookup\", \"service\", \"mcpvisor\"]"), NeedsRestart, Secret;
        /// This gateway's `/oauth/callback` as browsers reach it. Default: that path on `listen`.
        callback_url: optional(text(ENDPOINT, endpoint),
            "\"https://gateway.example.com/oauth/callback\""), NeedsRestart;
    }
}

fn check_key(keys: &mut CredentialsKeys, section: &Section<'_>) {
    if keys.key_file.is_some() && !keys.key_command.is_empty() {
        let (file, command) = (section.path("key_file"), section.path("key_command"));
        let message = format!("`{command}` does not go with `{file}`");
        section.refuse(&["key_command"], message, None);
    }
}

/// As the file says it.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct OAuthKeys {
    grant: GrantKind,
    client_id: Option<String>,
    client_secret: Option<SecretText>,
    client_key_file: Option<PathBuf>,
    client_metadata_url: Option<String>,
    scopes: Vec<String>,
    authorization_url: Option<String>,
    token_url: Option<String>,
    audience: Option<String>,
    subject_token_type: SubjectTokenType,
    token_file: Option<PathBuf>,
    dpop: bool,
    idp_token_url: Option<String>,
    idp_client_id: Option<String>,
    idp_client_secret: Option<SecretText>,
}

pub(super) const ENDPOINT: &str = "a URL with `https://`, or `http://` on this machine";

pub(super) const SCOPE: &str = "a scope: visible characters without spaces, `\"` and `\\`";

pub(super) fn endpoint(text: &str) -> Result<String, ValueError> {
    let parsed = text.parse::<Endpoint>();
    parsed
        .map(|url| url.to_string())
        .map_err(|_| ValueError::as_declared())
}

pub(super) fn scope(text: &str) -> Result<String, ValueError> {
    let parsed = Scopes::of([text]);
    parsed
        .map(|_| text.to_owned())
        .map_err(|_| ValueError::as_declared())
}

fn grant() -> ChoiceKind<GrantKind> {
    choice(&[
        ("authorization_code", GrantKind::AuthorizationCode),
        ("client_credentials", GrantKind::ClientCredentials),
        ("token_exchange", GrantKind::TokenExchange),
        ("jwt_bearer", GrantKind::JwtBearer),
        ("enterprise", GrantKind::Enterprise),
    ])
}

fn subject_token_type() -> ChoiceKind<SubjectTokenType> {
    choice(&[
        ("access_token", SubjectTokenType::AccessToken),
        ("id_token", SubjectTokenType::IdToken),
        ("jwt", SubjectTokenType::Jwt),
    ])
}

keys! {
    /// How the gateway gets a token for this server. By default it discovers where, and registers
    /// itself.
    OAuthTable for OAuthKeys, check {
        /// Who signs in (docs/oauth.md): a person ("authorization_code"), the gateway
        /// ("client_credentials"), the gateway with the JWT of its workload ("jwt_bearer"), or each
        /// client with its gateway token, which is exchanged at `token_url` ("token_exchange") or
        /// at its identity provider ("enterprise").
        grant: grant(), Reconnects;
        /// Client id registered for the gateway.
        client_id: optional(text(NOT_EMPTY, not_empty), "\"my-client\""), Reconnects;
        /// Client secret, if any.
        client_secret: optional(text(NOT_EMPTY, secret), "\"${DOCS_SECRET}\""),
            Reconnects, Secret;
        /// Private key in PEM for private_key_jwt instead of a secret: ECDSA P-256, RSA or Ed25519.
        client_key_file: optional(text(FILE, file), "\"/run/secrets/client.pem\""), Reconnects;
        /// URL of a document that describes the gateway, as client id.
        client_metadata_url: optional(text(ENDPOINT, endpoint),
            "\"https://gateway.example.com/client.json\""), Reconnects;
        /// Scopes to request. Default: the scopes that the server states.
        scopes: texts(SCOPE, scope).such_as("[\"read\", \"write\"]"), Reconnects;
        /// Authorization endpoint, instead of discovery; requires `token_url`.
        authorization_url: optional(text(ENDPOINT, endpoint),
            "\"https://auth.example.com/authorize\""), Reconnects;
        /// Token endpoint, instead of discovery; requires `client_id`.
        token_url: optional(text(ENDPOINT, endpoint),
            "\"https://auth.example.com/token\""), Reconnects;
        /// For "token_exchange": the server's name at the authorization server, instead of its URL
        /// (`resource`).
        audience: optional(text(NOT_EMPTY, not_empty), "\"docs\""), Reconnects;
        /// For "token_exchange" and "enterprise": type of the clients' tokens. Default for
        /// "enterprise": "id_token".
        subject_token_type: subject_token_type(), Reconnects;
        /// File with a JWT of this workload, such as from Kubernetes or SPIFFE, read at each use:
        /// the grant of "jwt_bearer"; for other grants, it replaces the client secret.
        token_file: optional(text(FILE, file), "\"/var/run/secrets/tokens/docs\""), Reconnects;
        /// Binds tokens to a key of the gateway (DPoP, RFC 9449), even if the server does not ask for
        /// it.
        dpop: flag(), Reconnects;
        /// For "enterprise": token endpoint of the clients' identity provider.
        idp_token_url: optional(text(ENDPOINT, endpoint),
            "\"https://idp.example.com/token\""), Reconnects;
        /// For "enterprise": client id of the gateway at the identity provider.
        idp_client_id: optional(text(NOT_EMPTY, not_empty), "\"gateway\""), Reconnects;
        /// For "enterprise": client secret at the identity provider, if any.
        idp_client_secret: optional(text(NOT_EMPTY, secret), "\"${IDP_SECRET}\""),
            Reconnects, Secret;
    }
}

fn check(keys: &mut OAuthKeys, section: &Section<'_>) {
    let needs = |key: &str, other: &str| {
        let (key, other) = (section.path(key), section.path(other));
        section.refuse_table(format!("`{key}` needs `{other}`"), None);
    };
    if keys.token_url.is_some() && keys.client_id.is_none() {
        needs("token_url", "client_id");
    }
    if keys.authorization_url.is_some() && keys.token_url.is_none() {
        needs("authorization_url", "token_url");
    }
    if keys.client_secret.is_some() && keys.client_id.is_none() {
        needs("client_secret", "client_id");
    }
    if keys.client_key_file.is_some() && keys.client_id.is_none() {
        needs("client_key_file", "client_id");
    }
    if keys.grant == GrantKind::JwtBearer && keys.token_file.is_none() {
        needs("grant", "token_file");
    }
    if keys.grant == GrantKind::Enterprise {
        for (key, is_missing) in [
            ("idp_token_url", keys.idp_token_url.is_none()),
            ("idp_client_id", keys.idp_client_id.is_none()),
        ] {
            if is_missing {
                needs("grant", key);
            }
        }
        if !section.has("subject_token_type") {
            keys.subject_token_type = SubjectTokenType::IdToken;
        }
    }
    if keys.grant == GrantKind::TokenExchange && keys.token_url.is_none() {
        let (grant, token_url) = (section.path("grant"), section.path("token_url"));
        let message = format!("`{grant} = \"token_exchange\"` needs `{token_url}`");
        let help = "otherwise the server could choose where client tokens are sent";
        section.refuse(&["grant"], message, help.to_owned());
    }
}

impl OAuthKeys {
    /// Whether the gateway signs in without a person.
    pub(crate) fn needs_nobody(&self) -> bool {
        matches!(
            self.grant,
            GrantKind::ClientCredentials | GrantKind::JwtBearer
        )
    }

    /// Whether tokens of clients are exchanged.
    pub(crate) fn exchanges(&self) -> bool {
        self.grant.exchanges()
    }

    /// Relative paths start at `directory`, the directory of the file.
    pub(crate) fn settings(&self, directory: &Path) -> OAuthSettings {
        let endpoint = |url: &Option<String>| url.as_ref().and_then(|url| url.parse().ok());
        let scopes = Scopes::of(self.scopes.iter().map(String::as_str));
        let idp = || {
            Some(IdentityProvider {
                token_url: endpoint(&self.idp_token_url)?,
                client_id: self.idp_client_id.clone()?,
                client_secret: self.idp_client_secret.as_ref().map(SecretText::to_secret),
            })
        };
        let file = |file: &Option<PathBuf>| file.as_ref().map(|file| directory.join(file));
        OAuthSettings {
            grant: self.grant,
            client_id: self.client_id.clone(),
            client_secret: self.client_secret.as_ref().map(SecretText::to_secret),
            client_key_file: file(&self.client_key_file),
            client_metadata_url: endpoint(&self.client_metadata_url),
            scopes: scopes.ok().filter(|scopes| !scopes.is_empty()),
            authorization_url: endpoint(&self.authorization_url),
            token_url: endpoint(&self.token_url),
            audience: self.audience.clone(),
            subject_token_type: self.subject_token_type,
            token_file: file(&self.token_file),
            dpop: self.dpop,
            idp: idp(),
        }
    }
}
