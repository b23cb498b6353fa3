//! Event streams that break, and how a client goes on.

use serde_json::{Value, json};

use crate::support::{Client, Gateway, Http, example, names, request, text_of, until};

/// Waits until the gateway has answered this many calls.
async fn answered(gateway: &Gateway, calls: u64) {
    until("the answer of the server", || async {
        let counters = &gateway.status().await["counters"];
        (counters["calls_answered"] == calls).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_broken_stream_is_resumed_without_loss_or_repetition() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let (id, mut events) = client
        .start("example__slow", json!({"steps": 6, "delay_ms": 60}))
        .await;
    let mut progress = Vec::new();
    let mut last_id = String::new();
    while progress.len() < 2 {
        let event = events.next().await.unwrap();
        last_id = event.id.clone().unwrap();
        progress.extend(event.message().map(|m| m["params"]["progress"].clone()));
    }
    drop(events);
    let mut rest = client.resume(&last_id).await.rest().await;
    let answer = rest.pop().unwrap();
    assert_eq!(answer["id"], id);
    assert_eq!(text_of(&answer["result"]), "done after 6 steps");
    progress.extend(rest.iter().map(|m| m["params"]["progress"].clone()));
    assert_eq!(progress, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn an_answer_that_nobody_read_is_fetched_later() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let (id, mut events) = client
        .start("example__slow", json!({"steps": 3, "delay_ms": 40}))
        .await;
    let priming = events.next().await.unwrap().id.unwrap();
    drop(events);
    answered(&gateway, 1).await;
    for _ in 0..2 {
        let messages = client.resume(&priming).await.rest().await;
        assert_eq!(messages.len(), 4, "{messages:?}");
        assert_eq!(messages[3]["id"], id);
    }
}

#[tokio::test]
async fn only_events_of_the_same_stream_come_back() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let mut general = client.listen().await;
    let general_id = general.next().await.unwrap().id.unwrap();
    drop(general);
    let slow = json!({"steps": 2, "delay_ms": 30});
    let (first, mut one) = client.start("example__slow", slow.clone()).await;
    let (second, mut two) = client.start("example__slow", slow).await;
    let one_id = one.next().await.unwrap().id.unwrap();
    let two_id = two.next().await.unwrap().id.unwrap();
    assert_ne!(one_id, two_id);
    drop((one, two));
    answered(&gateway, 2).await;
    for (event, request) in [(one_id, first), (two_id, second)] {
        let messages = client.resume(&event).await.rest().await;
        assert_eq!(messages.len(), 3);
        for progress in &messages[..2] {
            assert_eq!(
                progress["params"]["progressToken"],
                format!("token-{request}")
            );
        }
        assert_eq!(messages[2]["id"], request);
    }
    // S-HTTP-27: the general stream never carries an answer.
    let mut general = client.resume(&general_id).await;
    client.delete().await;
    assert_eq!(general.message().await, None);
}

#[tokio::test]
async fn a_stream_of_a_gateway_that_is_gone_ends_with_an_error_for_its_request() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    // As another process would have named it: epoch, stream, sequence, request.
    let messages = client
        .resume("deadbeef.77.3.%22lost+call%22")
        .await
        .rest()
        .await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0]["id"], "lost call");
    assert_eq!(messages[0]["error"]["data"]["code"], "server_lost");
    let message = messages[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("may have run"), "{message}");
}

#[tokio::test]
async fn an_event_id_that_tells_nothing_opens_a_new_general_stream() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    for id in [
        "nonsense",
        "deadbeef.0.3.",
        "1.2.3.4.5",
        "a.b.c.d",
        // The text in the place of an id is no JSON.
        "deadbeef.77.3.%22a%22%2C%22result%22%3A1%2C%22x%22%3A%22",
        "deadbeef.77.3.%22a",
        "deadbeef.77.3.007",
        "deadbeef.+77.3.7",
    ] {
        let http = client
            .with_session(gateway.get("/mcp"))
            .header("Accept", "text/event-stream");
        let answer = http.header("Last-Event-ID", id).send().await;
        assert_eq!(answer.status, 200, "{id}");
        let mut events = answer.events();
        assert!(events.next().await.unwrap().id.is_some());
    }
}

#[tokio::test]
async fn a_second_get_ends_the_first() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let mut first = client.listen().await;
    let mut second = client.listen().await;
    while let Some(event) = first.next().await {
        assert_eq!(event.message(), None);
    }
    client
        .call("example__add_tool", json!({"name": "new"}))
        .await;
    second.method("notifications/tools/list_changed").await;
}

#[tokio::test]
async fn a_changed_list_is_announced_once() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    client
        .call("example__add_tool", json!({"name": "new"}))
        .await;
    stream.method("notifications/tools/list_changed").await;
    let list = client.get("tools/list", json!({})).await;
    assert!(names(&list["tools"]).contains(&"example__new"));
    assert_eq!(
        text_of(&client.call("example__new", json!({"a": 1})).await),
        "new was called with {\"a\":1}"
    );
    // Said again by the server with nothing new in it: nobody hears of it.
    client
        .call("example__add_tool", json!({"name": "new"}))
        .await;
    client.call("example__touch", json!({})).await;
    client
        .get("resources/subscribe", json!({"uri": "example://counter"}))
        .await;
    // The refresh of the second `add_tool` is over before that of this one.
    client
        .call("example__remove_tool", json!({"name": "new"}))
        .await;
    let next = stream.message().await.unwrap();
    assert_eq!(next["method"], "notifications/tools/list_changed");
    until("the tool's end", || async {
        let list = client.get("tools/list", json!({})).await;
        (!names(&list["tools"]).contains(&"example__new")).then_some(())
    })
    .await;
    client.delete().await;
    assert_eq!(stream.message().await, None);
}

#[tokio::test]
async fn a_change_while_no_stream_is_open_is_sent_when_one_opens() {
    let gateway = Gateway::start(&example("example")).await;
    let (client, other) = (Client::open(&gateway).await, Client::open(&gateway).await);
    for name in ["one", "two", "three"] {
        other.call("example__add_tool", json!({"name": name})).await;
    }
    until("the new tools", || async {
        let list = other.get("tools/list", json!({})).await;
        names(&list["tools"])
            .contains(&"example__three")
            .then_some(())
    })
    .await;
    let mut stream = client.listen().await;
    stream.method("notifications/tools/list_changed").await;
    drop(stream);
    // It was told: another stream does not tell it again.
    let mut again = client.listen().await;
    client.delete().await;
    assert_eq!(again.message().await, None);
}

#[tokio::test]
async fn the_general_stream_is_resumed_too() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    let priming = stream.next().await.unwrap().id.unwrap();
    client
        .call("example__log", json!({"message": "one", "level": "error"}))
        .await;
    assert_eq!(
        stream.method("notifications/message").await["params"]["data"],
        "one"
    );
    drop(stream);
    let mut resumed = client.resume(&priming).await;
    assert_eq!(
        resumed.method("notifications/message").await["params"]["data"],
        "one"
    );
    client
        .call("example__log", json!({"message": "two", "level": "error"}))
        .await;
    assert_eq!(
        resumed.method("notifications/message").await["params"]["data"],
        "two"
    );
}

#[tokio::test]
async fn silence_is_filled_with_comments() {
    let gateway = Gateway::start("[gateway]\nsse_comment_every = \"1s\"\n").await;
    let client = Client::open(&gateway).await;
    let http = client
        .with_session(gateway.get("/mcp"))
        .header("Accept", "text/event-stream");
    let text = http.send().await.text_until("keep-alive").await;
    assert!(text.ends_with("\n\n: keep-alive\n\n"), "{text}");
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_its_stream_and_fetches_the_rest() {
    let config = format!("[sessions]\nstream_queue = 4\n{}", example("example"));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    let priming = stream.next().await.unwrap().id.unwrap();
    let big = "x".repeat(64 * 1024);
    // More than the sockets between us hold.
    for _ in 0..160 {
        client
            .call("example__log", json!({"message": big, "level": "error"}))
            .await;
    }
    let read: Vec<Value> = stream.rest().await;
    assert!(read.len() < 160, "{}", read.len());
    // The log is bounded, so the oldest are gone; the newest are there.
    let mut resumed = client.resume(&priming).await;
    assert_eq!(
        resumed.method("notifications/message").await["params"]["data"],
        json!(big)
    );
    client.get("ping", json!({})).await;
}

#[tokio::test]
async fn a_stream_of_another_session_is_not_to_be_had() {
    let gateway = Gateway::start(&example("example")).await;
    let (client, thief) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let (_, mut events) = client
        .start("example__slow", json!({"steps": 1, "delay_ms": 10}))
        .await;
    let id = events.next().await.unwrap().id.unwrap();
    events.rest().await;
    let messages = thief.resume(&id).await.rest().await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["error"]["data"]["code"], "server_lost");
    let ping = Http::post(gateway.address, request(1, "ping", json!({})).to_string());
    assert_eq!(ping.send().await.status, 400);
}
