//! Tests of the owners of unlisted names and URIs.

use super::*;
use crate::catalog::{PinMode, PinState, UnlistedItem};

/// A server with the tools `read` and `Write`, and the prompt `ask`, that declares both
/// capabilities.
fn serving(name: &str) -> ServerPart {
    let mut part = tools(name, &["read", "Write"]);
    part.capabilities = json!({"tools": {}, "prompts": {}, "resources": {}})
        .as_object()
        .unwrap()
        .clone();
    with(part, ItemKind::Prompts, &[json!({"name": "ask"})])
}

fn merged_as(parts: &[(&str, NameSettings)], settings: &CatalogSettings) -> Snapshot {
    let parts = parts.iter();
    let parts: Vec<_> = parts
        .map(|(name, names)| (Arc::new(serving(name)), names.clone()))
        .collect();
    merge(&parts, settings)
}

fn prefixed(prefix: &str) -> NameSettings {
    NameSettings {
        prefix: Some(prefix.to_owned()),
        ..NameSettings::default()
    }
}

fn globs(globs: &[&str]) -> Vec<String> {
    globs.iter().map(|glob| (*glob).to_owned()).collect()
}

/// The server and the native name of an unlisted tool or prompt.
fn owner(snapshot: &Snapshot, kind: ItemKind, public: &str) -> Option<String> {
    match snapshot.unlisted(kind, public)? {
        UnlistedItem::Perhaps { server, native } => {
            Some(format!("{server} {}", native.parse::<String>().unwrap()))
        }
        UnlistedItem::Suspended(tool) => {
            assert_eq!(tool.state, PinState::New);
            Some(format!("{} suspends it", tool.server))
        }
    }
}

#[test]
fn unlisted_names_are_routed_by_prefix_or_to_the_only_unprefixed_server() {
    let none = NameSettings::default();
    let both = [("a", none.clone()), ("b", prefixed(""))];
    let several = [("a", prefixed("")), ("b", prefixed(""))];
    let twins = [("a", prefixed("x")), ("b", prefixed("x"))];
    let long = format!("a__{}", "x".repeat(2000));
    type Case<'a> = (&'a [(&'a str, NameSettings)], &'a str, Option<&'a str>);
    let table: [Case<'_>; 14] = [
        (&both, "a__hidden", Some("a hidden")),
        (&both, "a__a__hidden", Some("a a__hidden")),
        (&both, "hidden", Some("b hidden")),
        (&both, "b__hidden", Some("b b__hidden")),
        (&both, "A__hidden", Some("b A__hidden")),
        (&both, "a__", None),
        (&both, "", None),
        (&both, "a__\u{7}", None),
        (&both, "a__ hidden", None),
        (&both, &long, None),
        (&both[..1], "hidden", None),
        (&several, "hidden", None),
        (&twins, "x__hidden", None),
        (&twins, "a__hidden", None),
    ];
    for (parts, public, expected) in table {
        let snapshot = merged_as(parts, &settings());
        for kind in [ItemKind::Tools, ItemKind::Prompts] {
            let found = owner(&snapshot, kind, public);
            assert_eq!(found.as_deref(), expected, "{public}");
        }
    }
}

#[test]
fn with_several_servers_unlisted_items_need_a_declaration() {
    let mut part = serving("a");
    part.capabilities.shift_remove("prompts");
    let one = [(Arc::new(part), prefixed(""))];
    let mut two = one.to_vec();
    two.push((Arc::new(serving("b")), prefixed("b")));
    let to_a = Some("a x".to_owned());
    for (parts, of_prompts) in [(&one[..], to_a.clone()), (&two[..], None)] {
        let snapshot = merge(parts, &settings());
        assert_eq!(owner(&snapshot, ItemKind::Tools, "x"), to_a);
        assert_eq!(owner(&snapshot, ItemKind::Prompts, "x"), of_prompts);
    }
}

#[test]
fn a_single_server_receives_undeclared_items() {
    let mut part = serving("a");
    part.capabilities.clear();
    let part = Arc::new(part);
    let one = merge(&[(part.clone(), prefixed(""))], &settings());
    let two = merge(
        &[
            (part, prefixed("")),
            (Arc::new(serving("b")), prefixed("b")),
        ],
        &settings(),
    );
    for method in ["vendor/thing", "notifications/vendor/thing", "thing"] {
        assert!(one.extension_owner(method).is_some(), "{method}");
        assert_eq!(two.extension_owner(method), None, "{method}");
    }
    assert_eq!(server_of(&one, "x:y", None).as_deref(), Some("a x:y"));
    assert_eq!(server_of(&two, "x:y", None).as_deref(), Some("b x:y"));
}

#[test]
fn unlisted_names_do_not_bypass_filters() {
    let with = |change: fn(&mut NameSettings)| {
        let mut names = NameSettings::default();
        change(&mut names);
        names
    };
    let plain = with(|_| {});
    let allows = with(|names| names.allow = globs(&["re*"]));
    let denies = with(|names| names.deny = globs(&["de*", "r*"]));
    let blocks = with(|names| names.pins = PinMode::Block);
    let warns = with(|names| names.pins = PinMode::Warn);
    let broken = with(|names| names.deny = globs(&["[a"]));
    let catalog = |allow: &[&str], deny: &[&str]| CatalogSettings {
        allow: globs(allow),
        deny: globs(deny),
        ..settings()
    };
    let all = || catalog(&[], &[]);
    let table = [
        (&plain, all(), "a__new", Some("a new")),
        // Listed, but only under this name.
        (&plain, all(), "a__READ", None),
        (&plain, all(), "a__write", None),
        (&allows, all(), "a__refresh", Some("a refresh")),
        (&allows, all(), "a__new", None),
        (&allows, all(), "a__REfresh", None),
        (&denies, all(), "a__new", Some("a new")),
        (&denies, all(), "a__delete", None),
        (&denies, all(), "a__DELETE", None),
        (&denies, all(), "a__read", None),
        (&broken, all(), "a__new", None),
        (&plain, catalog(&["a__n*"], &[]), "a__new", Some("a new")),
        (&plain, catalog(&["b__*"], &[]), "a__new", None),
        (&plain, catalog(&[], &["a__n*"]), "a__new", None),
        (&plain, catalog(&[], &["A__N*"]), "a__new", None),
        // The name that it would have if it were listed.
        (&plain, catalog(&[], &["a__n_*"]), "a__n/x", None),
        (&plain, catalog(&[], &["["]), "a__new", None),
        (&blocks, all(), "a__new", Some("a suspends it")),
        (&warns, all(), "a__new", Some("a new")),
    ];
    for (names, settings, public, expected) in table {
        let snapshot = merged_as(&[("a", names.clone())], &settings);
        let found = owner(&snapshot, ItemKind::Tools, public);
        assert_eq!(
            found.as_deref(),
            expected,
            "{public} {names:?} {settings:?}"
        );
    }
}

/// The server of a URI that appeared in a result of `named`.
fn server_of(snapshot: &Snapshot, uri: &str, named: Option<&str>) -> Option<String> {
    let named = named.map(server);
    let owner = snapshot.resource(uri, named.as_ref())?;
    Some(format!("{} {}", owner.server, owner.native))
}

#[test]
fn unlisted_uris_go_to_the_naming_or_the_only_resource_server() {
    let with_resources = |name: &str, uris: &[&str], templates: &[&str]| {
        let mut part = resources(name, uris, templates);
        let declared = json!({"resources": {}});
        part.capabilities = declared.as_object().unwrap().clone();
        part
    };
    let a = with_resources("a", &["case://a/1"], &["note:{id}"]);
    let b = with_resources("b", &["case://b/1"], &[]);
    let shows = |mut part: ServerPart, uri: &str| {
        let meta = json!({"ui": {"resourceUri": uri}});
        let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "_meta": meta});
        part.capabilities.insert("tools".to_owned(), json!({}));
        with(part, ItemKind::Tools, &[tool])
    };
    let one = merged(&[a.clone(), tools("c", &["t"])]);
    for uri in ["case://other", "x:y", "ui://app", "a b"] {
        assert_eq!(server_of(&one, uri, None), Some(format!("a {uri}")));
    }
    for uri in ["", "mcpgw+zz+x:y", "x:\u{7}", &"x".repeat(9000)] {
        assert_eq!(server_of(&one, uri, None), None, "{uri}");
    }
    let two = merged(&[a.clone(), b.clone()]);
    for (uri, named, expected) in [
        ("case://other", None, None),
        ("case://other", Some("b"), Some("b case://other")),
        ("case://other", Some("gone"), None),
        // The server whose result named it takes precedence over one whose template matches.
        ("note:1", None, Some("a note:1")),
        ("note:1", Some("b"), Some("b note:1")),
        ("case://a/1", Some("b"), Some("a case://a/1")),
        ("mcpgw+a+x:y", Some("b"), Some("a x:y")),
    ] {
        assert_eq!(server_of(&two, uri, named).as_deref(), expected, "{uri}");
    }
    // A user interface that a tool names need not be listed.
    let named = merged(&[a.clone(), shows(b.clone(), "ui://b/app")]);
    assert_eq!(
        server_of(&named, "ui://b/app", Some("a")).as_deref(),
        Some("b ui://b/app")
    );
    let same = merged(&[shows(a, "ui://app"), shows(b, "ui://app")]);
    let meta = |place: usize| read_all(&same, ItemKind::Tools)[place]["_meta"]["ui"].clone();
    assert_eq!(meta(0)["resourceUri"], "ui://app");
    assert_eq!(meta(1)["resourceUri"], "ui://b/app");
    assert_eq!(
        server_of(&same, "ui://app", None).as_deref(),
        Some("a ui://app")
    );
    assert_eq!(
        server_of(&same, "ui://b/app", None).as_deref(),
        Some("b ui://app")
    );
}
