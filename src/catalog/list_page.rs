//! Taking the answer of a list method apart.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::RawJson;

use super::{ItemKind, json};

/// One page of a server's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The items as they were written, sharing the memory of the answer.
    pub items: Vec<RawJson>,
    pub next_cursor: NextCursor,
    /// How long the page may be cached.
    pub caching: Option<ListCaching>,
}

/// One page of a whole list.
#[derive(Clone, Debug, Default)]
pub struct ListedPage {
    /// The cursor with which it was asked for; `None` for the first page.
    pub cursor: Option<String>,
    pub items: Vec<RawJson>,
}

/// `nextCursor` of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextCursor {
    None,
    /// An empty text is a valid cursor.
    Cursor(String),
    /// Present, but not a string.
    Odd,
}

impl NextCursor {
    fn read(result: &str) -> Self {
        match json::member(result, "nextCursor") {
            None | Some("null") => Self::None,
            Some(written) => {
                json::text(written).map_or(Self::Odd, |text| Self::Cursor(text.into_owned()))
            }
        }
    }
}

/// How long a list holds, and for whom, in the words of a sessionless server (S-CACHE, C-CACHE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListCaching {
    /// Milliseconds from when it was listed; zero says nothing.
    pub ttl_ms: u64,
    /// The same for everybody.
    pub is_public: bool,
}

impl ListCaching {
    /// `None` when the result says nothing of it; a `ttlMs` that is no number counts as zero.
    fn read(result: &str) -> Option<Self> {
        let ttl = json::member(result, "ttlMs")?;
        let scope = json::member(result, "cacheScope").and_then(json::text);
        Some(Self {
            ttl_ms: ttl.parse().unwrap_or(0),
            is_public: scope.as_deref() == Some("public"),
        })
    }

    /// The rest of it, so long after it was said.
    #[must_use]
    pub fn after(self, since_read: Option<Duration>) -> Self {
        let left = |since: Duration| {
            let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
            self.ttl_ms.saturating_sub(since)
        };
        Self {
            ttl_ms: since_read.map_or(0, left),
            ..self
        }
    }

    /// The caching that holds for two pages of one list.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            ttl_ms: self.ttl_ms.min(other.ttl_ms),
            is_public: self.is_public && other.is_public,
        }
    }
}

/// How old the list of a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListAge {
    /// Since its server was asked for it; `None` if that is not known.
    pub since_read: Option<Duration>,
    /// Whether its server is there to say when it changes.
    pub is_watched: bool,
}

/// Why an answer is no page of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer to `{}` has no array `{}`", .0.method(), .0.member())]
pub struct InvalidListPage(pub ItemKind);

impl ListPage {
    /// Reads the `result` of a list method.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidListPage`] when the member with the items is missing or no array.
    pub fn read(kind: ItemKind, result: &RawJson) -> Result<Self, InvalidListPage> {
        let text = result.as_str();
        let items = json::member(text, kind.member()).and_then(json::elements);
        let item = |item| {
            let bytes = result.as_bytes().slice(json::span(text, item));
            RawJson::try_new(bytes).ok()
        };
        Ok(Self {
            items: items
                .ok_or(InvalidListPage(kind))?
                .into_iter()
                .filter_map(item)
                .collect(),
            next_cursor: NextCursor::read(text),
            caching: ListCaching::read(text),
        })
    }
}
