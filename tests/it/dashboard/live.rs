//! Open pages are told what changes.

use serde_json::{Value, json};

use super::Browser;
use crate::operating::run;
use crate::support::{Events, Gateway, example, quick};

/// The next piece of a page that has this id and text.
pub(super) async fn piece(events: &mut Events, id: &str, text: &str) -> String {
    loop {
        let event = events.next().await.expect("more events");
        let Some(data) = event.message() else {
            continue;
        };
        let html = data["html"].as_str().unwrap_or_default();
        if data["id"] == id && html.contains(text) {
            return html.to_owned();
        }
    }
}

/// The next rows of a list among which this one has the text.
async fn rows(events: &mut Events, list: &str, row: &str, text: &str) -> Value {
    loop {
        let event = events.next().await.expect("more events");
        let Some(data) = event.message() else {
            continue;
        };
        let html = data["rows"][row].as_str().unwrap_or_default();
        if data["id"] == list && html.contains(text) {
            return data;
        }
    }
}

#[tokio::test]
async fn an_open_page_learns_of_a_crash() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let mut tree = browser.get("/ui/live?page=/ui/tree").send().await.events();
    let hello: Value = tree.next().await.unwrap().message().unwrap();
    assert!(hello["release"].is_string(), "{hello}");
    rows(&mut tree, "tree-rows", "node-one", "0 restarts").await;
    run(&gateway, &["servers", "kill", "one"]).await.unwrap();
    let shown = rows(&mut tree, "tree-rows", "node-one", "1 restart<").await;
    assert!(!shown.to_string().contains("<script"), "{shown}");
    let mut page = browser
        .get("/ui/live?page=/ui/servers/one")
        .send()
        .await
        .events();
    piece(&mut page, "server-facts", "Last exit").await;
}

#[tokio::test]
async fn an_open_list_is_sent_only_rows_that_changed() {
    let disabled = |name: &str| format!("{}enabled = false\n", example(name));
    let config = quick() + &example("two") + &disabled("one") + &disabled("three");
    let gateway = Gateway::start(&config).await;
    gateway.wait_state("two", "up").await;
    let browser = Browser::sign_in(&gateway).await;
    let live = browser.get("/ui/live?page=/ui/servers").send().await;
    let mut events = live.events();
    let first = rows(&mut events, "servers-rows", "server-two", ">up<").await;
    let order = |names: &[&str]| {
        json!(
            names
                .iter()
                .map(|it| format!("server-{it}"))
                .collect::<Vec<_>>()
        )
    };
    assert_eq!(first["order"], order(&["two", "one", "three"]));
    run(&gateway, &["servers", "stop", "two"]).await.unwrap();
    let stopped = rows(&mut events, "servers-rows", "server-two", ">stopped<").await;
    let changed: Vec<&String> = stopped["rows"].as_object().unwrap().keys().collect();
    assert_eq!(changed, ["server-two"]);
    assert!(stopped["order"].is_null(), "{stopped}");
}

#[tokio::test]
async fn a_page_whose_thing_is_gone_is_told_so() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let live = browser.get("/ui/live?page=/ui/servers/nobody").send().await;
    live.text_until("event: gone\n").await;
}

#[tokio::test]
async fn only_so_many_pages_are_live() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let mut open = Vec::new();
    for _ in 0..32 {
        let mut events = browser.get("/ui/live?page=/ui").send().await.events();
        assert!(events.next().await.is_some());
        open.push(events);
    }
    let full = browser.get("/ui/live?page=/ui").send().await;
    full.text_until("event: full\n").await;
    drop(open.pop());
    let place = || async {
        let mut events = browser.get("/ui/live?page=/ui").send().await.events();
        let first = events.next().await?.message()?;
        first["release"].is_string().then_some(())
    };
    crate::support::until("a place that is free again", place).await;
}
