//! `mcpvisor record` and `mcpvisor replay`.

use serde_json::json;

use crate::operating::run;
use crate::support::{Client, Gateway, Setup, example, failure_of, names, quick, text_of, until};

#[tokio::test]
async fn a_recorded_server_is_replayed_with_its_crash() {
    let gateway = Gateway::sandboxed(&(quick() + &example("a"))).await;
    let client = Client::open(&gateway).await;
    let real = client.get("tools/list", json!({})).await;
    let generation = gateway.generation("a").await;
    let add = || client.call("a__add", json!({"a": 2, "b": 3}));
    let sum = add().await;
    let lost = client.call("a__crash", json!({})).await;
    assert_eq!(failure_of(&lost)["code"], "server_lost");
    gateway.wait_renewed("a", generation).await;
    let echoed = client.call("a__echo", json!({"message": "behind"})).await;
    assert_eq!(text_of(&echoed), "behind");
    let recorded = run(&gateway, &["record", "a", "a.json"]).await.unwrap();
    assert!(
        recorded.starts_with("recorded 3 calls of server `a`"),
        "{recorded}"
    );
    let missing = run(&gateway, &["record", "b", "b.json"]).await;
    assert!(missing.is_err(), "{missing:?}");

    let cassette = gateway.setup.path("a.json");
    let replay = format!(
        "[servers.a]\ncommand = \"${{MCPVISOR_EXE}}\"\nargs = [\"replay\", \"{}\"]\n",
        cassette.display()
    );
    let replaying = Setup::new(&(quick() + &replay)).sandboxed().serve().await;
    let client = Client::open(&replaying).await;
    let listed = client.get("tools/list", json!({})).await;
    assert_eq!(names(&listed["tools"]), names(&real["tools"]));
    let added = client.call("a__add", json!({"a": 2, "b": 3})).await;
    assert_eq!(text_of(&added), text_of(&sum));
    let other = json!({"name": "a__add", "arguments": {"a": 1, "b": 1}});
    let unknown = client.refused("tools/call", other).await;
    let message = unknown["message"].as_str().unwrap();
    assert!(
        message.contains("no answer to this `tools/call`"),
        "{unknown}"
    );
    let lost = client.call("a__crash", json!({})).await;
    assert_eq!(failure_of(&lost)["code"], "server_lost");
    // The next process continues behind the crash.
    until("the next process", || async {
        let echoed = client.call("a__echo", json!({"message": "behind"})).await;
        (echoed["isError"] != true).then(|| assert_eq!(text_of(&echoed), "behind"))
    })
    .await;
}
