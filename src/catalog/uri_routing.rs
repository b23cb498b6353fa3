//! Routes URIs that no server lists.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::merged_server::{MergedServer, MergedServers};
use super::uri_template::UriTemplate;
use super::{ItemKind, uri};
use crate::id::ServerName;

/// Maximum character comparisons for one server's templates in one look-up.
const MATCH_STEPS_MAX: usize = 1 << 20;

/// Maximum folders around an unlisted URI in which a skill is looked for.
const FOLDERS_MAX: usize = 32;

/// Maximum length of an unlisted URI that is routed to a server, in bytes.
const URI_BYTES_MAX: usize = 8 * 1024;

/// The owner of a public URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriOwner {
    pub server: ServerName,
    /// The URI that the server uses.
    pub native: String,
}

/// The servers that unlisted URIs can belong to, each by its index.
#[derive(Debug)]
pub(super) struct UriRoutes {
    by_wrap_prefix: HashMap<String, usize>,
    /// Unwrapped templates, in order.
    patterns: Vec<(usize, UriTemplate)>,
    /// The servers that use a scheme and authority in unwrapped URIs.
    origins: HashMap<String, Vec<usize>>,
    /// The servers of user interfaces that tools name, by their public URIs.
    interfaces: HashMap<String, usize>,
    /// The servers of the files of skills, by their public URIs.
    skills: BTreeMap<String, usize>,
    /// The servers that declare resources.
    resource_servers: Vec<usize>,
}

impl UriRoutes {
    pub(super) fn of(servers: &[MergedServer]) -> Self {
        let indexed = servers.iter().enumerate();
        let by_wrap_prefix = indexed.map(|(index, server)| (server.wrap_prefix.clone(), index));
        Self {
            by_wrap_prefix: by_wrap_prefix.collect(),
            patterns: patterns(servers),
            origins: origins(servers),
            interfaces: interfaces(servers),
            skills: skills(servers),
            resource_servers: resource_servers(servers),
        }
    }

    /// The owner of an unlisted URI: the server whose wrapping it has, whose tool names it as a user
    /// interface, or whose skill it belongs to; then the server whose result `named` it; then the one whose template it
    /// matches, the first that uses its scheme and authority, or the only one with resources, in
    /// this order.
    pub(super) fn owner(
        &self,
        servers: &MergedServers,
        public: &str,
        named: Option<&ServerName>,
    ) -> Option<UriOwner> {
        if let Some(owned) = self.unwrap(servers, public) {
            return Some(owned);
        }
        let named = || servers.index(named?);
        let origin = uri::origin(public);
        let users = origin.and_then(|origin| self.origins.get(&origin));
        let users = users.map(Vec::as_slice);
        let first_user = || users.and_then(<[usize]>::first).copied();
        let server = (self.interfaces.get(public).copied())
            .or_else(|| self.skill_owner(public))
            .or_else(named)
            .or_else(|| self.match_template(public, users))
            .or_else(first_user)
            .or_else(|| self.only_owner(public))?;
        Some(uri_owner(servers.at(server)?, public))
    }

    /// The owner of a URI that looks like a wrapped one.
    pub(super) fn wrapped_owner(&self, servers: &MergedServers, public: &str) -> Option<UriOwner> {
        self.unwrap_as(servers, public, |_| true)
    }

    /// Whether a URI in a result could belong to a server other than the result's.
    pub(super) fn are_contested(&self) -> bool {
        self.resource_servers.len() > 1
    }

    fn unwrap(&self, servers: &MergedServers, public: &str) -> Option<UriOwner> {
        let is_certain = |server: &MergedServer| uri::is_reserved(public) || server.wraps();
        self.unwrap_as(servers, public, is_certain)
    }

    fn unwrap_as(
        &self,
        servers: &MergedServers,
        public: &str,
        is_right: impl FnOnce(&MergedServer) -> bool,
    ) -> Option<UriOwner> {
        let (prefix, native) = uri::unwrap(public)?;
        let server = servers.at(*self.by_wrap_prefix.get(&prefix)?)?;
        is_right(server).then(|| uri_owner(server, &native))
    }

    /// The server of a file of a skill, listed or not, or of a folder in which only one server has
    /// files of skills.
    fn skill_owner(&self, public: &str) -> Option<usize> {
        if self.skills.is_empty() || public.len() > URI_BYTES_MAX {
            return None;
        }
        let below = || {
            let folder = format!("{public}/");
            let files = self.skills.range(folder.clone()..);
            let mut files = files.take_while(|(uri, _)| uri.starts_with(&folder));
            let (_, first) = files.next()?;
            files.all(|(_, server)| server == first).then_some(*first)
        };
        let above = || {
            let mut folders = public.rmatch_indices('/').take(FOLDERS_MAX);
            folders.find_map(|(end, _)| {
                let skill = format!("{}/SKILL.md", public.get(..end)?);
                self.skills.get(&skill).copied()
            })
        };
        let exact = self.skills.get(public).copied();
        exact.or_else(below).or_else(above)
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
}

fn uri_owner(server: &MergedServer, native: &str) -> UriOwner {
    UriOwner {
        server: server.part.server().clone(),
        native: native.to_owned(),
    }
}

/// Templates that clients expand to native URIs. A template is ignored if it starts like a URI
/// that an earlier server lists, because it would capture that server's URIs.
fn patterns(servers: &[MergedServer]) -> Vec<(usize, UriTemplate)> {
    let mut patterns = Vec::new();
    let mut earlier: BTreeSet<&str> = BTreeSet::new();
    for (index, server) in servers.iter().enumerate() {
        for native in server.unwrapped(ItemKind::ResourceTemplates) {
            let start = native.split('{').next().unwrap_or_default();
            let next = earlier.range(start..).next();
            let takes = next.is_some_and(|listed| listed.starts_with(start));
            if let Some(template) = UriTemplate::parse(native).filter(|_| !takes) {
                patterns.push((index, template));
            }
        }
        earlier.extend(server.unwrapped(ItemKind::Resources));
    }
    patterns
}

/// Which servers use a scheme and authority. Templates of other servers are ignored for an
/// origin that has a listed resource.
fn origins(servers: &[MergedServer]) -> HashMap<String, Vec<usize>> {
    let mut origins = origins_of(servers, ItemKind::Resources);
    for (origin, users) in origins_of(servers, ItemKind::ResourceTemplates) {
        origins.entry(origin).or_insert(users);
    }
    origins
}

fn origins_of(servers: &[MergedServer], kind: ItemKind) -> HashMap<String, Vec<usize>> {
    let mut origins: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, server) in servers.iter().enumerate() {
        for origin in server.unwrapped(kind).filter_map(uri::origin) {
            let users = origins.entry(origin).or_default();
            if users.last() != Some(&index) {
                users.push(index);
            }
        }
    }
    origins
}

/// The servers that declare resources. A single server can have some without declaring them.
fn resource_servers(servers: &[MergedServer]) -> Vec<usize> {
    let declares = |server: &MergedServer| {
        servers.len() == 1 || server.part.declares(ItemKind::Resources.capability())
    };
    let indexed = servers.iter().enumerate();
    let serving = indexed.filter(|(_, server)| declares(server));
    serving.map(|(index, _)| index).collect()
}

/// The servers of the user interfaces that tools name, by their public URIs.
fn interfaces(servers: &[MergedServer]) -> HashMap<String, usize> {
    let mut owners = HashMap::new();
    for (index, server) in servers.iter().enumerate() {
        for tool in server.part.items(ItemKind::Tools) {
            for (_, native) in tool.named_uris() {
                let public = server.public_uri(native).into_owned();
                owners.entry(public).or_insert(index);
            }
        }
    }
    owners
}

/// The servers of the files of skills, by their public URIs.
fn skills(servers: &[MergedServer]) -> BTreeMap<String, usize> {
    let mut owners = BTreeMap::new();
    for (index, server) in servers.iter().enumerate() {
        for skill in server.part.items(ItemKind::Skills) {
            let files = skill.named_uris().iter().map(|(_, uri)| &**uri);
            for native in files.chain([skill.native()]) {
                let public = server.public_uri(native).into_owned();
                owners.entry(public).or_insert(index);
            }
        }
    }
    owners
}

/// The first, if it is the only one.
pub(super) fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}
