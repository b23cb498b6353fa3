//! How often a client may call.

use serde_json::{Value, json};

use crate::auth::{KEYS, with_key};
use crate::sessionless::{modern_as, with_answer};
use crate::support::{Client, Gateway, Setup, call_params, example, quick, text_of, until};

const RATES: &str = "\
[rate_limits]
calls = \"5/day\"
calls_per_tool = \"2/day\"
";

fn echo() -> Value {
    call_params("one__echo", json!({"message": "x"}))
}

#[tokio::test]
async fn a_tool_that_is_called_too_often_says_when_to_try_again() {
    let gateway = Gateway::start(&(quick() + RATES + &example("one"))).await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    for _ in 0..2 {
        let result = client.get("tools/call", echo()).await;
        assert_ne!(result["isError"], true, "{result}");
    }
    // A model reads it as the result of its call.
    let refused = client.get("tools/call", echo()).await;
    assert_eq!(refused["isError"], true);
    let text = text_of(&refused);
    assert!(
        text.contains("`one__echo`") && text.contains("2/day"),
        "{text}"
    );
    let error = &refused["_meta"]["io.mcpvisor/error"];
    assert_eq!(error["code"], "rate_limited");
    assert!(error["retryAfterMs"].as_u64().unwrap() > 1000, "{error}");
    // Other tools, lists and pings go on; another client without a key is counted with this one.
    let sum = call_params("one__add", json!({"a": 1, "b": 2}));
    assert_ne!(client.get("tools/call", sum).await["isError"], true);
    client.get("tools/list", json!({})).await;
    let other = Client::open(&gateway).await;
    assert_eq!(other.get("tools/call", echo()).await["isError"], true);
    assert_eq!(gateway.status().await["counters"]["calls_shed_rate"], 2);

    gateway.write_config(&(quick() + &example("one")));
    until("no limit", || async {
        let result = other.get("tools/call", echo()).await;
        (result["isError"] != true).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_agent_in_a_loop_reads_why_its_call_is_refused() {
    let rates = "[rate_limits]\nidentical_calls = \"2/day\"\n";
    let gateway = Gateway::start(&(quick() + rates + &example("one"))).await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    let is_refused = async |client: &Client, message: &str| {
        let call = call_params("one__echo", json!({ "message": message }));
        let result = client.get("tools/call", call).await;
        let is_refused = result["isError"] == true;
        assert!(!is_refused || text_of(&result).contains("exactly these arguments"));
        is_refused
    };
    assert!(!is_refused(&client, "x").await && !is_refused(&client, "x").await);
    assert!(is_refused(&client, "x").await);
    assert!(!is_refused(&client, "y").await);
    assert!(!is_refused(&Client::open(&gateway).await, "x").await);
}

#[tokio::test]
async fn each_key_has_its_own_share_and_http_says_when_to_try_again() {
    let gateway = Gateway::start(&(quick() + RATES + KEYS + &example("one"))).await;
    gateway.all_up().await;
    let read = |key| {
        let uri = json!({"uri": "example://about"});
        with_key(
            modern_as(&gateway, "r", "resources/read", uri, json!({})),
            key,
        )
    };
    for _ in 0..5 {
        let answer = read("first-key").send().await;
        assert_ne!(answer.status, 429, "{answer:?}");
    }
    let refused = read("first-key").send().await;
    assert_eq!(refused.status, 429, "{refused:?}");
    // A fifth of a day.
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((17_000..=17_280).contains(&seconds), "{seconds}");
    let body = refused.json().await;
    assert_eq!(body["error"]["data"]["code"], "rate_limited", "{body}");
    assert_ne!(read("second-key").send().await.status, 429);
}

#[tokio::test]
async fn an_answer_to_a_question_goes_on_with_a_call_that_was_counted() {
    let once = "[rate_limits]\ncalls = \"1/day\"\n";
    let gateway = Gateway::start(&(quick() + once + &example("one"))).await;
    gateway.all_up().await;
    let send = |params| {
        let can = json!({"elicitation": {}});
        modern_as(&gateway, "a", "tools/call", params, can).send()
    };
    let mut ask = call_params("one__ask", json!({"question": "who?"}));
    let asked = send(ask.clone()).await.json().await["result"].clone();
    let back = with_answer(ask.clone(), &asked);
    let done = send(back).await.json().await;
    assert_eq!(text_of(&done["result"]), "the user answered: me");
    ask["arguments"]["question"] = json!("again?");
    let refused = send(ask).await.json().await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
}

#[test]
fn a_rate_that_is_none_is_told_with_its_place() {
    let setup = Setup::new("[rate_limits]\ncalls = \"5 a day\"\n");
    let (succeeded, printed) = setup.run(&["check"]);
    assert!(
        !succeeded && printed.contains("rate_limits.calls"),
        "{printed}"
    );
    assert!(printed.contains("100/minute"), "{printed}");
}
