//! Servers behind the gateway that are spoken to over HTTP.

use serde_json::json;

use crate::support::{
    Behaviour, Client, Gateway, HttpServer, failure_of, names, quick, text_of, until,
};

#[tokio::test]
async fn answers_come_as_json_or_as_streams() {
    let server = HttpServer::start(Behaviour {
        no_get: true,
        ..Default::default()
    })
    .await;
    let gateway = Gateway::start(&server.config("http")).await;
    let client = Client::open(&gateway).await;
    for streams in [false, true] {
        server.behaviour().streams = streams;
        let result = client.call("http__echo", json!({"n": 1})).await;
        assert_eq!(text_of(&result), "http {\"n\":1}");
    }
    // That it has no GET stream is a fact and not a fault.
    let view = gateway.server("http").await;
    assert_eq!(view["connection"]["shared"]["generation"], 1);
}

#[tokio::test]
async fn a_server_that_forgets_its_session_is_not_noticed_by_clients() {
    let server = HttpServer::start(Default::default()).await;
    let gateway = Gateway::start(&server.config("http")).await;
    let clients = [Client::open(&gateway).await, Client::open(&gateway).await];
    for round in 1..=3 {
        for client in &clients {
            let result = client.call("http__echo", json!({ "n": round })).await;
            assert_eq!(text_of(&result), format!("http {{\"n\":{round}}}"));
        }
        server.behaviour().sessions.clear();
    }
    // Calls that start while a new handshake is under way wait for it.
    for _ in 0..5 {
        let calls = (0..8).map(|n| clients[n % 2].call("http__echo", json!({"n": 4})));
        for result in futures_util::future::join_all(calls).await {
            assert_eq!(text_of(&result), "http {\"n\":4}");
        }
        server.behaviour().sessions.clear();
    }
    let view = gateway.server("http").await;
    assert_eq!(view["connection"]["shared"]["generation"], 1);
    assert_eq!(server.behaviour().calls.len(), 46, "each call ran once");
    assert_eq!(gateway.status().await["counters"]["calls_failed"], 0);
}

#[tokio::test]
async fn a_server_that_goes_away_comes_back() {
    let mut server = HttpServer::start(Default::default()).await;
    let limits = "ping_every = \"200ms\"\nping_timeout = \"1s\"\n";
    let gateway = Gateway::start(&format!("{}{}{limits}", quick(), server.config("http"))).await;
    let client = Client::open(&gateway).await;
    server.stop().await;
    // A connection that is still open may serve one more.
    let failure = until("a call to fail", || async {
        let result = client.call("http__echo", json!({})).await;
        (result["isError"] == true).then(|| failure_of(&result).clone())
    })
    .await;
    assert_eq!(failure["server"], "http");
    // An idle connection may be written to before its end is seen: then it may have been read.
    let code = failure["code"].as_str().unwrap();
    assert!(
        ["server_unavailable", "server_lost"].contains(&code),
        "{failure}"
    );
    assert_eq!(
        names(&client.get("tools/list", json!({})).await["tools"]).len(),
        6
    );
    until("the loss to be noticed", || async {
        (gateway.server("http").await["state"] != "up").then_some(())
    })
    .await;
    server.start_again().await;
    gateway.wait_state("http", "up").await;
    assert_eq!(
        text_of(&client.call("http__echo", json!({})).await),
        "http {}"
    );
}

#[tokio::test]
async fn a_server_that_starts_late_is_found() {
    let mut server = HttpServer::start(Default::default()).await;
    server.stop().await;
    let config = format!("{}{}", quick(), server.config("http"));
    let gateway = crate::support::Setup::new(&config).serve().await;
    until("the first attempts", || async {
        let view = gateway.server("http").await;
        let why = view["connection"]["shared"]["last_exit"]
            .as_str()?
            .to_owned();
        why.contains("refused").then_some(())
    })
    .await;
    server.start_again().await;
    gateway.wait_state("http", "up").await;
    let client = Client::open(&gateway).await;
    assert_eq!(
        text_of(&client.call("http__echo", json!({})).await),
        "http {}"
    );
}

#[tokio::test]
async fn a_stream_that_breaks_fails_its_call_and_no_other() {
    let server = HttpServer::start(Default::default()).await;
    let gateway = Gateway::start(&server.config("http")).await;
    let client = Client::open(&gateway).await;
    let result = client.call("http__break", json!({})).await;
    let failure = failure_of(&result);
    assert_eq!(
        (&failure["code"], &failure["server"]),
        (&json!("server_lost"), &json!("http"))
    );
    assert_eq!(
        text_of(&client.call("http__echo", json!({})).await),
        "http {}"
    );
    assert_eq!(
        server.behaviour().calls,
        ["break", "echo"],
        "nothing is sent twice"
    );
}

#[tokio::test]
async fn large_results_pass_and_larger_ones_are_refused() {
    let server = HttpServer::start(Default::default()).await;
    let limits = "[limits]\nbody = \"2MiB\"\nevent = \"2MiB\"\n";
    let gateway = Gateway::start(&format!("{limits}{}", server.config("http"))).await;
    let client = Client::open(&gateway).await;
    for (streams, limit) in [(false, "limits.body"), (true, "limits.event")] {
        server.behaviour().streams = streams;
        let result = client.call("http__long", json!({"bytes": 1 << 20})).await;
        assert_eq!(text_of(&result).len(), 1 << 20);
        let result = client.call("http__long", json!({"bytes": 3 << 20})).await;
        assert_eq!(failure_of(&result)["code"], "server_protocol");
        assert!(text_of(&result).contains(limit), "{}", text_of(&result));
        assert_eq!(
            text_of(&client.call("http__echo", json!({})).await),
            "http {}"
        );
    }
    assert_eq!(
        gateway.server("http").await["connection"]["shared"]["generation"],
        1
    );
}

#[tokio::test]
async fn a_server_that_refuses_us_says_why_in_status() {
    let server = HttpServer::start(Behaviour {
        refuses: true,
        ..Default::default()
    })
    .await;
    let config = format!("{}max_restarts = 1\n{}", quick(), server.config("http"));
    let gateway = crate::support::Setup::new(&config).serve().await;
    let broken = gateway.wait_state("http", "broken").await;
    let why = broken["connection"]["shared"]["last_exit"]
        .as_str()
        .unwrap();
    assert!(why.contains("401") && why.contains("no token"), "{why}");
    server.behaviour().refuses = false;
    gateway.wait_state("http", "up").await;
}

#[tokio::test]
async fn headers_of_the_configuration_are_sent_and_those_of_clients_are_not() {
    let server = HttpServer::start(Default::default()).await;
    let config = format!(
        "{}headers = {{ X-Token = \"from config\" }}\n",
        server.config("http")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let params = json!({"name": "http__echo", "arguments": {}});
    let http = client.post(&crate::support::request(1, "tools/call", params));
    let http = http
        .header("Authorization", "Bearer of-the-client")
        .header("X-Other", "1");
    assert_eq!(http.send().await.status, 200);
    let headers = server.behaviour().headers.clone();
    assert!(
        headers.contains(&("x-token".to_owned(), "from config".to_owned())),
        "{headers:?}"
    );
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    assert!(
        !names.contains(&"authorization") && !names.contains(&"x-other"),
        "{names:?}"
    );
    assert!(headers.contains(&("mcp-protocol-version".to_owned(), "2025-11-25".to_owned())));
}
