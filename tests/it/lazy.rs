//! Servers that run only while somebody needs them, and servers that never run.

use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Client, Gateway, HttpServer, Setup, alive, example, names, python, quick, signal, text_of,
    until,
};

async fn echo(client: &Client, server: &str) -> Value {
    let arguments = json!({"message": "m"});
    client.call(&format!("{server}__echo"), arguments).await
}

/// Waits until a server is at rest and its process gone.
async fn rests(gateway: &Gateway, server: &str) -> Value {
    let status = gateway.wait_state(server, "idle").await;
    until("the end of its process", || async {
        gateway.server_pids(server).is_empty().then_some(())
    })
    .await;
    status
}

async fn idle_stops(gateway: &Gateway) -> u64 {
    let status = gateway.status().await;
    status["counters"]["servers_idle_stopped"].as_u64().unwrap()
}

#[tokio::test]
async fn a_lazy_server_runs_from_its_first_call_on() {
    let lazy = format!("{}start = \"lazy\"\n", example("lazy"));
    let gateway = Gateway::start(&format!("{}{lazy}{}", quick(), example("eager"))).await;
    // It was started once for its lists.
    let status = rests(&gateway, "lazy").await;
    assert_eq!(status["items"]["tools"], 11);
    assert_eq!(status["connection"]["shared"]["generation"], 1);
    let health = gateway.get("/health").send().await.json().await;
    assert_eq!(health["status"], "ok", "{health}");
    let client = Client::open(&gateway).await;
    let list = client.get("tools/list", json!({})).await;
    assert_eq!(names(&list["tools"]).len(), 22);
    client.get("resources/list", json!({})).await;
    echo(&client, "eager").await;
    assert_eq!(gateway.server_pids("lazy"), [0; 0]);
    // Calls that come at the same time wait for the same process.
    let calls = (0..8).map(|_| echo(&client, "lazy"));
    for result in futures_util::future::join_all(calls).await {
        assert_eq!(text_of(&result), "m");
    }
    let pid = gateway.server_pid("lazy");
    // Without `idle_stop` it stays.
    assert_eq!(gateway.server("lazy").await["state"], "up");
    echo(&client, "lazy").await;
    assert_eq!(gateway.server_pid("lazy"), pid);
    assert_eq!(idle_stops(&gateway).await, 1);
    // As any other it comes back when it dies.
    signal(pid, Signal::KILL);
    until("another process", || async {
        let pids = gateway.server_pids("lazy");
        (pids.len() == 1 && pids[0] != pid).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_unused_server_is_stopped_and_the_next_call_starts_it() {
    let config = format!("{}{}idle_stop = \"300ms\"\n", quick(), example("one"));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    for round in 1..4 {
        rests(&gateway, "one").await;
        assert_eq!(idle_stops(&gateway).await, round);
        let list = client.get("tools/list", json!({})).await;
        assert_eq!(names(&list["tools"]).len(), 11);
        assert_eq!(text_of(&echo(&client, "one").await), "m");
    }
    // Nobody was told of changes, since there were none.
    let log = json!({"message": "first", "level": "error"});
    client.call("one__log", log).await;
    let first = stream.message().await.unwrap();
    assert_eq!(first["method"], "notifications/message", "{first}");
    assert_eq!(gateway.status().await["counters"]["servers_lost"], 0);
}

#[tokio::test]
async fn a_call_under_way_keeps_its_server() {
    let config = format!("{}{}idle_stop = \"50ms\"\n", quick(), example("one"));
    let gateway = Setup::new(&config).serve().await;
    let client = Client::open(&gateway).await;
    let steps = json!({"steps": 20, "delay_ms": 50});
    let (_, mut events) = client.start("one__slow", steps).await;
    events.method("notifications/progress").await;
    let pid = gateway.server_pid("one");
    let before = idle_stops(&gateway).await;
    let answer = events.rest().await.pop().unwrap();
    assert_eq!(text_of(&answer["result"]), "done after 20 steps");
    assert!(before + 1 >= idle_stops(&gateway).await);
    until("its end afterwards", || async {
        (!alive(pid)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn calls_meet_no_server_that_is_leaving() {
    // So short that calls and stops meet all the time.
    let config = format!("{}{}idle_stop = \"1ms\"\n", quick(), example("one"));
    let gateway = Setup::new(&config).serve().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::open(&gateway).await);
    }
    until("the first list", || async {
        (gateway.server("one").await["items"]["tools"] == 11).then_some(())
    })
    .await;
    let calls = clients
        .iter()
        .enumerate()
        .map(|(index, client)| async move {
            for round in 0..12 {
                let result = echo(client, "one").await;
                assert!(result.get("isError").is_none(), "{result}");
                // Pauses around the time between two looks of the gateway.
                let pause = 30 + 7 * (index as u64 + round);
                tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
            }
        });
    futures_util::future::join_all(calls).await;
}

#[tokio::test]
async fn a_subscription_keeps_its_server() {
    let limits = "idle_stop = \"100ms\"\n";
    let config = format!(
        "{}{}{limits}{}{limits}",
        quick(),
        python("one", ""),
        example("two")
    );
    let gateway = Setup::new(&config).serve().await;
    let client = Client::open(&gateway).await;
    until("its resources", || async {
        (gateway.server("one").await["items"]["resources"] == 2).then_some(())
    })
    .await;
    let uri = json!({"uri": "it://one"});
    client.get("resources/subscribe", uri.clone()).await;
    let pid = gateway.server_pid("one");
    // Another one comes to rest and back several times meanwhile.
    for _ in 0..3 {
        rests(&gateway, "two").await;
        echo(&client, "two").await;
    }
    assert_eq!(gateway.server_pid("one"), pid);
    client.get("resources/unsubscribe", uri).await;
    rests(&gateway, "one").await;
}

#[tokio::test]
async fn pings_and_refreshes_wake_nobody() {
    let limits = "start = \"lazy\"\nping_every = \"50ms\"\nrefresh_every = \"1s\"\n";
    let config = format!(
        "{}{}{limits}{}refresh_every = \"1s\"\n",
        quick(),
        example("one"),
        python("two", "")
    );
    let gateway = Setup::new(&config).serve().await;
    rests(&gateway, "one").await;
    let generation = |server: Value| server["connection"]["shared"]["generation"].clone();
    let before = generation(gateway.server("one").await);
    // Clients come, set a log level and go.
    for _ in 0..3 {
        let client = Client::that_can(&gateway, json!({"roots": {"listChanged": true}})).await;
        client
            .get("logging/setLevel", json!({"level": "debug"}))
            .await;
        client
            .notify("notifications/roots/list_changed", json!({}))
            .await;
        client.get("tools/list", json!({})).await;
        assert_eq!(
            text_of(&client.call("two__echo", json!({})).await),
            "two {}"
        );
        client.delete().await;
    }
    let server = gateway.server("one").await;
    assert_eq!(server["state"], "idle");
    assert_eq!(generation(server), before);
    assert_eq!(gateway.server_pids("one"), [0; 0]);
}

#[tokio::test]
async fn a_client_of_its_own_process_leaves_the_shared_one_at_rest() {
    let own = "start = \"lazy\"\nsharing = \"session\"\n";
    let config = format!("{}{}{own}", quick(), python("one", ""));
    let gateway = Setup::new(&config).serve().await;
    rests(&gateway, "one").await;
    let client = Client::that_can(&gateway, json!({"sampling": {}})).await;
    let declared = client.call("one__declared", json!({})).await;
    assert!(text_of(&declared).contains("sampling"), "{declared}");
    let server = gateway.server("one").await;
    assert_eq!(server["state"], "idle");
    assert_eq!(server["connection"]["own"].as_array().unwrap().len(), 1);
    gateway.server_pid("one");
}

#[tokio::test]
async fn an_idle_server_over_http_has_no_session_and_gets_a_new_one() {
    let peer = HttpServer::start(Default::default()).await;
    let config = format!("{}{}idle_stop = \"200ms\"\n", quick(), peer.config("web"));
    // A session of a client's own stays as long as the client.
    let config = config + "sharing = \"shared\"\n";
    let gateway = Setup::new(&config).serve().await;
    let client = Client::open(&gateway).await;
    for round in 1..3 {
        gateway.wait_state("web", "idle").await;
        until("the end of its session", || async {
            (peer.behaviour().deleted == round).then_some(())
        })
        .await;
        let result = client.call("web__echo", json!({})).await;
        assert_eq!(text_of(&result), "http {}");
    }
}

#[tokio::test]
async fn a_lazy_server_that_cannot_start_fails_its_calls_with_the_reason() {
    let setup = Setup::new("");
    let needed = setup.path("needed");
    std::fs::write(&needed, "").unwrap();
    let needs = format!("IT_NEEDS = \"{}\"", needed.display());
    let config = format!("{}{}start = \"lazy\"\n", quick(), python("ill", &needs));
    std::fs::write(setup.path("config.toml"), config).unwrap();
    let gateway = setup.serve().await;
    rests(&gateway, "ill").await;
    std::fs::remove_file(&needed).unwrap();
    let client = Client::open(&gateway).await;
    let result = client.call("ill__echo", json!({})).await;
    assert_eq!(result["isError"], true, "{result}");
    assert!(text_of(&result).contains('3'), "{result}");
    std::fs::write(&needed, "").unwrap();
    gateway.wait_state("ill", "up").await;
    assert_eq!(
        text_of(&client.call("ill__echo", json!({})).await),
        "ill {}"
    );
}

#[tokio::test]
async fn the_way_of_starting_is_changed_by_a_reload() {
    let base = quick() + &example("one");
    let gateway = Setup::new(&format!("{base}start = \"lazy\"\n"))
        .serve()
        .await;
    rests(&gateway, "one").await;
    gateway.write_config(&base);
    gateway.wait_state("one", "up").await;
    let pid = gateway.server_pid("one");
    gateway.write_config(&format!("{base}start = \"lazy\"\nidle_stop = \"100ms\"\n"));
    rests(&gateway, "one").await;
    until("the end of its process", || async {
        (!alive(pid)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_operator_stops_and_starts_an_idle_server() {
    let config = format!("{}{}start = \"lazy\"\n", quick(), example("one"));
    let gateway = Setup::new(&config).serve().await;
    rests(&gateway, "one").await;
    let run = |verb: &'static str| {
        let output = gateway.setup.command(&["servers", verb, "one"]).output();
        assert!(output.unwrap().status.success(), "{verb}");
    };
    let client = Client::open(&gateway).await;
    run("stop");
    assert_eq!(gateway.server("one").await["state"], "stopped");
    assert_eq!(echo(&client, "one").await["isError"], true);
    assert_eq!(gateway.server_pids("one"), [0; 0]);
    run("start");
    gateway.wait_state("one", "up").await;
    gateway.server_pid("one");
}

#[tokio::test]
async fn disabled_means_no_process_and_no_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let config = format!(
        "{}{}enabled = false\nstart = \"eager\"\n[servers.web]\nurl = \"{url}\"\nenabled = false\n{}",
        quick(),
        example("off"),
        example("on")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    assert_eq!(text_of(&echo(&client, "on").await), "m");
    let list = client.get("tools/list", json!({})).await;
    assert_eq!(names(&list["tools"]).len(), 11);
    assert_eq!(gateway.server_pids("off"), [0; 0]);
    let accepted = listener.accept().unwrap_err();
    assert_eq!(accepted.kind(), std::io::ErrorKind::WouldBlock);
    for name in ["off", "web"] {
        let server = gateway.server(name).await;
        assert_eq!(server["state"], "disabled");
        assert!(server.get("connection").is_none(), "{server}");
    }
}
