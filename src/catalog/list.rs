//! Taking the answer of a list method apart.

use crate::protocol::RawJson;

use super::{ItemKind, json};

/// One page of a server's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The items as they were written, sharing the memory of the answer.
    pub items: Vec<RawJson>,
    /// What to ask for the next page with. An empty text is a cursor like any other.
    pub next_cursor: Option<String>,
}

/// Why an answer is no page of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer to `{}` has no array `{}`", .0.method(), .0.member())]
pub struct NoList(pub ItemKind);

impl ListPage {
    /// Reads the `result` of a list method. A `nextCursor` that is no string counts as absent.
    ///
    /// # Errors
    ///
    /// Returns [`NoList`] when the member with the items is missing or no array.
    pub fn read(kind: ItemKind, result: &RawJson) -> Result<Self, NoList> {
        let text = result.as_str();
        let items = json::member(text, kind.member()).and_then(json::elements);
        let item = |item| {
            let bytes = result.as_bytes().slice(json::span(text, item));
            RawJson::try_new(bytes).ok()
        };
        let next_cursor = json::member(text, "nextCursor").and_then(json::text);
        Ok(Self {
            items: items
                .ok_or(NoList(kind))?
                .into_iter()
                .filter_map(item)
                .collect(),
            next_cursor: next_cursor.map(Into::into),
        })
    }
}
