//! The definition of a tool: what of it models read, and on which clients act.

use std::sync::OnceLock;

use super::json;
use crate::bridge::seal::Digest;
use crate::protocol::RawJson;

/// Its members. Others, as `_meta` and icons, may change.
const MEMBERS: [&str; 6] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
];

/// The definition of a tool, its members in one order.
pub fn definition(tool: &RawJson) -> RawJson {
    let members = json::members(tool.as_str()).unwrap_or_default();
    let texts = MEMBERS.iter().flat_map(|wanted| {
        let found = members.iter().filter(move |(key, _)| key == wanted);
        found.map(|(key, value)| format!("{}:{value}", json::quoted(key).as_str()))
    });
    let text = format!("{{{}}}", texts.collect::<Vec<_>>().join(","));
    RawJson::try_new(text.into()).unwrap_or_else(|_| tool.clone())
}

/// The digest of a definition, made when it is asked for: only pins need it. It is no part of what
/// makes two items equal, since their texts say it all.
#[derive(Clone, Debug, Default)]
pub(super) struct LazyDigest(OnceLock<Digest>);

impl LazyDigest {
    pub(super) fn of(&self, tool: &RawJson) -> Digest {
        let made = || Digest::of_definition(definition(tool).as_str());
        *self.0.get_or_init(made)
    }
}

impl PartialEq for LazyDigest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LazyDigest {}
