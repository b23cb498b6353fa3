//! `credentials = "user"` of a server.

use super::keys::ServerKeys;
use super::reader::Reader;
use super::section::Section;
use crate::downstream::{CredentialsChoice, Sharing};
use crate::id::ServerName;

const KEY: &str = "credentials";

/// Refuses what contradicts a sign-in of each user, who shares connections with nobody.
pub(super) fn check(keys: &mut ServerKeys, section: &Section<'_>) {
    if keys.credentials == CredentialsChoice::Shared {
        return;
    }
    let path = section.path(KEY);
    let refuse = |with: &str, why: &str| {
        let message = format!("`{path} = \"user\"` does not go with `{with}`");
        section.refuse(&[KEY], message, why.to_owned());
    };
    if section.has("sharing") && keys.sharing != Sharing::Principal {
        refuse(
            &section.path("sharing"),
            "each user has connections of its own",
        );
    }
    let is_authorization = |name: &str| name.eq_ignore_ascii_case("authorization");
    if keys.headers.iter().any(|(name, _)| is_authorization(name)) {
        refuse(
            &section.path("headers.Authorization"),
            "the token is that of each user",
        );
    }
    let mut forwarded = keys.forward_headers.iter();
    if forwarded.any(|(_, to)| is_authorization(to.expose())) {
        refuse(
            &section.path("forward_headers"),
            "the token is that of each user",
        );
    }
    if keys.oauth.needs_nobody() {
        refuse(&section.path("oauth.grant"), "nobody signs in then");
    }
    keys.sharing = Sharing::Principal;
}

/// Without keys nobody is known who could sign in.
pub(super) fn warn_of_nobody(server: &ServerName, keys: &ServerKeys, reader: &Reader<'_>) {
    if keys.credentials == CredentialsChoice::User {
        reader.warn(&format!(
            "`servers.{server}.{KEY} = \"user\"` needs API keys, which say who calls: \
             `mcpvisor keys add NAME`"
        ));
    }
}
