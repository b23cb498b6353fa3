//! How the parts of all servers become one catalog.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::id::ServerName;
use crate::protocol::{RawJson, splice};

use super::filter::Filter;
use super::page::{Listed, Pages};
use super::snapshot::{ServerView, Table};
use super::template::Template;
use super::{
    CatalogSettings, Item, ItemKind, NameSettings, Notice, Owned, OwnedUri, ServerPart, Snapshot,
    instructions, json, name, uri,
};

/// Merges what servers offer. `parts` are in config order, which settles collisions: the earlier
/// server keeps its name or URI. The same parts give the same snapshot (S-TOOL-03); of two parts
/// of the same server the first counts.
pub fn merge(parts: &[(Arc<ServerPart>, NameSettings)], settings: &CatalogSettings) -> Snapshot {
    let mut merging = Merging::new(parts, settings);
    merging.decide_wrapping();
    let (tools, tool_texts) = merging.named(ItemKind::Tools);
    let (prompts, prompt_texts) = merging.named(ItemKind::Prompts);
    let (resources, resource_texts) = merging.located(ItemKind::Resources);
    let (templates, template_texts) = merging.located(ItemKind::ResourceTemplates);
    let pages = [
        Pages::new(ItemKind::Tools, tool_texts, settings),
        Pages::new(ItemKind::Prompts, prompt_texts, settings),
        Pages::new(ItemKind::Resources, resource_texts, settings),
        Pages::new(ItemKind::ResourceTemplates, template_texts, settings),
    ];
    let by_name = |(index, view): (usize, &ServerView)| (view.part.server().clone(), index);
    let by_prefix = |(index, view): (usize, &ServerView)| (view.wrap_prefix.clone(), index);
    Snapshot {
        by_name: merging.views.iter().enumerate().map(by_name).collect(),
        by_wrap_prefix: merging.views.iter().enumerate().map(by_prefix).collect(),
        patterns: merging.patterns(),
        origins: merging.origins(),
        instructions: merging.instructions(),
        tools,
        prompts,
        resources,
        templates,
        pages,
        notices: merging.notices,
        servers: merging.views,
    }
}

struct Merging<'a> {
    settings: &'a CatalogSettings,
    names: Vec<&'a NameSettings>,
    views: Vec<ServerView>,
    notices: Vec<Notice>,
}

impl<'a> Merging<'a> {
    fn new(parts: &'a [(Arc<ServerPart>, NameSettings)], settings: &'a CatalogSettings) -> Self {
        let mut merging = Self {
            settings,
            names: Vec::new(),
            views: Vec::new(),
            notices: Vec::new(),
        };
        for (part, names) in parts {
            let server = part.server();
            if merging
                .views
                .iter()
                .any(|view| view.part.server() == server)
            {
                continue;
            }
            let item = |item| Notice::Quarantined {
                server: server.clone(),
                item,
            };
            merging
                .notices
                .extend(part.quarantined().cloned().map(item));
            let wrap_prefix = merging.wrap_prefix(server, names);
            merging.names.push(names);
            merging.views.push(ServerView {
                part: part.clone(),
                wrap_prefix,
                wraps: false,
                shown: [0; 4],
            });
        }
        merging
    }

    /// Scheme names are compared without case, so two servers may want the same prefix.
    fn wrap_prefix(&self, server: &ServerName, names: &NameSettings) -> String {
        let own = name::prefix(server, names).to_ascii_lowercase();
        let by_server = server.as_str().to_ascii_lowercase();
        let with_tail = format!("{by_server}-{}", name::hash_tail(server.as_str()));
        let free = |prefix: &String| {
            let taken = self.views.iter().any(|view| view.wrap_prefix == *prefix);
            !prefix.is_empty() && !taken
        };
        [own, by_server].into_iter().find(free).unwrap_or(with_tail)
    }

    /// A server wraps its URIs when one of them is already another's (bridging: "collision").
    fn decide_wrapping(&mut self) {
        let mut claimed: HashMap<Vec<u8>, usize> = HashMap::new();
        for index in 0..self.views.len() {
            let part = self.views[index].part.clone();
            let keys: Vec<_> = movable_uris(&part).collect();
            let collision = keys.iter().find_map(|(uri, key)| match claimed.get(key) {
                Some(owner) => Some((*uri, Some(*owner))),
                None => uri::is_reserved(uri).then_some((*uri, None)),
            });
            let Some((uri, owner)) = collision else {
                claimed.extend(keys.into_iter().map(|(_, key)| (key, index)));
                continue;
            };
            self.views[index].wraps = true;
            self.notices.push(Notice::Wrapped {
                server: part.server().clone(),
                uri: uri.to_owned(),
                taken_by: owner.map(|owner| self.views[owner].part.server().clone()),
            });
        }
    }

    /// Tools or prompts.
    fn named(&mut self, kind: ItemKind) -> (Table<Owned>, Vec<Listed>) {
        let mut table = Table::default();
        let mut texts = Vec::new();
        for index in 0..self.views.len() {
            let names = self.names[index];
            let part = self.views[index].part.clone();
            let filter = match kind {
                ItemKind::Tools => Filter::new(names),
                ItemKind::Prompts | ItemKind::Resources | ItemKind::ResourceTemplates => {
                    Filter::new(&NameSettings::default())
                }
            };
            let filter = match filter {
                Ok(filter) => filter,
                Err(reason) => {
                    let server = part.server().clone();
                    self.notices.push(Notice::Unusable { server, reason });
                    continue;
                }
            };
            let prefix = name::prefix(part.server(), names);
            for item in part.items(kind) {
                if filter.shows(item.native())
                    && let Some(public) = self.choose_name(kind, &part, prefix, item, &table)
                {
                    table.insert(&public, owned(part.server(), item));
                    texts.push(listed(&self.views[index], item, &public));
                    self.views[index].shown[kind.index()] += 1;
                }
            }
        }
        (table, texts)
    }

    /// `None` never happens: there are more candidates than items.
    fn choose_name(
        &mut self,
        kind: ItemKind,
        part: &ServerPart,
        prefix: &str,
        item: &Item,
        table: &Table<Owned>,
    ) -> Option<String> {
        let server = part.server();
        let native = item.native();
        let mut taken = None;
        for candidate in name::candidates(server, prefix, native, self.settings.name_max) {
            let name::Public { name, changed } = candidate;
            if let Some(owner) = table.get(&name) {
                taken.get_or_insert((name, owner.server.clone()));
                continue;
            }
            if let Some((wanted, taken_by)) = taken {
                self.notices.push(Notice::Renamed {
                    kind,
                    server: server.clone(),
                    native: native.to_owned(),
                    wanted,
                    public: name.clone(),
                    taken_by,
                });
            } else if changed {
                self.notices.push(Notice::Shortened {
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

    /// Resources or resource templates.
    fn located(&mut self, kind: ItemKind) -> (Table<OwnedUri>, Vec<Listed>) {
        let mut table: Table<OwnedUri> = Table::default();
        let mut texts = Vec::new();
        for view in &mut self.views {
            let part = view.part.clone();
            for item in part.items(kind) {
                let native = item.native();
                let public = view.public_uri(native);
                if let Some(owner) = table.get(&public) {
                    self.notices.push(Notice::Hidden {
                        kind,
                        server: part.server().clone(),
                        uri: native.to_owned(),
                        taken_by: owner.server.clone(),
                    });
                    continue;
                }
                texts.push(listed(view, item, &public));
                let owner = OwnedUri {
                    server: part.server().clone(),
                    native: native.to_owned(),
                };
                table.insert(&public, owner);
                view.shown[kind.index()] += 1;
            }
        }
        (table, texts)
    }

    /// Templates that clients expand to native URIs.
    fn patterns(&self) -> Vec<(usize, Template)> {
        let mut patterns = Vec::new();
        for (index, view) in self.views.iter().enumerate() {
            for item in view.part.items(ItemKind::ResourceTemplates) {
                let native = item.native();
                let unwrapped = view.public_uri(native) == native;
                if let Some(template) = Template::parse(native).filter(|_| unwrapped) {
                    patterns.push((index, template));
                }
            }
        }
        patterns
    }

    /// Who uses a scheme and authority, when it is one server alone.
    fn origins(&self) -> HashMap<String, Option<usize>> {
        let mut origins: HashMap<String, Option<usize>> = HashMap::new();
        for (index, view) in self.views.iter().enumerate() {
            let resources = view.part.items(ItemKind::Resources).iter();
            let uris = resources.chain(view.part.items(ItemKind::ResourceTemplates));
            for native in uris.map(Item::native) {
                let unwrapped = view.public_uri(native) == native;
                let Some(origin) = uri::origin(native).filter(|_| unwrapped) else {
                    continue;
                };
                let owner = origins.entry(origin).or_insert(Some(index));
                if *owner != Some(index) {
                    *owner = None;
                }
            }
        }
        origins
    }

    fn instructions(&self) -> Option<String> {
        let mut sections = Vec::new();
        for (view, names) in self.views.iter().zip(&self.names) {
            let server = view.part.server();
            let Some(text) = &view.part.instructions else {
                continue;
            };
            let heading = match name::prefix(server, names) {
                "" => server.to_string(),
                prefix => format!("{server} (names start with `{prefix}__`)"),
            };
            sections.push((heading, text.as_str()));
        }
        instructions::merge(&sections, self.settings.instructions_max)
    }
}

/// The URIs and URI templates of a server that may be wrapped, with what makes two of them equal.
fn movable_uris(part: &ServerPart) -> impl Iterator<Item = (&str, Vec<u8>)> {
    let resources = part.items(ItemKind::Resources).iter();
    let resources = resources.map(|item| (item.native(), item.native().as_bytes().to_vec()));
    let templates = part.items(ItemKind::ResourceTemplates).iter();
    let templates = templates.map(|item| {
        let shape = Template::parse(item.native()).map(|template| template.shape());
        (item.native(), shape.unwrap_or_default())
    });
    resources
        .chain(templates)
        .filter(|(uri, _)| !uri::is_fixed(uri))
}

fn owned(server: &ServerName, item: &Item) -> Owned {
    let written = item.raw().as_bytes().slice(item.native_span());
    Owned {
        server: server.clone(),
        native: RawJson::try_new(written).unwrap_or_else(|_| json::quoted(item.native())),
        hints: item.hints(),
        headers: item.headers().clone(),
        item: item.raw().clone(),
    }
}

fn listed(view: &ServerView, item: &Item, public: &str) -> Listed {
    Listed {
        text: public_text(view, item, public),
        revision: view.part.revision,
    }
}

/// The item as clients see it: its server's bytes, with another name or URI.
fn public_text(view: &ServerView, item: &Item, public: &str) -> Bytes {
    let mut edits = Vec::new();
    if public != item.native() {
        edits.push((item.native_span(), json::quoted(public).as_bytes().clone()));
    }
    for (span, native) in item.interface_spans() {
        let uri = view.public_uri(native);
        if *uri != **native {
            edits.push((span.clone(), json::quoted(&uri).as_bytes().clone()));
        }
    }
    if edits.is_empty() {
        return item.raw().as_bytes().clone();
    }
    splice(item.raw().as_bytes(), &mut edits)
}
