//! The merged catalog: what clients see, and which server owns it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use crate::bridge::headers::ParamHeaders;
use crate::bridge::projection::project_implementation;
use crate::bridge::result::ResultDecorator;
use crate::id::{QuickMap, ServerName};
use crate::protocol::{Era, RawJson, Revision, known_extension, merge_settings};

use super::merged_server::{MergedServer, MergedServers};
use super::name_rules::PublicRules;
use super::public_pages::{InvalidCursor, PublicPages};
use super::search::SearchIndex;
use super::uri_routing::{UriOwner, UriRoutes, only};
use super::{
    Exposure, ItemKind, ListAge, ListCaching, MergeNotice, PinMode, PinState, ServerPart, ToolHints,
};

/// The capabilities in which a server names its extensions.
pub const EXTENSIONS: [&str; 2] = ["extensions", "experimental"];

/// Lifetime of a list from a server that gives no caching hints but reports changes, in
/// milliseconds.
const DEFAULT_TTL_MS: u64 = 60_000;

/// The owner of a public tool or prompt name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemOwner {
    pub server: ServerName,
    /// The native name as a JSON string, ready to be spliced into a request.
    pub native: RawJson,
    /// Hints of a tool; a prompt has the defaults.
    pub hints: ToolHints,
    pub headers: ParamHeaders,
    /// Whether clients with a handshake receive the tool's output inside `result`.
    pub wraps_output: bool,
    /// Whether only user interfaces call the tool.
    pub is_for_apps: bool,
    /// The tool or prompt, as its server lists it.
    pub item: RawJson,
}

/// A withheld tool, prompt or skill, by its public name or URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendedItem {
    pub server: ServerName,
    /// Why it is withheld.
    pub state: PinState,
}

/// Which lists a client would see differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub tools: bool,
    pub prompts: bool,
    /// Resources, resource templates or skills, which share a notification.
    pub resources: bool,
}

impl Changes {
    /// Every list, for clients whose previous lists are unknown.
    pub const fn all() -> Self {
        Self {
            tools: true,
            prompts: true,
            resources: true,
        }
    }

    pub const fn any(self) -> bool {
        self.tools || self.prompts || self.resources
    }

    /// Records that the client has read the list of this kind. Resources, their templates and
    /// skills are three lists.
    pub const fn forget(&mut self, kind: ItemKind) {
        match kind {
            ItemKind::Tools => self.tools = false,
            ItemKind::Prompts => self.prompts = false,
            ItemKind::Resources | ItemKind::ResourceTemplates | ItemKind::Skills => {}
        }
    }
}

impl std::ops::BitOrAssign for Changes {
    fn bitor_assign(&mut self, other: Self) {
        self.tools |= other.tools;
        self.prompts |= other.prompts;
        self.resources |= other.resources;
    }
}

/// Everything that all servers offer, under unique names and URIs. Immutable; built by
/// [`merge`](super::merge()).
#[derive(Debug)]
pub struct Snapshot {
    pub(super) servers: Arc<MergedServers>,
    pub(super) tools: OwnerTable<ItemOwner>,
    /// Tools, prompts and skills that are neither listed nor callable until an operator approves
    /// them.
    pub(super) suspended: [OwnerTable<SuspendedItem>; ItemKind::COUNT],
    pub(super) prompts: OwnerTable<ItemOwner>,
    pub(super) resources: OwnerTable<UriOwner>,
    pub(super) templates: OwnerTable<UriOwner>,
    pub(super) skills: OwnerTable<UriOwner>,
    /// The servers of URIs that are not listed.
    pub(super) routes: Arc<UriRoutes>,
    /// Rules for unlisted names.
    pub(super) rules: PublicRules,
    pub(super) pages: [PublicPages; ItemKind::COUNT],
    pub(super) instructions: Option<String>,
    /// The server that this catalog passes through as if clients were connected to it.
    pub(super) one_server: Option<Arc<OneServer>>,
    pub(super) notices: Vec<MergeNotice>,
    /// How the tools are listed; never [`Exposure::Auto`].
    pub(super) exposure: Exposure,
    /// Built for the first search.
    pub(super) search: OnceLock<SearchIndex>,
    /// Results of `initialize`, each built for the first client of its revision.
    pub(super) handshakes: [OnceLock<RawJson>; Revision::ALL.len()],
    /// The complete catalog, if this one shows only the part that a client is permitted to use.
    pub(super) whole: Option<Arc<Snapshot>>,
}

/// A server that a catalog passes through as if clients were connected to it.
#[derive(Debug)]
pub struct OneServer {
    pub part: Arc<ServerPart>,
    /// Adds the server's identity to results for sessionless clients.
    pub decorator: ResultDecorator,
    /// Like `decorator`, for lists, which the gateway writes itself.
    pub lists: ResultDecorator,
}

impl OneServer {
    /// A sessionless server states its identity in its results, or chooses not to.
    pub(super) fn new(part: Arc<ServerPart>) -> Self {
        let info = project_implementation(&part.info, Revision::NEWEST);
        let info = info.as_ref().map(RawJson::from_value);
        let of_results = info.clone().filter(|_| part.revision.era() == Era::Legacy);
        Self {
            part,
            decorator: ResultDecorator::new(of_results),
            lists: ResultDecorator::new(info),
        }
    }
}

impl Snapshot {
    /// The result of `initialize` for clients of this revision, which `build` creates once.
    pub(crate) fn handshake(
        &self,
        revision: Revision,
        build: impl FnOnce() -> RawJson,
    ) -> &RawJson {
        self.handshakes[revision as usize].get_or_init(build)
    }

    /// The owner of a public tool name.
    pub fn tool(&self, public: &str) -> Option<&ItemOwner> {
        self.tools.get(public)
    }

    /// A tool, prompt or skill that is withheld until an operator approves its definition.
    pub fn suspended(&self, kind: ItemKind, public: &str) -> Option<&SuspendedItem> {
        self.suspended.get(kind.index())?.get(public)
    }

    /// Whether a listed or withheld tool or prompt has this public name.
    pub fn knows(&self, kind: ItemKind, public: &str) -> bool {
        let whole = self.for_calls();
        let listed = match kind {
            ItemKind::Tools => whole.tool(public),
            _ => whole.prompt(public),
        };
        listed.is_some() || self.suspended(kind, public).is_some()
    }

    /// Number of withheld items of a server; its instructions count as one.
    pub fn suspended_count(&self, server: &ServerName) -> usize {
        let is_suspended = |notice: &&MergeNotice| matches!(notice, MergeNotice::Unapproved(it) if it.is_suspended && it.server == *server);
        self.notices.iter().filter(is_suspended).count()
    }

    /// The owner of a public prompt name.
    pub fn prompt(&self, public: &str) -> Option<&ItemOwner> {
        self.prompts.get(public)
    }

    /// The server that a request or notification of an unknown extension is for: the only server,
    /// or the one that declares an extension (or experimental capability) of its name, such as
    /// `com.example/chat` or `chat` for `chat/send` and for `notifications/chat/typing`. `None` if
    /// several servers do.
    pub fn extension_owner(&self, method: &str) -> Option<&ServerName> {
        let method = method.strip_prefix("notifications/").unwrap_or(method);
        let named = |name: &str| {
            let rest = method.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let is_only = self.has_one_server();
        let declares = |part: &&Arc<ServerPart>| {
            let mut names = EXTENSIONS.iter().flat_map(|member| part.extensions(member));
            is_only
                || names.any(|(name, _)| named(name) || name.rsplit('/').next().is_some_and(named))
        };
        only(self.parts().filter(declares)).map(|part| part.server())
    }

    /// The servers that declare a known extension and, if one is given, turn on this setting of it.
    pub fn declaring<'a>(
        &'a self,
        extension: &'static str,
        setting: Option<&'static str>,
    ) -> impl Iterator<Item = &'a ServerName> {
        let declares = move |part: &&Arc<ServerPart>| {
            let mut declared = part.extensions("extensions");
            let found = declared.find(|(name, _)| *name == extension);
            found.is_some_and(|(_, it)| setting.is_none_or(|name| it[name] == true))
        };
        self.parts().filter(declares).map(|part| part.server())
    }

    /// The extensions under `extensions` or `experimental` that clients can use: the known ones of
    /// all servers, and each other one that a single server declares.
    pub fn extensions(&self, member: &str) -> Map<String, Value> {
        let mut all: Map<String, Value> = Map::new();
        let mut ambiguous = HashSet::new();
        let declared = self.parts().flat_map(|part| part.extensions(member));
        for (name, settings) in declared {
            match all.get_mut(name) {
                None => {
                    all.insert(name.clone(), settings.clone());
                }
                Some(known) if known_extension(name).is_some() => merge_settings(known, settings),
                Some(_) => {
                    ambiguous.insert(name);
                }
            }
        }
        all.retain(|name, _| !ambiguous.contains(name));
        all
    }

    /// One page of a list for a client of this revision: the complete `result` object. Costs a
    /// lookup, except for the first client of a revision.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidCursor`] if the cursor was not issued for the current version of this list.
    pub fn page(
        &self,
        kind: ItemKind,
        cursor: Option<&str>,
        revision: Revision,
    ) -> Result<RawJson, InvalidCursor> {
        self.pages[kind.index()].page(cursor, revision)
    }

    /// The remaining lifetime of a list, and whether it is public: the strictest of all servers'
    /// lists (S-CACHE-01). A list without hints that can change unnoticed has no lifetime.
    pub fn caching(&self, kind: ItemKind, age: impl Fn(&ServerName) -> ListAge) -> ListCaching {
        let not_public = |ttl_ms| ListCaching {
            ttl_ms,
            is_public: false,
        };
        let of = |part: &Arc<ServerPart>| {
            let age = age(part.server());
            if let Some(said) = part.caching(kind) {
                return said.after(age.since_read);
            }
            let is_noticed = age.is_watched && !part.changes_unnoticed(kind);
            not_public(if is_noticed { DEFAULT_TTL_MS } else { 0 })
        };
        // A server without skills has no such list.
        let lists =
            |part: &&Arc<ServerPart>| kind != ItemKind::Skills || part.declares(kind.capability());
        let all = self.parts().filter(lists).map(of);
        let all = all.reduce(ListCaching::and);
        all.unwrap_or_else(|| not_public(DEFAULT_TTL_MS))
    }

    /// The server that this catalog passes through, in the view of one server.
    pub fn one_server(&self) -> Option<&Arc<OneServer>> {
        self.one_server.as_ref()
    }

    /// The instructions of all servers under headings, within the configured length. A single
    /// server's instructions stay unchanged.
    pub fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// The instructions of one server that clients read.
    pub fn instructions_of(&self, server: &ServerName) -> Option<&str> {
        self.view(server)?.instructions.as_deref()
    }

    /// Which lists differ from an older snapshot for a client that reads both.
    pub fn changes_since(&self, older: &Self) -> Changes {
        let differs = |kind: ItemKind| {
            let index = kind.index();
            !self.pages[index].same(&older.pages[index])
        };
        Changes {
            tools: differs(ItemKind::Tools),
            prompts: differs(ItemKind::Prompts),
            resources: differs(ItemKind::Resources)
                || differs(ItemKind::ResourceTemplates)
                || differs(ItemKind::Skills),
        }
    }

    /// The owner of a public URI or URI template: the server that lists it, or else the one that
    /// unlisted URIs are routed to. `named` is the server whose result named the URI.
    pub fn resource(&self, public: &str, named: Option<&ServerName>) -> Option<UriOwner> {
        let listed = self.resources.get(public);
        let listed = listed.or_else(|| self.templates.get(public)).cloned();
        listed
            .or_else(|| self.routes.owner(&self.servers, public, named))
            .or_else(|| self.named_interface(public))
    }

    /// The owner of a user interface that a result named: it was wrapped, because another server has
    /// one by the same URI.
    fn named_interface(&self, public: &str) -> Option<UriOwner> {
        let owner = self.routes.wrapped_owner(&self.servers, public)?;
        let listed = self.resources.get(&owner.native).cloned();
        let other = listed.or_else(|| self.routes.owner(&self.servers, &owner.native, None))?;
        (other.server != owner.server).then_some(owner)
    }

    /// Why the entry of a skill is withheld: an operator has not approved it, or its server does not
    /// list it and its lists need approval.
    pub fn withheld_skill(&self, public: &str, server: &ServerName) -> Option<SuspendedItem> {
        if let Some(suspended) = self.suspended(ItemKind::Skills, public) {
            return Some(suspended.clone());
        }
        let is_open = self.skills.get(public).is_some();
        let needs_approval = self.view(server)?.rules.pins == PinMode::Block;
        (!is_open && needs_approval).then(|| SuspendedItem {
            server: server.clone(),
            state: PinState::New,
        })
    }

    /// Whether the server's URIs are wrapped, so that they must be replaced in its responses.
    pub fn wraps(&self, server: &ServerName) -> bool {
        self.view(server).is_some_and(MergedServer::wraps)
    }

    /// The public URI for a native URI (or URI template) of a server.
    pub fn public_uri<'a>(&self, server: &ServerName, native: &'a str) -> Cow<'a, str> {
        match self.view(server) {
            Some(view) => view.public_uri(native),
            None => Cow::Borrowed(native),
        }
    }

    /// Conflicts that the merge resolved automatically, in config order.
    pub fn notices(&self) -> &[MergeNotice] {
        &self.notices
    }

    /// The parts that were merged, in config order.
    pub fn parts(&self) -> impl Iterator<Item = &Arc<ServerPart>> {
        self.servers.iter().map(|view| &view.part)
    }

    /// The items of a server.
    pub fn part(&self, server: &ServerName) -> Option<&Arc<ServerPart>> {
        self.view(server).map(|view| &view.part)
    }

    /// Number of a server's visible items of a kind.
    pub fn count(&self, server: &ServerName, kind: ItemKind) -> usize {
        self.view(server).map_or(0, |view| view.shown[kind.index()])
    }

    /// Number of visible items of all servers.
    pub fn item_count(&self) -> usize {
        let shown = self.servers.iter().flat_map(|server| server.shown.iter());
        shown.sum()
    }

    /// Public tool names with their owners, in list order.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &ItemOwner)> {
        self.tools.iter()
    }

    /// Like [`Self::tools`], without tools that only user interfaces call.
    pub fn tools_for_models(&self) -> impl Iterator<Item = (&str, &ItemOwner)> {
        self.tools().filter(|(_, owner)| !owner.is_for_apps)
    }

    /// How the tools are listed; never [`Exposure::Auto`].
    pub fn exposure(&self) -> Exposure {
        self.exposure
    }

    /// The best tools for a request in everyday words, at most `most`, the best first.
    pub fn find_tools(&self, query: &str, most: usize) -> Vec<(&str, &ItemOwner)> {
        let index = self.search.get_or_init(|| SearchIndex::new(self.tools()));
        let places = index.find(query, most).into_iter();
        places.filter_map(|place| self.tools.row(place)).collect()
    }

    /// Public prompt names with their owners, in list order.
    pub fn prompts(&self) -> impl Iterator<Item = (&str, &ItemOwner)> {
        self.prompts.iter()
    }

    /// Public URIs with their owners, in list order.
    pub fn resources(&self) -> impl Iterator<Item = (&str, &UriOwner)> {
        self.resources.iter()
    }

    pub(super) fn view(&self, server: &ServerName) -> Option<&MergedServer> {
        self.servers.get(server)
    }
}

/// Public names or URIs in list order, and by text.
#[derive(Clone, Debug)]
pub(super) struct OwnerTable<T> {
    rows: Vec<(Arc<str>, T)>,
    index: QuickMap<Arc<str>, usize>,
}

impl<T> Default for OwnerTable<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            index: QuickMap::default(),
        }
    }
}

impl<T> OwnerTable<T> {
    pub(super) fn get(&self, public: &str) -> Option<&T> {
        let row = self.rows.get(*self.index.get(public)?)?;
        Some(&row.1)
    }

    /// Inserts an item; the caller has checked that `public` is free.
    pub(super) fn insert(&mut self, public: &str, owner: T) {
        let public: Arc<str> = Arc::from(public);
        self.index.insert(public.clone(), self.rows.len());
        self.rows.push((public, owner));
    }

    fn row(&self, place: usize) -> Option<(&str, &T)> {
        let (public, owner) = self.rows.get(place)?;
        Some((public, owner))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.rows.iter().map(|(public, owner)| (&**public, owner))
    }
}
