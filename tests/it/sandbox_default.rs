//! The sandbox that servers have without a line of configuration, and how it is switched off.

use std::fs;

use mcpvisor::store::{SqliteStore, Store as _};
use serde_json::{Value, json};

use crate::operating::run;
use crate::support::{Client, Gateway, Setup, StdioClient, example, quick, text_of};

const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/hostile.py");

fn hostile() -> String {
    format!("[servers.evil]\ncommand = \"/usr/bin/python3\"\nargs = [\"{HOSTILE}\"]\n")
}

#[tokio::test]
async fn a_server_has_a_sandbox_unless_it_is_switched_off() {
    let off = example("free") + "sandbox = \"off\"\n";
    let gateway = Setup::new(&(quick() + &example("example") + &off)).sandboxed();
    let gateway = gateway.serve().await;
    gateway.all_up().await;
    let level = |server: &Value| server["sandbox"]["level"].clone();
    assert_eq!(level(&gateway.server("example").await), "standard");
    assert_eq!(level(&gateway.server("free").await), "off");
    assert!(gateway.data_dir().join("servers/example").is_dir());
    assert!(!gateway.data_dir().join("servers/free").exists());
    let client = Client::open(&gateway).await;
    let echoed = client.call("example__echo", json!({"message": "m"})).await;
    assert_eq!(text_of(&echoed), "m");
    let status = run(&gateway, &["status"]).await.unwrap();
    let off: Vec<&str> = status
        .lines()
        .filter(|it| it.contains("SANDBOX OFF"))
        .collect();
    assert!(off.len() == 1 && off[0].contains("free"), "{status}");
    for (server, told) in [
        ("example", "servers/example`"),
        ("free", "It runs without a sandbox"),
    ] {
        let explained = run(&gateway, &["explain", server]).await.unwrap();
        assert!(explained.contains(told), "{explained}");
    }
    let notices = run(&gateway, &["notices"]).await.unwrap();
    assert!(!notices.contains("sandbox: each has a home"), "{notices}");
}

/// The warnings of the configuration about the sandbox that servers of an earlier version get.
async fn told(gateway: &Gateway) -> usize {
    let status = gateway.status().await;
    let warnings = status["config"]["warnings"].as_array().unwrap();
    let told = |warning: &&Value| warning.to_string().contains("now run in a sandbox");
    warnings.iter().filter(told).count()
}

#[tokio::test]
async fn an_operator_of_an_earlier_version_is_told_what_changes() {
    let config = quick() + &example("example");
    let setup = Setup::new(&config).sandboxed();
    let mut gateway = setup.serve().await;
    gateway.all_up().await;
    assert_eq!(told(&gateway).await, 0, "it is a new installation");
    gateway.kill();
    // As an earlier version left it.
    let state = gateway.data_dir().join("state.db");
    let store = SqliteStore::open(&state, mcpvisor::telemetry::unix_millis).unwrap();
    store.delete("ran-unconfined").await.unwrap();
    drop(store);
    for _ in 0..2 {
        gateway.start_again().await;
        gateway.all_up().await;
        assert_eq!(told(&gateway).await, 1);
        gateway.kill();
    }
    gateway.write_config(&(config + "[sandbox]\nlevel = \"standard\"\n"));
    gateway.start_again().await;
    gateway.all_up().await;
    assert_eq!(told(&gateway).await, 0, "the level was chosen");
}

#[test]
fn the_environment_sets_only_a_level_that_exists() {
    let setup = Setup::new(&example("example"));
    let check = |level: &str| {
        let mut command = setup.command(&["check"]);
        command.env("MCPVISOR_SANDBOX_LEVEL", level);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    for level in ["", "off", "standard", "strict"] {
        let (is_valid, said) = check(level);
        assert!(is_valid, "{level}: {said}");
    }
    let (is_valid, said) = check("none");
    assert!(
        !is_valid && said.contains("MCPVISOR_SANDBOX_LEVEL"),
        "{said}"
    );
}

/// A gateway for one client keeps its own state below the data directory of all gateways.
#[tokio::test]
async fn a_gateway_for_one_client_hides_the_state_of_others() {
    let setup = Setup::new(&(quick() + &hostile())).sandboxed();
    let others = setup.path(".mcpvisor");
    fs::create_dir(&others).unwrap();
    fs::write(others.join("api-token"), "secret").unwrap();
    let mut client = StdioClient::open(&setup, &[]).await;
    let mut found = Vec::new();
    for (id, path) in [(1, "api-token"), (2, "stdio/1/state.db")] {
        let path = others.join(path);
        assert!(path.exists(), "{}", path.display());
        let values = json!({"kind": "read", "values": [path]});
        let result = client.call(id, "evil__attack", values).await;
        found.push(text_of(&result).to_owned());
    }
    assert!(
        found.iter().all(|it| it.contains("\"open\": false")),
        "{found:?}"
    );
    assert!(others.join("servers/evil").is_dir(), "homes are shared");
    client.close_stdin();
    client.ended().await;
}
