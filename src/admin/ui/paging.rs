//! Splits long lists into pages. Each page starts after a key, so that it stays stable while
//! earlier rows come and go. Pure.

use maud::{Markup, html};
use url::form_urlencoded::Serializer;

use super::fields::Fields;
use super::page::View;
use super::text;

/// Rows per page.
pub(super) const ROWS: usize = 50;

/// The query parameter with the key after which a page starts.
pub(super) const AFTER: &str = "after";

/// One page of a list.
#[derive(Debug)]
pub(super) struct Paged<T> {
    pub(super) rows: Vec<T>,
    /// Number of rows on all pages.
    pub(super) total: usize,
    /// The key after which the next page starts.
    pub(super) next: Option<String>,
}

impl<T> Paged<T> {
    /// The rows after a key, from a list sorted by key.
    pub(super) fn of(list: Vec<T>, key: impl Fn(&T) -> String, after: Option<&str>) -> Self {
        let total = list.len();
        let list = list.into_iter().map(|row| (key(&row), row));
        let behind = |(key, _): &(String, T)| after.is_none_or(|after| key.as_str() > after);
        let mut rows: Vec<(String, T)> = list.filter(behind).collect();
        rows.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let has_more = rows.len() > ROWS;
        rows.truncate(ROWS);
        let last = rows.last().filter(|_| has_more);
        Self {
            next: last.map(|(key, _)| key.clone()),
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            total,
        }
    }
}

/// Links to the first and the next page of a list, with their texts.
pub(super) struct PageLinks<'l> {
    pub(super) parameter: &'l str,
    pub(super) first: &'l str,
    pub(super) next: (&'l str, Option<&'l str>),
    /// The total number of rows, as text.
    pub(super) total: String,
}

impl<'l> PageLinks<'l> {
    /// Links for a list whose rows have this singular and plural.
    pub(super) fn of<T>(paged: &'l Paged<T>, (one, many): (&str, &str)) -> Self {
        Self {
            parameter: AFTER,
            first: "First",
            next: ("Next", paged.next.as_deref()),
            total: text::many(paged.total as u64, one, many),
        }
    }

    pub(super) fn show(&self, view: &View<'_>) -> Markup {
        let link = |key| link(view.path, &view.query, self.parameter, key);
        let (next, key) = self.next;
        html! {
            div .actions.after {
                @if view.query(self.parameter).is_some() { a .button href=(link(None)) { (self.first) } }
                @if key.is_some() { a .button href=(link(key)) { (next) } }
                span .hint { (self.total) }
            }
        }
    }
}

/// The path of another page of the same query.
pub(super) fn link(path: &str, query: &Fields, parameter: &str, key: Option<&str>) -> String {
    let others = query.iter().filter(|(name, _)| name != parameter);
    let mut pairs = Serializer::new(String::new());
    pairs.extend_pairs(others);
    pairs.extend_pairs(key.map(|key| (parameter, key)));
    match pairs.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(list: &[usize], after: Option<&str>) -> Paged<usize> {
        Paged::of(list.to_vec(), |row| format!("{row:04}"), after)
    }

    #[test]
    fn each_row_is_on_one_page() {
        for length in [0, 1, ROWS, ROWS + 1, 3 * ROWS, 3 * ROWS + 7] {
            let list: Vec<usize> = (0..length).rev().collect();
            let (mut after, mut found, mut pages) = (None, Vec::new(), 0);
            loop {
                let page = page(&list, after.as_deref());
                assert_eq!(page.total, length);
                assert!(page.rows.len() <= ROWS);
                found.extend(page.rows);
                pages += 1;
                match page.next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(found, (0..length).collect::<Vec<_>>());
            assert_eq!(pages, length.div_ceil(ROWS).max(1), "{length}");
        }
    }

    #[test]
    fn a_page_stays_where_it_is_when_rows_come_and_go() {
        let all: Vec<usize> = (0..3 * ROWS).collect();
        let next = page(&all, None).next;
        let second = page(&all, next.as_deref()).rows;
        let without_its_key: Vec<usize> = (0..3 * ROWS).filter(|row| *row % ROWS > 0).collect();
        let fewer = page(&without_its_key, next.as_deref()).rows;
        assert_eq!(fewer.first(), second.get(1));
        assert_eq!(page(&all, Some("x")).rows, Vec::<usize>::new());
    }

    #[test]
    fn links_keep_the_rest_of_the_query() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let query = vec![field("text", "a&b"), field("after", "3")];
        let shown = |query: &Fields, key| link("/ui/x", query, "after", key);
        assert_eq!(shown(&query, Some("4 5")), "/ui/x?text=a%26b&after=4+5");
        assert_eq!(shown(&query, None), "/ui/x?text=a%26b");
        assert_eq!(shown(&query[1..].to_vec(), None), "/ui/x");
    }
}
