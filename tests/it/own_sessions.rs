//! Clients with a session of their own at servers over HTTP.

use rustix::process::Signal;
use serde_json::json;

use crate::sessionless::modern;
use crate::support::{Behaviour, Client, Gateway, HttpServer, call_params, names, text_of, until};

/// A server that has a handshake only, or the newer era as well.
async fn server(both: bool) -> HttpServer {
    HttpServer::start(Behaviour {
        both,
        ..Default::default()
    })
    .await
}

async fn up(config: &str) -> Gateway {
    let gateway = Gateway::start(config).await;
    gateway.all_up().await;
    gateway
}

async fn count(client: &Client) -> String {
    text_of(&client.call("a__count", json!({})).await).to_owned()
}

async fn tools(client: &Client) -> Vec<String> {
    let list = client.get("tools/list", json!({})).await;
    names(&list["tools"])
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// The number of idle sessions.
async fn idle_sessions(gateway: &Gateway) -> u64 {
    gateway.server("a").await["connection"]["idle_sessions"]
        .as_u64()
        .unwrap()
}

async fn is_idle(gateway: &Gateway) {
    let is_one = || async { (idle_sessions(gateway).await == 1).then_some(()) };
    until("an idle session", is_one).await;
}

async fn ended(server: &HttpServer, sessions: usize) {
    let are_ended = || async { (server.behaviour().deleted == sessions).then_some(()) };
    until("a session to end", are_ended).await;
}

#[tokio::test]
async fn each_client_keeps_its_state_whatever_eras_its_server_speaks() {
    for both in [false, true] {
        for more in ["", "sharing = \"session\"\n", "era = \"legacy\"\n"] {
            let server = server(both).await;
            let gateway = up(&(server.config("a") + more)).await;
            let clients = [
                Client::open(&gateway).await,
                Client::that_can(&gateway, json!({"elicitation": {}})).await,
            ];
            let case = format!("both eras: {both}, {more}");
            for expected in ["1", "2", "3"] {
                for client in &clients {
                    assert_eq!(count(client).await, expected, "{case}");
                }
            }
            assert_eq!(server.behaviour().counts.len(), 2, "{case}");
        }
    }
}

/// The HTTP+SSE server is a second gateway; its server over HTTP counts per session.
#[tokio::test]
async fn over_http_sse_each_client_has_its_own_session_until_it_leaves() {
    let server = server(false).await;
    let before = up(&server.config("b")).await;
    let url = format!("http://{}/sse", before.address);
    let config =
        format!("\n[servers.a]\nurl = \"{url}\"\ntransport = \"sse\"\nentry_idle = \"1s\"\n");
    let gateway = up(&config).await;
    let clients = [
        Client::open(&gateway).await,
        Client::that_can(&gateway, json!({"elicitation": {}})).await,
    ];
    let count = async |client: &Client| {
        let result = client.call("a__b__count", json!({})).await;
        text_of(&result).to_owned()
    };
    for expected in ["1", "2"] {
        for client in &clients {
            assert_eq!(count(client).await, expected);
        }
    }
    let own = async || {
        let view = gateway.server("a").await;
        view["connection"]["own"].as_array().map(Vec::len)
    };
    assert_eq!(own().await, Some(2));
    for client in &clients {
        client.delete().await;
    }
    let has_left = async || (own().await == Some(0)).then_some(());
    until("the clients' sessions to end", has_left).await;
}

#[tokio::test]
async fn a_client_without_a_session_opens_none() {
    let server = server(true).await;
    let gateway = up(&server.config("a")).await;
    for _ in 0..2 {
        let params = call_params("a__count", json!({}));
        let answer = modern(&gateway, "c", "tools/call", params).send().await;
        assert_eq!(text_of(&answer.json().await["result"]), "1");
    }
    assert_eq!(server.behaviour().handshakes, 0);
}

#[tokio::test]
async fn a_server_without_sessions_is_shared_after_one_handshake_showed_it() {
    let server = HttpServer::start(Behaviour {
        modern: true,
        ..Default::default()
    })
    .await;
    let gateway = up(&server.config("a")).await;
    for _ in 0..3 {
        let client = Client::open(&gateway).await;
        assert_eq!(count(&client).await, "1");
    }
    assert_eq!(gateway.server("a").await["connection"]["own"], json!([]));
}

#[tokio::test]
async fn a_list_opens_no_session_and_shows_what_the_clients_calls_enabled() {
    for both in [false, true] {
        let server = server(both).await;
        let gateway = up(&server.config("a")).await;
        let before = server.behaviour().handshakes;
        let (one, other) = (Client::open(&gateway).await, Client::open(&gateway).await);
        for client in [&one, &other] {
            assert!(!tools(client).await.contains(&"a__extra".to_owned()));
        }
        assert_eq!(server.behaviour().handshakes, before);
        let events = other.listen().await;
        one.call("a__enable", json!({})).await;
        assert_eq!(tools(&one).await, ["a__count", "a__enable", "a__extra"]);
        assert_eq!(count(&other).await, "1");
        assert!(!tools(&other).await.contains(&"a__extra".to_owned()));
        // It is told nothing of the other's tools.
        other.delete().await;
        let told = events.rest().await;
        let is_change = |it: &serde_json::Value| it["method"] == "notifications/tools/list_changed";
        assert!(!told.iter().any(is_change), "{told:?}");
        // They survive in the idle session.
        is_idle(&gateway).await;
        one.call("a__count", json!({})).await;
        assert_eq!(tools(&one).await, ["a__count", "a__enable", "a__extra"]);
    }
}

#[tokio::test]
async fn an_idle_session_continues_and_ends_with_its_client() {
    let server = server(true).await;
    let gateway = up(&server.config("a")).await;
    let client = Client::open(&gateway).await;
    let open = Client::open(&gateway).await;
    // It listens, so that its session stays open.
    let _events = open.listen().await;
    assert_eq!(
        (count(&client).await, count(&open).await),
        ("1".into(), "1".into())
    );
    for expected in ["2", "3"] {
        is_idle(&gateway).await;
        assert_eq!(
            gateway.server("a").await["connection"]["own"]
                .as_array()
                .map(Vec::len),
            Some(1)
        );
        assert_eq!(count(&client).await, expected);
    }
    is_idle(&gateway).await;
    assert_eq!(server.behaviour().handshakes, 2);
    for (client, deleted) in [(client, 1), (open, 2)] {
        client.delete().await;
        ended(&server, deleted).await;
    }
    assert_eq!(idle_sessions(&gateway).await, 0);
}

#[tokio::test]
async fn beyond_entries_max_the_session_unused_for_longest_ends() {
    let server = server(true).await;
    let gateway = up(&format!("{}entries_max = 1\n", server.config("a"))).await;
    let (one, other) = (Client::open(&gateway).await, Client::open(&gateway).await);
    assert_eq!(count(&one).await, "1");
    for (client, deleted) in [(&other, 1), (&one, 2)] {
        is_idle(&gateway).await;
        // Its client goes on in a new one.
        assert_eq!(count(client).await, "1");
        ended(&server, deleted).await;
    }
}

#[tokio::test]
async fn a_session_that_its_server_forgot_is_opened_again() {
    let mut server = server(true).await;
    let gateway = up(&server.config("a")).await;
    let (open, idle) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let _events = open.listen().await;
    for client in [&open, &idle] {
        assert_eq!(count(client).await, "1");
    }
    is_idle(&gateway).await;
    server.stop().await;
    server.start_again().await;
    for client in [&open, &idle] {
        let again = || async {
            let answer = client
                .ask("tools/call", call_params("a__count", json!({})))
                .await;
            let is_done = answer["result"]["isError"] != true && answer["result"].is_object();
            is_done.then(|| text_of(&answer["result"]).to_owned())
        };
        assert_eq!(until("the server to be back", again).await, "1");
        assert_eq!(count(client).await, "2");
    }
}

#[tokio::test]
async fn sessions_at_servers_end_with_the_gateway() {
    let server = server(true).await;
    let mut gateway = up(&server.config("a")).await;
    let (open, idle) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let _events = open.listen().await;
    for client in [&open, &idle] {
        assert_eq!(count(client).await, "1");
    }
    is_idle(&gateway).await;
    gateway.signal(Signal::TERM);
    gateway.ended().await;
    assert_eq!(server.behaviour().deleted, 2);
}
