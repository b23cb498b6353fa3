//! `credentials = "user"` of a server.

use super::keys::ServerKeys;
use super::reader::Reader;
use super::section::Section;
use super::streamable;
use crate::auth::AuthSettings;
use crate::downstream::{CredentialsChoice, Sharing};
use crate::id::ServerName;

const KEY: &str = "credentials";

/// Refuses combinations that conflict with per-user sign-in, which requires separate connections
/// for each user.
pub(super) fn check(keys: &mut ServerKeys, section: &Section<'_>) {
    if keys.credentials == CredentialsChoice::Shared {
        if keys.oauth.exchanges() {
            let (grant, path) = (section.path("oauth.grant"), section.path(KEY));
            let message = format!("`{grant}` with tokens of clients needs `{path} = \"user\"`");
            section.refuse(&["oauth"], message, None);
        }
        return;
    }
    if keys.oauth.exchanges() {
        streamable::require(keys, section, "oauth");
    }
    let path = section.path(KEY);
    let refuse = |with: &str, why: &str| {
        let message = format!("`{path} = \"user\"` cannot be combined with `{with}`");
        section.refuse(&[KEY], message, why.to_owned());
    };
    if section.has("sharing") && keys.sharing != Sharing::Principal {
        refuse(
            &section.path("sharing"),
            "each user has separate connections",
        );
    }
    let is_authorization = |name: &str| name.eq_ignore_ascii_case("authorization");
    if keys.headers.iter().any(|(name, _)| is_authorization(name)) {
        refuse(
            &section.path("headers.Authorization"),
            "each user has a separate token",
        );
    }
    let mut forwarded = keys.forward_headers.iter();
    if forwarded.any(|(_, to)| is_authorization(to.expose())) {
        refuse(
            &section.path("forward_headers"),
            "each user has a separate token",
        );
    }
    if keys.oauth.needs_nobody() {
        refuse(
            &section.path("oauth.grant"),
            "users do not sign in with this grant",
        );
    }
    keys.sharing = Sharing::Principal;
}

/// Warns if users cannot be identified, or if clients have no tokens to exchange.
pub(super) fn warn_if_unusable(
    server: &ServerName,
    keys: &ServerKeys,
    auth: &AuthSettings,
    reader: &Reader<'_>,
) {
    if keys.credentials == CredentialsChoice::Shared {
        return;
    }
    if keys.oauth.exchanges() && !auth.tokens.is_enabled() {
        reader.warn(&format!(
            "`servers.{server}.oauth.grant` needs clients with tokens, and tokens are not accepted: \
             see `jwt`, `introspection` and `webhook` in [auth]"
        ));
    } else if !auth.is_required() {
        reader.warn(&format!(
            "`servers.{server}.{KEY} = \"user\"` needs API keys, which identify the caller: \
             `mcpvisor keys add NAME`"
        ));
    }
}
