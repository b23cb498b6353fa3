//! Questions of servers: each reaches the one client that it is for.

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::{
    Client, Events, Gateway, HttpServer, example, python, request, soon, text_of, until,
};

fn can_elicit() -> Value {
    json!({"elicitation": {}})
}

async fn last(events: Events) -> Value {
    events.rest().await.pop().expect("an answer")
}

/// Calls a tool that asks; answers every question with what `answer` makes of it.
async fn call_and_answer(
    client: &Client,
    tool: &str,
    arguments: Value,
    method: &str,
    answer: impl Fn(&Value) -> Value,
) -> Value {
    let (_, mut events) = client.start(tool, arguments).await;
    let question = events.method(method).await;
    client.answer(&question, answer(&question)).await;
    last(events).await["result"].clone()
}

/// Each session has a connection of its own.
const OWN: &str = "sharing = \"session\"\n";

#[tokio::test]
async fn two_sessions_are_asked_at_the_same_time_and_each_gets_its_own_question() {
    let gateway = Gateway::start(&(example("example") + OWN)).await;
    let clients = [
        Client::that_can(&gateway, can_elicit()).await,
        Client::that_can(&gateway, can_elicit()).await,
    ];
    let mut calls = Vec::new();
    for (index, client) in clients.iter().enumerate() {
        let arguments = json!({"question": format!("who is {index}?")});
        let (id, mut events) = client.start("example__ask", arguments).await;
        let question = events.method("elicitation/create").await;
        assert_eq!(question["params"]["message"], format!("who is {index}?"));
        calls.push((client, id, events, question));
    }
    for (client, id, events, question) in calls.into_iter().rev() {
        let content = json!({"answer": format!("I am {}", client.session)});
        client
            .answer(&question, json!({"action": "accept", "content": content}))
            .await;
        let answer = last(events).await;
        assert_eq!(answer["id"], id);
        let expected = format!("the user answered: I am {}", client.session);
        assert_eq!(text_of(&answer["result"]), expected);
    }
}

#[tokio::test]
async fn over_http_sessions_share_a_connection_and_each_gets_its_own_question() {
    let server = HttpServer::start(Default::default()).await;
    let shared = "sharing = \"principal\"\n";
    let gateway = Gateway::start(&(server.config("http") + shared)).await;
    let clients = [
        Client::that_can(&gateway, can_elicit()).await,
        Client::that_can(&gateway, can_elicit()).await,
        Client::that_can(&gateway, can_elicit()).await,
    ];
    let mut calls = Vec::new();
    for (index, client) in clients.iter().enumerate() {
        let (_, mut events) = client.start("http__ask", json!({"question": index})).await;
        let question = events.method("elicitation/create").await;
        assert_eq!(question["params"]["message"], index);
        calls.push((index, client, events, question));
    }
    for (index, client, events, question) in calls {
        client
            .answer(
                &question,
                json!({"action": "accept", "content": {"n": index}}),
            )
            .await;
        let answer = last(events).await;
        let said: Value = serde_json::from_str(text_of(&answer["result"])).unwrap();
        assert_eq!(said["content"]["n"], index);
    }
    // The shared connection, and one for all clients that can be asked this.
    assert_eq!(server.behaviour().handshakes, 2);
    let declared = server.behaviour().capabilities.clone();
    assert!(declared[0].get("elicitation").is_none(), "{declared:?}");
    assert!(declared[1].get("elicitation").is_some(), "{declared:?}");
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_not_asked() {
    let gateway = Gateway::start(&format!("{}{}", example("example"), python("py", ""))).await;
    let client = Client::open(&gateway).await;
    let result = client.call("example__ask", json!({})).await;
    assert_eq!(result["isError"], true);
    assert!(text_of(&result).contains("did not declare"), "{result}");
    let result = client.call("py__sample", json!({"text": "x"})).await;
    assert!(text_of(&result).contains("-32601"), "{result}");
    // One that declares sampling is not asked for elicitation either; its server knows by now.
    let sampler = Client::that_can(&gateway, json!({"sampling": {}})).await;
    let result = sampler.call("example__ask", json!({})).await;
    assert!(text_of(&result).contains("cannot be asked"), "{result}");
    assert_eq!(gateway.status().await["counters"]["questions_asked"], 0);
}

#[tokio::test]
async fn servers_read_what_their_client_declared_and_nothing_else() {
    let config = python("py", "") + "sharing = \"session\"\n";
    let gateway = Gateway::start(&config).await;
    let declared = async |capabilities: Value| {
        let client = Client::that_can(&gateway, capabilities).await;
        let result = client.call("py__declared", json!({})).await;
        serde_json::from_str::<Value>(text_of(&result)).unwrap()
    };
    let none = json!({});
    assert_eq!(declared(none).await, json!({"roots": {}}));
    let sampling = json!({"sampling": {"tools": {}}});
    assert_eq!(
        declared(sampling).await,
        json!({"sampling": {"tools": {}}, "roots": {}})
    );
    let both = json!({"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": true}});
    assert_eq!(declared(both.clone()).await, both);
}

#[tokio::test]
async fn a_client_may_decline_cancel_or_fail() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::that_can(&gateway, can_elicit()).await;
    for action in ["decline", "cancel"] {
        let result = call_and_answer(
            &client,
            "example__ask",
            json!({}),
            "elicitation/create",
            |_| json!({ "action": action }),
        );
        assert_eq!(text_of(&result.await), format!("the user chose: {action}"));
    }
    let (_, mut events) = client.start("example__ask", json!({})).await;
    let question = events.method("elicitation/create").await;
    let error = json!({"code": -1, "message": "no screen"});
    client
        .say(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}))
        .await;
    let answer = last(events).await;
    assert!(text_of(&answer["result"]).contains("no screen"), "{answer}");
}

#[tokio::test]
async fn a_client_that_disappears_cancels_what_it_was_asked() {
    let gateway = Gateway::start(&(example("example") + OWN + &python("py", "") + OWN)).await;
    let client = Client::that_can(&gateway, json!({"elicitation": {}, "sampling": {}})).await;
    for tool in ["example__ask", "py__sample"] {
        let (_, mut events) = client.start(tool, json!({})).await;
        let event = loop {
            let event = events.next().await.unwrap();
            if event
                .message()
                .is_some_and(|message| message.get("method").is_some())
            {
                break event;
            }
        };
        assert!(event.id.is_some());
    }
    assert_eq!(client.delete().await.status, 200);
    until("the end of its connections", || async {
        let status = gateway.status().await;
        let servers = status["servers"].as_array().unwrap();
        let idle = servers.iter().all(|server| {
            server["connection"]["in_flight"] == 0 && server["connection"]["own"] == json!([])
        });
        idle.then_some(())
    })
    .await;
    until("the end of its processes", || async {
        let count = |name| gateway.server_pids(name).len();
        (count("example") == 1 && count("py") == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_question_survives_a_broken_stream() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::that_can(&gateway, can_elicit()).await;
    let (id, mut events) = client.start("example__ask", json!({})).await;
    let priming = events.next().await.unwrap().id.unwrap();
    drop(events);
    let mut events = client.resume(&priming).await;
    let question = events.method("elicitation/create").await;
    let content = json!({"answer": "later"});
    client
        .answer(&question, json!({"action": "accept", "content": content}))
        .await;
    let answer = last(events).await;
    assert_eq!(answer["id"], id);
    assert_eq!(text_of(&answer["result"]), "the user answered: later");
}

#[tokio::test]
async fn a_json_only_client_is_not_asked_but_answered() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::that_can(&gateway, can_elicit()).await;
    let params = json!({"name": "example__ask", "arguments": {}});
    let http = client.post(&request(1, "tools/call", params));
    let answer = http
        .header("Accept", "application/json")
        .send()
        .await
        .json()
        .await;
    assert_eq!(text_of(&answer["result"]), "the user chose: cancel");
}

#[tokio::test]
async fn a_question_of_one_call_does_not_end_with_another_call() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::that_can(&gateway, can_elicit()).await;
    let steps = json!({"steps": 4, "delay_ms": 100});
    let (slow, slow_events) = client.start("example__slow", steps).await;
    let ask = client.id();
    let params = json!({"name": "example__ask", "arguments": {}});
    let asking = client.post(&request(ask, "tools/call", params)).send();
    // A pipe does not tell whose question it is: it may come on either stream.
    let (sender, mut messages) = mpsc::unbounded_channel();
    let forward = async |mut events: Events, sender: mpsc::UnboundedSender<Value>| {
        while let Some(message) = events.message().await {
            let _ = sender.send(message);
        }
    };
    let both = async {
        let other = sender.clone();
        let ask = async { forward(asking.await.events(), other).await };
        tokio::join!(forward(slow_events, sender), ask);
    };
    let story = async {
        let (mut question, mut slow_is_over) = (None, false);
        while question.is_none() || !slow_is_over {
            let message = messages.recv().await.unwrap();
            assert_ne!(message["method"], "notifications/cancelled", "{message}");
            assert_ne!(message["id"], ask, "{message}");
            slow_is_over |= message["id"] == slow;
            if message["method"] == "elicitation/create" {
                question = Some(message);
            }
        }
        let content = json!({"answer": "still here"});
        let answer = json!({"action": "accept", "content": content});
        client.answer(&question.unwrap(), answer).await;
        let answer = messages.recv().await.unwrap();
        assert_eq!(answer["id"], ask, "{answer}");
        assert_eq!(text_of(&answer["result"]), "the user answered: still here");
    };
    Box::pin(soon("the story", async { tokio::join!(both, story) })).await;
}

#[tokio::test]
async fn sampling_and_roots_reach_the_client_that_called() {
    let config = format!("{}roots = [\"file:///configured\"]\n", python("py", ""));
    let gateway = Gateway::start(&config).await;
    let capabilities = json!({"sampling": {}, "roots": {}});
    let client = Client::that_can(&gateway, capabilities).await;
    let method = "sampling/createMessage";
    let result = call_and_answer(
        &client,
        "py__sample",
        json!({"text": "hello"}),
        method,
        |asked| {
            let text = asked["params"]["messages"][0]["content"]["text"].clone();
            json!({"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"})
        },
    )
    .await;
    let said: Value = serde_json::from_str(text_of(&result)).unwrap();
    assert_eq!(said["content"]["text"], "hello");
    let roots = json!({"roots": [{"uri": "file:///of/client"}]});
    let result = call_and_answer(&client, "py__roots", json!({}), "roots/list", |_| {
        roots.clone()
    })
    .await;
    assert_eq!(
        serde_json::from_str::<Value>(text_of(&result)).unwrap(),
        roots
    );
    // Who has none gets those of the configuration.
    let plain = Client::open(&gateway).await;
    let result = plain.call("py__roots", json!({})).await;
    let configured = json!({"roots": [{"uri": "file:///configured"}]});
    assert_eq!(
        serde_json::from_str::<Value>(text_of(&result)).unwrap(),
        configured
    );
    assert_eq!(text_of(&plain.call("py__ping", json!({})).await), "{}");
}

#[tokio::test]
async fn over_the_cap_the_shared_connection_serves_and_says_so() {
    let gateway = Gateway::start(&format!("{}entries_max = 1\n", example("example"))).await;
    let can_more = json!({"elicitation": {}, "sampling": {}});
    let second = Client::that_can(&gateway, can_more).await;
    // Two clients at once show that each needs its own process.
    let first = Client::that_can(&gateway, can_elicit()).await;
    let (_, mut events) = first.start("example__ask", json!({})).await;
    events.method("elicitation/create").await;
    let result = second.call("example__ask", json!({})).await;
    assert!(text_of(&result).contains("several clients"), "{result}");
    first.delete().await;
    gateway.setup.run(&["servers", "restart", "example"]);
    until("a shared process without capabilities", || async {
        let connection = &gateway.server("example").await["connection"];
        let is_next = connection["shared"]["generation"] == 2;
        (is_next && connection["own"] == json!([])).then_some(())
    })
    .await;
    let first = Client::that_can(&gateway, can_elicit()).await;
    let (_, mut events) = first.start("example__ask", json!({})).await;
    events.method("elicitation/create").await;
    let result = second.call("example__ask", json!({})).await;
    assert!(text_of(&result).contains("cannot be asked"), "{result}");
    let server = gateway.server("example").await;
    assert_eq!(server["connection"]["own_refused"], 1);
    assert_eq!(server["connection"]["own"].as_array().unwrap().len(), 1);
    let before = gateway.server_pids("example");
    assert_eq!(before.len(), 2);
    // When the first leaves, its place is free.
    first.delete().await;
    until("a connection of its own", || async {
        second.call("example__echo", json!({"message": "m"})).await;
        let now = gateway.server_pids("example");
        now.iter().any(|pid| !before.contains(pid)).then_some(())
    })
    .await;
    let content = json!({"answer": "now"});
    let accept = |_: &Value| json!({"action": "accept", "content": content});
    let result = call_and_answer(
        &second,
        "example__ask",
        json!({}),
        "elicitation/create",
        accept,
    );
    assert_eq!(text_of(&result.await), "the user answered: now");
}

#[tokio::test]
async fn a_question_without_an_answer_ends_in_time() {
    let config = format!(
        "[sessions]\nanswer_timeout = \"1s\"\n{}",
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::that_can(&gateway, can_elicit()).await;
    let (_, mut events) = client.start("example__ask", json!({})).await;
    let question = events.method("elicitation/create").await;
    let answer = last(events).await;
    assert_eq!(text_of(&answer["result"]), "the user chose: cancel");
    // Too late, and ignored.
    client
        .answer(
            &question,
            json!({"action": "accept", "content": {"answer": "x"}}),
        )
        .await;
}
