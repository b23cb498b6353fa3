//! Tests of list pages and stored parts.

use super::*;
use crate::catalog::{InvalidListPage, ListPage, NextCursor};

#[test]
fn a_list_response_is_split_into_items() {
    let answer = raw(r#"{"tools" : [ {"name" : "a"},1 ,"x"],"nextCursor":"","_meta":{}}"#);
    let page = ListPage::read(ItemKind::Tools, &answer).unwrap();
    let items: Vec<_> = page.items.iter().map(RawJson::as_str).collect();
    assert_eq!(items, [r#"{"name" : "a"}"#, "1", r#""x""#]);
    assert_eq!(page.next_cursor, NextCursor::Cursor(String::new()));
    let last = ListPage::read(ItemKind::Tools, &raw(r#"{"tools":[],"nextCursor":null}"#));
    assert_eq!(last.unwrap().next_cursor, NextCursor::None);
    for odd in ["{}", "[]", "null", r#"{"tools":{}}"#, r#"{"prompts":[]}"#] {
        let page = ListPage::read(ItemKind::Tools, &raw(odd));
        assert_eq!(page, Err(InvalidListPage(ItemKind::Tools)), "{odd}");
    }
    let reason = InvalidListPage(ItemKind::Tools).to_string();
    assert_eq!(reason, "the response to `tools/list` has no array `tools`");
}

#[test]
fn a_part_survives_storage_unchanged() {
    let mut part = resources("s", &["file:///a"], &["file:///{b}"]);
    part.instructions = Some("be kind".to_owned());
    part.capabilities = json!({"tools": {}}).as_object().unwrap().clone();
    part.info = json!({"name": "n", "version": "1"})
        .as_object()
        .unwrap()
        .clone();
    let odd = raw(r#"{"name" : "a", "inputSchema":{"type":"object"},"x":1.50 }"#);
    let list = [odd, raw(r#"{"name":"bad"}"#)];
    let part = part.with_list(ItemKind::Tools, &list, &IngestLimits::default());
    let stored = part.to_stored();
    let back = ServerPart::from_stored(&stored, &IngestLimits::default());
    assert_eq!(back, Some(part));
    for text in ["null", "{}", r#"{"server":"a b"}"#] {
        assert_eq!(
            ServerPart::from_stored(&raw(text), &IngestLimits::default()),
            None
        );
    }
}
