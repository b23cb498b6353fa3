//! A tool that is tried: progress, questions, cancel.

use serde_json::{Value, json};

use super::{Browser, between, shown, text_of};
use crate::support::{Gateway, Setup, example, quick};

/// A server that asks whatever question it is called with, and says what it got. Called without one it
/// waits until it is cancelled.
const ASKS: &str = r#"
import json, sys
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
declared, waiting = None, None
for line in sys.stdin:
    message = json.loads(line)
    method, id, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "initialize":
        declared = params["capabilities"]
        send({"id": id, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
              "serverInfo": {"name": "asks", "version": "1"}}})
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"questions": {"type": "array"}}}
        send({"id": id, "result": {"tools": [{"name": "ask", "inputSchema": schema}]}})
    elif method == "tools/call":
        waiting, answers = id, []
        questions = params["arguments"].get("questions", [])
        for number, question in enumerate(questions):
            send({"id": f"q{number}", "method": "elicitation/create", "params": question})
        send({"method": "notifications/progress", "params": {
            "progressToken": params["_meta"]["progressToken"], "progress": 2, "total": 8,
            "message": "waiting for <you>"}})
    elif method == "notifications/cancelled":
        print("cancelled:", params["requestId"] == waiting, file=sys.stderr, flush=True)
    elif method is None and str(id).startswith("q"):
        answers.append([id, message.get("result")])
        if len(answers) == len(questions):
            text = json.dumps({"declared": declared, "answers": answers}, sort_keys=True)
            send({"id": waiting, "result": {"content": [{"type": "text", "text": text}]}})
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "unknown"}})
"#;

async fn asking() -> Gateway {
    let setup = Setup::new("");
    std::fs::write(setup.path("asks.py"), ASKS).unwrap();
    let script = setup.path("asks.py");
    let server = format!(
        "[servers.asks]\ncommand = \"python3\"\nargs = [\"{}\"]\n",
        script.display()
    );
    let config = quick() + &server;
    std::fs::write(setup.path("config.toml"), config).unwrap();
    let gateway = setup.serve().await;
    gateway.all_up().await;
    gateway
}

/// Calls the server with questions; the page of the call.
async fn ask(browser: &Browser<'_>, questions: &Value) -> String {
    let questions = questions.to_string();
    let fields = [("argument.questions", questions.as_str())];
    shown(browser, "/ui/tools", "asks__ask").await;
    browser.sent("/ui/tool?name=asks__ask", &fields).await
}

#[tokio::test]
async fn a_question_is_answered_in_the_page() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let path = "/ui/tool?name=one__ask";
    let fields = [("argument.question", "Which <colour>?")];
    let call = browser.sent(path, &fields).await;
    let page = shown(&browser, &call, "The server asks").await;
    assert!(
        page.contains("Which &lt;colour&gt;?") && page.contains("Your answer"),
        "{page}"
    );
    let answer = [
        ("order", "answer"),
        ("question", "1"),
        ("argument.answer", "blue"),
    ];
    browser.sent(&call, &answer).await;
    let page = shown(&browser, &call, "the user answered: blue").await;
    assert!(
        page.contains(">ok<") && !page.contains("The server asks"),
        "{page}"
    );
    // It is not asked any more.
    let late = browser.form(&call, &answer).await.send().await;
    assert_eq!(late.status, 409);

    let call = browser.sent(path, &[]).await;
    shown(&browser, &call, "What is your name?").await;
    browser
        .sent(&call, &[("order", "decline"), ("question", "1")])
        .await;
    shown(&browser, &call, "the user chose: decline").await;
}

#[tokio::test]
async fn each_question_has_its_form() {
    let gateway = asking().await;
    let browser = Browser::sign_in(&gateway).await;
    let form = json!({"message": "Fill in", "requestedSchema": {
        "type": "object", "required": ["age", "some"],
        "properties": {
            "age": {"type": "integer", "title": "Your age"},
            "sure": {"type": "boolean", "default": true},
            "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
            "old": {"type": "string", "enum": ["a", "b"], "enumNames": ["An A", "A B"]},
            "some": {"type": "array", "items": {"type": "string", "enum": ["x", "y", "z"]}},
        },
    }});
    let page = json!({"mode": "url", "message": "Pay", "elicitationId": "1", "url": "https://good@pay.example/a?b=%3C"});
    let call = ask(&browser, &json!([form, page])).await;
    let asked = shown(&browser, &call, "The server asks").await;
    for part in [
        "Your age",
        "Red",
        "An A",
        "type=\"checkbox\"",
        "<option value=\"true\" selected>",
    ] {
        assert!(asked.contains(part), "{part}: {asked}");
    }
    let wrong = [
        ("order", "answer"),
        ("question", "1"),
        ("argument.age", "old"),
    ];
    let wrong = browser.form(&call, &wrong).await.send().await;
    assert_eq!(wrong.status, 422);
    let wrong = text_of(wrong).await;
    assert!(
        wrong.contains("must be a number") && wrong.contains("value=\"old\""),
        "{wrong}"
    );
    let right = [
        ("order", "answer"),
        ("question", "1"),
        ("argument.age", "7"),
        ("argument.colour", "1"),
        ("argument.some", "0"),
        ("argument.some", "2"),
    ];
    browser.sent(&call, &right).await;
    let asked = shown(&browser, &call, "The server asks you to open a page").await;
    assert!(asked.contains("pay.example</bdi></span>"), "{asked}");
    assert!(
        asked.contains("target=\"_blank\" rel=\"noopener noreferrer\""),
        "{asked}"
    );
    browser
        .sent(&call, &[("order", "answer"), ("question", "2")])
        .await;
    let ended = shown(&browser, &call, ">ok<").await;
    let text = between(&ended, "<bdi>{&quot;answers&quot;", "</bdi>").replace("&quot;", "\"");
    let said: Value = serde_json::from_str(&format!("{{\"answers\"{text}")).unwrap();
    let content = json!({"age": 7, "colour": "g", "some": ["x", "z"]});
    let answers =
        json!([["q0", {"action": "accept", "content": content}], ["q1", {"action": "accept"}]]);
    assert_eq!(said["answers"], answers);
    // A trial is a client like others: it starts no process.
    assert!(said["declared"]["elicitation"].is_object(), "{said}");
    gateway.all_up().await;
    let server = gateway.server("asks").await;
    assert_eq!(server["connection"]["own"], json!([]));
}

#[tokio::test]
async fn a_call_shows_its_progress_and_is_cancelled() {
    let gateway = asking().await;
    let browser = Browser::sign_in(&gateway).await;
    let call = ask(&browser, &json!([])).await;
    let page = shown(&browser, &call, "2 of 8").await;
    assert!(
        page.contains("<progress aria-label=\"Progress\" value=\"2\" max=\"8\">"),
        "{page}"
    );
    assert!(page.contains("waiting for &lt;you&gt;"), "{page}");
    // A page that is open follows it.
    let live = format!(
        "/ui/live?page={}",
        call.replace('?', "%3F").replace('&', "%26")
    );
    let mut events = browser.get(&live).send().await.events();
    super::live::piece(&mut events, "call", "2 of 8").await;
    browser.sent(&call, &[("order", "cancel")]).await;
    super::live::piece(&mut events, "call", "Cancelled; the tool").await;
    shown(&browser, "/ui/servers/asks?tab=logs", "cancelled: True").await;
    let again = [("order", "answer"), ("question", "1")];
    assert_eq!(browser.form(&call, &again).await.send().await.status, 409);
    // Its session is gone with it.
    shown(&browser, "/ui/sessions", "No client has a session").await;
}

#[tokio::test]
async fn calls_of_a_login_are_bounded_and_its_own() {
    let gateway = asking().await;
    let browser = Browser::sign_in(&gateway).await;
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(ask(&browser, &json!([])).await);
    }
    let path = "/ui/tool?name=asks__ask";
    let refused = browser.form(path, &[]).await.send().await;
    assert_eq!(refused.status, 429);
    let other = Browser::sign_in(&gateway).await;
    let call = calls.pop().unwrap();
    assert!(other.page(&call).await.contains("has expired"));
    let cancel = [("order", "cancel")];
    assert_eq!(other.form(&call, &cancel).await.send().await.status, 404);
    browser.sent(&call, &cancel).await;
    shown(&browser, &call, "Cancelled; the tool").await;
    browser.sent(path, &[]).await;
}

#[tokio::test]
async fn a_large_result_is_cut() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let bytes = [("argument.bytes", "4000000")];
    let call = browser.sent("/ui/tool?name=one__big", &bytes).await;
    let page = shown(&browser, &call, "The rest is too long to show").await;
    assert!(page.len() < 500_000, "{}", page.len());
}

#[tokio::test]
async fn a_server_that_dies_ends_the_call() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let call = browser.sent("/ui/tool?name=one__crash", &[]).await;
    let page = shown(&browser, &call, "<summary>Full answer").await;
    assert!(
        page.contains("badge bad") || page.contains("badge warn"),
        "{page}"
    );
}
