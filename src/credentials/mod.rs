//! How the gateway gets into the servers behind it: the decisions of an OAuth 2.1 client, as pure
//! functions over what servers say. Nothing here sends a request, and no transport calls it yet.
//!
//! In the order of a sign-in: `challenge` → `discovery` → `metadata` → `scopes` → `pkce` →
//! `authorization` → `token`.

mod authorization;
mod challenge;
mod discovery;
mod endpoint;
mod metadata;
mod pkce;
mod scopes;
mod token;

pub use authorization::{CallbackError, PendingSignIn, SignIn};
pub use challenge::{BearerChallenge, InvalidChallenge};
pub use discovery::{authorization_server_urls, protected_resource_urls, resource_of};
pub use endpoint::{Endpoint, InvalidEndpoint, is_loopback};
pub use metadata::{AuthorizationServer, InvalidMetadata, ProtectedResource};
pub use pkce::Verifier;
pub use scopes::{InvalidScope, Scopes};
pub use token::{ClientSecret, Grant, TokenError, TokenRequest, Tokens};
