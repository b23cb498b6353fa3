//! Properties that hold for any servers.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::protocol::Method;

/// Native names that tend to collide with one another and with prefixed names.
fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab_]{1,3}",
        "[a-c]__[ab]{1,2}",
        "[a-zA-Z0-9 /.ü\"\\\\-]{1,60}",
    ]
}

fn any_uri() -> impl Strategy<Value = String> {
    prop_oneof![
        "file:///[ab]{1,2}",
        "https://[ab].example/",
        "ui://[a-c]/?[ab]?",
        "mcpgw\\+[a-c]\\+file:///[ab]",
        "note:[ab]",
    ]
}

fn any_template() -> impl Strategy<Value = String> {
    prop_oneof![
        "file:///\\{[ab]\\}",
        "ui://[a-c]/\\{[+/]?x\\}",
        "db://[ab]\\{[?]x\\}"
    ]
}

#[derive(Clone, Debug)]
struct AnyServer {
    tools: Vec<String>,
    prompts: Vec<String>,
    uris: Vec<String>,
    templates: Vec<String>,
    prefix: Option<String>,
}

fn any_server(prefix: impl Strategy<Value = Option<String>>) -> impl Strategy<Value = AnyServer> {
    let some = |strategy| prop::collection::vec(strategy, 0..6);
    (
        some(any_name().boxed()),
        some(any_name().boxed()),
        some(any_uri().boxed()),
        some(any_template().boxed()),
        prefix,
    )
        .prop_map(|(tools, prompts, uris, templates, prefix)| AnyServer {
            tools,
            prompts,
            uris,
            templates,
            prefix,
        })
}

/// Up to six servers with names from a small set, in any order.
fn any_servers(
    prefix: impl Strategy<Value = Option<String>> + Clone + 'static,
) -> impl Strategy<Value = Vec<(String, AnyServer)>> {
    let name = prop::sample::subsequence(vec!["a", "b", "c", "A", "B", "long-server"], 1..=6)
        .prop_shuffle();
    name.prop_flat_map(move |names| {
        let servers = prop::collection::vec(any_server(prefix.clone()), names.len());
        servers.prop_map(move |servers| {
            let names = names.iter().map(|name| (*name).to_owned());
            names.zip(servers).collect()
        })
    })
}

fn any_prefix() -> impl Strategy<Value = Option<String>> + Clone {
    let prefixes = ["", "a", "b", "A"].map(|prefix| Some(prefix.to_owned()));
    prop::sample::select([&[None, None], prefixes.as_slice()].concat())
}

fn built(servers: &[(String, AnyServer)]) -> Vec<(Arc<ServerPart>, NameSettings)> {
    let build = |(name, any): &(String, AnyServer)| {
        let values = |texts: &[String], make: &dyn Fn(&str) -> Value| -> Vec<Value> {
            texts.iter().map(|text| make(text)).collect()
        };
        let part = part(name);
        let part = with(part, ItemKind::Tools, &values(&any.tools, &tool));
        let prompt = |name: &str| json!({"name": name});
        let part = with(part, ItemKind::Prompts, &values(&any.prompts, &prompt));
        let part = with(part, ItemKind::Resources, &values(&any.uris, &resource));
        let part = with(
            part,
            ItemKind::ResourceTemplates,
            &values(&any.templates, &template),
        );
        named(part, any.prefix.as_deref())
    };
    servers.iter().map(build).collect()
}

fn small() -> CatalogSettings {
    CatalogSettings {
        page_items: 3,
        ..settings()
    }
}

/// Server and native name or URI of every listed item, by public name or URI.
fn owners(snapshot: &Snapshot, kind: ItemKind) -> BTreeMap<String, (ServerName, String)> {
    let mut owners = BTreeMap::new();
    for public in keys(snapshot, kind) {
        let owner = match kind {
            ItemKind::Tools | ItemKind::Prompts => {
                let owned = match kind {
                    ItemKind::Tools => snapshot.tool(&public),
                    _ => snapshot.prompt(&public),
                };
                let owned = owned.unwrap();
                (
                    owned.server.clone(),
                    owned.native.parse::<String>().unwrap(),
                )
            }
            _ => {
                let owned = snapshot.resource(&public, None).unwrap();
                (owned.server, owned.native)
            }
        };
        assert_eq!(
            owners.insert(public.clone(), owner),
            None,
            "{public} is listed twice"
        );
    }
    owners
}

proptest! {
    #[test]
    fn the_same_parts_give_the_same_lists(servers in any_servers(any_prefix())) {
        let one = merge(&built(&servers), &small());
        let two = merge(&built(&servers), &small());
        prop_assert!(!one.changes_since(&two).any());
        prop_assert_eq!(one.notices(), two.notices());
        for kind in ItemKind::ALL {
            prop_assert_eq!(one.page(kind, None, Revision::NEWEST_LEGACY), two.page(kind, None, Revision::NEWEST_LEGACY));
        }
    }

    #[test]
    fn every_listed_item_resolves_to_its_server_and_native_name(
        servers in any_servers(any_prefix())
    ) {
        let parts = built(&servers);
        let snapshot = merge(&parts, &small());
        for kind in ItemKind::ALL {
            let owners = owners(&snapshot, kind);
            let resolved: BTreeSet<_> = owners.values().cloned().collect();
            prop_assert_eq!(resolved.len(), owners.len(), "two names for one item");
            let offered: BTreeSet<_> = parts
                .iter()
                .flat_map(|(part, _)| {
                    let items = part.items(kind).iter();
                    items.map(|item| (part.server().clone(), item.native().to_owned()))
                })
                .collect();
            prop_assert!(resolved.is_subset(&offered));
            if matches!(kind, ItemKind::Tools | ItemKind::Prompts) {
                prop_assert_eq!(&resolved, &offered, "an item is missing");
            }
        }
    }

    #[test]
    fn a_new_server_does_not_rename_other_servers_items(
        servers in any_servers(Just(None)),
        place in any::<prop::sample::Index>(),
        new in any_server(Just(None)),
    ) {
        let before = merge(&built(&servers), &small());
        let mut more = servers.clone();
        more.insert(place.index(servers.len() + 1), ("new".to_owned(), new));
        let after = merge(&built(&more), &small());
        for kind in [ItemKind::Tools, ItemKind::Prompts] {
            let after = owners(&after, kind);
            for (public, owner) in owners(&before, kind) {
                prop_assert_eq!(after.get(&public), Some(&owner), "{} was renamed", public);
            }
        }
    }

    #[test]
    fn pages_cover_the_whole_list(count in 0_usize..20, page_items in 0_usize..7) {
        let names: Vec<_> = (0..count).map(|n| format!("t{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let settings = CatalogSettings { page_items, ..settings() };
        let snapshot = merge(&[named(tools("s", &names), Some(""))], &settings);
        prop_assert_eq!(keys(&snapshot, ItemKind::Tools), names);
    }

    #[test]
    fn prefixed_names_are_legal_and_short(servers in any_servers(Just(None))) {
        let snapshot = merge(&built(&servers), &small());
        for (public, _) in snapshot.tools().chain(snapshot.prompts()) {
            prop_assert!(public.len() <= 45, "{}", public);
            let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            prop_assert!(public.chars().all(legal), "{}", public);
        }
    }

    #[test]
    fn wrapped_uris_can_be_unwrapped(servers in any_servers(any_prefix()), uri in any_uri()) {
        let snapshot = merge(&built(&servers), &small());
        for (name, _) in &servers {
            let name = server(name);
            let public = snapshot.public_uri(&name, &uri);
            let is_listed = snapshot.resources().any(|(listed, _)| listed == public);
            if *public != *uri && !is_listed {
                let owned = snapshot.resource(&public, None).unwrap();
                prop_assert_eq!((owned.server, owned.native.as_str()), (name, uri.as_str()));
            }
        }
    }

    #[test]
    fn hostile_items_never_panic(items in prop::collection::vec(any_json(), 0..6), cursor in ".*") {
        let mut part = part("s");
        for kind in ItemKind::ALL {
            part = with(part, kind, &items);
        }
        let other = resources("w", &["file:///x"], &["file:///{x}"]);
        let first = resources("f", &["file:///x"], &[]);
        let snapshot = merged(&[part, first, other]);
        for kind in ItemKind::ALL {
            read_all(&snapshot, kind);
            prop_assert!(snapshot.page(kind, Some(&cursor), Revision::NEWEST_LEGACY).is_err());
        }
        let _ = snapshot.resource(&cursor, None);
        for item in items {
            let item = RawJson::from_value(&item);
            for method in [Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead] {
                let _ = snapshot.rewrite_result(&server("w"), &method, &item);
            }
            let _ = snapshot.rewrite_error(&server("w"), &item);
        }
    }
}

/// JSON made of words that the catalog searches for.
fn any_json() -> impl Strategy<Value = Value> {
    let words = [
        "name",
        "uri",
        "uriTemplate",
        "inputSchema",
        "outputSchema",
        "type",
        "object",
        "file:///x",
        "file:///{",
        "{+x}",
        "annotations",
        "_meta",
        "ui",
        "resourceUri",
        "contents",
        "content",
        "resource",
        "resource_link",
        "$schema",
        "properties",
        "required",
        "icons",
        "messages",
    ];
    let word = prop::sample::select(words.to_vec()).prop_map(str::to_owned);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}
