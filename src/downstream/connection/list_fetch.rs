//! Fetches one list of a server page by page, within limits.

use std::collections::HashSet;
use std::fmt;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::catalog::{ItemKind, ListCaching, ListPage, ListedPage, NextCursor};
use crate::protocol::RawJson;

/// A list that is being fetched, with the pages received so far.
#[derive(Debug)]
pub(crate) struct ListFetch {
    pub(crate) kind: ItemKind,
    /// Start of the fetch; the list can lack changes made after it.
    pub(crate) begun: Instant,
    pages: Vec<ListedPage>,
    /// Number of pages received, including repeated ones.
    count: usize,
    /// Cursors requested so far.
    cursors: HashSet<String>,
    /// Cursor of the page that is being fetched.
    cursor: Option<String>,
    caching: Option<ListCaching>,
}

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListEnd {
    Whole,
    /// The list exceeds the limits.
    Cut,
    /// The server repeated a cursor and sent a page without new items.
    Repeats,
    /// `nextCursor` is not a string.
    OddCursor,
}

/// Explains why the list can be incomplete; empty for a complete list.
impl fmt::Display for ListEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "",
            Self::Cut => {
                "the list exceeds the limit (`list_items`, `list_pages`); the rest is omitted"
            }
            Self::Repeats => "the server repeated a page; the list ends before it",
            Self::OddCursor => "`nextCursor` is not a string; the list ends with that page",
        })
    }
}

/// Next step after a page was received.
#[derive(Debug)]
pub(crate) enum Page {
    /// Request the next page with these parameters.
    Next(ListFetch, Value),
    Done {
        pages: Vec<ListedPage>,
        end: ListEnd,
        caching: Option<ListCaching>,
    },
}

impl Page {
    pub(crate) const EMPTY: Self = Self::Done {
        pages: Vec::new(),
        end: ListEnd::Whole,
        caching: None,
    };
}

impl ListFetch {
    pub(crate) fn new(kind: ItemKind) -> Self {
        Self {
            kind,
            begun: Instant::now(),
            pages: Vec::new(),
            count: 0,
            cursors: HashSet::new(),
            cursor: None,
            caching: None,
        }
    }

    /// Whether no page has been received yet.
    pub(crate) fn is_first(&self) -> bool {
        self.count == 0
    }

    /// Adds a page. Cursors are opaque, and an empty string is a valid cursor (C-CANC-05,
    /// C-CANC-06). A server that never stops sending cursors is cut off at the limits, one that
    /// repeats a page at once.
    ///
    /// # Errors
    ///
    /// Returns why the page is invalid.
    pub(crate) fn on_page(
        mut self,
        result: &RawJson,
        items_max: usize,
        pages_max: usize,
    ) -> Result<Page, String> {
        let page = ListPage::read(self.kind, result).map_err(|error| error.to_string())?;
        let is_new = self.is_first() || self.has_news(&page.items);
        let known: usize = self.pages.iter().map(|page| page.items.len()).sum();
        let room = items_max - known.min(items_max);
        let is_cut = is_new && page.items.len() > room;
        let cursor = self.cursor.take();
        if is_new {
            let items = page.items.into_iter().take(room).collect();
            self.pages.push(ListedPage { cursor, items });
        }
        self.caching = match (self.caching, page.caching) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => before.or(now),
        };
        self.count += 1;
        let end = match page.next_cursor {
            _ if is_cut => ListEnd::Cut,
            NextCursor::None => ListEnd::Whole,
            NextCursor::Odd => ListEnd::OddCursor,
            NextCursor::Cursor(_) if self.count >= pages_max => ListEnd::Cut,
            NextCursor::Cursor(cursor) => {
                let is_known = !self.cursors.insert(cursor.clone());
                if !is_known || is_new {
                    self.cursor = Some(cursor.clone());
                    return Ok(Page::Next(self, json!({ "cursor": cursor })));
                }
                ListEnd::Repeats
            }
        };
        Ok(Page::Done {
            pages: self.pages,
            end,
            caching: self.caching,
        })
    }

    /// Whether the page has an item that no earlier page had.
    fn has_news(&self, page: &[RawJson]) -> bool {
        let known = self.pages.iter().flat_map(|page| &page.items);
        let known: HashSet<&RawJson> = known.collect();
        page.iter().any(|item| !known.contains(item))
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
            pages,
            end,
            caching,
        }) = fetch.on_page(&second, 10, 10)
        else {
            panic!()
        };
        let page = |page: &ListedPage| (page.cursor.clone(), page.items[0].as_str().to_owned());
        let pages: Vec<_> = pages.iter().map(page).collect();
        let expected = [
            (None, r#"{"name":"a"}"#.to_owned()),
            (Some(String::new()), r#"{"name":"b"}"#.to_owned()),
        ];
        assert_eq!(pages, expected);
        assert_eq!(end, ListEnd::Whole);
        let expected = ListCaching {
            ttl_ms: 5,
            is_public: false,
        };
        assert_eq!(caching, Some(expected));
    }

    /// Fetches from a server whose `n`th page is `page_of(n)`; returns the names, the end and the
    /// number of pages requested.
    fn fetched(
        page_of: impl Fn(usize) -> Value,
        (items_max, pages_max): (usize, usize),
    ) -> (Vec<String>, ListEnd, usize) {
        let mut fetch = ListFetch::new(ItemKind::Tools);
        let mut asked = 0;
        loop {
            let answer = page(&page_of(asked));
            asked += 1;
            match fetch.on_page(&answer, items_max, pages_max).unwrap() {
                Page::Next(next, _) => fetch = next,
                Page::Done { pages, end, .. } => {
                    let name = |item: &RawJson| item.parse::<Value>().unwrap()["name"].to_string();
                    let items = pages.iter().flat_map(|page| &page.items);
                    return (items.map(name).collect(), end, asked);
                }
            }
        }
    }

    #[test]
    fn a_list_without_end_is_cut_at_the_limits() {
        let endless = |n: usize| {
            let two = [json!({"name": 2 * n}), json!({"name": 2 * n + 1})];
            json!({"tools": two, "nextCursor": n.to_string()})
        };
        let cut_at = |limits| {
            let (items, end, asked) = fetched(endless, limits);
            (items.len(), end, asked)
        };
        assert_eq!(cut_at((5, 100)), (5, ListEnd::Cut, 3));
        assert_eq!(cut_at((100, 3)), (6, ListEnd::Cut, 3));
    }

    #[test]
    fn a_list_that_repeats_itself_ends_at_once_and_without_doubles() {
        let tool = |name: &str| json!([{ "name": name }]);
        type Page = fn(usize) -> (&'static str, String);
        type Case<'a> = (&'a str, Page, &'a [&'a str], ListEnd, usize);
        let table: [Case<'_>; 5] = [
            (
                "one page and one cursor",
                |_| ("a", "x".into()),
                &["a"],
                ListEnd::Repeats,
                2,
            ),
            (
                "an empty cursor",
                |_| ("a", String::new()),
                &["a"],
                ListEnd::Repeats,
                2,
            ),
            (
                "cursors in a circle",
                |n| (["a", "b"][n % 2], (n % 2).to_string()),
                &["a", "b"],
                ListEnd::Repeats,
                3,
            ),
            (
                "one cursor and new pages",
                |n| (["a", "b", "c", "c"][n.min(3)], "x".into()),
                &["a", "b", "c"],
                ListEnd::Repeats,
                4,
            ),
            (
                "new cursors and one page",
                |n| ("a", n.to_string()),
                &["a"],
                ListEnd::Cut,
                9,
            ),
        ];
        for (case, page_of, names, end, asked) in table {
            let page_of = |n| {
                let (name, cursor) = page_of(n);
                json!({"tools": tool(name), "nextCursor": cursor})
            };
            let (found, how, pages) = fetched(page_of, (100, 9));
            let names: Vec<_> = names.iter().map(|name| json!(name).to_string()).collect();
            assert_eq!((found, how, pages), (names, end, asked), "{case}");
        }
    }

    #[test]
    fn a_cursor_that_is_not_a_string_ends_the_list_with_a_note() {
        for cursor in [json!(2), json!({}), json!([1]), json!(true)] {
            let page_of = |_| json!({"tools": [{"name": "a"}], "nextCursor": cursor});
            let (items, end, asked) = fetched(page_of, (10, 10));
            assert_eq!(
                (items.len(), end, asked),
                (1, ListEnd::OddCursor, 1),
                "{cursor}"
            );
        }
        let page_of = |_| json!({"tools": [{"name": "a"}], "nextCursor": null});
        assert_eq!(fetched(page_of, (10, 10)).1, ListEnd::Whole);
    }

    #[test]
    fn a_page_of_another_shape_is_an_error() {
        for bad in [json!({}), json!({"tools": 3}), json!([])] {
            let fetch = ListFetch::new(ItemKind::Tools);
            assert!(fetch.on_page(&page(&bad), 10, 10).is_err(), "{bad}");
        }
    }
}
