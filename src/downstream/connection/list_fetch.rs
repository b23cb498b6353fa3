//! Draining one list of a server, page by page, within bounds.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::catalog::{ItemKind, ListCaching, ListPage};
use crate::protocol::RawJson;

/// One list on its way; holds the items of the pages that came so far.
#[derive(Debug)]
pub(crate) struct ListFetch {
    pub(crate) kind: ItemKind,
    /// Changes after this time can be missing from it.
    pub(crate) begun: Instant,
    items: Vec<RawJson>,
    pages: usize,
    caching: Option<ListCaching>,
}

/// The next step after a page.
#[derive(Debug)]
pub(crate) enum Page {
    /// Ask for the next one with these parameters.
    Next(ListFetch, Value),
    Done {
        items: Vec<RawJson>,
        cut: bool,
        caching: Option<ListCaching>,
    },
}

impl Page {
    pub(crate) const EMPTY: Self = Self::Done {
        items: Vec::new(),
        cut: false,
        caching: None,
    };
}

impl ListFetch {
    pub(crate) fn new(kind: ItemKind) -> Self {
        Self {
            kind,
            begun: Instant::now(),
            items: Vec::new(),
            pages: 0,
            caching: None,
        }
    }

    /// Whether no page came so far.
    pub(crate) fn is_first(&self) -> bool {
        self.pages == 0
    }

    /// Takes a page. Cursors are opaque, and an empty one is a cursor (C-CANC-05, C-CANC-06);
    /// a server whose cursors never end is cut off at the limits.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the page.
    pub(crate) fn on_page(
        mut self,
        result: &RawJson,
        items_max: usize,
        pages_max: usize,
    ) -> Result<Page, String> {
        let page = ListPage::read(self.kind, result).map_err(|error| error.to_string())?;
        let room = items_max - self.items.len().min(items_max);
        let cut = page.items.len() > room;
        self.items.extend(page.items.into_iter().take(room));
        self.caching = match (self.caching, page.caching) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => before.or(now),
        };
        self.pages += 1;
        match page.next_cursor {
            Some(cursor) if !cut && self.pages < pages_max => {
                Ok(Page::Next(self, json!({ "cursor": cursor })))
            }
            cursor => Ok(Page::Done {
                items: self.items,
                cut: cut || cursor.is_some(),
                caching: self.caching,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(value: &Value) -> RawJson {
        RawJson::from_value(value)
    }

    #[test]
    fn pages_are_joined_until_there_is_no_cursor() {
        let fetch = ListFetch::new(ItemKind::Tools);
        let first =
            json!({"tools": [{"name": "a"}], "nextCursor": "", "ttlMs": 9, "cacheScope": "public"});
        let first = page(&first);
        let Ok(Page::Next(fetch, params)) = fetch.on_page(&first, 10, 10) else {
            panic!()
        };
        assert_eq!(params, json!({"cursor": ""}));
        let second = json!({"tools": [{"name": "b"}], "ttlMs": 5, "cacheScope": "private"});
        let second = page(&second);
        let Ok(Page::Done {
            items,
            cut,
            caching,
        }) = fetch.on_page(&second, 10, 10)
        else {
            panic!()
        };
        let items: Vec<_> = items.iter().map(RawJson::as_str).collect();
        assert_eq!(items, [r#"{"name":"a"}"#, r#"{"name":"b"}"#]);
        assert!(!cut);
        let expected = ListCaching {
            ttl_ms: 5,
            is_public: false,
        };
        assert_eq!(caching, Some(expected));
    }

    #[test]
    fn a_list_without_end_is_cut_at_the_limits() {
        let endless = page(&json!({"tools": [{"name": "a"}, {"name": "b"}], "nextCursor": "x"}));
        let cut_at = |items_max, pages_max| {
            let mut fetch = ListFetch::new(ItemKind::Tools);
            loop {
                match fetch.on_page(&endless, items_max, pages_max).unwrap() {
                    Page::Next(next, _) => fetch = next,
                    Page::Done { items, cut, .. } => return (items.len(), cut),
                }
            }
        };
        assert_eq!(cut_at(5, 100), (5, true));
        assert_eq!(cut_at(100, 3), (6, true));
    }

    #[test]
    fn a_page_of_another_shape_is_an_error() {
        for bad in [json!({}), json!({"tools": 3}), json!([])] {
            let fetch = ListFetch::new(ItemKind::Tools);
            assert!(fetch.on_page(&page(&bad), 10, 10).is_err(), "{bad}");
        }
    }
}
