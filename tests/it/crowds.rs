//! Many at once: everybody gets their own, and nobody waits for others.

use std::collections::HashSet;

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    Client, Gateway, HttpServer, example, names, python, request, soon, text_of, until,
};

#[tokio::test]
async fn every_answer_goes_to_the_call_that_asked() {
    let server = HttpServer::start(Default::default()).await;
    let config = format!("{}{}", example("stdio"), server.config("http"));
    let gateway = Gateway::start(&config).await;
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(Client::open(&gateway).await);
    }
    let calls = clients.iter().enumerate().flat_map(|(who, client)| {
        (0..20).map(move |n| async move {
            let message = format!("{who}/{n}");
            let result = client
                .call("stdio__echo", json!({ "message": message }))
                .await;
            assert_eq!(text_of(&result), message);
            let result = client.call("http__echo", json!({ "m": message })).await;
            assert_eq!(text_of(&result), format!("http {{\"m\":\"{message}\"}}"));
        })
    });
    soon("all calls", join_all(calls)).await;
    assert_eq!(server.behaviour().calls.len(), 240);
    let counters = gateway.status().await["counters"].clone();
    assert_eq!(
        (&counters["calls_answered"], &counters["calls_failed"]),
        (&json!(480), &json!(0))
    );
}

#[tokio::test]
async fn slow_calls_of_one_session_run_side_by_side() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let slow = json!({"steps": 10, "delay_ms": 100});
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(client.start("example__slow", slow.clone()).await);
    }
    let server = gateway.server("example").await;
    assert!(
        server["connection"]["in_flight"].as_u64().unwrap() > 1,
        "one after the other"
    );
    for (id, events) in streams {
        let mut messages = events.rest().await;
        let answer = messages.pop().unwrap();
        assert_eq!(answer["id"], id);
        let token = format!("token-{id}");
        assert!(
            messages
                .iter()
                .all(|message| message["params"]["progressToken"] == token)
        );
        assert_eq!(messages.len(), 10);
    }
}

#[tokio::test]
async fn a_burst_of_progress_does_not_cost_the_answer() {
    let gateway = Gateway::start(&python("py", "")).await;
    for revision in ["2025-03-26", "2025-11-25"] {
        let client = Client::open_as(&gateway, revision, json!({})).await;
        let (id, events) = client.start("py__burst", json!({"steps": 20_000})).await;
        let mut messages = events.rest().await;
        let answer = messages.pop().unwrap();
        assert_eq!(answer["id"], id, "the stream broke: {answer}");
        let progress: Vec<u64> = messages
            .iter()
            .map(|message| message["params"]["progress"].as_u64().unwrap())
            .collect();
        assert!(progress.is_sorted_by(|one, next| one < next));
    }
}

#[tokio::test]
async fn sessions_come_and_go_and_leave_nothing() {
    let gateway = Gateway::start(&example("example")).await;
    let visit = async |n: usize| {
        let client = Client::open(&gateway).await;
        let mut stream = None;
        if n.is_multiple_of(3) {
            stream = Some(client.listen().await);
        }
        let counter = json!({"uri": "example://counter"});
        client.get("resources/subscribe", counter).await;
        client
            .get("logging/setLevel", json!({"level": "info"}))
            .await;
        client.call("example__add", json!({"a": n, "b": 1})).await;
        assert_eq!(client.delete().await.status, 200);
        if let Some(stream) = &mut stream {
            while stream.next().await.is_some() {}
        }
    };
    for round in 0..5 {
        join_all((0..20).map(|n| visit(round * 20 + n))).await;
    }
    let status = gateway.status().await;
    assert_eq!(status["sessions"], 0);
    assert_eq!(status["counters"]["sessions_opened"], 100);
    assert_eq!(status["counters"]["sessions_deleted"], 100);
    assert_eq!(status["servers"][0]["connection"]["in_flight"], 0);
}

#[tokio::test]
async fn each_session_may_have_a_process_of_its_own() {
    let gateway = Gateway::start(&format!("{}sharing = \"session\"\n", python("py", ""))).await;
    let mut pids = HashSet::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = Client::open(&gateway).await;
        let first = client.call("py__pid", json!({})).await;
        let again = client.call("py__pid", json!({})).await;
        assert_eq!(first, again);
        pids.insert(text_of(&first).to_owned());
        clients.push(client);
    }
    assert_eq!(pids.len(), 3);
    for client in &clients {
        client.delete().await;
    }
    until("the end of their processes", || async {
        (gateway.server_pids("py").len() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_list_of_an_own_process_is_seen_by_its_session_only() {
    let config = format!("{}sharing = \"session\"\n", example("example"));
    let gateway = Gateway::start(&config).await;
    let own = Client::that_can(&gateway, json!({"elicitation": {}})).await;
    let other = Client::open(&gateway).await;
    let (mut own_stream, mut other_stream) = (own.listen().await, other.listen().await);
    own.call("example__add_tool", json!({"name": "mine"})).await;
    own_stream.method("notifications/tools/list_changed").await;
    let list = own.get("tools/list", json!({})).await;
    assert!(names(&list["tools"]).contains(&"example__mine"));
    own.call("example__mine", json!({})).await;
    let list = other.get("tools/list", json!({})).await;
    assert!(!names(&list["tools"]).contains(&"example__mine"));
    let params = json!({"name": "example__mine", "arguments": {}});
    assert_eq!(other.refused("tools/call", params).await["code"], -32602);
    // When its process dies, what it had added is gone.
    own.call("example__crash", json!({})).await;
    own_stream.method("notifications/tools/list_changed").await;
    let list = own.get("tools/list", json!({})).await;
    assert!(!names(&list["tools"]).contains(&"example__mine"));
    other.delete().await;
    assert_eq!(other_stream.message().await, None);
}

#[tokio::test]
async fn a_subscription_on_a_process_of_its_own_survives_its_death() {
    let config = crate::support::quick() + &example("example");
    let gateway = Gateway::start(&config).await;
    let client = Client::that_can(&gateway, json!({"elicitation": {}})).await;
    let mut stream = client.listen().await;
    client
        .get("resources/subscribe", json!({"uri": "example://counter"}))
        .await;
    client.call("example__crash", json!({})).await;
    until("its return", || async {
        let result = client.call("example__touch", json!({})).await;
        result.get("isError").is_none().then_some(())
    })
    .await;
    let updated = stream.method("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "example://counter");
}

#[tokio::test]
async fn tools_for_clients_that_can_be_asked_are_in_their_first_lists() {
    let config = python("one", "IT_FOR_SAMPLING = \"think\"");
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let first = Client::open(&gateway).await;
    until("the list without capabilities", || async {
        let list = first.get("tools/list", json!({})).await;
        (!names(&list["tools"]).contains(&"one__think")).then_some(())
    })
    .await;
    first.delete().await;
    let server = gateway.server("one").await;
    assert_eq!(server["connection"]["separation"], json!(["lists_differ"]));
    let clients = (0..12).map(async |number| {
        let can_be_asked = number % 2 == 0;
        let capabilities = if can_be_asked {
            json!({"sampling": {}})
        } else {
            json!({})
        };
        let client = Client::that_can(&gateway, capabilities).await;
        if number < 2 {
            // One that calls before it lists.
            let call = json!({"name": "one__think", "arguments": {}});
            // A tool that is not listed is called all the same: its server decides.
            assert_eq!(client.ask("tools/call", call).await["error"], Value::Null);
        }
        let list = client.get("tools/list", json!({})).await;
        assert_eq!(names(&list["tools"]).contains(&"one__think"), can_be_asked);
        client
    });
    let clients = soon("all lists", join_all(clients)).await;
    // The shared one, and one for each kind of client.
    assert_eq!(gateway.server_pids("one").len(), 3);
    for client in clients {
        client.delete().await;
    }
}

#[tokio::test]
async fn a_deleted_session_takes_its_calls_back() {
    let server = HttpServer::start(Default::default()).await;
    let gateway = Gateway::start(&server.config("http")).await;
    let client = Client::open(&gateway).await;
    let params = json!({"name": "http__hang", "arguments": {}});
    let hanging = tokio::spawn(client.post(&request(1, "tools/call", params)).send());
    until("the call at the server", || async {
        (server.behaviour().calls.len() == 1).then_some(())
    })
    .await;
    client.delete().await;
    let answer = soon("the end of the call", hanging).await.unwrap();
    assert!(
        !String::from_utf8(answer.bytes().await)
            .unwrap()
            .contains("\"result\"")
    );
    until("the cancellation at the server", || async {
        (server.behaviour().cancelled.len() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_call_that_waits_for_its_server_can_be_taken_back() {
    let config = format!(
        "[supervision]\nbackoff_initial = \"60s\"\nbackoff_max = \"60s\"\n{}queue_while_restarting = \"60s\"\n",
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    client.call("example__crash", json!({})).await;
    until("the loss", || async {
        (gateway.server("example").await["state"] != "up").then_some(())
    })
    .await;
    let params = json!({"name": "example__echo", "arguments": {"message": "m"}});
    let http = client.post(&request("w", "tools/call", params));
    let waiting = tokio::spawn(http.header("Accept", "application/json").send());
    until("the call", || async {
        let status = gateway.status().await;
        (status["counters"]["calls_started"] == 2).then_some(())
    })
    .await;
    client
        .notify("notifications/cancelled", json!({"requestId": "w"}))
        .await;
    let answer = soon("the end of the call", waiting).await.unwrap();
    let body: Vec<u8> = answer.bytes().await;
    assert!(!String::from_utf8(body).unwrap().contains("\"result\""));
    let _: Value = client.get("ping", json!({})).await;
}
