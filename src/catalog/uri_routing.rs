//! Routes URIs to servers.

use std::collections::HashMap;

use super::snapshot::{MergedServer, Snapshot, UriOwner};
use super::unlisted::only;
use super::{ItemKind, uri};
use crate::id::ServerName;

/// Maximum character comparisons for one server's templates in one look-up.
const MATCH_STEPS_MAX: usize = 1 << 20;

/// Maximum length of an unlisted URI that is routed to a server, in bytes.
const URI_BYTES_MAX: usize = 8 * 1024;

impl Snapshot {
    /// The owner of a public URI or URI template: the server that lists it, whose wrapping it has,
    /// or whose tool names it as a user interface; then the server whose result `named` it; then
    /// the one whose template it matches, the first that uses its scheme and authority, or the only
    /// one with resources, in this order.
    pub fn resource(&self, public: &str, named: Option<&ServerName>) -> Option<UriOwner> {
        let listed = self
            .resources
            .get(public)
            .or_else(|| self.templates.get(public));
        if let Some(owned) = listed {
            return Some(owned.clone());
        }
        if let Some(owned) = self.unwrap(public) {
            return Some(owned);
        }
        let named = || self.by_name.get(named?).copied();
        let origin = uri::origin(public);
        let users = origin.and_then(|origin| self.origins.get(&origin));
        let users = users.map(Vec::as_slice);
        let first_user = || users.and_then(<[usize]>::first).copied();
        let server = (self.interfaces.get(public).copied())
            .or_else(named)
            .or_else(|| self.match_template(public, users))
            .or_else(first_user)
            .or_else(|| self.only_owner(public))?;
        Some(self.uri_owner(server, public))
    }

    fn unwrap(&self, public: &str) -> Option<UriOwner> {
        let (prefix, native) = uri::unwrap(public)?;
        let server = *self.by_wrap_prefix.get(&prefix)?;
        let certain = uri::is_reserved(public) || self.servers.get(server)?.wraps();
        certain.then(|| self.uri_owner(server, &native))
    }

    /// The server whose template matches a URI; if its origin is in use, only one of `users`.
    fn match_template(&self, public: &str, users: Option<&[usize]>) -> Option<usize> {
        if public.len() > URI_BYTES_MAX {
            return None;
        }
        let mut steps = (usize::MAX, MATCH_STEPS_MAX);
        let mut patterns = self.patterns.iter();
        let found = patterns.find(|(server, template)| {
            if users.is_some_and(|users| !users.contains(server)) {
                return false;
            }
            if steps.0 != *server {
                steps = (*server, MATCH_STEPS_MAX);
            }
            template.matches(public, &mut steps.1)
        });
        found.map(|(server, _)| *server)
    }

    /// The only server with resources, for an unlisted URI. A wrapped URI names its server instead.
    fn only_owner(&self, public: &str) -> Option<usize> {
        let is_sound = !public.is_empty()
            && public.len() <= URI_BYTES_MAX
            && !public.chars().any(char::is_control);
        let owners = self.resource_servers.iter().copied().filter(|_| is_sound);
        only(owners).filter(|_| !uri::is_reserved(public))
    }

    /// Whether a URI in a result of this server could also belong to another server.
    pub(super) fn names_are_ambiguous(&self, server: &ServerName) -> bool {
        self.resource_servers.len() > 1 && !self.wraps(server)
    }

    fn uri_owner(&self, server: usize, native: &str) -> UriOwner {
        UriOwner {
            server: self.servers[server].part.server().clone(),
            native: native.to_owned(),
        }
    }
}

/// The servers that declare resources. A single server can have some without declaring them.
pub(super) fn resource_servers(views: &[MergedServer]) -> Vec<usize> {
    let declares = |view: &MergedServer| {
        views.len() == 1 || view.part.declares(ItemKind::Resources.capability())
    };
    let servers = views.iter().enumerate();
    let serving = servers.filter(|(_, view)| declares(view));
    serving.map(|(index, _)| index).collect()
}

/// The servers of the user interfaces that tools name, by their public URIs.
pub(super) fn interfaces(views: &[MergedServer]) -> HashMap<String, usize> {
    let mut owners = HashMap::new();
    for (index, view) in views.iter().enumerate() {
        for tool in view.part.items(ItemKind::Tools) {
            for (_, native) in tool.interface_spans() {
                let public = view.public_uri(native).into_owned();
                owners.entry(public).or_insert(index);
            }
        }
    }
    owners
}
