//! Live parts of a page, and the updates that an open page receives when they change. Pure.

use std::collections::{BTreeMap, HashMap};

use maud::Markup;
use serde_json::{Value, json};

/// A list row, rendered as an element with this id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    id: String,
    html: String,
}

impl Row {
    pub(super) fn new(id: impl Into<String>, element: Markup) -> Self {
        Self {
            id: id.into(),
            html: element.into_string(),
        }
    }

    pub(super) fn html(&self) -> &str {
        &self.html
    }
}

/// Content of a live element.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Whole(String),
    /// A list, for which only changed rows are sent.
    Rows(Vec<Row>),
}

/// The parts that an open page currently shows, by id.
#[derive(Debug, Default)]
pub(super) struct Shown(BTreeMap<String, Piece>);

impl Shown {
    /// The event that updates a part; `None` if it is unchanged.
    pub(super) fn change(&mut self, id: &str, now: Piece) -> Option<String> {
        let before = self.0.get(id);
        if before == Some(&now) {
            return None;
        }
        let (event, data) = match (before, &now) {
            (_, Piece::Whole(html)) => ("piece", json!({ "id": id, "html": html })),
            (Some(Piece::Rows(before)), Piece::Rows(now)) => {
                ("rows", changed_rows(id, before, now))
            }
            (_, Piece::Rows(now)) => ("rows", changed_rows(id, &[], now)),
        };
        self.0.insert(id.to_owned(), now);
        Some(format!("event: {event}\ndata: {data}\n\n"))
    }
}

/// The new and changed rows, and the order of all rows if it changed.
fn changed_rows(id: &str, before: &[Row], now: &[Row]) -> Value {
    let known: HashMap<&str, &str> = before.iter().map(|it| (&*it.id, &*it.html)).collect();
    let is_changed = |row: &&Row| known.get(&*row.id) != Some(&&*row.html);
    let changed = now.iter().filter(is_changed);
    let changed: BTreeMap<&str, &str> = changed.map(|it| (&*it.id, &*it.html)).collect();
    let mut data = json!({ "id": id, "rows": changed });
    let order: Vec<&str> = now.iter().map(|it| &*it.id).collect();
    if !before.iter().map(|it| &*it.id).eq(order.iter().copied()) {
        data["order"] = json!(order);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(texts: &[&str]) -> Piece {
        let row = |text: &&str| Row {
            id: text.chars().take(1).collect(),
            html: (*text).to_owned(),
        };
        Piece::Rows(texts.iter().map(row).collect())
    }

    #[test]
    fn only_rows_that_changed_are_sent() {
        let table: [(&[&str], &[&str], Value); 6] = [
            (&["a1", "b1"], &["a1", "b2"], json!({"rows": {"b": "b2"}})),
            (
                &["a1", "b1"],
                &["b1", "a1"],
                json!({"rows": {}, "order": ["b", "a"]}),
            ),
            (
                &["a1", "b1"],
                &["c1", "a1", "b1"],
                json!({"rows": {"c": "c1"}, "order": ["c", "a", "b"]}),
            ),
            (
                &["a1", "b1"],
                &["b2"],
                json!({"rows": {"b": "b2"}, "order": ["b"]}),
            ),
            (&["a1"], &[], json!({"rows": {}, "order": []})),
            (&[], &["a1"], json!({"rows": {"a": "a1"}, "order": ["a"]})),
        ];
        for (before, now, mut expected) in table {
            let mut shown = Shown::default();
            shown.change("list", rows(before));
            expected["id"] = "list".into();
            let event = shown.change("list", rows(now)).unwrap();
            let data = event.strip_prefix("event: rows\ndata: ").unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            assert_eq!(data, expected, "{before:?} {now:?}");
            assert_eq!(shown.change("list", rows(now)), None);
        }
    }

    #[test]
    fn a_whole_piece_is_sent_when_it_changed() {
        let mut shown = Shown::default();
        let mut change = |html: &str| shown.change("one", Piece::Whole(html.to_owned()));
        let first = change("<p>\n1</p>").unwrap();
        let expected = "event: piece\ndata: {\"id\":\"one\",\"html\":\"<p>\\n1</p>\"}\n\n";
        assert_eq!(first, expected);
        assert_eq!(change("<p>\n1</p>"), None);
        assert!(change("<p>2</p>").is_some());
    }
}
