//! Items of lists: fields that a revision does not have yet, or no longer.

use crate::protocol::{RawJson, Revision};

use super::super::object::{self, Change, Object, rebuild_elements};
use super::Revisions;
use super::output::{self, is_wrapped};

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemKind {
    Tool,
    Prompt,
    Resource,
    Template,
}

/// The revisions that know a field: from the first to the last.
type Known = (Revision, Revision);

const ALL: Known = (Revision::V2024_11_05, Revision::NEWEST);
const SINCE_2025_03: Known = (Revision::V2025_03_26, Revision::NEWEST);
const SINCE_2025_06: Known = (Revision::V2025_06_18, Revision::NEWEST);
const SINCE_2025_11: Known = (Revision::V2025_11_25, Revision::NEWEST);
const ONLY_2025_11: Known = (Revision::V2025_11_25, Revision::V2025_11_25);

/// `None` for a field that no revision knows.
fn known(kind: ItemKind, field: &str) -> Option<Known> {
    let common = match field {
        // Not in the oldest schemas, which allow it all the same: extensions live in it.
        "name" | "description" | "_meta" => Some(ALL),
        "title" => Some(SINCE_2025_06),
        "icons" => Some(SINCE_2025_11),
        _ => None,
    };
    common.or(match (kind, field) {
        (ItemKind::Tool, "inputSchema") | (ItemKind::Prompt, "arguments") => Some(ALL),
        (ItemKind::Tool, "annotations") => Some(SINCE_2025_03),
        (ItemKind::Tool, "outputSchema") => Some(SINCE_2025_06),
        (ItemKind::Tool, "execution") => Some(ONLY_2025_11),
        (ItemKind::Resource, "uri" | "mimeType" | "size" | "annotations")
        | (ItemKind::Template, "uriTemplate" | "mimeType" | "annotations") => Some(ALL),
        _ => None,
    })
}

/// An item of a list for its reader; `None` when it may stay as it is.
pub fn project_item(kind: ItemKind, item: &RawJson, legs: Revisions) -> Option<RawJson> {
    if legs.from == legs.to {
        return None;
    }
    let members = Object::parse(item.as_str())?;
    let to = legs.to;
    let changed = members.rebuild("", |field, value| match known(kind, field) {
        None => Change::keep_if(!legs.crosses_eras()),
        Some((first, last)) if to < first || to > last => Change::Drop,
        Some(_) => match (kind, field) {
            (ItemKind::Tool, "outputSchema") if to < Revision::V2026_07_28 && is_wrapped(value) => {
                Change::maybe(output::wrapped(value))
            }
            (ItemKind::Prompt, "arguments") if to < Revision::V2025_06_18 => {
                Change::maybe(rebuild_elements(value, without_title))
            }
            _ => Change::Keep,
        },
    });
    object::raw(changed?)
}

fn without_title(argument: &str) -> Option<String> {
    Object::parse(argument)?.rebuild("", |key, _| Change::keep_if(key != "title"))
}
