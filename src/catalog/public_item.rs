//! Items in the form that clients see.

use bytes::Bytes;

use super::merged_server::MergedServer;
use super::public_pages::PublicItem;
use super::{Exposure, Item, ItemOwner, json};
use crate::id::ServerName;
use crate::protocol::{RawJson, Revision, splice};

pub(super) fn item_owner(server: &ServerName, item: &Item) -> ItemOwner {
    let written = item.raw().as_bytes().slice(item.native_span());
    ItemOwner {
        server: server.clone(),
        native: RawJson::try_new(written).unwrap_or_else(|_| json::quoted(item.native())),
        hints: item.hints(),
        headers: item.headers().clone(),
        wraps_output: item.wraps_output(),
        is_for_apps: item.is_for_apps(),
        item: item.raw().clone(),
    }
}

/// The static tools, in the newest revision.
pub(super) fn static_items(exposure: Exposure) -> Vec<PublicItem> {
    let definitions = exposure.definitions().into_iter();
    definitions
        .map(|tool| PublicItem {
            text: tool.as_bytes().clone(),
            revision: Revision::NEWEST,
            page: 0,
        })
        .collect()
}

/// `page` is the item's page in its server's list.
pub(super) fn public_item(
    view: &MergedServer,
    item: &Item,
    public: &str,
    page: usize,
) -> PublicItem {
    PublicItem {
        text: public_text(view, item, public),
        revision: view.part.revision,
        page,
    }
}

/// The item as clients see it: its server's bytes, with a different name or URI.
fn public_text(view: &MergedServer, item: &Item, public: &str) -> Bytes {
    let mut edits = Vec::new();
    if public != item.native() {
        edits.push((item.native_span(), json::quoted(public).as_bytes().clone()));
    }
    for (span, native) in item.named_uris() {
        let uri = view.public_uri(native);
        if *uri != **native {
            edits.push((span.clone(), json::quoted(&uri).as_bytes().clone()));
        }
    }
    if let Some(title) = own_title(item, public) {
        let end = item.native_span().end;
        edits.push((end..end, Bytes::from(title)));
    }
    if edits.is_empty() {
        return item.raw().as_bytes().clone();
    }
    splice(item.raw().as_bytes(), &mut edits)
}

/// Returns a `title` for an item whose native name is not recognisable in its public name, which
/// has only ASCII letters. Returns `None` for an item that has a title.
fn own_title(item: &Item, public: &str) -> Option<String> {
    let native = item.native();
    let is_readable = |c: char| c.is_ascii() || !c.is_alphanumeric();
    if native.chars().all(is_readable) || public.contains(native) {
        return None;
    }
    let members = json::members(item.raw().as_str())?;
    let of_annotations = json::member(item.raw().as_str(), "annotations");
    let has_title = members.iter().any(|(key, _)| key == "title")
        || of_annotations.is_some_and(|it| json::member(it, "title").is_some());
    (!has_title).then(|| format!(r#","title":{}"#, json::quoted(native).as_str()))
}
