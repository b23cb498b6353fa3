//! Tests of which server a name or URI is routed to, including conflicts.

use super::*;
use crate::catalog::Wrap;

#[test]
fn uris_are_unchanged_until_two_servers_collide() {
    let parts = [
        resources(
            "a",
            &["file:///x", "https://e.example/"],
            &["file:///{p}/log"],
        ),
        resources("b", &["file:///y"], &[]),
        resources(
            "C",
            &["file:///x", "db://t", "https://e.example/", "ui://app"],
            &[],
        ),
        resources("d", &["note:1"], &["file:///{other}/log"]),
    ];
    let snapshot = merged(&parts);
    assert_eq!(
        keys(&snapshot, ItemKind::Resources),
        [
            "file:///x",
            "https://e.example/",
            "file:///y",
            "mcpgw+c+file:///x",
            "mcpgw+c+db://t",
            "ui://c/app",
            "mcpgw+d+note:1",
        ]
    );
    let templates = ["file:///{p}/log", "mcpgw+d+file:///{other}/log"];
    assert_eq!(keys(&snapshot, ItemKind::ResourceTemplates), templates);
    let wraps = ["a", "b", "C", "d"].map(|name| snapshot.wraps(&server(name)));
    assert_eq!(wraps, [false, false, true, true]);
    let notices: Vec<_> = snapshot.notices().iter().map(ToString::to_string).collect();
    assert_eq!(
        notices,
        [
            "resource URIs of `C` are wrapped: `file:///x` is also one of `a`",
            "resource URIs of `d` are wrapped: `file:///{other}/log` is also one of `a`",
            "resource `https://e.example/` of `C` is hidden: it belongs to `a`",
        ]
    );
}

#[test]
fn uris_without_a_scheme_belong_only_to_their_server() {
    let one = resources("one", &["config", "/etc/motd"], &["notes/{id}"]);
    let open = resources("open", &[], &["{+path}"]);
    for parts in [[one.clone(), open.clone()], [open, one]] {
        let snapshot = merged(&parts);
        let owner = |uri: &str| {
            let found = snapshot.resource(uri, None)?;
            Some((found.server.to_string(), found.native))
        };
        let of = |server: &str, native: &str| Some((server.to_owned(), native.to_owned()));
        assert_eq!(owner("config"), of("one", "config"));
        assert_eq!(owner("/etc/motd"), of("one", "/etc/motd"));
        assert_eq!(owner("notes/7"), of("one", "notes/7"));
        // A template that matches anything is wrapped, so that it matches no URIs of other servers.
        assert_eq!(owner("file:///x"), None);
        assert_eq!(owner("mcpgw+open+file:///x"), of("open", "file:///x"));
        let templates = keys(&snapshot, ItemKind::ResourceTemplates);
        assert!(
            templates.contains(&"mcpgw+open+{+path}".to_owned()),
            "{templates:?}"
        );
    }
}

#[test]
fn a_uri_finds_its_owner() {
    let snapshot = merged(&[
        resources("a", &["file:///x", "ui://app"], &["file:///{p}"]),
        resources("b", &["db://host/t", "file:///b/x"], &["file:///b/{+p}"]),
        resources("c", &["file:///x", "ui://app", "mail:1"], &["c:{x}"]),
    ]);
    for (uri, owner) in [
        ("file:///x", Some(("a", "file:///x"))),
        ("mcpgw+c+file:///x", Some(("c", "file:///x"))),
        ("MCPGW+c+file:///x", Some(("c", "file:///x"))),
        ("mcpgw+b+file:///x", Some(("b", "file:///x"))),
        ("mcpgw+c+any:thing", Some(("c", "any:thing"))),
        ("mcpgw+c+c:{x}", Some(("c", "c:{x}"))),
        ("ui://app", Some(("a", "ui://app"))),
        ("ui://c/app", Some(("c", "ui://app"))),
        ("ui://c/other", Some(("c", "ui://other"))),
        ("ui://b/other", None),
        ("file:///unlisted", Some(("a", "file:///unlisted"))),
        ("file:///b/c/d", Some(("b", "file:///b/c/d"))),
        ("file:///{p}", Some(("a", "file:///{p}"))),
        ("db://host/other", Some(("b", "db://host/other"))),
        ("db://elsewhere/t", None),
        ("file:///d/e", Some(("a", "file:///d/e"))),
        ("mail:2", None),
        ("mcpgw+zz+file:///x", None),
        ("", None),
        ("not a uri", None),
    ] {
        let owned = snapshot.resource(uri, None);
        let found = owned
            .as_ref()
            .map(|o| (o.server.as_str(), o.native.as_str()));
        assert_eq!(found, owner, "{uri}");
    }
}

/// The owner of a URI: with `a`, which lists `file:///a` and `db://host/t`, before the other
/// server, and after it.
fn check_owner(other: &ServerPart, uri: &str, expected: [Option<&str>; 2]) {
    let listing = resources("a", &["file:///a", "db://host/t"], &[]);
    let orders = [[&listing, other], [other, &listing]];
    for (parts, expected) in orders.into_iter().zip(expected) {
        let owned = merged(&parts.map(ServerPart::clone)).resource(uri, None);
        let found = owned.map(|owned| owned.server.to_string());
        assert_eq!(found.as_deref(), expected, "{uri}");
    }
}

#[test]
fn no_template_takes_what_another_server_lists() {
    let templates = ["file:///{+p}", "db://{+p}"];
    let evil = resources("evil", &[], &templates);
    for uri in ["file:///a", "file:///unlisted", "db://host/unlisted"] {
        check_owner(&evil, uri, [Some("a"), Some("a")]);
    }
    let narrow = resources("evil", &[], &["file:///e/{p}"]);
    check_owner(&narrow, "file:///e/1", [Some("a"), Some("a")]);
    // A server that lists something under an origin shares it.
    let good = resources("good", &["file:///g/1"], &["file:///g/{p}", "memo://{p}"]);
    check_owner(&good, "file:///g/2", [Some("good"), Some("good")]);
    check_owner(&good, "memo://1", [Some("good"), Some("good")]);
}

#[test]
fn no_later_server_switches_off_what_an_earlier_one_answers_for() {
    for templates in [&[][..], &["file:///{+p}"]] {
        let evil = resources("evil", &["file:///evil"], templates);
        check_owner(&evil, "file:///a", [Some("a"), Some("a")]);
        check_owner(&evil, "file:///evil", [Some("evil"), Some("evil")]);
        check_owner(&evil, "file:///unlisted", [Some("a"), Some("evil")]);
        check_owner(&evil, "db://host/unlisted", [Some("a"), Some("a")]);
    }
}

#[test]
fn uris_that_are_always_wrapped_belong_to_their_server_only() {
    let lists = ["file:///x", "https://e.example/", "ui://app", "mcpgw+b+x:y"];
    let templates = ["file:///{+p}", "https://{+p}"];
    let always = |name: &str| {
        let names = NameSettings {
            wrap: Wrap::Always,
            ..NameSettings::default()
        };
        (Arc::new(resources(name, &lists, &templates)), names)
    };
    let snapshot = merge(&[always("a"), always("b")], &settings());
    assert_eq!(snapshot.notices(), []);
    let listed = |name: &str| {
        [
            format!("mcpgw+{name}+file:///x"),
            format!("mcpgw+{name}+https://e.example/"),
            format!("ui://{name}/app"),
            format!("mcpgw+{name}+mcpgw+b+x:y"),
        ]
    };
    let shown = keys(&snapshot, ItemKind::Resources);
    assert_eq!(shown, [listed("a"), listed("b")].concat());
    let shown = keys(&snapshot, ItemKind::ResourceTemplates);
    assert_eq!(shown.len(), 2 * templates.len());
    for (name, public) in ["a", "b"].map(|name| (name, listed(name))) {
        for (public, native) in public.iter().zip(lists) {
            let owned = snapshot.resource(public, None).unwrap();
            assert_eq!((owned.server, &*owned.native), (server(name), native));
        }
        let unlisted = snapshot.resource(&format!("mcpgw+{name}+file:///y"), None);
        assert_eq!(unlisted.unwrap().server, server(name));
    }
    for native in ["file:///x", "file:///y", "https://e.example/", "ui://app"] {
        assert_eq!(snapshot.resource(native, None), None, "{native}");
    }
}

#[test]
fn no_server_lists_what_is_the_gateways_own() {
    let own = NameSettings {
        wrap: Wrap::Never,
        ..NameSettings::default()
    };
    let uri = "mcpvisor://tree";
    let parts = [
        named(resources("evil", &[uri], &[]), None),
        (Arc::new(resources("mcpvisor", &[uri], &[])), own),
    ];
    let snapshot = merge(&parts, &settings());
    assert_eq!(
        snapshot.resource(uri, None).unwrap().server,
        server("mcpvisor")
    );
    let shown = keys(&snapshot, ItemKind::Resources);
    assert_eq!(shown, ["mcpgw+evil+mcpvisor://tree", uri]);
}

#[test]
fn no_server_takes_names_with_the_prefix_of_another() {
    for (place, git) in [(0, None), (1, None), (0, Some("vcs")), (1, Some("vcs"))] {
        let prefix = git.unwrap_or("git");
        let wanted = format!("{prefix}__log");
        let evil = named(tools("evil", &[&wanted, "plain", "git_log"]), Some(""));
        let mut parts = vec![named(tools("git", &["log"]), git)];
        parts.insert(place, evil);
        let snapshot = merge(&parts, &settings());
        let owner = |name: &str| snapshot.tool(name).map(|owner| owner.server.to_string());
        assert_eq!(owner(&wanted).as_deref(), Some("git"));
        assert_eq!(owner(&format!("evil__{wanted}")).as_deref(), Some("evil"));
        assert_eq!(owner("plain").as_deref(), Some("evil"));
        assert_eq!(owner("git_log").as_deref(), Some("evil"));
    }
}

#[test]
fn no_server_can_take_over_the_wrapped_uris_of_another() {
    let snapshot = merged(&[
        resources("evil", &["mcpgw+git+file:///x"], &[]),
        resources("a", &["file:///x"], &[]),
        resources("git", &["file:///x"], &[]),
    ]);
    let owned = snapshot.resource("mcpgw+git+file:///x", None).unwrap();
    assert_eq!(
        (owned.server, owned.native.as_str()),
        (server("git"), "file:///x")
    );
    let owned = snapshot
        .resource("mcpgw+evil+mcpgw+git+file:///x", None)
        .unwrap();
    assert_eq!(owned.server, server("evil"));
    let snapshot = merged(&[
        resources("evil", &["ui://app", "ui://git/app"], &[]),
        resources("git", &["ui://app"], &[]),
    ]);
    let owned = snapshot.resource("ui://git/app", None);
    assert!(owned.is_none_or(|owned| owned.server == server("git")));
}
