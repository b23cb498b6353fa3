//! HTTP+SSE of revision 2024-11-05, for clients that know nothing newer.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Answer, Events, Gateway, Http, INITIALIZE, Setup, example, initialize, names, quick, request,
    soon, text_of, until,
};

/// A client: one stream, and an address for messages.
pub(crate) struct SseClient {
    pub(crate) gateway: std::net::SocketAddr,
    pub(crate) path: String,
    pub(crate) events: Events,
}

pub(crate) fn get(gateway: &Gateway) -> Http {
    gateway.get("/sse").header("Accept", "text/event-stream")
}

impl SseClient {
    /// A stream on which nothing was said yet.
    pub(crate) async fn connect(gateway: &Gateway) -> Self {
        Self::open_stream(gateway, get(gateway)).await
    }

    /// A stream after the event with this id.
    pub(crate) async fn reconnect(gateway: &Gateway, last_event_id: &str) -> Self {
        let get = get(gateway).header("Last-Event-ID", last_event_id);
        Self::open_stream(gateway, get).await
    }

    pub(crate) async fn open_stream(gateway: &Gateway, get: Http) -> Self {
        let answer = get.send().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let mut events = answer.events();
        let first = events.next().await.unwrap();
        Self {
            gateway: gateway.address,
            path: first.data,
            events,
        }
    }

    pub(crate) async fn open(gateway: &Gateway) -> Self {
        Self::open_as(gateway, "2024-11-05", json!({})).await
    }

    pub(crate) async fn open_as(gateway: &Gateway, revision: &str, capabilities: Value) -> Self {
        let client = Self::connect(gateway).await;
        client.initialized(revision, capabilities).await
    }

    /// The same on a stream that this GET opens.
    pub(crate) async fn enter(gateway: &Gateway, get: Http) -> Self {
        let client = Self::open_stream(gateway, get).await;
        client.initialized("2024-11-05", json!({})).await
    }

    async fn initialized(self, revision: &str, capabilities: Value) -> Self {
        let mut client = self;
        client.accepted(&initialize(revision, &capabilities)).await;
        let answer = client.events.message().await.unwrap();
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        client
            .accepted(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
    }

    pub(crate) fn last_event_id(&self) -> String {
        self.events.last_id.clone().unwrap()
    }

    pub(crate) fn post(&self, message: impl ToString) -> Http {
        Http::post(self.gateway, message.to_string()).path(&self.path)
    }

    pub(crate) async fn accepted(&self, message: &Value) {
        let answer = self.post(message).send().await;
        assert_eq!(answer.status, 202, "{message}: {answer:?}");
        assert!(answer.bytes().await.is_empty());
    }

    /// The answer to a request; other messages before it are left out.
    pub(crate) async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.accepted(&request(id, method, params)).await;
        self.answer(id).await
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.events.message().await.expect("an answer");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    pub(crate) async fn call(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.ask(id, "tools/call", params).await["result"].clone()
    }
}

pub(crate) async fn sessions(gateway: &Gateway, count: u64) {
    until("the number of sessions", || async {
        (gateway.status().await["sessions"] == count).then_some(())
    })
    .await;
}

pub(crate) async fn refusal(answer: Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let body = answer.json().await;
    assert_eq!(body["error"]["data"]["code"], code, "{body}");
}

#[tokio::test]
async fn s_sse_02_the_stream_begins_with_the_address_for_messages() {
    let gateway = Gateway::start("").await;
    let answer = get(&gateway).send().await;
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let text = answer.text_until("\n\n").await;
    let (head, id) = text.split_once("?sessionId=").unwrap();
    let id = id.trim_end();
    assert_eq!(id.len(), 36, "{text}");
    assert_eq!(
        head,
        format!("event: endpoint\nid: {id}.0\ndata: /messages")
    );
}

#[tokio::test]
async fn s_sse_03_everything_that_a_client_asks_is_answered_on_the_stream() {
    let gateway = Gateway::start(&example("example")).await;
    let mut client = SseClient::open(&gateway).await;
    let tools = client.ask(1, "tools/list", json!({})).await;
    assert!(names(&tools["result"]["tools"]).contains(&"example__echo"));
    assert_eq!(client.ask(2, "ping", json!({})).await["result"], json!({}));
    let result = client
        .call(3, "example__echo", json!({"message": "hi\nthere"}))
        .await;
    assert_eq!(text_of(&result), "hi\nthere");
    let unknown = client.ask(4, "no/such", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601);
    // More than the events that a session keeps.
    let result = client
        .call(5, "example__big", json!({"bytes": 3 << 20}))
        .await;
    assert_eq!(text_of(&result).len(), 3 << 20);
    assert_eq!(client.ask(6, "ping", json!({})).await["id"], 6);
    sessions(&gateway, 1).await;
}

#[tokio::test]
async fn progress_comes_before_the_answer_and_calls_do_not_wait_for_each_other() {
    let gateway = Gateway::start(&example("example")).await;
    let mut client = SseClient::open(&gateway).await;
    let params = json!({
        "name": "example__slow",
        "arguments": {"steps": 3, "delay_ms": 20},
        "_meta": {"progressToken": "p"},
    });
    client.accepted(&request(1, "tools/call", params)).await;
    let mut seen = Vec::new();
    loop {
        let message = client.events.message().await.unwrap();
        if message["id"] == 1 {
            assert!(message.get("result").is_some(), "{message}");
            break;
        }
        assert_eq!(message["method"], "notifications/progress");
        assert_eq!(message["params"]["progressToken"], "p");
        seen.push(message["params"]["progress"].as_f64().unwrap());
    }
    assert_eq!(seen, [1.0, 2.0, 3.0]);

    let slow = json!({"name": "example__slow", "arguments": {"steps": 100, "delay_ms": 1000}});
    client.accepted(&request(2, "tools/call", slow)).await;
    assert_eq!(client.ask(3, "ping", json!({})).await["id"], 3);
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 2, "reason": "enough"},
    });
    client.accepted(&cancel).await;
    until("the call is cancelled", || async {
        let status = gateway.status().await;
        (status["counters"]["calls_cancelled"] == 1).then_some(())
    })
    .await;
    assert_eq!(client.ask(4, "ping", json!({})).await["id"], 4);
}

#[tokio::test]
async fn questions_events_and_log_lines_come_on_the_same_stream() {
    let gateway = Gateway::start(&example("example")).await;
    let capabilities = json!({"elicitation": {}});
    let mut client = SseClient::open_as(&gateway, "2025-06-18", capabilities).await;
    let params = json!({"name": "example__ask", "arguments": {"question": "who?"}});
    client.accepted(&request(1, "tools/call", params)).await;
    let question = client.events.method("elicitation/create").await;
    assert_eq!(question["params"]["message"], "who?");
    let answer = json!({"action": "accept", "content": {"answer": "me"}});
    client
        .accepted(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}))
        .await;
    let result = client.answer(1).await;
    assert_eq!(text_of(&result["result"]), "the user answered: me");

    let added = json!({"name": "example__add_tool", "arguments": {"name": "more"}});
    client.accepted(&request(2, "tools/call", added)).await;
    client
        .events
        .method("notifications/tools/list_changed")
        .await;
    let params =
        json!({"name": "example__log", "arguments": {"message": "note", "level": "error"}});
    client.accepted(&request(3, "tools/call", params)).await;
    let line = client.events.method("notifications/message").await;
    assert_eq!(line["params"]["level"], "error");
}

#[tokio::test]
async fn a_client_that_reads_late_loses_no_answer() {
    const BIG: u64 = 100;
    let config = "[sessions]\nstream_queue = 2\n[limits]\ncalls_per_session = 1000\n";
    let gateway = Gateway::start(&format!("{config}{}", example("example"))).await;
    let mut client = SseClient::open(&gateway).await;
    let call = |id: u64, tool: &str, arguments: Value| {
        let meta = json!({"progressToken": id});
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        request(id, "tools/call", params)
    };
    // More than fits into what lies between us and the client.
    for id in 0..BIG {
        let big = call(id, "example__big", json!({"bytes": 300_000}));
        client.accepted(&big).await;
    }
    let steps = json!({"steps": 20, "delay_ms": 0});
    client.accepted(&call(BIG, "example__slow", steps)).await;
    until("everything is answered by the server", || async {
        let counters = &gateway.status().await["counters"];
        (counters["calls_answered"] == BIG + 1).then_some(())
    })
    .await;
    let (mut answered, mut progress) = (std::collections::HashSet::new(), 0.0);
    while answered.len() < usize::try_from(BIG).unwrap() + 1 {
        let message = client.events.message().await.unwrap();
        if let Some(id) = message["id"].as_u64() {
            assert!(message.get("result").is_some(), "{message}");
            assert!(answered.insert(id), "{id} is answered twice");
        } else {
            let next = message["params"]["progress"].as_f64().unwrap();
            assert!(next > progress, "{message}");
            progress = next;
        }
    }
    assert_eq!(client.ask(500, "ping", json!({})).await["id"], 500);
}

#[tokio::test]
async fn requests_before_initialize_are_refused_but_for_ping() {
    let gateway = Gateway::start("").await;
    let mut client = SseClient::connect(&gateway).await;
    let answer = client.ask(1, "ping", json!({})).await;
    assert_eq!(answer["result"], json!({}));
    let answer = client
        .post(request(2, "tools/list", json!({})))
        .send()
        .await;
    refusal(answer, 400, "session_required").await;
    let answer = client
        .post(json!([request(2, "ping", json!({}))]))
        .send()
        .await;
    refusal(answer, 400, "invalid_request").await;
    client
        .accepted(&serde_json::from_str(INITIALIZE).unwrap())
        .await;
    assert_eq!(client.events.message().await.unwrap()["id"], "first");
    refusal(client.post(INITIALIZE).send().await, 400, "invalid_request").await;
    let claim = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    let answer = client.post(request(3, "tools/list", claim)).send().await;
    refusal(answer, 400, "invalid_meta").await;
    let bad = json!({"protocolVersion": 7});
    let fresh = SseClient::connect(&gateway).await;
    let answer = fresh.post(request(4, "initialize", bad)).send().await;
    refusal(answer, 400, "invalid_params").await;
}

#[tokio::test]
async fn batches_are_answered_in_the_one_revision_that_has_them() {
    let gateway = Gateway::start(&example("example")).await;
    let mut client = SseClient::open_as(&gateway, "2025-03-26", json!({})).await;
    let echo = json!({"name": "example__echo", "arguments": {"message": "hi"}});
    let batch = json!([
        request(1, "tools/call", echo),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request(2, "ping", json!({})),
        initialize("2025-03-26", &json!({})),
        {"jsonrpc": "2.0"},
    ]);
    client.accepted(&batch).await;
    let answers = client.events.message().await.unwrap();
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 4, "{answers:?}");
    assert_eq!(text_of(&answers[0]["result"]), "hi");
    assert_eq!(answers[1]["result"], json!({}));
    assert_eq!(answers[2]["error"]["code"], -32600);
    assert_eq!(answers[3]["id"], Value::Null);
    for batch in [json!([]), json!(vec![request(1, "ping", json!({})); 65])] {
        refusal(client.post(batch).send().await, 400, "invalid_request").await;
    }
    let older = SseClient::open(&gateway).await;
    let answer = older
        .post(json!([request(1, "ping", json!({}))]))
        .send()
        .await;
    refusal(answer, 400, "invalid_request").await;
}

#[tokio::test]
async fn malformed_requests_are_refused() {
    let config = "[gateway]\n[limits]\nbody = \"10KiB\"\n";
    let gateway = Gateway::start(config).await;
    let client = SseClient::open(&gateway).await;
    let ping = || client.post(request(1, "ping", json!({})));
    refusal(
        ping().path("/messages").send().await,
        404,
        "session_not_found",
    )
    .await;
    let unknown = format!("/messages?sessionId={}", uuid::Uuid::new_v4());
    refusal(ping().path(&unknown).send().await, 404, "session_not_found").await;
    refusal(client.post("{").send().await, 400, "parse_error").await;
    refusal(
        client.post(r#"{"jsonrpc":"2.0"}"#).send().await,
        400,
        "invalid_request",
    )
    .await;
    let text = ping().header("Content-Type", "text/plain");
    refusal(text.send().await, 415, "unsupported_media_type").await;
    let large = request(1, "ping", json!({"x": "x".repeat(20_000)}));
    refusal(client.post(large).send().await, 413, "too_large").await;
    for (method, path, allow) in [("GET", &*client.path, "POST"), ("POST", "/sse", "GET")] {
        let answer = Http::new(gateway.address, method, path).send().await;
        assert_eq!(answer.header("allow"), Some(allow));
        refusal(answer, 405, "http_method_not_allowed").await;
    }
    let json_only = get(&gateway).header("Accept", "application/json");
    refusal(json_only.send().await, 406, "not_acceptable").await;
    assert_eq!(ping().send().await.status, 202);
}

#[tokio::test]
async fn s_sse_04_strange_origins_and_hosts_are_refused_at_both_addresses() {
    let gateway = Gateway::start("").await;
    let client = SseClient::open(&gateway).await;
    let ping = || client.post(request(1, "ping", json!({})));
    for (name, value) in [("Origin", "http://evil.example"), ("Host", "evil.example")] {
        refusal(
            get(&gateway).header(name, value).send().await,
            403,
            "forbidden",
        )
        .await;
        refusal(ping().header(name, value).send().await, 403, "forbidden").await;
    }
    let origin = "http://localhost:3000";
    let answer = ping().header("Origin", origin).send().await;
    assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
}

#[tokio::test]
async fn it_can_be_switched_off_and_on() {
    let off = "[gateway]\nlegacy_sse = false\n";
    let gateway = Gateway::start(off).await;
    refusal(get(&gateway).send().await, 404, "not_found").await;
    let post = Http::post(gateway.address, INITIALIZE).path("/messages");
    refusal(post.send().await, 404, "not_found").await;
    gateway.write_config("[gateway]\n");
    until("it is switched on", || async {
        (get(&gateway).send().await.status == 200).then_some(())
    })
    .await;
    SseClient::open(&gateway).await;
}

#[tokio::test]
async fn a_session_whose_server_dies_goes_on() {
    let gateway = Gateway::start(&format!("{}{}", quick(), example("example"))).await;
    let mut client = SseClient::open(&gateway).await;
    let lost = gateway.generation("example").await;
    let result = client.call(1, "example__crash", json!({})).await;
    assert_eq!(result["isError"], true, "{result}");
    gateway.wait_renewed("example", lost).await;
    let result = client
        .call(2, "example__echo", json!({"message": "again"}))
        .await;
    assert_eq!(text_of(&result), "again");
}

#[tokio::test]
async fn the_gateway_stops_after_the_calls_under_way() {
    let config = format!("{}{}", quick(), example("example"));
    let mut gateway = Setup::new(&config).serve().await;
    gateway.all_up().await;
    let mut client = SseClient::open(&gateway).await;
    let idle = SseClient::open(&gateway).await;
    let slow = json!({"name": "example__slow", "arguments": {"steps": 4, "delay_ms": 200}});
    client.accepted(&request(1, "tools/call", slow)).await;
    until("the call runs", || async {
        (gateway.server("example").await["connection"]["in_flight"] == 1).then_some(())
    })
    .await;
    gateway.signal(Signal::TERM);
    assert!(
        soon("the idle stream's end", idle.events.rest())
            .await
            .is_empty()
    );
    let answer = client.answer(1).await;
    assert!(answer.get("result").is_some(), "{answer}");
    assert!(client.events.rest().await.is_empty());
    assert!(gateway.ended().await.success());
    gateway.start_again().await;
    assert_eq!(gateway.status().await["sessions"], 2);
}

#[tokio::test]
async fn a_client_connects_anew_to_a_gateway_that_was_killed() {
    let mut gateway = Gateway::start(&format!("{}{}", quick(), example("example"))).await;
    let client = SseClient::open(&gateway).await;
    gateway.kill();
    assert!(client.events.rest().await.is_empty());
    gateway.start_again().await;
    gateway.all_up().await;
    let mut again = SseClient::open(&gateway).await;
    let result = again
        .call(1, "example__echo", json!({"message": "again"}))
        .await;
    assert_eq!(text_of(&result), "again");
}
