//! Servers that die, hang or never start, and what their clients notice of it.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::operating::run;
use crate::support::{
    Client, Gateway, Setup, alive, example, failure_of, names, python, quick, request, signal,
    soon, text_of, until,
};

/// Waits for a process of a server other than `old`.
async fn replaced(gateway: &Gateway, server: &str, old: i32) -> i32 {
    until("a new process", || async {
        match gateway.server_pids(server)[..] {
            [pid] if pid != old => Some(pid),
            _ => None,
        }
    })
    .await
}

#[tokio::test]
async fn a_killed_server_fails_its_calls_at_once_and_comes_back() {
    let config = format!("{}{}{}", quick(), example("victim"), example("other"));
    let gateway = Gateway::sandboxed(&config).await;
    let (client, bystander) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let steps = json!({"steps": 1000, "delay_ms": 100});
    let (id, mut events) = client.start("victim__slow", steps.clone()).await;
    let (_, mut others) = bystander
        .start("other__slow", json!({"steps": 5, "delay_ms": 50}))
        .await;
    events.method("notifications/progress").await;
    let pid = gateway.server_pid("victim");
    signal(pid, Signal::KILL);
    let answer = events.rest().await.pop().unwrap();
    assert_eq!(answer["id"], id);
    let failure = failure_of(&answer["result"]);
    assert_eq!(
        (&failure["code"], &failure["server"]),
        (&json!("server_lost"), &json!("victim"))
    );
    let text = text_of(&answer["result"]);
    assert!(
        text.contains("victim") && text.contains("signal 9"),
        "{text}"
    );
    // Lists are answered all the while, with everything in them.
    let list = client.get("tools/list", json!({})).await;
    assert_eq!(names(&list["tools"]).len(), 22);
    // The same session goes on as soon as the server is back.
    replaced(&gateway, "victim", pid).await;
    until("the server's answer", || async {
        let result = client
            .call("victim__echo", json!({"message": "back"}))
            .await;
        (result.get("isError").is_none()).then(|| assert_eq!(text_of(&result), "back"))
    })
    .await;
    // Nobody else noticed.
    others.method("notifications/progress").await;
    assert!(others.rest().await.pop().unwrap()["result"].is_object());
    let server = gateway.server("victim").await;
    assert_eq!(server["connection"]["shared"]["generation"], 2);
    assert_eq!(server["connection"]["shared"]["restarts"], 1);
    assert!(
        server["connection"]["shared"]["last_exit"]
            .as_str()
            .unwrap()
            .contains("signal 9")
    );
    let other = gateway.server("other").await;
    assert_eq!(other["connection"]["shared"]["generation"], 1);
}

#[tokio::test]
async fn nothing_is_said_of_lists_that_came_back_unchanged() {
    let gateway = Gateway::start(&(quick() + &example("example"))).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    let pid = gateway.server_pid("example");
    signal(pid, Signal::KILL);
    replaced(&gateway, "example", pid).await;
    gateway.wait_state("example", "up").await;
    client
        .call(
            "example__log",
            json!({"message": "after", "level": "error"}),
        )
        .await;
    let first = stream.message().await.unwrap();
    assert_eq!(first["method"], "notifications/message", "{first}");
}

#[tokio::test]
async fn tools_that_a_dead_server_had_added_are_removed_and_announced() {
    let gateway = Gateway::start(&(quick() + &example("example"))).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    client
        .call("example__add_tool", json!({"name": "short-lived"}))
        .await;
    stream.method("notifications/tools/list_changed").await;
    signal(gateway.server_pid("example"), Signal::KILL);
    stream.method("notifications/tools/list_changed").await;
    let list = client.get("tools/list", json!({})).await;
    assert_eq!(names(&list["tools"]).len(), 11);
}

#[tokio::test]
async fn a_call_may_wait_for_a_server_that_is_restarting() {
    let config = format!(
        "{}{}queue_while_restarting = \"20s\"\n",
        quick(),
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    client.call("example__crash", json!({})).await;
    until("the loss to be noticed", || async {
        let server = gateway.server("example").await;
        let is_first = server["connection"]["shared"]["generation"] == 1;
        (!is_first || server["state"] != "up").then_some(())
    })
    .await;
    let result = client
        .call("example__echo", json!({"message": "waited"}))
        .await;
    assert_eq!(text_of(&result), "waited");
}

#[tokio::test]
async fn a_stopped_server_is_noticed_and_replaced() {
    let limits = "ping_every = \"200ms\"\nping_timeout = \"300ms\"\n";
    let config = format!("{}{}{limits}", quick(), example("example"));
    let gateway = Gateway::sandboxed(&config).await;
    let client = Client::open(&gateway).await;
    let pid = gateway.server_pid("example");
    signal(pid, Signal::STOP);
    let new = replaced(&gateway, "example", pid).await;
    until("the end of the stopped one", || async {
        (!alive(pid)).then_some(())
    })
    .await;
    gateway.wait_state("example", "up").await;
    assert!(alive(new));
    let server = gateway.server("example").await;
    let why = server["connection"]["shared"]["last_exit"]
        .as_str()
        .unwrap();
    assert!(why.contains("ping"), "{why}");
    assert_eq!(
        text_of(&client.call("example__echo", json!({"message": "m"})).await),
        "m"
    );
}

#[tokio::test]
async fn a_server_that_cannot_start_is_broken_until_it_is_repaired() {
    let setup = Setup::new("");
    let needed = setup.path("needed");
    let needs = format!("IT_NEEDS = \"{}\"", needed.display());
    let config = format!(
        "{}max_restarts = 2\n{}{}",
        quick(),
        python("ill", &needs),
        example("well")
    );
    std::fs::write(setup.path("config.toml"), config).unwrap();
    let gateway = setup.serve().await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    let broken = gateway.wait_state("ill", "broken").await;
    let why = broken["connection"]["shared"]["last_exit"]
        .as_str()
        .unwrap();
    assert!(why.contains('3'), "{why}");
    let tail = broken["connection"]["log_tail"].to_string();
    assert!(tail.contains("it is not there"), "{tail}");
    let list = client.get("tools/list", json!({})).await;
    assert_eq!(names(&list["tools"]).len(), 11);
    assert_eq!(
        text_of(&client.call("well__echo", json!({"message": "m"})).await),
        "m"
    );
    std::fs::write(&needed, "").unwrap();
    gateway.wait_state("ill", "up").await;
    until("its tools", || async {
        let list = client.get("tools/list", json!({})).await;
        names(&list["tools"]).contains(&"ill__echo").then_some(())
    })
    .await;
    stream.method("notifications/tools/list_changed").await;
    assert_eq!(
        text_of(&client.call("ill__echo", json!({})).await),
        "ill {}"
    );
}

#[tokio::test]
async fn a_server_that_never_answers_delays_nobody() {
    // On a busy machine, the other server needs longer than a second until it is connected.
    let config = format!(
        "[gateway]\nfirst_list_wait = \"300ms\"\n{}{}[servers.silent.supervision]\nconnect_timeout = \"1s\"\n{}",
        quick(),
        python("silent", "IT_SILENT = \"1\""),
        example("well")
    );
    let gateway = Setup::new(&config).serve().await;
    // On a busy machine, listing the other server can take longer than `first_list_wait`.
    gateway.wait_state("well", "up").await;
    let client = Client::open(&gateway).await;
    until("its list", || async {
        let list = client.get("tools/list", json!({})).await;
        (names(&list["tools"]).len() == 11).then_some(())
    })
    .await;
    assert_eq!(
        text_of(&client.call("well__echo", json!({"message": "m"})).await),
        "m"
    );
    until("the end of its patience", || async {
        let silent = gateway.server("silent").await;
        let why = silent["connection"]["shared"]["last_exit"]
            .as_str()?
            .to_owned();
        why.contains("in time").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_hanging_call_delays_no_other() {
    let gateway = Gateway::start(&format!("{}{}", python("one", ""), example("two"))).await;
    let client = Client::open(&gateway).await;
    let params = json!({"name": "one__hang", "arguments": {}});
    let hanging = tokio::spawn(client.post(&request("h", "tools/call", params)).send());
    until("the call under way", || async {
        let one = gateway.server("one").await;
        (one["connection"]["in_flight"] == 1).then_some(())
    })
    .await;
    for _ in 0..20 {
        assert_eq!(
            text_of(&client.call("one__echo", json!({})).await),
            "one {}"
        );
        assert_eq!(
            text_of(&client.call("two__echo", json!({"message": "m"})).await),
            "m"
        );
    }
    client
        .notify("notifications/cancelled", json!({"requestId": "h"}))
        .await;
    soon("the end of the call", hanging).await.unwrap();
}

/// Waits until a call of the session runs. A loss may be answered before it is in the status,
/// so the status does not tell when it is over.
async fn works(client: &Client) {
    until("a call that runs", || async {
        let result = client.call("example__echo", json!({"message": "m"})).await;
        (result.get("isError").is_none() && text_of(&result) == "m").then_some(())
    })
    .await;
}

#[tokio::test]
async fn many_sessions_live_through_a_storm_of_crashes() {
    let gateway = Gateway::start(&(quick() + "max_restarts = 1000\n" + &example("example"))).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Client::open(&gateway).await);
    }
    for round in 0..5 {
        works(&clients[round]).await;
        let crash = clients[round].call("example__crash", json!({"delay_ms": 20}));
        let calls = clients.iter().map(|client| async {
            let mut answers: Vec<Value> = Vec::new();
            for _ in 0..10 {
                answers.push(client.call("example__echo", json!({"message": "m"})).await);
            }
            answers
        });
        let (lost, answers) = tokio::join!(crash, futures_util::future::join_all(calls));
        failure_of(&lost);
        for result in answers.iter().flatten() {
            if result.get("isError").is_some() {
                assert_eq!(failure_of(result)["server"], "example");
            } else {
                assert_eq!(text_of(result), "m");
            }
        }
    }
    for client in &clients {
        works(client).await;
    }
    let status = gateway.status().await;
    assert_eq!(status["sessions"], 8);
    assert_eq!(status["counters"]["sessions_rebuilt"], 0);
    assert_eq!(status["counters"]["requests_panicked"], 0);
}

#[tokio::test]
async fn noise_on_stdout_is_kept_and_breaks_nothing() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    for kind in ["stdout", "stderr", "both"] {
        let result = client
            .call("example__flood", json!({"lines": 500, "kind": kind}))
            .await;
        assert_eq!(text_of(&result), format!("wrote 500 lines of {kind}"));
    }
    // Standard error is read beside the answers.
    let server = until("the last line", || async {
        let server = gateway.server("example").await;
        let tail = server["connection"]["log_tail"].to_string();
        tail.contains("noise 500 of 500").then_some(server)
    })
    .await;
    assert_eq!(server["state"], "up");
}

#[tokio::test]
async fn a_program_that_exits_with_a_code_of_stop_on_exit_waits_for_a_change() {
    let script = "test -e fixed || { echo 'no key' >&2; exit 78; }; exec \\\"$0\\\" example-server";
    let db = format!(
        "[servers.db]\ncommand = \"sh\"\nargs = [\"-c\", \"{script}\", \"${{MCPVISOR_EXE}}\"]\n"
    );
    let gateway =
        Gateway::start(&(quick() + &db + "stop_on_exit = [78]\n" + &example("other"))).await;
    let stopped = gateway.wait_state("db", "stopped").await;
    let shared = &stopped["connection"]["shared"];
    assert_eq!(
        (&shared["generation"], &shared["next_attempt_ms"]),
        (&json!(1), &Value::Null)
    );
    let why = shared["last_exit"].as_str().unwrap();
    assert!(
        why.contains("code 78") && why.contains("`stop_on_exit`") && why.contains("no key"),
        "{why}"
    );
    // No call starts it.
    let client = Client::open(&gateway).await;
    let answer = client.call("db__echo", json!({"message": "m"})).await;
    let failure = failure_of(&answer);
    assert_eq!(failure["code"], "server_unavailable", "{failure}");
    assert_eq!(gateway.generation("db").await, 1);

    let start = ["servers", "start", "db"];
    run(&gateway, &start).await.unwrap_err();
    assert_eq!(
        gateway.wait_state("db", "stopped").await["connection"]["shared"]["generation"],
        2
    );
    std::fs::write(gateway.setup.path("fixed"), "").unwrap();
    run(&gateway, &start).await.unwrap();
    gateway.wait_state("db", "up").await;
    assert_eq!(
        text_of(&client.call("db__echo", json!({"message": "m"})).await),
        "m"
    );
}
