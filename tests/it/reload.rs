//! A configuration that changes while the gateway runs: only what changed is touched.

use rustix::process::Signal;
use serde_json::json;

use crate::slow_peers::memory;
use crate::support::{
    Client, Gateway, alive, example, names, python, quick, signal, text_of, until,
};

/// Waits until so many changes were applied.
async fn reloaded(gateway: &Gateway, times: u64) {
    until("the change", || async {
        let counters = &gateway.status().await["counters"];
        (counters["config_reload_applied"] == times).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_is_added_and_removed_without_touching_others() {
    let base = quick() + &example("stays");
    let gateway = Gateway::start(&base).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    let pid = gateway.server_pid("stays");
    let (_, mut running) = client
        .start("stays__slow", json!({"steps": 40, "delay_ms": 50}))
        .await;
    running.method("notifications/progress").await;

    gateway.write_config(&(base.clone() + &python("new", "")));
    stream.method("notifications/tools/list_changed").await;
    until("the new tools", || async {
        let list = client.get("tools/list", json!({})).await;
        names(&list["tools"]).contains(&"new__echo").then_some(())
    })
    .await;
    assert_eq!(
        text_of(&client.call("new__echo", json!({})).await),
        "new {}"
    );
    let new = gateway.server_pid("new");

    gateway.write_config(&base);
    stream.method("notifications/tools/list_changed").await;
    until("the end of its process", || async {
        (!alive(new)).then_some(())
    })
    .await;
    let gone = json!({"name": "new__echo", "arguments": {}});
    assert_eq!(client.refused("tools/call", gone).await["code"], -32602);

    assert_eq!(gateway.server_pid("stays"), pid);
    let answer = running.rest().await.pop().unwrap();
    assert_eq!(text_of(&answer["result"]), "done after 40 steps");
    let status = gateway.status().await;
    assert_eq!(status["servers"].as_array().unwrap().len(), 1);
    assert_eq!(status["sessions"], 1);
}

#[tokio::test]
async fn a_changed_command_restarts_that_server_only() {
    let with = |extra: &str| {
        format!(
            "{}{}{}",
            quick(),
            example("stays"),
            python("changes", extra)
        )
    };
    let gateway = Gateway::start(&with("")).await;
    let client = Client::open(&gateway).await;
    let (stays, changes) = (gateway.server_pid("stays"), gateway.server_pid("changes"));
    gateway.write_config(&with("IT_REVISION = \"2025-03-26\""));
    reloaded(&gateway, 1).await;
    until("a new process", || async {
        match gateway.server_pids("changes")[..] {
            [pid] if pid != changes => Some(()),
            _ => None,
        }
    })
    .await;
    gateway.all_up().await;
    assert_eq!(gateway.server_pid("stays"), stays);
    assert_eq!(
        text_of(&client.call("changes__echo", json!({})).await),
        "changes {}"
    );
}

#[tokio::test]
async fn a_changed_server_has_its_lock_when_it_starts() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/server.py");
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("lock").display().to_string();
    let with = |revision: &str| {
        format!(
            r#"{}
[servers.alone]
command = "sh"
args = ["-c", "exec 9>{lock}; flock -n 9 || exit 7; python3 {script}; sleep 0.5"]
env = {{ IT_MARK = "${{IT_MARK}}", IT_SERVER = "alone", IT_REVISION = "{revision}" }}
"#,
            quick()
        )
    };
    let gateway = Gateway::start(&with("2025-06-18")).await;
    let before = gateway.server_pids("alone");
    gateway.write_config(&with("2025-03-26"));
    until("new processes", || async {
        let now = gateway.server_pids("alone");
        let is_new = !now.is_empty() && now.iter().all(|pid| !before.contains(pid));
        is_new.then_some(())
    })
    .await;
    gateway.all_up().await;
    let server = gateway.server("alone").await;
    assert_eq!(server["connection"]["shared"]["restarts"], 0);
}

#[tokio::test]
async fn limits_and_names_change_without_a_restart() {
    let with = |extra: &str| format!("{}{}{extra}", quick(), example("example"));
    let gateway = Gateway::start(&with("")).await;
    let client = Client::open(&gateway).await;
    let pid = gateway.server_pid("example");
    let changed =
        "request_timeout = \"200ms\"\ntools = { allow = [\"echo\", \"slow\"], prefix = \"x\" }\n";
    gateway.write_config(&with(changed));
    reloaded(&gateway, 1).await;
    until("the new names", || async {
        let list = client.get("tools/list", json!({})).await;
        (names(&list["tools"]) == ["x__echo", "x__slow"]).then_some(())
    })
    .await;
    let result = client
        .call("x__slow", json!({"steps": 1, "delay_ms": 60_000}))
        .await;
    assert_eq!(crate::support::failure_of(&result)["code"], "timeout");
    assert_eq!(gateway.server_pid("example"), pid);
}

#[tokio::test]
async fn a_disabled_server_has_no_process() {
    let with = |enabled: bool| {
        let off = format!("{}enabled = {enabled}\n", example("other"));
        format!("{}{}{off}", quick(), example("example"))
    };
    let gateway = Gateway::start(&with(false)).await;
    assert!(gateway.server_pids("other").is_empty());
    assert_eq!(gateway.server("other").await["state"], "disabled");
    gateway.write_config(&with(true));
    gateway.wait_state("other", "up").await;
    let pid = gateway.server_pid("other");
    gateway.write_config(&with(false));
    gateway.wait_state("other", "disabled").await;
    until("the end of its process", || async {
        (!alive(pid)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_status_says_why() {
    let good = quick() + &example("example");
    let gateway = Gateway::start(&good).await;
    let client = Client::open(&gateway).await;
    let pid = gateway.server_pid("example");
    for (bad, word) in [
        (
            format!("{good}\n[servers.second]\ncomand = \"x\"\n"),
            "comand",
        ),
        ("[gateway\n".to_owned(), "config.toml"),
        (format!("{good}\n[sessions]\nmax = 0\n"), "sessions.max"),
    ] {
        gateway.write_config(&bad);
        let why = until("the refusal", || async {
            let status = gateway.status().await;
            let why = status["config"]["refused"].as_str()?.to_owned();
            why.contains(word).then_some(why)
        })
        .await;
        assert!(why.contains("config.toml"), "{why}");
        let text = gateway.setup.command(&["status"]).output().unwrap();
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.contains("last change was not applied"), "{text}");
    }
    assert_eq!(gateway.server_pid("example"), pid);
    assert_eq!(
        text_of(&client.call("example__echo", json!({"message": "m"})).await),
        "m"
    );
    // A good file heals it.
    gateway.write_config(&format!("{good}\n[servers.more]\ncommand = \"/no/such\"\n"));
    reloaded(&gateway, 1).await;
    assert_eq!(gateway.status().await["config"]["refused"], json!(null));
    assert_eq!(gateway.server_pid("example"), pid);
}

#[tokio::test]
async fn sighup_reads_the_file_again() {
    let config = format!(
        "{}{}headers = {{ X = \"${{file:secret}}\" }}\n",
        quick(),
        "[servers.h]\nurl = \"http://127.0.0.1:9/\"\n"
    );
    let setup = crate::support::Setup::new(&config);
    std::fs::write(setup.path("secret"), "one").unwrap();
    let gateway = setup.serve().await;
    // Not the watched file changes, but what it refers to.
    std::fs::write(gateway.setup.path("secret"), "two").unwrap();
    gateway.signal(Signal::HUP);
    reloaded(&gateway, 1).await;
    gateway.signal(Signal::HUP);
    until("the log line", || async {
        gateway
            .log()
            .contains("configuration is unchanged")
            .then_some(())
    })
    .await;
    assert!(!gateway.log().contains("two\""), "a secret in the log");
}

#[tokio::test]
async fn keys_that_need_a_restart_are_named_and_the_rest_applied() {
    let gateway = Gateway::start(&(quick() + &example("example"))).await;
    let address = gateway.address;
    let changed = format!(
        "[gateway]\nendpoint = \"/other\"\n{}{}",
        quick(),
        example("two")
    );
    gateway.write_config(&changed);
    gateway.wait_state("two", "up").await;
    let needs = &gateway.status().await["config"]["needs_restart"];
    assert_eq!(needs, &json!(["gateway.endpoint"]));
    let client = Client::open(&gateway).await;
    client.get("ping", json!({})).await;
    assert_eq!(gateway.address, address);
}

#[tokio::test]
async fn a_limit_of_sessions_is_applied_at_once() {
    let gateway = Gateway::start("").await;
    let one = Client::open(&gateway).await;
    gateway.write_config("[sessions]\nmax = 1\n");
    reloaded(&gateway, 1).await;
    let body = crate::support::INITIALIZE;
    let answer = crate::support::Http::post(gateway.address, body)
        .send()
        .await;
    assert_eq!(answer.status, 503);
    one.get("ping", json!({})).await;
}

#[tokio::test]
async fn a_server_that_dies_while_it_is_removed_stays_removed() {
    let base = quick() + &example("stays");
    let gateway = Gateway::start(&(base.clone() + &example("goes"))).await;
    let pid = gateway.server_pid("goes");
    gateway.write_config(&base);
    if alive(pid) {
        signal(pid, Signal::KILL);
    }
    reloaded(&gateway, 1).await;
    until("its end", || async {
        gateway.server_pids("goes").is_empty().then_some(())
    })
    .await;
    let status = gateway.status().await;
    assert_eq!(status["servers"].as_array().unwrap().len(), 1);
    let client = Client::open(&gateway).await;
    // The file is applied before the lists are merged anew.
    until("its tools to go", || async {
        let list = client.get("tools/list", json!({})).await;
        (names(&list["tools"]).len() == 11).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_not_watched_is_read_at_sighup() {
    let config = "[gateway]\nwatch = false\n".to_owned() + &example("one");
    let gateway = Gateway::start(&config).await;
    let files = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    let is_watch = |target: &std::path::PathBuf| target.to_string_lossy().contains("inotify");
    assert_eq!(targets.filter(is_watch).count(), 0);
    gateway.write_config(&(config + &example("two")));
    gateway.signal(Signal::HUP);
    gateway.wait_state("two", "up").await;
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[tokio::test]
async fn the_memory_of_a_removed_server_goes_back_to_the_system() {
    const TOOLS: usize = 5000;
    let base = quick() + &example("stays");
    let gateway = Gateway::start(&(base.clone() + &python("many", ""))).await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    let before = memory(&gateway);
    let description = "delete find search open ".repeat(80);
    let tool = |number| {
        let name = format!("tool_number_{number}");
        json!({ "name": name, "description": description, "inputSchema": {"type": "object"} })
    };
    let tools: Vec<_> = (0..TOOLS).map(tool).collect();
    client.call("many__list", json!({ "tools": tools })).await;
    until("the tools", || async {
        (gateway.server("many").await["items"]["tools"] == TOOLS).then_some(())
    })
    .await;
    let grown = memory(&gateway).saturating_sub(before);
    gateway.write_config(&base);
    until("the memory to be given back", || async {
        (memory(&gateway) < before + grown / 2).then_some(())
    })
    .await;
}
