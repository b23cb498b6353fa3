//! Translates list items: drops fields that the reader's revision does not have.

use crate::protocol::{RawJson, Revision};

use super::Revisions;
use super::output::{self, wraps_for, wraps_structured_output};
use crate::bridge::object::{self, MemberChange, Object, rebuild_elements};

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemKind {
    Tool,
    Prompt,
    Resource,
    Template,
    Skill,
}

/// The first and last revision that define a field.
type RevisionRange = (Revision, Revision);

const ALL: RevisionRange = (Revision::V2024_10_07, Revision::NEWEST);
const SINCE_2025_03: RevisionRange = (Revision::V2025_03_26, Revision::NEWEST);
const SINCE_2025_06: RevisionRange = (Revision::V2025_06_18, Revision::NEWEST);
const SINCE_2025_11: RevisionRange = (Revision::V2025_11_25, Revision::NEWEST);
const ONLY_2025_11: RevisionRange = (Revision::V2025_11_25, Revision::V2025_11_25);

/// Revisions that define the field; `None` if none does.
fn known_in(kind: ItemKind, field: &str) -> Option<RevisionRange> {
    let common = match field {
        // Missing from the oldest schemas, which still allow it: extensions live in it.
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

/// Translates a list item for its reader; `None` if it can be forwarded unchanged.
pub fn project_item(kind: ItemKind, item: &RawJson, revisions: Revisions) -> Option<RawJson> {
    let to = revisions.to;
    let wraps = kind == ItemKind::Tool && wraps_for(to) && wraps_structured_output(item);
    // The entries of an extension are alike in all revisions.
    if revisions.from == to && !wraps || kind == ItemKind::Skill {
        return None;
    }
    let members = Object::parse(item.as_str())?;
    let changed = members.rebuild("", |field, value| match known_in(kind, field) {
        None => MemberChange::keep_if(!revisions.crosses_eras()),
        Some((first, last)) if to < first || to > last => MemberChange::Drop,
        Some(_) => match (kind, field) {
            (ItemKind::Tool, "outputSchema") if wraps => {
                MemberChange::set_if_some(output::wrapped(value))
            }
            (ItemKind::Prompt, "arguments") if to < Revision::V2025_06_18 => {
                MemberChange::set_if_some(rebuild_elements(value, without_title))
            }
            _ => MemberChange::Keep,
        },
    });
    object::raw(changed?)
}

fn without_title(argument: &str) -> Option<String> {
    Object::parse(argument)?.rebuild("", |key, _| MemberChange::keep_if(key != "title"))
}
