//! Merges the parts of all servers into one catalog.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::id::ServerName;

use super::merge_notice::{hidden_texts, odd_schemas};
use super::merged_server::{MergedServer, MergedServers, Wrapping};
use super::name_filter::NameFilter;
use super::name_rules::{NameRules, PublicRules};
use super::public_item::{item_owner, public_item, static_items};
use super::public_pages::{PublicItem, PublicPages};
use super::snapshot::{OwnerTable, SuspendedItem};
use super::uri_routing::UriRoutes;
use super::uri_template::UriTemplate;
use super::{
    CatalogSettings, Exposure, Item, ItemKind, ItemOwner, MergeNotice, ModelText, NameSettings,
    OneServer, PinState, ServerPart, Snapshot, UriOwner, Wrap, instructions, public_name, uri,
};

/// Merges what servers offer. `parts` are in config order, which resolves collisions: the earlier
/// server keeps its name or URI. The result is deterministic (S-TOOL-03); of two parts of the same
/// server, the first counts.
pub fn merge(parts: &[(Arc<ServerPart>, NameSettings)], settings: &CatalogSettings) -> Snapshot {
    let mut merger = Merger::new(parts, settings);
    merger.decide_wrapping();
    let (tools, tool_texts) = merger.merge_by_name(ItemKind::Tools);
    let (prompts, prompt_texts) = merger.merge_by_name(ItemKind::Prompts);
    let (resources, resource_texts) = merger.merge_by_uri(ItemKind::Resources);
    let (templates, template_texts) = merger.merge_by_uri(ItemKind::ResourceTemplates);
    let (skills, skill_texts) = merger.merge_by_uri(ItemKind::Skills);
    let exposure = settings.expose.of(tool_texts.len());
    let tool_texts = match exposure {
        Exposure::All => tool_texts,
        few => static_items(few),
    };
    let one_server = merger.one_server();
    let pages = |kind: ItemKind, texts| {
        let pages = PublicPages::new(kind, texts, settings);
        match &one_server {
            Some(one) => pages.cut_as(one.part.cuts[kind.index()].clone()),
            None => pages,
        }
    };
    let pages = [
        pages(ItemKind::Tools, tool_texts),
        pages(ItemKind::Prompts, prompt_texts),
        pages(ItemKind::Resources, resource_texts),
        pages(ItemKind::ResourceTemplates, template_texts),
        pages(ItemKind::Skills, skill_texts),
    ];
    Snapshot {
        exposure,
        search: OnceLock::new(),
        handshakes: Default::default(),
        whole: None,
        routes: Arc::new(UriRoutes::of(&merger.views)),
        rules: PublicRules::of(settings),
        instructions: merger.instructions(),
        one_server,
        tools,
        suspended: merger.suspended,
        prompts,
        resources,
        templates,
        skills,
        pages,
        notices: merger.notices,
        servers: Arc::new(MergedServers::new(merger.views)),
    }
}

/// The catalog of a view: some servers of another catalog, under their names in the view.
pub fn merge_view(
    base: &Snapshot,
    servers: &[(ServerName, NameSettings)],
    settings: &CatalogSettings,
) -> Snapshot {
    let part = |(server, names): &(ServerName, NameSettings)| {
        Some((base.part(server)?.clone(), names.clone()))
    };
    let parts: Vec<_> = servers.iter().filter_map(part).collect();
    merge(&parts, settings)
}

struct Merger<'a> {
    settings: &'a CatalogSettings,
    names: Vec<&'a NameSettings>,
    views: Vec<MergedServer>,
    suspended: [OwnerTable<SuspendedItem>; ItemKind::COUNT],
    notices: Vec<MergeNotice>,
}

impl<'a> Merger<'a> {
    fn new(parts: &'a [(Arc<ServerPart>, NameSettings)], settings: &'a CatalogSettings) -> Self {
        let mut merger = Self {
            settings,
            names: Vec::new(),
            views: Vec::new(),
            suspended: Default::default(),
            notices: Vec::new(),
        };
        for (part, names) in parts {
            let server = part.server();
            if merger.views.iter().any(|view| view.part.server() == server) {
                continue;
            }
            let item = |item| MergeNotice::Quarantined {
                server: server.clone(),
                item,
            };
            merger.notices.extend(part.quarantined().cloned().map(item));
            merger.notices.extend(odd_schemas(part));
            merger.notices.extend(hidden_texts(part));
            let wrap_prefix = merger.wrap_prefix(server, names);
            merger.names.push(names);
            merger.views.push(MergedServer {
                part: part.clone(),
                wrap_prefix,
                rules: NameRules::of(server, names),
                wrapping: Wrapping::Nothing,
                instructions: None,
                shown: [0; ItemKind::COUNT],
            });
        }
        merger
    }

    /// A unique URI prefix: scheme names are case-insensitive, so two servers can have the same
    /// prefix.
    fn wrap_prefix(&self, server: &ServerName, names: &NameSettings) -> String {
        let own = public_name::prefix(server, names).to_ascii_lowercase();
        let by_server = server.as_str().to_ascii_lowercase();
        let with_tail = format!("{by_server}-{}", public_name::hash_tail(server.as_str()));
        let free = |prefix: &String| {
            let taken = self.views.iter().any(|view| view.wrap_prefix == *prefix);
            !prefix.is_empty() && !taken
        };
        [own, by_server].into_iter().find(free).unwrap_or(with_tail)
    }

    /// A server wraps its URIs if it is configured to, or if another server already has one of
    /// them.
    fn decide_wrapping(&mut self) {
        let mut claimed: HashMap<Vec<u8>, usize> = HashMap::new();
        // URIs that must not be wrapped are claimed first.
        let mut order: Vec<usize> = (0..self.views.len()).collect();
        order.sort_by_key(|index| self.names[*index].wrap != Wrap::Never);
        for index in order {
            let part = self.views[index].part.clone();
            let keys: Vec<_> = movable_uris(&part).collect();
            let collision = match self.names[index].wrap {
                Wrap::Auto => self.collision(index, &keys, &claimed),
                Wrap::Always => {
                    self.views[index].wrapping = Wrapping::Everything;
                    continue;
                }
                Wrap::Never => None,
            };
            let Some((uri, owner)) = collision else {
                claimed.extend(keys.into_iter().map(|(_, key)| (key, index)));
                continue;
            };
            self.views[index].wrapping = Wrapping::Movable;
            self.notices.push(MergeNotice::Wrapped {
                server: part.server().clone(),
                uri: uri.to_owned(),
                taken_by: owner.map(|owner| self.views[owner].part.server().clone()),
            });
        }
    }

    /// A URI of a server that another one owns, or that looks wrapped, and its owner.
    fn collision<'u>(
        &self,
        index: usize,
        keys: &[(&'u str, Vec<u8>)],
        claimed: &HashMap<Vec<u8>, usize>,
    ) -> Option<(&'u str, Option<usize>)> {
        keys.iter().find_map(|(uri, key)| {
            if let Some(owner) = claimed.get(key) {
                return Some((*uri, Some(*owner)));
            }
            if uri::is_reserved(uri) || uri::is_open(uri) {
                return Some((*uri, None));
            }
            // A user interface, which can be wrapped under its server's prefix.
            let (prefix, _) = uri::unwrap(uri)?;
            let named = |view: &MergedServer| view.wrap_prefix == prefix;
            let owner = self.views.iter().position(named)?;
            (owner != index).then_some((*uri, Some(owner)))
        })
    }

    /// Merges tools or prompts.
    fn merge_by_name(&mut self, kind: ItemKind) -> (OwnerTable<ItemOwner>, Vec<PublicItem>) {
        let mut table = OwnerTable::default();
        let mut texts = Vec::new();
        let Some(shown) = self.public_filter(kind) else {
            return (table, texts);
        };
        for index in 0..self.views.len() {
            let names = self.names[index];
            let part = self.views[index].part.clone();
            let filter = match kind {
                ItemKind::Tools => NameFilter::new(names),
                _ => NameFilter::new(&NameSettings::default()),
            };
            let filter = match filter {
                Ok(filter) => filter,
                Err(reason) => {
                    let server = part.server().clone();
                    self.notices
                        .push(MergeNotice::InvalidFilter { server, reason });
                    continue;
                }
            };
            let prefix = public_name::prefix(part.server(), names);
            let hides_apps = names.own_apps && !self.settings.is_one_server;
            for (place, item) in part.items(kind).iter().enumerate() {
                if filter.shows(item.native())
                    && !(hides_apps && item.is_for_apps())
                    && let Some(public) = self.choose_name(kind, &part, prefix, item, &table)
                    && shown.shows(&public)
                {
                    let (shown_item, public) = self.overridden(kind, &part, item, public, &table);
                    if let Some(state) = self.suspends(index, ModelText::Item(kind, item)) {
                        let server = part.server().clone();
                        if let Some(suspended) = self.suspended.get_mut(kind.index()) {
                            suspended.insert(&public, SuspendedItem { server, state });
                        }
                        continue;
                    }
                    let owner = ItemOwner {
                        item: shown_item.raw().clone(),
                        ..item_owner(part.server(), item)
                    };
                    table.insert(&public, owner);
                    let page = part.cuts[kind.index()].page_of(place);
                    texts.push(public_item(&self.views[index], &shown_item, &public, page));
                    self.views[index].shown[kind.index()] += 1;
                }
            }
        }
        (table, texts)
    }

    /// Applies overrides to the tool and its name. A name that belongs to another tool is not used.
    fn overridden<'i>(
        &mut self,
        kind: ItemKind,
        part: &ServerPart,
        item: &'i Item,
        public: String,
        table: &OwnerTable<ItemOwner>,
    ) -> (Cow<'i, Item>, String) {
        let overrides = &self.settings.overrides;
        let found = overrides.get(&public).filter(|_| kind == ItemKind::Tools);
        let Some(found) = found else {
            return (Cow::Borrowed(item), public);
        };
        let item = Cow::Owned(found.applied(item));
        let Some(name) = &found.name else {
            return (item, public);
        };
        match self.owner_of(kind, name, table) {
            None => (item, name.clone()),
            Some(taken_by) => {
                self.notices.push(MergeNotice::Renamed {
                    kind,
                    server: part.server().clone(),
                    native: item.native().to_owned(),
                    wanted: name.clone(),
                    public: public.clone(),
                    taken_by,
                });
                (item, public)
            }
        }
    }

    /// Why a text is withheld: its server's texts need approval, and no operator approved this one.
    fn suspends(&mut self, index: usize, text: ModelText<'_>) -> Option<PinState> {
        let (server, mode) = (self.views[index].part.server(), self.names[index].pins);
        let found = self.settings.pinned.unapproved(mode, server, text)?;
        let state = found.is_suspended.then_some(found.state);
        self.notices.push(MergeNotice::Unapproved(found));
        state
    }

    /// The owner of a name, if it is taken.
    fn owner_of(
        &self,
        kind: ItemKind,
        name: &str,
        table: &OwnerTable<ItemOwner>,
    ) -> Option<ServerName> {
        if let Some(owner) = table.get(name) {
            return Some(owner.server.clone());
        }
        let suspended = self.suspended.get(kind.index())?.get(name);
        suspended.map(|item| item.server.clone())
    }

    /// The catalog's own filter; `None` if it is invalid, which hides everything.
    fn public_filter(&self, kind: ItemKind) -> Option<NameFilter> {
        let (allow, deny) = match kind {
            ItemKind::Tools => (&*self.settings.allow, &*self.settings.deny),
            _ => (&[][..], &[][..]),
        };
        NameFilter::of(allow, deny).ok()
    }

    /// `None` never happens: there are more candidates than items.
    fn choose_name(
        &mut self,
        kind: ItemKind,
        part: &ServerPart,
        prefix: &str,
        item: &Item,
        table: &OwnerTable<ItemOwner>,
    ) -> Option<String> {
        let server = part.server();
        let native = item.native();
        let mut taken = None;
        for candidate in public_name::candidates(server, prefix, native, self.settings.name_max) {
            let public_name::PublicName { name, changed } = candidate;
            let owner = self.owner_of(kind, &name, table);
            let reserved = || self.reserved_for(prefix, native).filter(|_| name == native);
            if let Some(owner) = owner.or_else(reserved) {
                taken.get_or_insert((name, owner));
                continue;
            }
            if let Some((wanted, taken_by)) = taken {
                self.notices.push(MergeNotice::Renamed {
                    kind,
                    server: server.clone(),
                    native: native.to_owned(),
                    wanted,
                    public: name.clone(),
                    taken_by,
                });
            } else if changed {
                self.notices.push(MergeNotice::Shortened {
                    kind,
                    server: server.clone(),
                    native: native.to_owned(),
                    public: name.clone(),
                });
            }
            return Some(name);
        }
        None
    }

    /// The server whose prefix an unprefixed name starts with.
    fn reserved_for(&self, prefix: &str, native: &str) -> Option<ServerName> {
        if !prefix.is_empty() {
            return None;
        }
        let mut servers = self.views.iter().zip(&self.names);
        let (view, _) = servers.find(|(view, names)| {
            let other = public_name::prefix(view.part.server(), names);
            public_name::has_prefix(native, other)
        })?;
        Some(view.part.server().clone())
    }

    /// Merges resources, resource templates or skills.
    fn merge_by_uri(&mut self, kind: ItemKind) -> (OwnerTable<UriOwner>, Vec<PublicItem>) {
        let mut table: OwnerTable<UriOwner> = OwnerTable::default();
        let mut withheld: OwnerTable<UriOwner> = OwnerTable::default();
        let mut texts = Vec::new();
        for index in 0..self.views.len() {
            let part = self.views[index].part.clone();
            for (place, item) in part.items(kind).iter().enumerate() {
                let native = item.native();
                let public = self.views[index].public_uri(native).into_owned();
                if let Some(owner) = table.get(&public).or_else(|| withheld.get(&public)) {
                    self.notices.push(MergeNotice::Hidden {
                        kind,
                        server: part.server().clone(),
                        uri: native.to_owned(),
                        taken_by: owner.server.clone(),
                    });
                    continue;
                }
                let owner = UriOwner {
                    server: part.server().clone(),
                    native: native.to_owned(),
                };
                if let Some(state) = self.suspends(index, ModelText::Item(kind, item)) {
                    let server = part.server().clone();
                    match kind {
                        ItemKind::Skills => self.suspended[kind.index()]
                            .insert(&public, SuspendedItem { server, state }),
                        _ => withheld.insert(&public, owner),
                    }
                    continue;
                }
                table.insert(&public, owner);
                let page = part.cuts[kind.index()].page_of(place);
                texts.push(public_item(&self.views[index], item, &public, page));
                self.views[index].shown[kind.index()] += 1;
            }
        }
        // A client that knows the URI can read a resource: pins concern only the content of lists.
        // These rows follow those of the list, whose places policies filter.
        for (public, owner) in withheld.iter() {
            table.insert(public, owner.clone());
        }
        (table, texts)
    }

    /// The server that the catalog passes through as if clients were connected to it.
    fn one_server(&self) -> Option<Arc<OneServer>> {
        let first = self.views.first().filter(|_| self.settings.is_one_server);
        first.map(|view| Arc::new(OneServer::new(view.part.clone())))
    }

    fn instructions(&mut self) -> Option<String> {
        let mut sections = Vec::new();
        for index in 0..self.views.len() {
            let (part, names) = (self.views[index].part.clone(), self.names[index]);
            let server = part.server();
            let Some(text) = &part.instructions else {
                continue;
            };
            let is_suspended = self
                .suspends(index, ModelText::Instructions(text))
                .is_some();
            let text = match is_suspended {
                false => Some(text.clone()),
                // Clients keep the last approved text.
                true => self.settings.pinned.approved_instructions(server),
            };
            self.views[index].instructions.clone_from(&text);
            if self.settings.is_one_server {
                return text;
            }
            sections.extend(text.map(|text| (instructions::heading(server, names), text)));
        }
        instructions::merge(&sections, self.settings.instructions_max)
    }
}

/// The URIs and URI templates that a server lists, or names as user interfaces or files of skills,
/// and that can be wrapped, each with its equality key.
fn movable_uris(part: &ServerPart) -> impl Iterator<Item = (&str, Vec<u8>)> {
    let resources = part.items(ItemKind::Resources).iter();
    let resources = resources.map(|item| (item.native(), item.native().as_bytes().to_vec()));
    let templates = part.items(ItemKind::ResourceTemplates).iter();
    let templates = templates.map(|item| {
        let shape = UriTemplate::parse(item.native()).map(|template| template.shape());
        (item.native(), shape.unwrap_or_default())
    });
    let skills = part.items(ItemKind::Skills).iter();
    let tools = part.items(ItemKind::Tools).iter();
    let named = tools.chain(skills.clone()).flat_map(Item::named_uris);
    let named = named.map(|(_, uri)| &**uri);
    let named = named.chain(skills.map(Item::native));
    resources
        .chain(templates)
        .chain(named.map(|uri| (uri, uri.as_bytes().to_vec())))
        .filter(|(uri, _)| !uri::is_fixed(uri))
}
