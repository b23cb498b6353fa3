//! Parses the response of a list method.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::RawJson;

use super::{ItemKind, json};

/// One page of a server's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The raw items, sharing the memory of the response.
    pub items: Vec<RawJson>,
    pub next_cursor: NextCursor,
    /// How long the page can be cached.
    pub caching: Option<ListCaching>,
}

/// One page of a whole list.
#[derive(Clone, Debug, Default)]
pub struct ListedPage {
    /// The cursor that requested it; `None` for the first page.
    pub cursor: Option<String>,
    pub items: Vec<RawJson>,
}

/// `nextCursor` of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextCursor {
    None,
    /// A cursor; the empty string is valid.
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

/// The caching hints of a list, in the form of a sessionless server (S-CACHE, C-CACHE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListCaching {
    /// Lifetime in milliseconds from when it was listed; zero counts as unspecified.
    pub ttl_ms: u64,
    /// Whether the list is the same for every client.
    pub is_public: bool,
}

impl ListCaching {
    /// Reads the hints; `None` if the result has none. A `ttlMs` that is not a number counts as
    /// zero.
    fn read(result: &str) -> Option<Self> {
        let ttl = json::member(result, "ttlMs")?;
        let scope = json::member(result, "cacheScope").and_then(json::text);
        Some(Self {
            ttl_ms: ttl.parse().unwrap_or(0),
            is_public: scope.as_deref() == Some("public"),
        })
    }

    /// The remaining lifetime at this age.
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

    /// The combined hints of two pages of one list.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            ttl_ms: self.ttl_ms.min(other.ttl_ms),
            is_public: self.is_public && other.is_public,
        }
    }
}

/// The age of a server's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListAge {
    /// Time since it was requested from its server; `None` if unknown.
    pub since_read: Option<Duration>,
    /// Whether its server is connected and reports changes.
    pub is_watched: bool,
}

/// Why a response is not a page of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the response to `{}` has no array `{}`", .0.method(), .0.member())]
pub struct InvalidListPage(pub ItemKind);

impl ListPage {
    /// Reads the `result` of a list method.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidListPage`] if the member with the items is missing or not an array.
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
