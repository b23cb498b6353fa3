//! Tests of skills: their entries, and the servers of their files.

use std::time::Duration;

use super::*;
use crate::catalog::{ListAge, ListCaching, PinMode, PinnedDefinitions};
use crate::protocol::SKILLS_EXTENSION;

/// An unwrapped catalog of servers with these skills.
fn merged(servers: &[(&str, &[Value])]) -> Snapshot {
    let part = |(name, skills): &(&str, &[Value])| {
        let mut part = with(part(name), ItemKind::Skills, skills);
        part.capabilities = json!({
            "resources": {}, "extensions": {"io.modelcontextprotocol/skills": {"directoryRead": *name == "b"}}
        })
        .as_object()
        .unwrap()
        .clone();
        named(part, None)
    };
    merge(&servers.iter().map(part).collect::<Vec<_>>(), &settings())
}

fn server_of(snapshot: &Snapshot, uri: &str) -> Option<String> {
    let owner = snapshot.resource(uri, None)?;
    Some(format!("{} {}", owner.server, owner.native))
}

#[test]
fn skills_with_the_same_uri_stay_apart_and_keep_their_digests() {
    let same = [skill("team/git", &["GUIDE.md"])];
    let snapshot = merged(&[("a", &same), ("b", &same)]);
    let wrapped = "mcpgw+b+skill://team/git/SKILL.md";
    assert_eq!(
        keys(&snapshot, ItemKind::Skills),
        ["skill://team/git/SKILL.md", wrapped]
    );
    let page = snapshot
        .page(ItemKind::Skills, None, Revision::NEWEST)
        .unwrap();
    let page: Value = page.parse().unwrap();
    let mut entry = same[0].clone();
    assert_eq!(page["skills"][0], entry);
    entry["uri"] = wrapped.into();
    for file in entry["resources"].as_array_mut().unwrap() {
        file["uri"] = format!("mcpgw+b+{}", file["uri"].as_str().unwrap()).into();
    }
    assert_eq!(page["skills"][1], entry);
}

#[test]
fn files_and_folders_belong_to_the_server_of_their_skill() {
    let first = [skill("acme/refunds", &["forms/a.md"])];
    let second = [skill("acme/git", &["forms/b.md"]), skill("notes", &[])];
    let snapshot = merged(&[("a", &first), ("b", &second)]);
    for (uri, owner) in [
        ("skill://acme/refunds/forms/a.md", Some("a")),
        ("skill://acme/refunds/forms", Some("a")),
        ("skill://acme/git", Some("b")),
        ("skill://acme/git/forms", Some("b")),
        ("skill://acme/git/forms/new.md", Some("b")),
        ("skill://notes", Some("b")),
        // Both have skills in it.
        ("skill://acme", None),
        ("skill://other", None),
    ] {
        let owner = owner.map(|owner| format!("{owner} {uri}"));
        assert_eq!(server_of(&snapshot, uri), owner, "{uri}");
    }
    let declaring = |setting| snapshot.declaring(SKILLS_EXTENSION, setting).count();
    assert_eq!((declaring(None), declaring(Some("directoryRead"))), (2, 1));
    let offered = snapshot.extensions("extensions");
    assert_eq!(offered[SKILLS_EXTENSION], json!({"directoryRead": true}));
}

#[test]
fn a_list_lives_as_long_as_the_lists_of_servers_with_skills() {
    let snapshot = merged(&[("a", &[])]);
    let mut skilled = ServerPart::clone(snapshot.part(&server("a")).unwrap());
    let said = ListCaching {
        ttl_ms: 300_000,
        is_public: true,
    };
    skilled.set_caching(ItemKind::Skills, Some(said));
    let parts = [named(skilled, None), named(tools("b", &["t"]), None)];
    let snapshot = merge(&parts, &settings());
    let now = |_: &ServerName| ListAge {
        since_read: Some(Duration::ZERO),
        is_watched: true,
    };
    assert_eq!(snapshot.caching(ItemKind::Skills, now), said);
}

#[test]
fn an_invalid_skill_is_hidden() {
    let mut no_description = skill("s", &[]);
    no_description["frontmatter"]
        .as_object_mut()
        .unwrap()
        .remove("description");
    let mut no_files = skill("s", &[]);
    no_files["resources"] = "some".into();
    for (bad, why) in [(no_description, "`frontmatter`"), (no_files, "`resources`")] {
        super::ingest::check_quarantined(ItemKind::Skills, &bad.to_string(), why);
    }
    let mut dynamic = skill("s", &[]);
    dynamic["resources"] = "dynamic".into();
    assert_eq!(
        with(part("a"), ItemKind::Skills, &[dynamic])
            .items(ItemKind::Skills)
            .len(),
        1
    );
}

#[test]
fn policies_filter_a_list_from_which_pins_withhold_an_item() {
    let resources = ["r:1", "r:2", "r:3"].map(resource);
    let mut pinned = PinnedDefinitions::default();
    let part = with(part("a"), ItemKind::Resources, &resources);
    assert!(pinned.pin_first_use(&part, true, 7));
    let mut changed = resources.clone();
    changed[0]["description"] = "changed".into();
    let part = with(part, ItemKind::Resources, &changed);
    let names = NameSettings {
        pins: PinMode::Block,
        ..NameSettings::default()
    };
    let settings = CatalogSettings {
        pinned: Arc::new(pinned),
        ..settings()
    };
    let whole = Arc::new(merge(&[(Arc::new(part), names)], &settings));
    let seen = whole.permitted(|item| item.native == "r:3");
    assert_eq!(keys(&seen, ItemKind::Resources), ["r:3"]);
}
