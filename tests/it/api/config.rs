//! `/config`: the servers of the file, changed while the gateway runs.

use std::fs;

use serde_json::{Value, json};

use super::{code_of, get, request, with_body};
use crate::support::{Client, Gateway, Setup, example, names, quick, soon, text_of, until};

/// A server of the API that runs the built-in example.
fn body(gateway: &Gateway, name: &str) -> Value {
    let mark = gateway.setup.mark();
    let (_, mark) = mark.split_once('=').unwrap();
    json!({
        "name": name,
        "transport": "stdio",
        "command": Setup::BINARY,
        "args": ["example-server"],
        "env": { "IT_MARK": mark, "IT_SERVER": name, "API_KEY": "canary-of-config" },
    })
}

async fn send(gateway: &Gateway, method: &'static str, path: &str, body: &Value) -> (u16, Value) {
    let answer = with_body(request(gateway, method, path), body).send().await;
    let status = answer.status;
    (status, answer.json().await)
}

#[tokio::test]
async fn a_server_is_made_changed_and_removed_without_a_restart() {
    let file = format!("# Mine.\n{}{}", quick(), example("one"));
    let gateway = Gateway::start(&file).await;
    let one = gateway.server_pid("one");
    let (status, made) = send(&gateway, "POST", "/config", &body(&gateway, "two")).await;
    assert_eq!(status, 201, "{made}");
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (id.len(), &made["env"]["API_KEY"]),
        (36, &json!("[REDACTED]"))
    );
    assert_eq!(made["createdAt"], made["updatedAt"]);
    assert!(made["createdAt"].is_string(), "{made}");
    // It runs: what was answered is in force.
    until("its tools", || async {
        let two = gateway.server("two").await;
        (two["items"]["tools"] == 11).then_some(())
    })
    .await;
    let client = Client::open(&gateway).await;
    let echo = client.call("two__echo", json!({"message": "m"})).await;
    assert_eq!(text_of(&echo), "m");
    // By its id, and back as it was read under another name.
    let path = format!("/config/{id}");
    let mut read = get(&gateway, &path).await;
    read["name"] = json!("three");
    let (status, renamed) = send(&gateway, "PUT", &path, &read).await;
    assert_eq!((status, &renamed["id"]), (200, &json!(id)), "{renamed}");
    assert_eq!(renamed["createdAt"], made["createdAt"]);
    gateway.wait_state("three", "up").await;
    let of_id = get(&gateway, &format!("/api/servers/{id}")).await;
    assert_eq!(of_id["name"], "three");
    let text = fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
    assert!(
        text.starts_with("# Mine.\n") && text.contains("canary-of-config"),
        "{text}"
    );
    let listed = get(&gateway, "/config").await;
    assert_eq!(names(&listed["servers"]), ["one", "three"]);
    assert!(!listed.to_string().contains("canary"), "{listed}");
    let removed = request(&gateway, "DELETE", &path).send().await;
    assert_eq!(removed.status, 204);
    let gone = request(&gateway, "GET", &path).send().await;
    assert_eq!(code_of(gone).await, (404, "SERVER_NOT_FOUND".to_owned()));
    // The other server ran on, and the watch applied nothing twice.
    assert_eq!(gateway.server_pid("one"), one);
    let status = gateway.status().await;
    assert_eq!(status["counters"]["config_reload_applied"], 3, "{status}");
    assert!(!gateway.log().contains("canary"), "{}", gateway.log());
}

#[tokio::test]
async fn concurrent_changes_lose_nothing_and_a_stale_tag_is_refused() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let before = request(&gateway, "GET", "/config").send().await;
    let tag = before.header("etag").unwrap().to_owned();
    let made = (0..8).map(|number| {
        let server = json!({ "name": format!("s{number}"), "command": "true", "enabled": false });
        let request = request(&gateway, "POST", "/config");
        with_body(request, &server).send()
    });
    let made = soon("all changes", futures_util::future::join_all(made)).await;
    assert!(made.iter().all(|answer| answer.status == 201), "{made:?}");
    let listed = get(&gateway, "/config").await;
    assert_eq!(names(&listed["servers"]).len(), 9);
    let stale = request(&gateway, "DELETE", "/config/s0").header("If-Match", &tag);
    let code = code_of(stale.send().await).await;
    assert_eq!(code, (412, "PRECONDITION_FAILED".to_owned()));
    let text = fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
    assert!(text.contains("[servers.s0]"), "{text}");
}

#[tokio::test]
async fn a_kill_in_the_middle_of_writes_leaves_a_whole_file() {
    let mut gateway = Gateway::start(&(quick() + &example("one"))).await;
    for round in 1..=5 {
        let writes = (1..=20).map(|number| {
            let timeouts = json!({ "timeouts": { "request": round * 1000 + number } });
            with_body(request(&gateway, "PUT", "/config/one"), &timeouts).try_send()
        });
        let writes: Vec<_> = writes.map(tokio::spawn).collect();
        let written = format!("request_timeout = \"{round}0");
        until("a write", || async {
            let text = fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
            text.contains(&written).then_some(())
        })
        .await;
        gateway.kill();
        for write in writes {
            // Those that were answered, and those that were not.
            let _ = write.await.unwrap();
        }
        let text = fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
        let read: toml::Table = text.parse().unwrap();
        let args = &read["servers"]["one"]["args"];
        assert_eq!(args[0].as_str(), Some("example-server"), "{text}");
        gateway.start_again().await;
        gateway.all_up().await;
    }
}
