//! The items of one server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::id::ServerName;
use crate::protocol::{RawJson, Revision, TASKS_EXTENSION};

use super::item::{self, Item, RejectedItem};
use super::page_cuts::PageCuts;
use super::{IngestLimits, ItemKind, ListCaching, ListedPage};

/// An item that is hidden because a client could not read it, or not tell it from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    pub kind: ItemKind,
    /// Name or URI, shortened for people; `None` if it is missing or unreadable, and for a defect of
    /// the whole list.
    pub item: Option<String>,
    /// A sentence part: what is wrong.
    pub reason: String,
}

/// The items that one server offers. Two parts are equal when their contents are, so that a
/// refresh which changed nothing is seen as no change. Cloning is cheap enough for a refresh;
/// sharing is by `Arc`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerPart {
    server: ServerName,
    /// The capabilities that the server declared.
    pub capabilities: Map<String, Value>,
    /// `serverInfo`, as it declared it.
    pub info: Map<String, Value>,
    /// The revision of the server.
    pub revision: Revision,
    /// How to use the server, in its own words.
    pub instructions: Option<String>,
    items: [Arc<[Item]>; 4],
    quarantined: [Arc<[Quarantined]>; 4],
    caching: [Option<ListCaching>; 4],
    pub(super) cuts: [PageCuts; 4],
}

impl ServerPart {
    /// A server that offers nothing yet.
    pub fn new(server: ServerName) -> Self {
        Self {
            server,
            capabilities: Map::new(),
            info: Map::new(),
            revision: Revision::NEWEST_LEGACY,
            instructions: None,
            items: Default::default(),
            quarantined: Default::default(),
            caching: Default::default(),
            cuts: Default::default(),
        }
    }

    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// Whether the server declared a capability.
    pub fn declares(&self, capability: &str) -> bool {
        self.capabilities.contains_key(capability)
    }

    /// Whether the server has a list of this kind and does not say when it changes.
    pub(super) fn changes_unnoticed(&self, kind: ItemKind) -> bool {
        let capability = self.capabilities.get(kind.capability());
        capability.is_some_and(|it| it.get("listChanged") != Some(&Value::Bool(true)))
    }

    /// The same part with another list of one kind. Items that cannot be shown are quarantined and
    /// hide no other; of two with the same name or URI the first is kept. Items that did not
    /// change since the last list are not checked again.
    #[must_use]
    pub fn with_list(self, kind: ItemKind, list: &[RawJson], limits: &IngestLimits) -> Self {
        let page = ListedPage {
            cursor: None,
            items: list.to_vec(),
        };
        self.with_pages(kind, &[page], limits)
    }

    /// The same for a list in the pages that its server cut it into.
    #[must_use]
    pub fn with_pages(
        mut self,
        kind: ItemKind,
        pages: &[ListedPage],
        limits: &IngestLimits,
    ) -> Self {
        let era = self.revision.era();
        let known: HashMap<&RawJson, &Item> = self.items(kind).iter().map(by_text).collect();
        let count: usize = pages.iter().map(|page| page.items.len()).sum();
        let mut items = Vec::with_capacity(count.min(limits.items));
        let mut quarantined = Vec::new();
        let mut seen: HashSet<Box<str>> = HashSet::new();
        let mut cuts = Vec::new();
        let listed = pages.iter().flat_map(|page| {
            let cursor = std::iter::once(page.cursor.as_deref()).chain(std::iter::repeat(None));
            page.items.iter().zip(cursor)
        });
        for (raw, cursor) in listed.take(limits.items) {
            cuts.extend(cursor.map(|cursor| (items.len(), cursor)));
            let item = match known.get(raw) {
                Some(item) => Ok((*item).clone()),
                None => item::read(kind, raw, limits, era),
            };
            match item {
                Ok(item) if seen.insert(item.native().into()) => items.push(item),
                Ok(item) => quarantined.push(Quarantined {
                    kind,
                    item: Some(item.native().to_owned()),
                    reason: format!(
                        "`{}` stands twice in the list, the first is kept",
                        kind.key()
                    ),
                }),
                Err(RejectedItem { item, reason }) => {
                    quarantined.push(Quarantined { kind, item, reason });
                }
            }
        }
        if count > limits.items {
            let over = count - limits.items;
            quarantined.push(Quarantined {
                kind,
                item: None,
                reason: format!("{over} items over the limit of {}", limits.items),
            });
        }
        self.cuts[kind.index()] = PageCuts::new(cuts);
        self.items[kind.index()] = items.into();
        self.quarantined[kind.index()] = quarantined.into();
        self
    }

    /// Records a defect of a whole list for operators.
    pub fn add_note(&mut self, kind: ItemKind, reason: String) {
        let note = Quarantined {
            kind,
            item: None,
            reason,
        };
        self.add_quarantined(kind, std::iter::once(note));
    }

    /// How long a list holds and for whom; `None` if the server does not say, as those with a
    /// handshake cannot.
    pub const fn caching(&self, kind: ItemKind) -> Option<ListCaching> {
        self.caching[kind.index()]
    }

    pub const fn set_caching(&mut self, kind: ItemKind, caching: Option<ListCaching>) {
        self.caching[kind.index()] = caching;
    }

    /// Bytes of its items, as the server wrote them.
    pub fn size(&self) -> usize {
        let items = self.items.iter().flat_map(|list| list.iter());
        items.map(|item| item.raw().as_bytes().len()).sum()
    }

    pub fn items(&self, kind: ItemKind) -> &[Item] {
        &self.items[kind.index()]
    }

    /// Every item that is hidden, tools first.
    pub fn quarantined(&self) -> impl Iterator<Item = &Quarantined> {
        self.quarantined.iter().flat_map(|list| list.iter())
    }

    pub(super) fn quarantined_of(&self, kind: ItemKind) -> &[Quarantined] {
        &self.quarantined[kind.index()]
    }

    pub(super) fn add_quarantined(
        &mut self,
        kind: ItemKind,
        more: impl Iterator<Item = Quarantined>,
    ) {
        let list = &mut self.quarantined[kind.index()];
        *list = list.iter().cloned().chain(more).collect();
    }

    /// Whether the server reports when a resource that was subscribed to is updated.
    pub fn supports_subscribe(&self) -> bool {
        let resources = self.capabilities.get("resources");
        resources.and_then(|resources| resources.get("subscribe")) == Some(&Value::Bool(true))
    }

    /// The server's declarations under `extensions` or `experimental`, by name.
    pub fn extensions(&self, member: &str) -> impl Iterator<Item = (&String, &Value)> {
        let declared = self.capabilities.get(member).and_then(Value::as_object);
        let declared = declared.into_iter().flatten();
        // Following these takes more than passing methods on.
        declared.filter(|(name, _)| *name != TASKS_EXTENSION)
    }
}

fn by_text(item: &Item) -> (&RawJson, &Item) {
    (item.raw(), item)
}
