//! Signs the gateway in to the servers behind it, as an OAuth 2.1 client.
//!
//! Pure modules, in the order of a sign-in: `challenge` → `discovery` → `metadata` → `scopes` →
//! `registration` → `pkce` → `authorization` → `token`. A [`Credential`] runs these steps for one
//! server over a [`Web`], and keeps its tokens in the [`Vault`]; [`Credentials`] holds the
//! credentials of all servers.

mod assertion;
mod authority;
mod authorization;
mod challenge;
mod credential;
mod discovery;
mod dpop;
mod endpoint;

mod metadata;
mod oauth_client;
mod pkce;
mod registration;
mod registry;
mod scopes;
mod settings;
mod stored_sign_in;
mod subject_tokens;
mod token;
mod token_request;
mod vault;
mod visit;
mod web;
mod workload;

pub use assertion::AssertionError;
pub use authorization::{CallbackError, PendingSignIn, SignIn};
pub use challenge::{BearerChallenge, InvalidChallenge};
pub use credential::{
    AccessToken, Credential, CredentialView, Granted, LoginName, NotRenewed, Refusals,
    SIGN_IN_WITHIN, SignInError,
};
pub use discovery::{authorization_server_urls, protected_resource_urls, resource_of};
pub use endpoint::{Endpoint, InvalidEndpoint, is_loopback};
pub use metadata::{AuthorizationServer, InvalidMetadata, ProtectedResource};
pub use pkce::Verifier;
pub use registration::{RegisteredClient, RegistrationError, authentication, registration_request};
pub use registry::{Credentials, IsGone};
pub use scopes::{InvalidScope, Scopes};
pub use settings::{GrantKind, IdentityProvider, OAuthSettings, SubjectTokenType};
pub use subject_tokens::{SubjectToken, SubjectTokens};
pub use token::{TokenError, Tokens};
pub use token_request::{ClientSecret, Grant, TokenRequest};
pub use vault::{
    KeyCommand, Rotated, Vault, VaultKey, VaultPlace, default_key_file, read_key_file,
    rotate as rotate_vault,
};
pub use visit::{Bearer, LinkKind, SignInLinks, SignInOffer, SignInRequest};
pub use web::{ANSWER_MAX, Web, WebAnswer, WebBody, WebRequest};
