//! The definition of a tool: every member that its server lists. Models read most of them, and
//! clients act on the rest.

use std::sync::OnceLock;

use super::json;
use crate::bridge::seal::Digest;
use crate::protocol::RawJson;

/// The members that come first, for people. Earlier releases compared only these.
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
    ordered(tool, |_| true)
}

/// The digest of the part that releases up to 0.1 compared: without `icons`, `_meta`, `execution`
/// and all other members.
pub(super) fn former_digest(tool: &RawJson) -> Digest {
    let former = ordered(tool, |name| MEMBERS.contains(&name));
    Digest::of_definition(former.as_str())
}

fn ordered(tool: &RawJson, keeps: impl Fn(&str) -> bool) -> RawJson {
    let mut members = json::members(tool.as_str()).unwrap_or_default();
    members.retain(|(name, _)| keeps(name));
    let place = |name: &str| MEMBERS.iter().position(|one| *one == name);
    members
        .sort_by_cached_key(|(name, _)| (place(name).unwrap_or(MEMBERS.len()), name.to_string()));
    let texts = members.iter();
    let texts = texts.map(|(name, value)| format!("{}:{value}", json::quoted(name).as_str()));
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
