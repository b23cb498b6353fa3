//! `forward_headers` of a server: which client headers it receives.

use super::keys::{ServerKeys, TransportKind};
use super::reader::Reader;
use super::section::Section;
use super::streamable;
use crate::id::ServerName;
use crate::transport::ForwardedHeader;

const KEY: &str = "forward_headers";

/// Refuses combinations with conflicting keys of the server. Forwarded headers need Streamable
/// HTTP, where each request has its own headers.
pub(super) fn check(keys: &mut ServerKeys, section: &Section<'_>) {
    if keys.forward_headers.is_empty() {
        return;
    }
    streamable::require(keys, section, KEY);
    if !matches!(keys.transport, Some(TransportKind::Http(_))) {
        return;
    }
    for (at, (_, to)) in keys.forward_headers.iter().enumerate() {
        let to = to.expose();
        let is_same = |other: &str| other.eq_ignore_ascii_case(to);
        let mut before = keys.forward_headers.iter().take(at);
        if before.any(|(_, other)| is_same(other.expose())) {
            let message = format!("`{}` sends `{to}` twice", section.path(KEY));
            section.refuse(&[KEY], message, None);
        }
        if keys.headers.iter().any(|(name, _)| is_same(name)) {
            let (own, forwarded) = (section.path("headers"), section.path(KEY));
            let message = format!("`{forwarded}` and `{own}` both send `{to}`");
            section.refuse(&[KEY], message, None);
        }
        if is_same("Authorization") && section.has("oauth") {
            let (oauth, forwarded) = (section.path("oauth"), section.path(KEY));
            let message = format!("`{forwarded}` and `{oauth}` both send `Authorization`");
            section.refuse(&[KEY], message, None);
        }
    }
}

pub(super) fn settings(keys: &ServerKeys) -> Vec<ForwardedHeader> {
    let forwarded = keys.forward_headers.iter();
    let forwarded = forwarded.map(|(from, to)| ForwardedHeader {
        from: from.to_ascii_lowercase(),
        to: to.expose().to_owned(),
    });
    forwarded.collect()
}

/// The client headers that any of these servers receives, without duplicates.
pub(super) fn all_of<'a>(servers: impl Iterator<Item = &'a ServerKeys>) -> Vec<String> {
    let mut names: Vec<String> = servers
        .flat_map(|keys| &keys.forward_headers)
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Warns about forwarding `Authorization`: clients send their gateway key in it, and the server
/// could use that key.
pub(super) fn warn_about_key(server: &ServerName, keys: &ServerKeys, reader: &Reader<'_>) {
    let mut names = keys.forward_headers.iter();
    if names.any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
        reader.warn(&format!(
            "`servers.{server}.{KEY}` forwards `Authorization`, in which clients send their key \
             for this gateway: have clients send the server's credentials in a separate header"
        ));
    }
}
