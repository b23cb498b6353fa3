//! Translates results, list items and requests into another revision (B-FIELD-01).
//!
//! Members that a revision lacks are expressed with existing ones or dropped. Unknown fields pass
//! between revisions of one era and are dropped between eras, except under `_meta`.

mod capabilities;
mod implementation;
mod item;
mod output;
mod request;

use serde_json::json;

use crate::protocol::{Method, RawJson, Revision, json as text};

use super::object::{MemberChange, Object, contains_any, is_object, rebuild_elements};
use super::result;

pub use capabilities::client_capabilities;
pub use implementation::project_implementation;
pub use item::{ItemKind, project_item};
pub use output::wraps_structured_output;
use output::{is_wrapped_output, wraps_for};
pub use request::{project_params, project_progress};

/// Direction of a translation: the revision of the writer and the revision of the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revisions {
    pub from: Revision,
    pub to: Revision,
}

impl Revisions {
    fn crosses_eras(self) -> bool {
        self.from.era() != self.to.era()
    }
}

/// Translates the result of `method` for its reader; `None` if it can be forwarded unchanged.
///
/// `wrapped` states that [`wraps_structured_output`] holds for the called tool, so that its reader
/// saw an output schema that expects the content inside `result`. For a client with a handshake,
/// this includes the work of [`result::strip_for_legacy`], which need not be called again.
pub fn project_result(
    method: &Method,
    result: &RawJson,
    revisions: Revisions,
    wrapped: bool,
) -> Option<RawJson> {
    // Strict clients reject a server that breaks a rule of its own revision.
    let wraps = wrapped && wraps_for(revisions.to);
    if revisions.from == revisions.to && !wraps {
        return None;
    }
    if *method == Method::ToolsCall
        && revisions.from == Revision::V2024_10_07
        && let Some(content) = content_of_first_revision(result)
    {
        return Some(content);
    }
    let known: &[&str] = match method {
        Method::ToolsCall => &["content", "structuredContent", "isError", "_meta", "task"],
        Method::PromptsGet => &["description", "messages", "_meta"],
        Method::ResourcesRead => &["contents", "_meta"],
        Method::CompletionComplete => &["completion", "_meta"],
        _ if revisions.from > revisions.to => return result::strip_for_legacy(result),
        _ => return None,
    };
    if !revisions.crosses_eras() && !wraps && !may_differ(result, revisions) {
        return None;
    }
    let members = Object::parse(result.as_str())?;
    let older = revisions.to < revisions.from;
    let appended = appended_text(&members, revisions.to);
    let changed = members.rebuild("", |key, value| match key {
        _ if revisions.crosses_eras() && !known.contains(&key) => MemberChange::Drop,
        "content" if older => match &appended {
            Some(content) => MemberChange::Value(content.clone()),
            None => MemberChange::set_if_some(content(value, revisions.to)),
        },
        "messages" if older => MemberChange::set_if_some(messages(value, revisions.to)),
        "structuredContent" if older || wraps => structured(value, revisions, wrapped),
        "_meta" if revisions.crosses_eras() => result::strip_meta(value),
        _ => MemberChange::Keep,
    });
    changed.map(RawJson::from_valid_parts)
}

/// Converts a tool result for all later revisions: 2024-10-07 has `toolResult`, of any type,
/// instead of `content`.
fn content_of_first_revision(result: &RawJson) -> Option<RawJson> {
    let members = Object::parse(result.as_str())?;
    let old = members.get("toolResult")?;
    if members.get("content").is_some() {
        return None;
    }
    let shown = text::text(old).unwrap_or_else(|| old.into());
    let content = json!([{ "type": "text", "text": shown }]);
    let meta = members
        .get("_meta")
        .map(|meta| format!(r#","_meta":{meta}"#));
    let meta = meta.unwrap_or_default();
    Some(RawJson::from_valid_parts(format!(
        r#"{{"content":{content}{meta}}}"#
    )))
}

fn may_differ(result: &RawJson, revisions: Revisions) -> bool {
    let words: &[&str] = match revisions.to {
        Revision::V2026_07_28 => return false,
        Revision::V2025_11_25 => &["\"structuredContent\""],
        Revision::V2025_06_18 => &["\"structuredContent\"", "\"resource_link\""],
        Revision::V2025_03_26 => &["\"structuredContent\"", "\"resource_link\""],
        Revision::V2024_10_07 | Revision::V2024_11_05 => {
            &["\"structuredContent\"", "\"resource_link\"", "\"audio\""]
        }
    };
    revisions.to < revisions.from && contains_any(result.as_bytes(), words)
}

/// `content` with the structured content appended as text, for a reader that does not know
/// structured content, unless a text repeats it already (S-TOOL-08).
fn appended_text(members: &Object<'_>, to: Revision) -> Option<String> {
    if to >= Revision::V2025_06_18 {
        return None;
    }
    let structured = members.get("structuredContent")?;
    let old = members.get("content")?;
    let blocks = text::elements(old)?;
    let is_text = |block: &&str| {
        let kind = text::member(block, "type").and_then(text::text);
        kind.is_some_and(|kind| kind == "text")
    };
    if blocks.iter().any(is_text) {
        return None;
    }
    let added = json!({ "type": "text", "text": structured }).to_string();
    let shown = blocks.iter().map(|shown| block(shown, to));
    let mut shown: Vec<_> = shown
        .zip(&blocks)
        .map(|(new, old)| new.unwrap_or_else(|| (*old).to_owned()))
        .collect();
    shown.push(added);
    Some(format!("[{}]", shown.join(",")))
}

fn structured(value: &str, revisions: Revisions, wrapped: bool) -> MemberChange {
    if revisions.to < Revision::V2025_06_18 {
        return MemberChange::Drop;
    }
    // A server of both eras can list a tool in the newer one, and wrap its result in the older one.
    let is_wrapped_by_server = wraps_for(revisions.from) && is_wrapped_output(value);
    if wrapped && !is_wrapped_by_server || !is_object(value) {
        return MemberChange::Value(format!(r#"{{"result":{value}}}"#));
    }
    MemberChange::Keep
}

fn content(value: &str, to: Revision) -> Option<String> {
    rebuild_elements(value, |shown| block(shown, to))
}

fn messages(value: &str, to: Revision) -> Option<String> {
    rebuild_elements(value, |message| {
        let members = Object::parse(message)?;
        let changed = block(members.get("content")?, to)?;
        members.rebuild("", |key, _| match key {
            "content" => MemberChange::Value(changed.clone()),
            _ => MemberChange::Keep,
        })
    })
}

/// Translates one content block for its reader; `None` if it can stay unchanged.
pub(super) fn block(block: &str, to: Revision) -> Option<String> {
    if !contains_any(block.as_bytes(), &["\"resource_link\"", "\"audio\""]) {
        return None;
    }
    let members = Object::parse(block)?;
    let text_of = |name: &str| members.get(name).and_then(text::text);
    let kind = text_of("type")?;
    let note = match &*kind {
        "audio" if to < Revision::V2025_03_26 => {
            let mime = text_of("mimeType").unwrap_or("unknown type".into());
            let size = text_of("data").map_or(0, |data| data.len() / 4 * 3);
            format!(
                "[audio of {mime}, about {size} bytes, omitted: the client's revision of the protocol has no audio]"
            )
        }
        "resource_link" if to < Revision::V2025_06_18 => {
            let name = text_of("title").or_else(|| text_of("name"));
            let (name, uri) = (name.unwrap_or_default(), text_of("uri")?);
            format!("{name}: {uri}")
        }
        "resource_link" if to < Revision::V2025_11_25 => {
            return members.rebuild("", |key, _| MemberChange::keep_if(key != "icons"));
        }
        _ => return None,
    };
    let note = text::quoted(&note);
    let annotations = members
        .get("annotations")
        .map_or_else(String::new, |value| format!(r#","annotations":{value}"#));
    Some(format!(
        r#"{{"type":"text","text":{}{annotations}}}"#,
        note.as_str()
    ))
}

#[cfg(test)]
mod tests;
