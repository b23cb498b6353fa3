//! The validated items of one server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::id::ServerName;
use crate::protocol::{RawJson, Revision, TASKS_EXTENSION, is_declared};

use super::item::{self, Item, RejectedItem};
use super::page_cuts::PageCuts;
use super::{IngestLimits, ItemKind, ListCaching, ListedPage};

/// An item that is hidden because a client could not read it or distinguish it from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    pub kind: ItemKind,
    /// Name or URI, shortened for display; `None` if it is missing or unreadable, and for a defect
    /// of the whole list.
    pub item: Option<String>,
    /// Part of a sentence: what is wrong.
    pub reason: String,
}

/// The items that one server offers. Two parts are equal if their contents are, so that a refresh
/// that changed nothing counts as no change. Cloning is cheap enough for a refresh; parts are
/// shared by `Arc`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerPart {
    pub server: ServerName,
    /// The capabilities that the server declared.
    pub capabilities: Map<String, Value>,
    /// `serverInfo`, verbatim.
    pub info: Map<String, Value>,
    /// The revision of the server.
    pub revision: Revision,
    /// The server's own usage instructions.
    pub instructions: Option<String>,
    /// `_meta` of its answer to the handshake.
    pub meta: Map<String, Value>,
    items: [Arc<[Item]>; ItemKind::COUNT],
    quarantined: [Arc<[Quarantined]>; ItemKind::COUNT],
    caching: [Option<ListCaching>; ItemKind::COUNT],
    pub(super) cuts: [PageCuts; ItemKind::COUNT],
}

impl ServerPart {
    /// Whether both offer the same, in whatever order.
    pub(crate) fn offers_the_same(&self, other: &Self) -> bool {
        let items = |part: &Self, kind| {
            let items = part.items(kind).iter();
            let items = items.map(|item| (item.native().to_owned(), item.raw().parse().ok()));
            items.collect::<HashMap<String, Option<Value>>>()
        };
        let mut kinds = ItemKind::ALL.into_iter();
        self.instructions == other.instructions
            && kinds.all(|kind| items(self, kind) == items(other, kind))
    }

    /// A server that offers nothing yet.
    pub fn new(server: ServerName) -> Self {
        Self {
            server,
            capabilities: Map::new(),
            info: Map::new(),
            meta: Map::new(),
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

    /// Whether the server declared a standard capability or, by its full name, an extension.
    pub fn declares(&self, capability: &str) -> bool {
        is_declared(&self.capabilities, capability)
    }

    /// Whether the server has a list of this kind but does not report its changes.
    pub(super) fn changes_unnoticed(&self, kind: ItemKind) -> bool {
        // Skills have no notification of their own.
        let reports = match kind {
            ItemKind::Skills => ItemKind::Resources.capability(),
            kind => kind.capability(),
        };
        let reports = self.capabilities.get(reports);
        let reports = reports.is_some_and(|it| it.get("listChanged") == Some(&Value::Bool(true)));
        self.declares(kind.capability()) && !reports
    }

    /// Replaces the list of one kind. Invalid items are quarantined without hiding others; of two
    /// with the same name or URI, the first is kept. Items that did not change since the last list
    /// are not validated again.
    #[must_use]
    pub fn with_list(self, kind: ItemKind, list: &[RawJson], limits: &IngestLimits) -> Self {
        let page = ListedPage {
            cursor: None,
            items: list.to_vec(),
        };
        self.with_pages(kind, &[page], limits)
    }

    /// Like [`Self::with_list`], for a list in the pages of its server.
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
                        "`{}` is duplicated in the list; the first one is kept",
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

    /// The caching hints of a list; `None` if the server gives none, as servers with a handshake
    /// cannot.
    pub const fn caching(&self, kind: ItemKind) -> Option<ListCaching> {
        self.caching[kind.index()]
    }

    pub const fn set_caching(&mut self, kind: ItemKind, caching: Option<ListCaching>) {
        self.caching[kind.index()] = caching;
    }

    /// Total size of its items, in bytes, as the server wrote them.
    pub fn size(&self) -> usize {
        let items = self.items.iter().flat_map(|list| list.iter());
        items.map(|item| item.raw().as_bytes().len()).sum()
    }

    pub fn items(&self, kind: ItemKind) -> &[Item] {
        &self.items[kind.index()]
    }

    /// Every hidden item, tools first.
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
        // Following these tasks takes more than forwarding methods.
        declared.filter(|(name, _)| *name != TASKS_EXTENSION)
    }
}

fn by_text(item: &Item) -> (&RawJson, &Item) {
    (item.raw(), item)
}
