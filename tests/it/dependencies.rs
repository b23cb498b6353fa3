//! Servers that depend on each other and groups, with real processes.

use rustix::process::Signal;
use serde_json::json;

use crate::dashboard::Browser;
use crate::operating::run;
use crate::support::{Client, Gateway, Setup, example, failure_of, quick, signal, text_of, until};

/// A server that cannot start until this file exists.
fn gated(name: &str, file: &str) -> String {
    let script = format!("test -e {file} || exit 1; exec \\\"$0\\\" example-server");
    format!(
        r#"
[servers.{name}]
command = "sh"
args = ["-c", "{script}", "${{MCPVISOR_EXE}}"]
env = {{ IT_MARK = "${{IT_MARK}}", IT_SERVER = "{name}" }}
"#
    )
}

#[tokio::test]
async fn a_dependant_starts_after_its_dependency_and_its_calls_name_it() {
    let config = quick()
        + &example("db")
        + "depends_on = [\"tunnel\"]\n"
        + &gated("tunnel", "open")
        + "supervision = { backoff_initial = \"100ms\", backoff_max = \"100ms\" }\n";
    let gateway = Setup::new(&config).serve().await;
    let db = gateway.wait_state("db", "waiting").await;
    assert_eq!(db["connection"]["shared"]["generation"], 0);
    assert_eq!(db["connection"]["depends_on"], json!(["tunnel"]));
    let client = Client::open(&gateway).await;
    let answer = client.call("db__echo", json!({"message": "m"})).await;
    let failure = failure_of(&answer);
    assert_eq!(failure["code"], "server_unavailable", "{failure}");
    let text = text_of(&answer);
    assert!(text.contains("`db` waits for `tunnel`"), "{text}");
    let explained = run(&gateway, &["explain", "db"]).await.unwrap();
    assert!(explained.contains("It waits for `tunnel`"), "{explained}");

    std::fs::write(gateway.setup.path("open"), "").unwrap();
    gateway.wait_state("db", "up").await;
    let result = client.call("db__echo", json!({"message": "m"})).await;
    assert_eq!(text_of(&result), "m");
    // The tree shows who waits for whom.
    let tunnel = gateway.server_pid("tunnel");
    std::fs::remove_file(gateway.setup.path("open")).unwrap();
    signal(tunnel, Signal::KILL);
    until("the wait of the dependant", || async {
        let tree = run(&gateway, &["status"]).await.unwrap();
        tree.contains("waits for `tunnel`").then_some(())
    })
    .await;
    assert!(gateway.server_pids("db").is_empty());
}

#[tokio::test]
async fn a_failure_restarts_the_rest_of_its_group() {
    let group = "group = \"data\"\n";
    let config = quick()
        + "[groups.data]\nstrategy = \"rest_for_one\"\n"
        + &["a", "b", "c"].map(|name| example(name) + group).concat();
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let first = gateway.server_pid("a");
    signal(gateway.server_pid("b"), Signal::KILL);
    until("the restart of the rest", || async {
        let generations = [
            gateway.generation("a").await,
            gateway.generation("b").await,
            gateway.generation("c").await,
        ];
        (generations == [1, 2, 2]).then_some(())
    })
    .await;
    gateway.all_up().await;
    assert_eq!(gateway.server_pid("a"), first);
    let groups = &gateway.status().await["groups"];
    assert_eq!(groups[0]["state"], "working");
    assert_eq!(groups[0]["servers"], json!(["a", "b", "c"]));
    let page = Browser::sign_in(&gateway).await.page("/ui/tree").await;
    let links = ["a", "b", "c"].map(|name| page.find(&format!("<a href=\"/ui/servers/{name}\">")));
    assert!(links[0] < links[1] && links[1] < links[2], "{page}");
    assert_eq!(page.matches("→").count(), 2, "{page}");
    let explained = run(&gateway, &["explain", "b"]).await.unwrap();
    assert!(
        explained.contains("these restart with it, in this order: `c`"),
        "{explained}"
    );
}

#[tokio::test]
async fn a_broken_group_ends_the_gateway_where_it_escalates() {
    let config = quick()
        + "[groups.data]\nmax_restarts = 2\nescalate = \"gateway\"\n"
        + &gated("a", "never")
        + "group = \"data\"\n"
        + &example("other");
    let mut gateway = Setup::new(&config).serve().await;
    assert_eq!(gateway.ended().await.code(), Some(70));
    assert!(
        gateway
            .log()
            .contains("group `data` of servers failed too often")
    );
    gateway.nothing_left().await;
}

#[test]
fn a_circle_of_dependencies_is_refused_with_its_path() {
    let server = |name: &str, other: &str| example(name) + &format!("depends_on = [\"{other}\"]\n");
    let circle = server("a", "b") + &server("b", "c") + &server("c", "a");
    let table = [
        (
            circle,
            "servers wait for each other: `a` -> `b` -> `c` -> `a`",
        ),
        (
            server("a", "tunel") + &example("tunnel"),
            "did you mean `tunnel`?",
        ),
        (example("a") + "group = \"data\"\n", "add `[groups.data]`"),
    ];
    for (config, message) in table {
        let (is_good, output) = Setup::new(&config).run(&["check"]);
        assert!(!is_good && output.contains(message), "{output}");
    }
}
