//! `mcpvisor plan`, `apply`, `rollback` and `config migrate`.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Gateway, Setup, example, quick};

fn config(servers: &[&str]) -> String {
    let servers: Vec<String> = servers.iter().map(|name| example(name)).collect();
    format!("{}{}", quick(), servers.concat())
}

#[tokio::test]
async fn a_file_is_compared_applied_and_rolled_back_on_a_running_gateway() {
    let old = config(&["stays", "goes"]);
    let gateway = Gateway::start(&old).await;
    let setup = &gateway.setup;
    let stays = gateway.server_pid("stays");
    let new = config(&["stays", "comes"]);
    fs::write(setup.path("new.toml"), &new).unwrap();

    let (succeeded, printed) = setup.run(&["plan", "new.toml"]);
    assert!(
        succeeded && printed.contains("started    comes") && printed.contains("stopped    goes"),
        "{printed}"
    );
    // An operator sees the program that will run before it does.
    assert!(printed.contains("+ [servers.comes]\n"), "{printed}");
    assert!(printed.contains("  command = "), "{printed}");
    let (_, plan) = setup.run(&["plan", "new.toml", "--json"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(
        plan["servers"],
        json!({"started": ["comes"], "stopped": ["goes"]})
    );
    assert_eq!(fs::read_to_string(setup.path("config.toml")).unwrap(), old);

    // It is in force when the command ends.
    let (succeeded, printed) = setup.run(&["apply", "new.toml"]);
    assert!(succeeded && printed.contains("applied"), "{printed}");
    let status = gateway.status().await;
    let names: Vec<&Value> = status["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["stays", "comes"]);
    assert_eq!(gateway.server_pid("stays"), stays);
    let (succeeded, printed) = setup.run(&["apply", "new.toml"]);
    assert!(
        succeeded && printed.contains("nothing changes"),
        "{printed}"
    );

    let (succeeded, printed) = setup.run(&["rollback"]);
    assert!(
        succeeded && printed.contains("started    goes"),
        "{printed}"
    );
    assert_eq!(fs::read_to_string(setup.path("config.toml")).unwrap(), old);
    gateway.wait_state("goes", "up").await;
    let (succeeded, _) = setup.run(&["rollback"]);
    assert!(succeeded);
    assert_eq!(fs::read_to_string(setup.path("config.toml")).unwrap(), new);
    assert_eq!(gateway.server_pid("stays"), stays);
}

#[tokio::test]
async fn a_broken_file_is_told_with_its_place_and_changes_nothing() {
    let old = config(&["one"]);
    let gateway = Gateway::start(&old).await;
    let setup = &gateway.setup;
    fs::write(setup.path("new.toml"), "[servers.two]\ncommand = 3\n").unwrap();
    for verb in ["plan", "apply"] {
        let (succeeded, printed) = setup.run(&[verb, "new.toml"]);
        assert!(!succeeded && printed.contains("new.toml:2"), "{printed}");
        let (succeeded, printed) = setup.run(&[verb, "nowhere.toml"]);
        assert!(!succeeded && printed.contains("nowhere.toml"), "{printed}");
    }
    let (succeeded, printed) = setup.run(&["rollback"]);
    assert!(
        !succeeded && printed.contains("no previous version is kept"),
        "{printed}"
    );
    assert_eq!(fs::read_to_string(setup.path("config.toml")).unwrap(), old);
}

#[tokio::test]
async fn a_file_without_a_version_is_migrated_under_a_gateway_that_runs_on() {
    let old = config(&["one"]);
    let gateway = Gateway::start(&old).await;
    let setup = &gateway.setup;
    let pid = gateway.server_pid("one");
    let (succeeded, printed) = setup.run(&["config", "migrate"]);
    assert!(
        succeeded && printed.contains("now has the newest version"),
        "{printed}"
    );
    let new = fs::read_to_string(setup.path("config.toml")).unwrap();
    assert_eq!(new, format!("version = 1\n\n{old}"));
    let (succeeded, printed) = setup.run(&["config", "migrate"]);
    assert!(succeeded && printed.contains("already"), "{printed}");
    assert_eq!(gateway.server_pid("one"), pid);
    assert!(setup.run(&["rollback"]).0);
    assert_eq!(fs::read_to_string(setup.path("config.toml")).unwrap(), old);
}

#[test]
fn without_a_gateway_the_file_is_changed_and_five_contents_are_kept() {
    let setup = Setup::new(&config(&["s0"]));
    for number in 1..=7 {
        let name = format!("s{number}");
        fs::write(setup.path("new.toml"), config(&[&name])).unwrap();
        let (succeeded, printed) = setup.run(&["apply", "new.toml"]);
        assert!(
            succeeded && printed.contains(&format!("started    {name}")),
            "{printed}"
        );
    }
    let (_, kept) = setup.run(&["rollback", "--list"]);
    assert_eq!(kept.lines().count(), 5, "{kept}");
    setup.run(&["rollback"]);
    let now = fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(now.contains("[servers.s6]"), "{now}");
}

#[test]
fn a_rollback_to_the_present_content_can_be_undone_too() {
    let old = config(&["old"]);
    let setup = Setup::new(&old);
    fs::write(setup.path("new.toml"), config(&["new"])).unwrap();
    assert!(setup.run(&["apply", "new.toml"]).0);
    // Put back by hand: it is what `rollback` would put back.
    fs::write(setup.path("config.toml"), &old).unwrap();
    assert!(setup.run(&["rollback"]).0);
    let (_, kept) = setup.run(&["rollback", "--list"]);
    assert_eq!(kept.lines().count(), 1, "{kept}");
    assert!(setup.run(&["rollback"]).0);
    assert_eq!(fs::read_to_string(setup.path("config.toml")).unwrap(), old);
}
