//! The page of one session.

use serde_json::json;

use super::{Browser, between};
use crate::support::{Client, Gateway, example, quick, until};

/// Waits until the page of the only session has all these texts.
async fn session_page(browser: &Browser<'_>, texts: &[&str]) -> String {
    let look = || async {
        let all = browser.page("/ui/sessions").await;
        let handle = between(&all, "href=\"/ui/sessions/", "\"");
        let page = browser.page(&format!("/ui/sessions/{handle}")).await;
        let is_whole = texts.iter().all(|text| page.contains(text));
        is_whole.then_some(page)
    };
    until(&texts.join(", "), look).await
}

#[tokio::test]
async fn a_session_is_shown_across_a_restart() {
    let config = quick() + "[history]\nfile = true\n" + &example("one");
    let mut gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let mut client = Client::open(&gateway).await;
    client.call("one__echo", json!({"message": "hello"})).await;
    let counter = json!({"uri": "example://counter"});
    client.get("resources/subscribe", counter).await;
    let slow = json!({"steps": 100, "delay_ms": 600});
    let (_, call) = client.start("one__slow", slow).await;
    let browser = Browser::sign_in(&gateway).await;
    let page = session_page(
        &browser,
        &[
            "Calls in flight",
            "one__slow",
            "Subscriptions",
            "example://counter",
            "Servers in use",
            "Opened by the client",
            "one__echo",
            "href=\"/ui/calls?session=",
        ],
    )
    .await;
    assert!(!page.contains(&client.session), "{page}");
    let all = browser.page("/ui/sessions").await;
    assert!(all.contains("<bdi>example://counter</bdi></a>"), "{all}");
    assert!(!page.contains("Kept across a restart"), "{page}");
    // That of the client, of the server, and of the connection of the call.
    assert!(page.matches("2025-11-25").count() >= 3, "{page}");
    drop(call);

    gateway.kill();
    gateway.start_again().await;
    client.follow(&gateway);
    let browser = Browser::sign_in(&gateway).await;
    let kept = ["one__echo", "Kept across a restart", "Subscriptions"];
    let page = session_page(&browser, &[&kept[..], &["idle: restored"]].concat()).await;
    assert!(!page.contains("Restored from its record"), "{page}");
    client.call("one__add", json!({"a": 1, "b": 2})).await;
    let back = ["Restored from its record", "one__add"];
    let page = session_page(&browser, &[&kept[..], &back].concat()).await;
    assert!(!page.contains("idle: restored"), "{page}");
    let place = |text: &str| page.find(text).unwrap();
    // The newest first.
    assert!(place("Kept across a restart") < place("Opened by the client"));
}
