//! `/api/events`: what happens, told while it happens.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{get, request};
use crate::support::{Client, Event, Events, Gateway, example, quick};

async fn listen(gateway: &Gateway, types: &str, after: Option<&str>) -> Events {
    let mut http = request(gateway, "GET", &format!("/api/events?types={types}"));
    if let Some(id) = after {
        http = http.header("Last-Event-ID", id);
    }
    let answer = http.send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.is_stream(), "{answer:?}");
    answer.events()
}

/// The next event whose data have this value.
async fn next(events: &mut Events, name: &str, value: &str) -> (Event, Value) {
    loop {
        let event = events.next().await.unwrap();
        let Some(data) = event.message() else {
            continue;
        };
        if data[name] == value {
            return (event, data);
        }
    }
}

#[tokio::test]
async fn states_calls_and_log_are_told_while_they_happen() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let client = Client::open(&gateway).await;
    let mut calls = listen(&gateway, "call", None).await;
    let mut states = listen(&gateway, "server", None).await;
    let mut log = listen(&gateway, "server,log", None).await;
    let secret = json!({"message": "password=canary-word"});
    client.call("one__echo", secret).await;
    let (_, call) = next(&mut calls, "target", "one__echo").await;
    assert_eq!(
        (&call["outcome"], &call["serverId"]),
        (&json!("ok"), &json!("one"))
    );
    assert!(!call.to_string().contains("canary"), "{call}");
    let stop = request(&gateway, "POST", "/api/servers/one/stop");
    assert_eq!(stop.send().await.status, 200);
    let (stopped, state) = next(&mut states, "state", "stopped").await;
    assert_eq!(state["serverId"], "one");
    let (_, record) = next(&mut log, "serverId", "one").await;
    assert!(record["timestamp"].is_u64(), "{record}");
    // Whoever comes back gets what happened meanwhile.
    drop(states);
    let start = request(&gateway, "POST", "/api/servers/one/start");
    assert_eq!(start.send().await.status, 200);
    let mut again = listen(&gateway, "server", stopped.id.as_deref()).await;
    let (_, up) = next(&mut again, "state", "up").await;
    assert_eq!(up["serverId"], "one");
    let mut strange = listen(&gateway, "server", Some("1-1")).await;
    let missed = strange.message().await.unwrap();
    assert!(missed["atLeast"].as_u64() > Some(0), "{missed}");
}

#[tokio::test]
async fn a_stream_ends_with_the_gateway_and_holds_nothing_up() {
    let mut gateway = Gateway::start(&(quick() + &example("one"))).await;
    let mut events = listen(&gateway, "server", None).await;
    let head = request(&gateway, "HEAD", "/api/events").send().await;
    assert_eq!(head.status, 200);
    assert_eq!(get(&gateway, "/api/loglevel").await["level"], "info");
    gateway.signal(Signal::TERM);
    while events.next().await.is_some() {}
    assert!(gateway.ended().await.success());
}
