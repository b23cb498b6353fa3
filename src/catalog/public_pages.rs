//! A list as finished pages, with the cursors that belong to it.

use std::borrow::Cow;
use std::sync::OnceLock;

use bytes::Bytes;
use ring::digest::{Context, SHA256};

use crate::bridge::projection::{Revisions, project_item};
use crate::protocol::{RawJson, Revision};

use super::page_cuts::PageCuts;
use super::{CatalogSettings, ItemKind, json};

/// Maximum size of a page, in bytes, unless a single item exceeds it: clients and other gateways
/// limit the length of a message.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The cursor belongs to a different list or to an old version of this one, or was never issued
/// (S-PAGE-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is invalid, or the list has changed: list again from the start")]
pub struct InvalidCursor;

/// The list of one kind, split into pages for the clients of each revision when the first of them
/// asks.
#[derive(Debug)]
pub(super) struct PublicPages {
    kind: ItemKind,
    fingerprint: [u8; 16],
    page_items: usize,
    /// The server's page boundaries, if its own pages are used.
    cuts: PageCuts,
    items: Vec<PublicItem>,
    results: [OnceLock<Vec<RawJson>>; Revision::ALL.len()],
}

/// An item under its public name, in its server's revision.
#[derive(Clone, Debug)]
pub(super) struct PublicItem {
    pub(super) text: Bytes,
    /// The revision of its server.
    pub(super) revision: Revision,
    /// The item's page in its server's list.
    pub(super) page: usize,
}

impl PublicPages {
    pub(super) fn new(kind: ItemKind, items: Vec<PublicItem>, settings: &CatalogSettings) -> Self {
        Self {
            kind,
            fingerprint: fingerprint(&items, settings.page_items),
            page_items: settings.page_items,
            cuts: PageCuts::default(),
            items,
            results: Default::default(),
        }
    }

    /// Uses the pages and cursors of the catalog's only server.
    pub(super) fn cut_as(self, cuts: PageCuts) -> Self {
        Self { cuts, ..self }
    }

    /// The pages of some of the items, selected by index.
    pub(super) fn filtered(&self, keeps: impl Fn(usize) -> bool) -> Self {
        let items = self.items.iter().enumerate();
        let kept = items.filter(|(place, _)| keeps(*place));
        let items: Vec<PublicItem> = kept.map(|(_, item)| item.clone()).collect();
        Self {
            kind: self.kind,
            fingerprint: fingerprint(&items, self.page_items),
            page_items: self.page_items,
            cuts: self.cuts.clone(),
            items,
            results: Default::default(),
        }
    }

    /// The pages for clients of this revision.
    fn results(&self, to: Revision) -> &[RawJson] {
        self.results[to as usize].get_or_init(|| {
            let items: Vec<Bytes> = self.items.iter().map(|item| self.text(item, to)).collect();
            let groups = match self.cuts.is_empty() {
                true => groups(&items, self.page_items.max(1)),
                false => self.server_groups(&items),
            };
            let count = groups.len();
            let result = |(index, group): (usize, &[Bytes])| {
                let more = index + 1 < count;
                let next = more.then(|| self.cursor(index + 1));
                result(self.kind, group, next.as_deref())
            };
            groups.into_iter().enumerate().map(result).collect()
        })
    }

    fn text(&self, item: &PublicItem, to: Revision) -> Bytes {
        let revisions = Revisions {
            from: item.revision,
            to,
        };
        let text = RawJson::try_new(item.text.clone());
        let projected = text
            .ok()
            .and_then(|text| project_item(self.kind.into(), &text, revisions));
        projected.map_or_else(|| item.text.clone(), |text| text.as_bytes().clone())
    }

    /// The items of each of the server's pages, some of which can be empty.
    fn server_groups<'t>(&self, mut rest: &'t [Bytes]) -> Vec<&'t [Bytes]> {
        let mut items = self.items.iter().peekable();
        let pages = 0..=self.cuts.iter().count();
        let group = |page| {
            let mut count = 0;
            while items.next_if(|item| item.page == page).is_some() {
                count += 1;
            }
            let (group, after) = rest.split_at(count);
            rest = after;
            group
        };
        pages.map(group).collect()
    }

    /// The cursor of a page after the first.
    fn cursor(&self, index: usize) -> Cow<'_, str> {
        match self.cuts.iter().nth(index - 1) {
            Some(cut) => Cow::Borrowed(&cut.cursor),
            None => Cow::Owned(cursor(self.kind, self.fingerprint, index)),
        }
    }

    pub(super) fn page(&self, given: Option<&str>, to: Revision) -> Result<RawJson, InvalidCursor> {
        let index = match given {
            None => 0,
            Some(given) => self.index_of(given).ok_or(InvalidCursor)?,
        };
        self.results(to).get(index).cloned().ok_or(InvalidCursor)
    }

    /// The page that a cursor refers to.
    fn index_of(&self, given: &str) -> Option<usize> {
        if !self.cuts.is_empty() {
            let mut cuts = self.cuts.iter();
            return Some(cuts.position(|cut| &*cut.cursor == given)? + 1);
        }
        let index = usize::from_str_radix(given.get(CURSOR_HEAD..)?, 16).ok()?;
        let is_ours = index > 0 && given == cursor(self.kind, self.fingerprint, index);
        is_ours.then_some(index)
    }

    /// Whether clients see the same in both.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

/// Length of a cursor before the page index: kind and fingerprint.
const CURSOR_HEAD: usize = 1 + 32;

fn cursor(kind: ItemKind, fingerprint: [u8; 16], index: usize) -> String {
    let fingerprint = u128::from_be_bytes(fingerprint);
    format!("{}{fingerprint:032x}{index:x}", kind.index())
}

fn fingerprint(items: &[PublicItem], page_items: usize) -> [u8; 16] {
    let mut hash = Context::new(&SHA256);
    hash.update(&page_items.to_be_bytes());
    for item in items {
        hash.update(&item.text.len().to_be_bytes());
        hash.update(&item.text);
    }
    let digest = hash.finish();
    std::array::from_fn(|index| digest.as_ref()[index])
}

/// Splits items into at least one group, so that an empty list has a page.
fn groups(items: &[Bytes], items_max: usize) -> Vec<&[Bytes]> {
    let mut groups = Vec::new();
    let mut rest = items;
    loop {
        let mut bytes = 0;
        let fitting = rest.iter().take(items_max).take_while(|item| {
            bytes += item.len() + 1;
            bytes <= PAGE_BYTES_MAX
        });
        let count = fitting.count().max(1).min(rest.len());
        let (group, after) = rest.split_at(count);
        groups.push(group);
        rest = after;
        if rest.is_empty() {
            return groups;
        }
    }
}

fn result(kind: ItemKind, items: &[Bytes], next: Option<&str>) -> RawJson {
    let bytes: usize = items.iter().map(|item| item.len() + 1).sum();
    let mut text = Vec::with_capacity(bytes + 96);
    text.extend_from_slice(format!(r#"{{"{}":["#, kind.member()).as_bytes());
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        text.extend_from_slice(item);
    }
    text.push(b']');
    if let Some(next) = next {
        let next = json::quoted(next);
        text.extend_from_slice(format!(r#","nextCursor":{}"#, next.as_str()).as_bytes());
    }
    text.push(b'}');
    let empty = || RawJson::from_value(&serde_json::json!({ kind.member(): [] }));
    RawJson::try_new(Bytes::from(text)).unwrap_or_else(|_| empty())
}
