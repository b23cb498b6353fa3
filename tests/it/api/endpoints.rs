//! The endpoints: their answers and effects.

use serde_json::{Value, json};

use super::{code_of, get, request, with_body};
use crate::support::{
    Client, Gateway, HttpServer, alive, example, failure_of, names, quick, text_of, until,
};

/// The answer to an order.
async fn order(gateway: &Gateway, server: &str, action: &str) -> Value {
    let path = format!("/api/servers/{server}/{action}");
    let answer = request(gateway, "POST", &path).send().await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json().await
}

#[tokio::test]
async fn servers_are_shown_and_obey() {
    let base = quick() + &example("one") + &example("two");
    let gateway = Gateway::start(&base).await;
    let tree = get(&gateway, "/api/tree").await;
    let listed = get(&gateway, "/api/servers").await;
    assert_eq!(names(&tree["servers"]), ["one", "two"]);
    assert_eq!(names(&listed["servers"]), ["one", "two"]);
    assert_eq!(listed["total"], 2);
    let second = get(&gateway, "/api/servers?limit=1&offset=1").await;
    assert_eq!(names(&second["servers"]), ["two"]);
    let one = get(&gateway, "/api/servers/one").await;
    assert_eq!((&one["state"], &one["id"]), (&json!("up"), &json!("one")));
    let pid = gateway.server_pid("one");
    let stopped = order(&gateway, "one", "stop").await;
    assert_eq!(stopped["server"]["state"], "stopped");
    assert!(!alive(pid));
    let refused = request(&gateway, "POST", "/api/servers/one/restart");
    let code = code_of(refused.send().await).await;
    assert_eq!(code, (409, "CONFLICT".to_owned()));
    // It is up once its lists were read.
    order(&gateway, "one", "start").await;
    gateway.wait_state("one", "up").await;
    assert_eq!(get(&gateway, "/api/servers/one").await["state"], "up");
    let before = gateway.generation("one").await;
    order(&gateway, "one", "restart").await;
    gateway.wait_renewed("one", before).await;
    let client = Client::open(&gateway).await;
    order(&gateway, "one", "trip").await;
    let refused = client.call("one__echo", json!({"message": "m"})).await;
    assert_eq!(failure_of(&refused)["code"], "breaker_open");
    order(&gateway, "one", "reset").await;
    let echo = client.call("one__echo", json!({"message": "m"})).await;
    assert_eq!(text_of(&echo), "m");
    // One tool of it.
    let trip = request(&gateway, "POST", "/api/servers/one/trip");
    let tripped = with_body(trip, &json!({ "tool": "echo" })).send().await;
    assert_eq!(tripped.status, 200);
    let refused = client.call("one__echo", json!({"message": "m"})).await;
    assert_eq!(failure_of(&refused)["code"], "breaker_open");
    order(&gateway, "one", "reset").await;
    let logs = get(&gateway, "/api/servers/one/logs?limit=2").await;
    assert_eq!(logs["entries"].as_array().unwrap().len(), 2);
    let crashes = get(&gateway, "/api/servers/one/crashes").await;
    assert!(crashes["crashes"].is_array(), "{crashes}");
}

#[tokio::test]
async fn tools_show_what_they_cost() {
    let gateway = Gateway::start(&(quick() + &example("one") + &example("two"))).await;
    let all = get(&gateway, "/api/tools").await;
    assert_eq!(all["total"], 22);
    let tools = all["tools"].as_array().unwrap();
    let sum: u64 = tools
        .iter()
        .map(|tool| tool["tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(all["tokens"], sum);
    let echo = tools
        .iter()
        .find(|tool| tool["name"] == "one__echo")
        .unwrap();
    assert_eq!(
        (&echo["server"], &echo["nativeName"]),
        (&json!("one"), &json!("echo"))
    );
    assert!(echo["tokens"].as_u64().unwrap() > 10, "{echo}");
    let of_one = get(&gateway, "/api/tools?server=one&limit=3").await;
    assert_eq!(of_one["total"], 11);
    assert_eq!(of_one["tools"].as_array().unwrap().len(), 3);
    assert_eq!(names(&of_one["servers"]), ["one"]);
    assert_eq!(of_one["servers"][0]["tokens"], sum / 2);
}

#[tokio::test]
async fn sessions_are_shown_by_a_handle_and_can_be_ended() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let client = Client::open(&gateway).await;
    let stream = client.listen().await;
    let listed = get(&gateway, "/api/sessions").await;
    assert_eq!(listed["total"], 1);
    assert!(!listed.to_string().contains(&client.session), "{listed}");
    let session = &listed["sessions"][0];
    assert_eq!(session["client"], json!({ "name": "it", "version": "1" }));
    assert_eq!(session["revision"], "2025-11-25");
    assert_eq!(session["streams"], 1);
    assert!(session["ageSeconds"].is_u64() && session["idleSeconds"].is_u64());
    drop(stream);
    let path = format!("/api/sessions/{}", session["handle"].as_str().unwrap());
    assert_eq!(get(&gateway, &path).await["handle"], session["handle"]);
    let ended = request(&gateway, "DELETE", &path).send().await;
    assert_eq!(ended.status, 204);
    let again = request(&gateway, "DELETE", &path).send().await;
    assert_eq!(code_of(again).await, (404, "SESSION_NOT_FOUND".to_owned()));
    let list = crate::support::request(1, "tools/list", json!({}));
    let refused = client.post(&list).send().await;
    assert_eq!(refused.status, 404);
    // The id itself is no handle.
    let path = format!("/api/sessions/{}", client.session);
    let unknown = request(&gateway, "DELETE", &path).send().await;
    assert_eq!(code_of(unknown).await.0, 404);
}

#[tokio::test]
async fn calls_and_log_are_read_and_a_call_is_made_again() {
    let config = quick() + &example("one");
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    for message in ["first", "second", "third"] {
        client
            .call("one__echo", json!({ "message": message }))
            .await;
    }
    let page = get(&gateway, "/api/history?server=one&outcome=ok&limit=2").await;
    assert_eq!((&page["total"], &page["limit"]), (&json!(3), &json!(2)));
    let newest = &page["entries"][0];
    assert_eq!(newest["params"]["arguments"]["message"], "third");
    let next = page["next"].as_str().unwrap();
    let rest = get(&gateway, &format!("/api/history?before={next}")).await;
    let entries = rest["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(text_of(&entries[0]["result"]), "first");
    let found = get(&gateway, "/api/history?text=SECOND").await;
    assert_eq!(found["entries"].as_array().unwrap().len(), 1);
    let path = format!("/api/history/{}", newest["id"].as_str().unwrap());
    assert_eq!(get(&gateway, &path).await, *newest);
    let again = request(&gateway, "POST", &format!("{path}/replay"));
    let again = again.send().await.json().await;
    assert_eq!(text_of(&again["result"]), "third");
    let log = get(&gateway, "/api/logs?level=info&server=one&limit=1").await;
    assert_eq!(log["entries"][0]["serverId"], "one", "{log}");
    assert!(log["total"].as_u64().unwrap() >= 1, "{log}");
}

#[tokio::test]
async fn without_history_operators_are_told_how_to_have_one() {
    let config = quick() + "[history]\nenabled = false\n";
    let gateway = Gateway::start(&config).await;
    let answer = request(&gateway, "GET", "/api/history").send().await;
    assert_eq!(answer.status, 409);
    let message = answer.json().await["error"]["message"].to_string();
    assert!(message.contains("history.enabled"), "{message}");
}

#[tokio::test]
async fn the_log_level_changes_while_the_gateway_runs() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    assert_eq!(get(&gateway, "/api/loglevel").await["level"], "info");
    assert!(!gateway.log().contains("session opened"));
    let set = |level: &str| {
        let put = request(&gateway, "PUT", "/api/loglevel");
        with_body(put, &json!({ "level": level })).send()
    };
    assert_eq!(set("debug").await.json().await["level"], "debug");
    Client::open(&gateway).await;
    until("session opened", || async {
        gateway.log().contains("session opened").then_some(())
    })
    .await;
    assert_eq!(set("error").await.status, 200);
    let lines = gateway.log().lines().count();
    Client::open(&gateway).await;
    assert_eq!(gateway.log().lines().count(), lines);
    assert_eq!(code_of(set("loud").await).await.1, "INVALID_REQUEST");
}

#[tokio::test]
async fn the_reason_why_a_server_is_not_there_is_a_code() {
    let mut gone = HttpServer::start(crate::support::Behaviour::default()).await;
    let refused = gone.config("refused");
    gone.stop().await;
    let config = quick()
        + "\n[servers.unborn]\ncommand = \"/nowhere/at-all\"\n"
        + "\n[servers.ends]\ncommand = \"false\"\nera = \"legacy\"\n"
        + &refused
        + "\n[servers.silent]\ncommand = \"sleep\"\nargs = [\"60\"]\nera = \"legacy\"\nstart_timeout = \"1s\"\n"
        + "[servers.silent.supervision]\nconnect_timeout = \"1s\"\n";
    let gateway = crate::support::Setup::new(&config).serve().await;
    let table = [
        ("unborn", 500, "SPAWN_FAILED"),
        ("ends", 500, "PROCESS_CRASHED"),
        ("refused", 502, "CONNECTION_REFUSED"),
        ("silent", 504, "CONNECTION_TIMEOUT"),
    ];
    for (server, status, code) in table {
        crate::support::until(server, || async {
            let server = gateway.server(server).await;
            let exit = &server["connection"]["shared"]["last_exit"];
            exit.is_string().then_some(())
        })
        .await;
        let path = format!("/api/servers/{server}/start");
        let answer = request(&gateway, "POST", &path).send().await;
        let found = code_of(answer).await;
        assert_eq!(found, (status, code.to_owned()), "{server}");
    }
}
