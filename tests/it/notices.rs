//! `mcpvisor notices`: operators dismiss notices that they know.

use serde_json::Value;

use crate::operating::run;
use crate::support::{Gateway, example, quick, until};

/// Two servers whose tools have the same names, which causes notices.
pub(crate) fn servers_with_notices() -> String {
    let unprefixed = |name| example(name) + "tools.prefix = \"\"\n";
    unprefixed("two") + &unprefixed("three")
}

/// The notices, of which there is at least one once both servers are listed.
pub(crate) async fn notices(gateway: &Gateway) -> Vec<Value> {
    for name in ["two", "three"] {
        gateway.wait_state(name, "up").await;
    }
    until("a notice", || async {
        let all = run(gateway, &["notices", "--json"]).await.unwrap();
        let all: Vec<Value> = serde_json::from_str(&all).unwrap();
        (!all.is_empty()).then_some(all)
    })
    .await
}

async fn shown(gateway: &Gateway) -> Vec<Value> {
    gateway.status().await["notices"]
        .as_array()
        .unwrap()
        .clone()
}

#[tokio::test]
async fn a_dismissed_notice_is_not_shown_even_after_a_restart() {
    let mut gateway = Gateway::start(&(quick() + &servers_with_notices())).await;
    let notice = notices(&gateway).await.remove(0);
    let id = notice["id"].as_str().unwrap();
    assert!(shown(&gateway).await.contains(&notice["text"]));
    let done = run(&gateway, &["notices", "dismiss", id]).await.unwrap();
    assert!(done.starts_with("dismissed: "), "{done}");
    assert!(!shown(&gateway).await.contains(&notice["text"]));

    gateway.kill();
    gateway.start_again().await;
    notices(&gateway).await;
    assert!(!shown(&gateway).await.contains(&notice["text"]));
    let listed = run(&gateway, &["notices"]).await.unwrap();
    assert!(listed.contains(&format!("{id}  dismissed: ")), "{listed}");

    run(&gateway, &["notices", "restore", id]).await.unwrap();
    assert!(shown(&gateway).await.contains(&notice["text"]));
    let unknown = run(&gateway, &["notices", "dismiss", "nothing"]).await;
    assert!(unknown.unwrap_err().contains("unknown notice"));
}
