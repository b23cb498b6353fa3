//! Tasks of a server that the gateway finds again after it was killed.

use std::fs;

use serde_json::{Value, json};

use crate::sessionless::modern_as;
use crate::support::{Client, Gateway, Keeper, Setup, call_params, quick, text_of, until};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/tasks.py");
const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// A gateway in front of the server with tasks, which outlives it.
async fn gateway() -> (Gateway, Keeper) {
    let setup = Setup::new("");
    let directory = setup.path("tasks");
    fs::create_dir(&directory).unwrap();
    let keeper = Keeper::start(&[SCRIPT, directory.to_str().unwrap()], &[]);
    let url = format!("http://127.0.0.1:{}/mcp", keeper.port);
    fs::write(
        setup.path("config.toml"),
        format!("{}[servers.a]\nurl = \"{url}\"\n", quick()),
    )
    .unwrap();
    let gateway = setup.serve().await;
    gateway.all_up().await;
    (gateway, keeper)
}

/// Kills the gateway without a warning, and starts it again.
async fn killed(gateway: &mut Gateway) {
    gateway.kill();
    gateway.start_again().await;
    gateway.all_up().await;
}

/// The requests that the server read.
fn reads(gateway: &Gateway, method: &str) -> usize {
    let journal = fs::read_to_string(gateway.setup.path("tasks/journal")).unwrap();
    journal.lines().filter(|line| *line == method).count()
}

fn finish(gateway: &Gateway) {
    fs::write(gateway.setup.path("tasks/done"), "").unwrap();
}

/// A request of a client of the newer era that follows tasks by itself.
async fn modern(gateway: &Gateway, method: &str, params: Value) -> Value {
    let capabilities = json!({ "extensions": { EXTENSION: {} } });
    let answer = modern_as(gateway, "m", method, params, capabilities);
    answer.send().await.json().await
}

#[tokio::test]
async fn a_bridged_task_is_found_again_after_the_gateway_was_killed() {
    let (mut gateway, _server) = gateway().await;
    let call = call_params("a__build", json!({"what": "it"}));
    let created = modern(&gateway, "tools/call", call).await;
    let task = created["result"]["taskId"].clone();
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    killed(&mut gateway).await;
    let about = || json!({ "taskId": task });
    let found = modern(&gateway, "tasks/get", about()).await;
    assert_eq!(
        (&found["result"]["taskId"], &found["result"]["status"]),
        (&task, &json!("working")),
        "{found}"
    );
    // Twice in a row, and the task ends while there is no gateway.
    gateway.kill();
    finish(&gateway);
    gateway.start_again().await;
    gateway.all_up().await;
    let done = until("the end of the task", async || {
        let found = modern(&gateway, "tasks/get", about()).await;
        (found["result"]["status"] == "completed").then(|| found["result"].clone())
    })
    .await;
    assert_eq!(text_of(&done["result"]), "built it");
    assert_eq!(reads(&gateway, "tools/call"), 1, "it ran once");
}

#[tokio::test]
async fn a_task_of_a_session_is_found_again_after_the_gateway_was_killed() {
    let (mut gateway, _server) = gateway().await;
    let mut client = Client::open(&gateway).await;
    let mut call = call_params("a__build", json!({"what": "it"}));
    call["task"] = json!({"ttl": 3_600_000});
    let task = client.get("tools/call", call).await["task"]["taskId"].clone();
    assert!(task.is_string(), "{task}");
    killed(&mut gateway).await;
    client.follow(&gateway);
    let about = || json!({ "taskId": task });
    let found = client.get("tasks/get", about()).await;
    assert_eq!(
        (&found["taskId"], &found["status"]),
        (&task, &json!("working")),
        "{found}"
    );
    finish(&gateway);
    let found = client.get("tasks/get", about()).await;
    assert_eq!(found["status"], "completed", "{found}");
    let result = client.get("tasks/result", about()).await;
    assert_eq!(text_of(&result), "built it");
    assert_eq!(reads(&gateway, "tools/call"), 1, "it ran once");
}

/// The client does not know tasks: the gateway follows the task, and the kill cuts that off.
#[tokio::test]
async fn a_followed_task_whose_gateway_was_killed_can_be_asked_for_by_a_further_call() {
    let (mut gateway, _server) = gateway().await;
    let mut client = Client::open(&gateway).await;
    let answer = client.begin("a__build", json!({"what": "it"})).await;
    until("the task to be followed", async || {
        (reads(&gateway, "tasks/get") + reads(&gateway, "tasks/result") > 0).then_some(())
    })
    .await;
    killed(&mut gateway).await;
    drop(answer);
    client.follow(&gateway);
    finish(&gateway);
    let result = client.call("a__build", json!({"what": "again"})).await;
    assert_eq!(text_of(&result), "built again");
    assert_eq!(reads(&gateway, "tools/call"), 2, "neither was repeated");
}
