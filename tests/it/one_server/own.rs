//! The client's own session at the only server of its view: client and server exchange what they would
//! exchange directly.

use serde_json::{Value, json};

use crate::support::{
    Behaviour, Events, Gateway, Http, HttpServer, answer_in, call_params, initialize, request,
    text_of, until,
};

const PATH: &str = "/mcp/server/a";

/// A client of the view of one server.
struct Guest {
    gateway: Gateway,
    session: String,
}

impl Guest {
    /// A client with these capabilities, in front of a server of both eras.
    async fn of(server: &HttpServer, capabilities: Value, more: &str) -> Self {
        let gateway = Gateway::start(&(server.config("a") + more)).await;
        gateway.all_up().await;
        let body = initialize("2025-11-25", &capabilities).to_string();
        let answer = Http::post(gateway.address, body).path(PATH).send().await;
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        let guest = Self { gateway, session };
        guest.say("notifications/initialized", json!({})).await;
        guest
    }

    fn post(&self, message: &Value) -> Http {
        let http = Http::post(self.gateway.address, message.to_string()).path(PATH);
        http.header("Mcp-Session-Id", &self.session)
    }

    async fn say(&self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        assert_eq!(self.post(&message).send().await.status, 202, "{method}");
    }

    async fn ask(&self, id: u64, method: &str, params: Value) -> Value {
        answer_in(self.post(&request(id, method, params)).send().await).await
    }

    /// Starts a call whose answer is read as a stream.
    async fn start(&self, id: u64, tool: &str, arguments: Value) -> Events {
        let message = request(id, "tools/call", call_params(tool, arguments));
        self.post(&message).send().await.events()
    }

    async fn answer(&self, question: &Value, result: Value) {
        let message = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        assert_eq!(self.post(&message).send().await.status, 202);
    }
}

async fn server() -> HttpServer {
    HttpServer::start(Behaviour {
        both: true,
        remembers: true,
        ..Default::default()
    })
    .await
}

/// A message that the server got in a session.
async fn seen(server: &HttpServer, method: &str) -> Value {
    let look = || async {
        let behaviour = server.behaviour();
        let mut in_session = behaviour
            .seen
            .iter()
            .filter(|(_, headers)| headers.contains_key("mcp-session-id"));
        let found = in_session.find(|(message, _)| message["method"] == method);
        found.map(|(message, _)| message.clone())
    };
    until(method, look).await
}

#[tokio::test]
async fn what_a_client_says_before_its_first_call_reaches_its_session() {
    let table = [
        (
            "notifications/progress",
            json!({"progressToken": 7, "progress": 1}),
        ),
        ("notifications/roots/list_changed", json!({})),
        ("notifications/com.example/said", json!({})),
    ];
    for (method, params) in table {
        let server = server().await;
        let guest = Guest::of(&server, json!({"roots": {"listChanged": true}}), "").await;
        guest.say(method, params).await;
        seen(&server, method).await;
        assert_eq!(server.behaviour().handshakes, 1, "{method}");
    }
}

#[tokio::test]
async fn the_first_request_opens_the_session_whatever_it_asks_for() {
    let reference = json!({"ref": {"type": "ref/prompt", "name": "p"},
        "argument": {"name": "a", "value": "b"}});
    let table = [
        ("resources/subscribe", json!({"uri": "a://b"})),
        ("completion/complete", reference),
    ];
    for (method, params) in table {
        let server = server().await;
        let guest = Guest::of(&server, json!({}), "").await;
        guest.ask(1, method, params).await;
        seen(&server, method).await;
        assert_eq!(server.behaviour().handshakes, 1, "{method}");
    }
}

#[tokio::test]
async fn a_request_keeps_the_id_that_its_client_gave_it() {
    let server = server().await;
    let guest = Guest::of(&server, json!({}), "").await;
    let answer = guest
        .ask(41, "tools/call", call_params("echo", json!({})))
        .await;
    assert_eq!(answer["id"], 41, "{answer}");
    assert_eq!(seen(&server, "tools/call").await["id"], 41);
    let message = request(42, "tools/call", call_params("hang", json!({})));
    let call = guest.post(&message).send();
    let cancel = async {
        let is_called = || async {
            let is_called = server.behaviour().calls.contains(&"hang".to_owned());
            is_called.then_some(())
        };
        until("the call", is_called).await;
        guest
            .say("notifications/cancelled", json!({"requestId": 42}))
            .await;
        let is_cancelled = || async {
            let cancelled = server.behaviour().cancelled.clone();
            (cancelled == [json!(42)]).then_some(())
        };
        until("the cancellation", is_cancelled).await;
    };
    // A cancelled call has no answer.
    tokio::select! {
        _ = call => {}
        () = cancel => {}
    }
}

#[tokio::test]
async fn a_server_refuses_or_serves_itself_what_it_does_not_declare() {
    for (more, is_sent) in [("", true), ("pin_tools = \"block\"\n", false)] {
        let server = server().await;
        let guest = Guest::of(&server, json!({}), more).await;
        let methods = [
            "prompts/list",
            "resources/list",
            "resources/templates/list",
            "logging/setLevel",
        ];
        for (id, method) in (1..).zip(methods) {
            let answer = guest.ask(id, method, json!({"level": "error"})).await;
            assert!(answer["result"].is_object(), "{method}: {answer}");
            let behaviour = server.behaviour();
            let mut seen = behaviour.seen.iter();
            let is_seen = seen.any(|(message, _)| message["method"] == method);
            assert_eq!(is_seen, is_sent, "{method} {more}");
        }
    }
}

#[tokio::test]
async fn a_client_refuses_what_it_did_not_declare_itself() {
    let server = server().await;
    let guest = Guest::of(&server, json!({}), "").await;
    let mut events = guest.start(1, "ask", json!({"question": "who?"})).await;
    let question = events.method("elicitation/create").await;
    guest.answer(&question, json!({"action": "decline"})).await;
    let answer = events.rest().await.pop().unwrap();
    assert_eq!(text_of(&answer["result"]), "{\"action\":\"decline\"}");
}

#[tokio::test]
async fn a_question_that_its_server_cancels_is_cancelled_at_the_client() {
    let server = server().await;
    let guest = Guest::of(&server, json!({"elicitation": {}}), "").await;
    let arguments = json!({"question": "who?", "cancels": true});
    let mut events = guest.start(1, "ask", arguments).await;
    let question = events.method("elicitation/create").await;
    let cancelled = events.method("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    assert_eq!(cancelled["params"]["reason"], "too late");
}
