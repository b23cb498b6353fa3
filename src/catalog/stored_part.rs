//! Serializes a part for the store, so that a fresh process can respond before any server is
//! connected.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::id::ServerName;
use crate::protocol::{RawJson, Revision};

use super::page_cuts::PageCuts;
use super::{IngestLimits, Item, ItemKind, ListCaching, Quarantined, ServerPart, json};

#[derive(Serialize)]
struct StoredPartRef<'a> {
    server: &'a str,
    capabilities: &'a Map<String, Value>,
    info: &'a Map<String, Value>,
    meta: &'a Map<String, Value>,
    revision: Revision,
    instructions: Option<&'a str>,
    lists: Vec<StoredListRef<'a>>,
}

#[derive(Serialize)]
struct StoredListRef<'a> {
    kind: &'static str,
    items: Vec<&'a RawValue>,
    quarantined: Vec<StoredQuarantined>,
    caching: Option<ListCaching>,
    cuts: &'a PageCuts,
}

#[derive(Deserialize)]
struct StoredPart<'a> {
    server: String,
    capabilities: Map<String, Value>,
    info: Map<String, Value>,
    #[serde(default)]
    meta: Map<String, Value>,
    #[serde(default = "newest_legacy")]
    revision: Revision,
    instructions: Option<String>,
    #[serde(borrow)]
    lists: Vec<StoredList<'a>>,
}

/// Default for parts stored before revisions were recorded.
fn newest_legacy() -> Revision {
    Revision::NEWEST_LEGACY
}

#[derive(Deserialize)]
struct StoredList<'a> {
    kind: String,
    #[serde(borrow)]
    items: &'a RawValue,
    quarantined: Vec<StoredQuarantined>,
    #[serde(default)]
    caching: Option<ListCaching>,
    #[serde(default)]
    cuts: PageCuts,
}

#[derive(Serialize, Deserialize)]
struct StoredQuarantined {
    item: Option<String>,
    reason: String,
}

impl ServerPart {
    /// The complete part as JSON, for the store.
    pub fn to_stored(&self) -> RawJson {
        let list = |kind: ItemKind| StoredListRef {
            kind: kind.member(),
            items: self.items(kind).iter().filter_map(as_raw_value).collect(),
            quarantined: self
                .quarantined_of(kind)
                .iter()
                .map(stored_quarantined)
                .collect(),
            caching: self.caching(kind),
            cuts: &self.cuts[kind.index()],
        };
        RawJson::from_value(&StoredPartRef {
            server: self.server().as_str(),
            capabilities: &self.capabilities,
            info: &self.info,
            meta: &self.meta,
            revision: self.revision,
            instructions: self.instructions.as_deref(),
            lists: ItemKind::ALL.map(list).into(),
        })
    }

    /// Reads the output of [`ServerPart::to_stored`]. Items are validated again, since the rules
    /// may have changed; `None` if the format is unknown.
    pub fn from_stored(stored: &RawJson, limits: &IngestLimits) -> Option<Self> {
        let text = stored.as_str();
        let read: StoredPart<'_> = serde_json::from_str(text).ok()?;
        let mut part = Self::new(ServerName::try_new(&read.server).ok()?);
        part.capabilities = read.capabilities;
        part.info = read.info;
        part.meta = read.meta;
        part.revision = read.revision;
        part.instructions = read.instructions;
        for list in read.lists {
            let kind = ItemKind::ALL
                .into_iter()
                .find(|kind| kind.member() == list.kind)?;
            let raw = |item| {
                let bytes = stored.as_bytes().slice(json::span(text, item));
                RawJson::try_new(bytes).ok()
            };
            let items = json::elements(list.items.get())?
                .into_iter()
                .filter_map(raw);
            part = part.with_list(kind, &items.collect::<Vec<_>>(), limits);
            let quarantined = list
                .quarantined
                .into_iter()
                .map(|stored_quarantined| Quarantined {
                    kind,
                    item: stored_quarantined.item,
                    reason: stored_quarantined.reason,
                });
            part.add_quarantined(kind, quarantined);
            part.set_caching(kind, list.caching);
            part.cuts[kind.index()] = list.cuts;
        }
        Some(part)
    }
}

fn as_raw_value(item: &Item) -> Option<&RawValue> {
    serde_json::from_str(item.raw().as_str()).ok()
}

fn stored_quarantined(quarantined: &Quarantined) -> StoredQuarantined {
    StoredQuarantined {
        item: quarantined.item.clone(),
        reason: quarantined.reason.clone(),
    }
}
