//! Tests of names, URIs, pages and instructions of a merge.

use std::time::Duration;

use super::*;
use crate::catalog::{InvalidCursor, InvalidNameSettings, ListAge, ListCaching, MergeNotice};

#[test]
fn names_are_prefixed_and_the_later_of_two_equal_ones_names_its_server() {
    for (servers, expected) in [
        (vec![("a", None), ("b", None)], ["a__log", "b__log"]),
        (
            vec![("a", Some("git")), ("b", Some(""))],
            ["git__log", "log"],
        ),
        (vec![("a", Some("")), ("b", Some(""))], ["log", "b__log"]),
        (
            vec![("a", Some("x")), ("b", Some("x"))],
            ["x__log", "b__log"],
        ),
    ] {
        let parts: Vec<_> = servers
            .iter()
            .map(|(name, prefix)| named(tools(name, &["log"]), *prefix))
            .collect();
        let snapshot = merge(&parts, &settings());
        assert_eq!(keys(&snapshot, ItemKind::Tools), expected);
        assert_eq!(snapshot.tool(expected[1]).unwrap().server, server("b"));
    }
}

#[test]
fn a_taken_fallback_gets_a_hash_tail() {
    let parts = [
        named(tools("a", &["log", "b__log"]), Some("")),
        named(tools("b", &["log"]), Some("")),
    ];
    let snapshot = merge(&parts, &settings());
    let names = keys(&snapshot, ItemKind::Tools);
    assert!(
        names[2].starts_with("b__log_") && names[2].len() == 15,
        "{names:?}"
    );
    assert_eq!(snapshot.tool(&names[2]).unwrap().server, server("b"));
    let notice = &snapshot.notices()[0];
    let MergeNotice::Renamed {
        wanted,
        public,
        taken_by,
        ..
    } = notice
    else {
        panic!("{notice}");
    };
    assert_eq!(
        (wanted.as_str(), public, taken_by),
        ("log", &names[2], &server("a"))
    );
}

#[test]
fn long_names_are_shortened_with_a_notice() {
    let long = "x".repeat(60);
    let snapshot = merged(&[tools("git", &[&long, "short"])]);
    let names = keys(&snapshot, ItemKind::Tools);
    assert_eq!(names[0].len(), 45);
    assert_eq!(snapshot.notices().len(), 1);
    assert_eq!(
        snapshot.notices()[0],
        MergeNotice::Shortened {
            kind: ItemKind::Tools,
            server: server("git"),
            native: long,
            public: names[0].clone(),
        }
    );
}

#[test]
fn a_non_ascii_name_becomes_the_title() {
    let titled = |name: &str, more: Value| {
        let mut tool = tool(name);
        for (key, value) in more.as_object().unwrap() {
            tool[key] = value.clone();
        }
        tool
    };
    let table = [
        (tool("読む"), json!("読む")),
        (tool("прочитать-файл"), json!("прочитать-файл")),
        (tool("قراءة \"x\""), json!("قراءة \"x\"")),
        (tool("café"), json!("café")),
        (tool("read"), Value::Null),
        (tool("read/all"), Value::Null),
        (titled("読む", json!({"title": "Read"})), json!("Read")),
        (
            titled("読む", json!({"annotations": {"title": "Read"}})),
            Value::Null,
        ),
    ];
    for (tool, expected) in table {
        let snapshot = merged(&[with(
            part("s"),
            ItemKind::Tools,
            std::slice::from_ref(&tool),
        )]);
        let page = snapshot.page(ItemKind::Tools, None, Revision::NEWEST_LEGACY);
        let page: Value = page.unwrap().parse().unwrap();
        let shown = &page["tools"][0];
        assert_eq!(shown["title"], expected, "{tool}");
        assert!(shown["name"].as_str().unwrap().is_ascii(), "{tool}");
        let old = snapshot.page(ItemKind::Tools, None, Revision::V2025_03_26);
        let old: Value = old.unwrap().parse().unwrap();
        assert!(old["tools"][0].get("title").is_none(), "{tool}");
    }
    // A server without a prefix keeps its names.
    let (part, names) = named(with(part("s"), ItemKind::Tools, &[tool("読む")]), Some(""));
    let snapshot = merge(&[(part, names)], &settings());
    let page = snapshot.page(ItemKind::Tools, None, Revision::NEWEST_LEGACY);
    assert!(!page.unwrap().as_str().contains("title"));
}

#[test]
fn unknown_members_survive_byte_for_byte() {
    let written = r#"{"x-vendor" : {"b":1.50,"a":[1e3, "\u00e9"]}, "name" : "l\u006fg", "inputSchema":{"type":"object"}, "_meta":{"k" :null} }"#;
    let part = part("git").with_list(ItemKind::Tools, &[raw(written)], &IngestLimits::default());
    let snapshot = merged(&[part]);
    let page = snapshot
        .page(ItemKind::Tools, None, Revision::NEWEST_LEGACY)
        .unwrap();
    let expected = written.replace(r#""l\u006fg""#, r#""git__log""#);
    assert_eq!(page.as_str(), format!(r#"{{"tools":[{expected}]}}"#));
    assert_eq!(
        snapshot.tool("git__log").unwrap().native.as_str(),
        r#""l\u006fg""#
    );
}

#[test]
fn globs_filter_tools_by_native_name() {
    for (allow, deny, expected) in [
        (vec![], vec![], vec!["s__get", "s__get_all", "s__put"]),
        (vec!["get*"], vec![], vec!["s__get", "s__get_all"]),
        (vec!["get*"], vec!["*_all"], vec!["s__get"]),
        (vec![], vec!["*"], vec![]),
        (vec!["[", "get"], vec![], vec![]),
    ] {
        let owned = |globs: Vec<&str>| globs.into_iter().map(str::to_owned).collect();
        let names = NameSettings {
            prefix: None,
            allow: owned(allow),
            deny: owned(deny),
            ..NameSettings::default()
        };
        let part = tools("s", &["get", "get_all", "put"]);
        let part = with(part, ItemKind::Prompts, &[json!({"name": "put"})]);
        let snapshot = merge(&[(Arc::new(part), names)], &settings());
        assert_eq!(keys(&snapshot, ItemKind::Tools), expected);
        assert_eq!(keys(&snapshot, ItemKind::Prompts), ["s__put"]);
        assert_eq!(
            snapshot.count(&server("s"), ItemKind::Tools),
            expected.len()
        );
    }
}

#[test]
fn invalid_settings_are_named() {
    let names = |prefix: &str, deny: &str| NameSettings {
        prefix: Some(prefix.to_owned()),
        allow: Vec::new(),
        deny: vec![deny.to_owned()],
        ..NameSettings::default()
    };
    assert_eq!(names("git-2", "a*").validate(), Ok(()));
    assert_eq!(names("", "{a,b}").validate(), Ok(()));
    assert_eq!(names("my_git", "a").validate(), Ok(()));
    let prefix = names("a__b", "a").validate();
    assert_eq!(prefix, Err(InvalidNameSettings::Prefix("a__b".to_owned())));
    let glob = names("a", "[x").validate().unwrap_err().to_string();
    assert!(glob.starts_with("`[x` in `deny` is not a glob: "), "{glob}");
}

#[test]
fn pages_have_cursors_that_only_they_accept() {
    let names: Vec<_> = (0..5).map(|n| format!("t{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let small = CatalogSettings {
        page_items: 2,
        ..settings()
    };
    let snapshot = merge(&[named(tools("s", &names), None)], &small);
    assert_eq!(read_all(&snapshot, ItemKind::Tools).len(), 5);
    let first: Value = snapshot
        .page(ItemKind::Tools, None, Revision::NEWEST_LEGACY)
        .unwrap()
        .parse()
        .unwrap();
    let cursor = first["nextCursor"].as_str().unwrap();
    assert_eq!(first["tools"].as_array().unwrap().len(), 2);
    assert!(
        snapshot
            .page(ItemKind::Tools, Some(cursor), Revision::NEWEST_LEGACY)
            .is_ok()
    );

    let refuse = |snapshot: &Snapshot, kind, cursor: &str| {
        assert_eq!(
            snapshot.page(kind, Some(cursor), Revision::NEWEST_LEGACY),
            Err(InvalidCursor),
            "{cursor}"
        );
    };
    refuse(&snapshot, ItemKind::Prompts, cursor);
    let changed = merge(&[named(tools("s", &names[1..]), None)], &small);
    refuse(&changed, ItemKind::Tools, cursor);
    let head = cursor.get(..33).unwrap();
    for garbage in [
        "",
        "x",
        "ü",
        "0",
        head,
        &format!("{head}0"),
        &format!("{head}9"),
        &format!("{cursor}0"),
    ] {
        refuse(&snapshot, ItemKind::Tools, garbage);
    }
    for garbage in [
        format!("{head}+1"),
        format!("{head}01"),
        cursor.to_uppercase() + " ",
    ] {
        refuse(&snapshot, ItemKind::Tools, &garbage);
    }
}

#[test]
fn an_empty_catalog_has_empty_lists() {
    let snapshot = merge(&[], &settings());
    for kind in ItemKind::ALL {
        let page = snapshot.page(kind, None, Revision::NEWEST_LEGACY).unwrap();
        assert_eq!(page.as_str(), format!(r#"{{"{}":[]}}"#, kind.member()));
    }
    assert_eq!(snapshot.instructions(), None);
}

#[test]
fn huge_items_share_no_page() {
    let huge = |name: &str| {
        json!({
            "name": name, "inputSchema": {"type": "object"}, "description": "x".repeat(900_000),
        })
    };
    let huge: Vec<_> = (0..6).map(|n| huge(&format!("t{n}"))).collect();
    let snapshot = merged(&[with(part("s"), ItemKind::Tools, &huge)]);
    let first = snapshot
        .page(ItemKind::Tools, None, Revision::NEWEST_LEGACY)
        .unwrap();
    assert!(first.as_bytes().len() <= 4 * 1024 * 1024 + 96);
    assert_eq!(read_all(&snapshot, ItemKind::Tools).len(), 6);
}

#[test]
fn only_visible_changes_of_lists_count() {
    let base = with(
        tools("s", &["a"]),
        ItemKind::Resources,
        &[resource("a://b")],
    );
    let old = merged(std::slice::from_ref(&base));
    let changes = |part: ServerPart| {
        let changes = merged(&[part]).changes_since(&old);
        (changes.tools, changes.prompts, changes.resources)
    };
    assert_eq!(changes(base.clone()), (false, false, false));
    let hidden = with(
        base.clone(),
        ItemKind::Tools,
        &[tool("a"), json!({"name": "bad"})],
    );
    assert_eq!(changes(hidden), (false, false, false));
    let more = with(base.clone(), ItemKind::Tools, &[tool("a"), tool("b")]);
    assert_eq!(changes(more), (true, false, false));
    let prompt = with(base.clone(), ItemKind::Prompts, &[json!({"name": "p"})]);
    assert_eq!(changes(prompt), (false, true, false));
    let more = with(base, ItemKind::ResourceTemplates, &[template("a://{b}")]);
    assert_eq!(changes(more), (false, false, true));
}

#[test]
fn instructions_have_a_heading_for_each_server() {
    let mut a = part("a");
    a.instructions = Some("use a".to_owned());
    let mut b = part("b");
    b.instructions = Some("use b".to_owned());
    let snapshot = merge(
        &[named(a, None), named(part("c"), None), named(b, Some(""))],
        &settings(),
    );
    let expected = "## a (names start with `a__`)\n\nuse a\n\n## b\n\nuse b";
    assert_eq!(snapshot.instructions(), Some(expected));
}

#[test]
fn a_hundred_servers_with_a_hundred_tools_each_can_be_merged() {
    let names: Vec<_> = (0..100).map(|n| format!("tool_{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let parts: Vec<_> = (0..100)
        .map(|n| tools(&format!("server-{n}"), &names))
        .collect();
    let snapshot = merged(&parts);
    assert_eq!(read_all(&snapshot, ItemKind::Tools).len(), 10_000);
    assert_eq!(snapshot.tools().count(), 10_000);
    assert_eq!(snapshot.notices(), []);
    assert_eq!(
        snapshot.tool("server-99__tool_42").unwrap().server,
        server("server-99")
    );
}

#[test]
fn s_cache_01_a_list_holds_as_long_as_each_part_of_it() {
    let said = |name, ttl_ms| {
        let mut part = tools(name, &["t"]);
        let is_public = true;
        part.set_caching(ItemKind::Tools, Some(ListCaching { ttl_ms, is_public }));
        named(part, None)
    };
    let aged = |parts: &[_], since_read: Option<u64>, is_watched| {
        let age = |_: &ServerName| ListAge {
            since_read: since_read.map(Duration::from_millis),
            is_watched,
        };
        merge(parts, &settings()).caching(ItemKind::Tools, age)
    };
    let of = |parts: &[_]| aged(parts, Some(0), true);
    let both = of(&[said("a", 9000), said("b", 5000)]);
    assert_eq!((both.ttl_ms, both.is_public), (5000, true));
    // A server without hints keeps the list from being public.
    let mixed = of(&[said("a", 90_000), named(tools("c", &["t"]), None)]);
    assert_eq!((mixed.ttl_ms, mixed.is_public), (60_000, false));
    for (capability, ttl_ms) in [
        (json!({"listChanged": true}), 60_000),
        (json!({"listChanged": false}), 0),
        (json!({}), 0),
    ] {
        let mut part = tools("c", &["t"]);
        part.capabilities.insert("tools".to_owned(), capability);
        let parts = [said("a", 90_000), named(part, None)];
        assert_eq!(of(&parts).ttl_ms, ttl_ms);
        // No connection would report changes.
        assert_eq!(aged(&parts, Some(0), false).ttl_ms, 0);
    }
    for (since_read, ttl_ms) in [(Some(0), 5000), (Some(4999), 1), (Some(5001), 0), (None, 0)] {
        let parts = [said("a", 9000), said("b", 5000)];
        assert_eq!(aged(&parts, since_read, false).ttl_ms, ttl_ms);
    }
}
