//! New versions of servers that run beside the old ones, with real processes under load.

use std::collections::HashSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::operating::run;
use crate::support::{Client, Gateway, Setup, names, quick, text_of, until};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/release.py");

/// Short times, and wide gates where the machine's speed counts.
const GATES: &str = "{ window = \"1s\", share = 1.0, calls = 20, max_slowdown = 20.0 }";

fn config(command: &str, args: &str) -> String {
    format!(
        "{}connect_timeout = \"10s\"\n\n[servers.a]\ncommand = \"{command}\"\nargs = {args}\n\
         env = {{ IT_MARK = \"${{IT_MARK}}\", IT_SERVER = \"a\", IT_WRITES = \"writes\" }}\n\
         start_timeout = \"6s\"\nrequest_timeout = \"5s\"\nrollout = {GATES}\n",
        quick()
    )
}

fn release(kind: &str) -> String {
    config("python3", &format!("[\"{SCRIPT}\", \"{kind}\"]"))
}

/// Clients that call without a pause until they are stopped.
struct Load {
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<u64>>,
}

impl Load {
    async fn start(gateway: &Gateway) -> Self {
        let (is_over, ids) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let mut clients = Vec::new();
        for _ in 0..2 {
            let client = Client::open(gateway).await;
            let (is_over, ids) = (is_over.clone(), ids.clone());
            clients.push(tokio::spawn(async move {
                let mut calls = 0;
                while !is_over.load(Ordering::SeqCst) {
                    call_each(&client, ids.fetch_add(1, Ordering::SeqCst)).await;
                    calls += 3;
                }
                calls
            }));
        }
        Self { is_over, clients }
    }

    /// Stops the clients; the number of their calls, none of which failed.
    async fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        let mut calls = 0;
        for client in self.clients {
            calls += client.await.unwrap();
        }
        calls
    }
}

/// Calls each tool once, and checks the answers.
async fn call_each(client: &Client, id: u64) {
    let sum = client.call("a__sum", json!({"a": id, "b": 1})).await;
    assert_eq!(sum["structuredContent"]["sum"], id + 1, "{sum}");
    let time = client.call("a__time", json!({})).await;
    assert!(text_of(&time).contains("now"), "{time}");
    let write = client.call("a__write", json!({"id": id})).await;
    assert!(write["isError"].is_null(), "{write}");
}

/// The rollout of the server once it has ended.
async fn outcome(gateway: &Gateway, state: &str) -> Value {
    until("the end of the rollout", || async {
        let server = gateway.server("a").await;
        let rollout = server["connection"]["rollout"].clone();
        (rollout["state"] == state).then_some(rollout)
    })
    .await
}

/// No call of `write` reached any version twice.
fn each_write_is_one(gateway: &Gateway) {
    let writes = std::fs::read_to_string(gateway.setup.path("writes")).unwrap();
    let distinct: HashSet<&str> = writes.lines().collect();
    assert_eq!(distinct.len(), writes.lines().count());
}

#[tokio::test]
async fn bad_releases_are_rolled_back_and_a_good_one_is_promoted_without_a_failed_call() {
    let gateway = Gateway::start(&release("good")).await;
    let old = gateway.server_pid("a");
    let load = Load::start(&gateway).await;
    let kinds = [
        ("start", "it did not start"),
        ("silent", "it did not start"),
        ("missing", "its tool `sum` is missing"),
        (
            "schema",
            "the schema of its tool `sum` changed: `unit` is required",
        ),
        ("slow", "it is slower"),
        ("leak", "its memory grows"),
        ("wrong", "its answer to a call of `sum` differs"),
        ("crash", "it ended"),
        ("variable", "it did not start"),
        ("garbage", "more of its answers are errors"),
    ];
    for (kind, expected) in kinds {
        gateway.write_config(&release(kind));
        let is_reason = |rollout: &Value| {
            rollout["why"]
                .as_str()
                .is_some_and(|why| why.contains(expected))
        };
        // The rollout of the kind before can have had the same state and reason.
        let text = format!("rollout: the new version was rolled back: {expected}");
        let count = |log: &str| log.matches(&text).count();
        let before = kinds.iter().take_while(|(other, _)| *other != kind);
        let before = before.filter(|(_, why)| *why == expected).count();
        until(&format!("the rollback of {kind}"), || async {
            let is_reported = count(&gateway.log()) > before;
            let rolled_back = outcome(&gateway, "rolled-back").await;
            (is_reported && is_reason(&rolled_back)).then_some(())
        })
        .await;
        until("the end of the new version", || async {
            (gateway.server_pids("a") == [old]).then_some(())
        })
        .await;
    }
    let notices = run(&gateway, &["notices"]).await.unwrap();
    assert!(
        notices.contains("until the configuration changes again"),
        "{notices}"
    );

    gateway.write_config(&release("good-2"));
    let promoted = outcome(&gateway, "promoted").await;
    assert!(promoted["calls"].as_u64() >= Some(20), "{promoted}");
    until("the end of the old version", || async {
        let pids = gateway.server_pids("a");
        (pids.len() == 1 && pids != [old]).then_some(())
    })
    .await;
    let calls = load.stop().await;
    assert!(calls > 100, "{calls}");
    each_write_is_one(&gateway);
    let client = Client::open(&gateway).await;
    until("the added tool", || async {
        let list = client.get("tools/list", json!({})).await;
        names(&list["tools"]).contains(&"a__extra").then_some(())
    })
    .await;
    let notices = run(&gateway, &["notices"]).await.unwrap();
    assert!(!notices.contains("rolled back"), "{notices}");
}

#[tokio::test]
async fn an_upgrade_writes_the_configuration_once_the_version_is_promoted() {
    let setup = Setup::new(&config("./npx", "[\"-y\", \"release@good\"] # pinned"));
    let npx = setup.path("npx");
    let script = format!("#!/bin/sh\nexec python3 {SCRIPT} \"${{2##*@}}\"\n");
    std::fs::write(&npx, script).unwrap();
    std::fs::set_permissions(&npx, Permissions::from_mode(0o755)).unwrap();
    let gateway = setup.serve().await;
    gateway.all_up().await;
    let load = Load::start(&gateway).await;
    let file = || std::fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
    let before = file();

    let mut command = gateway
        .setup
        .command(&["servers", "upgrade", "a", "--to", "wrong"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    let (stdout, stderr) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert!(!output.status.success());
    let begun = String::from_utf8(stdout).unwrap();
    assert!(
        begun.contains("starts release@wrong beside release@good"),
        "{begun}"
    );
    for word in [
        "release@wrong was rolled back",
        "differs",
        "errors 0 -> 0",
        "was not changed",
    ] {
        assert!(stderr.contains(word), "{stderr}");
    }
    assert_eq!(file(), before);

    let done = run(&gateway, &["servers", "upgrade", "a", "--to", "good-2"])
        .await
        .unwrap();
    assert!(
        done.contains("release@good-2 replaced the old one"),
        "{done}"
    );
    assert!(done.contains("the configuration names it now"), "{done}");
    assert_eq!(
        file(),
        before.replace("release@good\"] # pinned", "release@good-2\"] # pinned")
    );
    until("the end of the old version", || async {
        (gateway.server_pids("a").len() == 1).then_some(())
    })
    .await;
    // A restart, which the changed file does not need, would have forgotten the rollout.
    assert_eq!(
        gateway.server("a").await["connection"]["rollout"]["state"],
        "promoted"
    );
    load.stop().await;
    each_write_is_one(&gateway);
}

#[tokio::test]
async fn an_upgrade_needs_a_command_that_names_a_version() {
    let gateway = Gateway::start(&release("good")).await;
    let refused = run(&gateway, &["servers", "upgrade", "a", "--to", "2"])
        .await
        .unwrap_err();
    assert!(refused.contains("names no version"), "{refused}");
}
