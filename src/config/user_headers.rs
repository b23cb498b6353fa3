//! `user_headers` of a server: what it receives about the calling user.

use super::keys::{ServerKeys, TransportKind};
use super::reader::Reader;
use super::section::Section;
use super::streamable;
use crate::bridge::headers::UserClaim;
use crate::front::FrontSettings;
use crate::id::ServerName;

const KEY: &str = "user_headers";

/// Refuses combinations with conflicting keys of the server.
pub(super) fn check(keys: &mut ServerKeys, section: &Section<'_>) {
    if keys.user_headers.is_empty() {
        return;
    }
    streamable::require(keys, section, KEY);
    if !matches!(keys.transport, Some(TransportKind::Http(_))) {
        return;
    }
    let path = section.path(KEY);
    for (name, _) in &keys.user_headers {
        let is_same = |other: &str| other.eq_ignore_ascii_case(name);
        if is_same("Authorization") {
            let message = format!("`{path}` sends `{name}`, which is reserved for tokens");
            section.refuse(&[KEY], message, None);
        }
        let has_own = keys.headers.iter().any(|(other, _)| is_same(other));
        let mut forwarded = keys.forward_headers.iter();
        let has_forwarded = forwarded.any(|(_, to)| is_same(to.expose()));
        for (other, is_sent) in [("headers", has_own), ("forward_headers", has_forwarded)] {
            if is_sent {
                let other = section.path(other);
                let message = format!("`{path}` and `{other}` both send `{name}`");
                section.refuse(&[KEY], message, None);
            }
        }
    }
}

/// Header names with the user claims that they carry.
pub(super) fn settings(keys: &ServerKeys) -> Vec<(String, UserClaim)> {
    let headers = keys.user_headers.iter();
    let headers =
        headers.map(|(name, text)| Some((name.clone(), UserClaim::parse(text.expose())?)));
    headers.flatten().collect()
}

/// Makes the front read the claims that any of these servers receives; warns about servers that
/// cannot be called, or whose users can share a name.
pub(super) fn apply<'a>(
    servers: impl Iterator<Item = (&'a ServerName, &'a ServerKeys)>,
    front: &mut FrontSettings,
    reader: &Reader<'_>,
) {
    let mut paths = Vec::new();
    for (name, keys) in servers {
        let headers = settings(keys);
        front.reads_users |= !headers.is_empty();
        let reads_subject = headers
            .iter()
            .any(|(_, claim)| *claim == UserClaim::Subject);
        let count = paths.len();
        paths.extend(headers.into_iter().filter_map(|(_, claim)| match claim {
            UserClaim::Subject => None,
            UserClaim::Claim(path) => Some(path),
        }));
        let auth = &front.auth;
        let takes_tokens = auth.tokens.is_enabled();
        let kinds = [!auth.keys.is_empty(), takes_tokens, auth.certificates];
        let kinds = kinds.into_iter().filter(|is_taken| *is_taken).count();
        let path = format!("servers.{name}.{KEY}");
        if paths.len() > count && !takes_tokens {
            reader.warn(&format!(
                "`{path}` needs clients with tokens, which have claims, but tokens are not \
                 accepted: see `jwt`, `introspection` and `webhook` in [auth]"
            ));
        } else if reads_subject && kinds == 0 {
            reader.warn(&format!(
                "`{path}` needs API keys or tokens, which identify the caller: `mcpvisor keys add NAME`"
            ));
        } else if reads_subject && kinds > 1 {
            reader.warn(&format!(
                "`{path}` sends API key names, token subjects and certificate names in the \
                 same header: make sure that no two users share a name"
            ));
        }
        if reads_subject && auth.tokens.has_two_issuers() {
            reader.warn(&format!(
                "`{path}` sends the subject of a token regardless of its issuer: two issuers can \
                 use the same subject for different people; also send `claims.iss`, or use \
                 `claims.email`"
            ));
        }
    }
    paths.sort();
    paths.dedup();
    front.auth.tokens.claims = paths;
}
