//! Where a server splits its lists into pages, for clients that see only this server.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Maximum length of a stored server cursor, in bytes.
const CURSOR_BYTES_MAX: usize = 1024;

/// The page boundaries of one list. Always equal: a server can issue new cursors for each request,
/// and a list with the same items is the same list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct PageCuts(Arc<[PageCut]>);

/// The start of a page after the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PageCut {
    /// Index of its first item in the list.
    first: usize,
    /// The cursor that clients use for it.
    pub(super) cursor: Box<str>,
}

impl PartialEq for PageCuts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl PageCuts {
    /// Discards the boundaries if clients could not use the cursors: one is too long or repeated.
    pub(super) fn new(cuts: Vec<(usize, &str)>) -> Self {
        let is_usable = |(place, (_, cursor)): (usize, &(usize, &str))| {
            let mut earlier = cuts.iter().take(place);
            cursor.len() <= CURSOR_BYTES_MAX && earlier.all(|(_, other)| other != cursor)
        };
        if !cuts.iter().enumerate().all(is_usable) {
            return Self::default();
        }
        let cut = |(first, cursor): (usize, &str)| PageCut {
            first,
            cursor: cursor.into(),
        };
        Self(cuts.into_iter().map(cut).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PageCut> {
        self.0.iter()
    }

    /// The page of the item at this index.
    pub(super) fn page_of(&self, place: usize) -> usize {
        self.0.partition_point(|cut| cut.first <= place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stay_on_their_servers_page() {
        let cuts = PageCuts::new(vec![(2, "a"), (2, ""), (5, "b")]);
        let pages: Vec<usize> = (0..6).map(|place| cuts.page_of(place)).collect();
        assert_eq!(pages, [0, 0, 2, 2, 2, 3]);
        assert_eq!(PageCuts::default().page_of(7), 0);
    }

    #[test]
    fn unusable_cursors_disable_page_boundaries() {
        let long = "x".repeat(CURSOR_BYTES_MAX + 1);
        let longest = "x".repeat(CURSOR_BYTES_MAX);
        let table = [
            (vec![(1, "a"), (2, "b")], false),
            (vec![(1, longest.as_str())], false),
            (vec![(1, "a"), (2, "a")], true),
            (vec![(1, "a"), (2, long.as_str())], true),
        ];
        for (cuts, expected) in table {
            assert_eq!(PageCuts::new(cuts).is_empty(), expected);
        }
    }
}
