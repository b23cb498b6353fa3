//! Servers that go on in a task, behind clients that know no tasks.

use std::rc::Rc;

use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::sim::client::{Client, Exchange};
use crate::sim::modern::sessionless;
use crate::sim::server::{Frame, SESSIONLESS, Server, ask, note, text, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";
pub(crate) const RELATED: &str = "io.modelcontextprotocol/related-task";

/// A server of 2025-11-25 with a tool of each kind.
pub(crate) fn tasking(plan: &mut Plan) {
    let tools = ["required", "optional", "forbidden"].map(|support| {
        let mut tool = tool(support);
        tool["execution"] = json!({"taskSupport": support});
        tool
    });
    plan.script.capabilities = json!({"tools": {},
        "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}});
    plan.script.lists.insert("tools", tools.to_vec());
}

/// A sessionless server with the extension.
pub(crate) fn extended(plan: &mut Plan) {
    sessionless(plan);
    plan.script.capabilities = json!({"tools": {}, "extensions": {EXTENSION: {}}});
    plan.script.mute = ["tasks/get", "tasks/update", "tasks/cancel"].into();
}

pub(crate) fn task(status: &str, updated: u32) -> Value {
    json!({"taskId": "t-9", "status": status, "createdAt": "2026-11-20T10:00:00Z",
        "lastUpdatedAt": format!("2026-11-20T10:{updated:02}:00Z"), "ttl": 3_600_000, "pollInterval": 5000})
}

pub(crate) fn modern_task(status: &str, updated: u32) -> Value {
    json!({"taskId": "t-9", "status": status, "createdAt": "2026-11-20T10:00:00Z",
        "lastUpdatedAt": format!("2026-11-20T10:{updated:02}:00Z"), "ttlMs": 3_600_000,
        "pollIntervalMs": 5000, "resultType": "complete"})
}

fn form() -> Value {
    json!({"mode": "form", "message": "who?",
        "requestedSchema": {"type": "object", "properties": {"who": {"type": "string"}}}})
}

async fn world(
    plan: impl FnOnce(&mut Plan),
    knows_call_of_requests: bool,
) -> (Rc<World>, Server, Client) {
    let world = Rc::new(World::new());
    let server = if knows_call_of_requests {
        world.http("a", plan).await
    } else {
        world.stdio("a", plan).await
    };
    let client = world.client(json!({"elicitation": {}})).await;
    pass(millis(50)).await;
    (world, server, client)
}

/// A call that its server went on with in a task.
async fn begun(server: &Server, client: &Client) -> (Exchange, Frame) {
    let exchange = client.call_with_progress("a__required", json!("t")).await;
    let call = server.last("tools/call");
    server.answer(&call, json!({"task": task("working", 0)}));
    settle().await;
    (exchange, call)
}

/// Lets the gateway ask for the task, and answers.
async fn status(server: &Server, status: Value) -> Frame {
    pass(seconds(5)).await;
    let get = server.last("tasks/get");
    server.answer(&get, status);
    settle().await;
    get
}

#[test]
fn c_task_02_a_tool_that_wants_to_be_a_task_is_one_for_any_client() {
    run(async {
        for knows_call_of_requests in [true, false] {
            let (world, server, client) = world(tasking, knows_call_of_requests).await;
            let (exchange, call) = begun(&server, &client).await;
            assert_eq!(call.json["params"]["task"], json!({"ttl": 3_600_000}));
            assert_eq!(call.json["params"]["name"], "required");
            pass(millis(4900)).await;
            assert_eq!(server.of("tasks/get").len(), 0);
            let mut half = task("working", 1);
            half["statusMessage"] = json!("half");
            let get = status(&server, half.clone()).await;
            assert_eq!(get.json["params"], json!({"taskId": "t-9"}));
            // Nothing new.
            status(&server, half).await;
            assert!(exchange.answer().is_none());
            status(&server, task("completed", 2)).await;
            let result = server.last("tasks/result");
            assert_eq!(result.json["params"], json!({"taskId": "t-9"}));
            let mut done = text(json!("done"));
            done["_meta"] = json!({RELATED: {"taskId": "t-9"}});
            server.answer(&result, done);
            settle().await;
            assert_eq!(exchange.result(), text(json!("done")));
            let received = exchange.of("notifications/progress");
            assert_eq!(received[0]["params"]["progressToken"], "t");
            assert_eq!(received[0]["params"]["message"], "half");
            assert_eq!(server.of("tasks/get").len(), 3);
            pass(seconds(60)).await;
            assert_eq!(server.of("tasks/get").len(), 3);
            assert_eq!(world.view("a").in_flight, 0);
            assert_eq!(world.counted("tasks_followed"), 1);
        }
    });
}

#[test]
fn only_a_request_for_a_task_is_reported_as_one() {
    run(async {
        let (_world, server, client) = world(tasking, true).await;
        for tool in ["a__optional", "a__forbidden"] {
            let exchange = client.call(tool).await;
            let call = server.last("tools/call");
            assert_eq!(call.json["params"]["task"], Value::Null, "{}", call.raw);
            // An object like a task beside content is none.
            let mut answer = text(json!("x"));
            answer["task"] = json!({"a": 1, "status": "working"});
            server.answer(&call, answer.clone());
            settle().await;
            assert_eq!(exchange.result(), answer);
        }
        // A server that does not offer to be asked is not, and a capability that nobody can serve
        // means nothing (S-TASK-L-02).
        let silent = |plan: &mut Plan| {
            tasking(plan);
            plan.script.capabilities = json!({"tools": {}});
        };
        let (_world, server, client) = world(silent, true).await;
        let params = json!({"name": "a__required", "task": {"ttl": 1}, "arguments": {"a": 1.5}});
        client.request("tools/call", params).await;
        let call = server.last("tools/call");
        assert_eq!(call.json["params"]["task"], Value::Null, "{}", call.raw);
        assert_eq!(call.json["params"]["arguments"], json!({"a": 1.5}));
        // A server that goes on in a task unasked is followed all the same.
        let exchange = client.call("a__optional").await;
        let created = json!({"task": task("completed", 0)});
        server.answer(&server.last("tools/call"), created);
        settle().await;
        server.answer(&server.last("tasks/result"), text(json!("done")));
        settle().await;
        assert_eq!(exchange.result(), text(json!("done")));
    });
}

#[test]
fn c_task_03_a_task_that_asks_asks_the_client_of_its_call() {
    run(async {
        for knows_call_of_requests in [true, false] {
            let (world, server, client) = world(tasking, knows_call_of_requests).await;
            let (exchange, _) = begun(&server, &client).await;
            status(&server, task("input_required", 1)).await;
            let result = server.last("tasks/result");
            let mut params = form();
            params["_meta"] = json!({RELATED: {"taskId": "t-9"}});
            server.say_for(&result, ask("q1", "elicitation/create", params));
            settle().await;
            let asked = exchange.of("elicitation/create");
            assert_eq!(asked[0]["params"], form());
            // People take their time.
            pass(seconds(200)).await;
            let given = json!({"action": "accept", "content": {"who": "kim"}});
            client.answer(&asked[0], "result", given.clone()).await;
            let answer = server.answer_to(&json!("q1")).unwrap();
            assert_eq!(answer["result"]["content"], given["content"]);
            assert_eq!(answer["result"]["_meta"][RELATED]["taskId"], "t-9");
            server.answer(&result, text(json!("done")));
            settle().await;
            assert_eq!(exchange.result(), text(json!("done")));
            assert_eq!(world.view("a").in_flight, 0);
        }
    });
}

#[test]
fn a_question_that_says_its_task_goes_to_the_client_of_the_task() {
    run(async {
        let (world, server, first) = world(tasking, true).await;
        let second = world.client(json!({"elicitation": {}})).await;
        let (exchange, _) = begun(&server, &first).await;
        let other = second.call("a__forbidden").await;
        let mut params = form();
        params["_meta"] = json!({RELATED: {"taskId": "t-9"}});
        let link = server.last("tools/call").link;
        server.say_on(link, ask("q1", "elicitation/create", params));
        settle().await;
        assert_eq!(exchange.of("elicitation/create").len(), 1);
        assert!(other.of("elicitation/create").is_empty());
    });
}

#[test]
fn s_canc_04_a_call_that_is_taken_back_cancels_its_task() {
    run(async {
        let (world, server, client) = world(tasking, true).await;
        let (exchange, _) = begun(&server, &client).await;
        client.cancel(&exchange).await;
        let cancel = server.last("tasks/cancel");
        assert_eq!(cancel.json["params"], json!({"taskId": "t-9"}));
        server.answer(&cancel, task("cancelled", 1));
        // Taken back before it was a task.
        let exchange = client.call("a__required").await;
        let call = server.last("tools/call");
        client.cancel(&exchange).await;
        server.answer(&call, json!({"task": task("working", 0)}));
        settle().await;
        assert_eq!(server.of("tasks/cancel").len(), 2);
        assert!(server.of("notifications/cancelled").is_empty());
        pass(seconds(60)).await;
        assert!(server.of("tasks/get").is_empty());
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_task_without_updates_runs_into_the_deadline() {
    run(async {
        let (world, server, client) = world(tasking, true).await;
        let (exchange, _) = begun(&server, &client).await;
        // Changes keep it alive for longer than the limit.
        for minute in 1..=30 {
            status(&server, task("working", minute)).await;
        }
        assert!(exchange.answer().is_none());
        for _ in 0..12 {
            status(&server, task("working", 59)).await;
        }
        pass(seconds(5)).await;
        assert_eq!(exchange.failure()["code"], "timeout");
        assert_eq!(server.of("tasks/cancel").len(), 1);
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_task_ends_as_its_server_says() {
    run(async {
        let (_world, server, client) = world(tasking, true).await;
        let (exchange, _) = begun(&server, &client).await;
        status(&server, task("failed", 1)).await;
        let failed = json!({"content": [], "isError": true});
        server.answer(&server.last("tasks/result"), failed.clone());
        settle().await;
        assert_eq!(exchange.result(), failed);

        let (exchange, _) = begun(&server, &client).await;
        status(&server, task("failed", 1)).await;
        server.refuse(&server.last("tasks/result"), -32603, "broken");
        settle().await;
        assert_eq!(exchange.error()["message"], "broken");

        let (exchange, _) = begun(&server, &client).await;
        status(&server, task("cancelled", 1)).await;
        assert_eq!(exchange.failure()["code"], "server_protocol");

        let (exchange, _) = begun(&server, &client).await;
        pass(seconds(5)).await;
        server.refuse(&server.last("tasks/get"), -32602, "unknown task");
        settle().await;
        let sentence = exchange.sentence();
        assert!(sentence.contains("unknown task"), "{sentence}");

        // A task that is done at once is not asked about, and one that says so is not waited for.
        let exchange = client.call("a__required").await;
        let created = json!({"task": task("completed", 0)});
        server.answer(&server.last("tools/call"), created);
        settle().await;
        server.answer(&server.last("tasks/result"), text(json!("at once")));
        settle().await;
        assert_eq!(exchange.result(), text(json!("at once")));
        let (exchange, call) = begun(&server, &client).await;
        server.say_on(
            call.link,
            note("notifications/tasks/status", task("completed", 1)),
        );
        settle().await;
        server.answer(&server.last("tasks/get"), task("completed", 1));
        settle().await;
        server.answer(&server.last("tasks/result"), text(json!("soon")));
        settle().await;
        assert_eq!(exchange.result(), text(json!("soon")));
    });
}

#[test]
fn a_sessionless_server_goes_on_in_a_task_for_a_client_with_a_handshake() {
    run(async {
        let (world, server, client) = world(extended, true).await;
        let exchange = client.call_with_progress("a__hold", json!("t")).await;
        let call = server.last("tools/call");
        let declared = "io.modelcontextprotocol/clientCapabilities";
        let extensions = json!({EXTENSION: {}});
        let meta = &call.json["params"]["_meta"];
        assert_eq!(meta[declared]["extensions"], extensions);
        let mut created = modern_task("working", 0);
        created["resultType"] = json!("task");
        server.answer(&call, created);
        settle().await;
        pass(seconds(5)).await;
        let get = server.last("tasks/get");
        assert_eq!(get.json["params"]["taskId"], "t-9");
        assert_eq!(get.header("mcp-name"), Some("t-9"));
        assert_eq!(get.header("mcp-method"), Some("tasks/get"));
        let meta = &get.json["params"]["_meta"];
        assert_eq!(meta[declared]["extensions"], extensions);
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], SESSIONLESS);
        let mut required = modern_task("input_required", 1);
        required["statusMessage"] = json!("who is it?");
        let question = json!({"method": "elicitation/create", "params": form()});
        required["inputRequests"] = json!({"who": question});
        server.answer(&get, required.clone());
        settle().await;
        let received = exchange.of("notifications/progress");
        assert_eq!(received[0]["params"]["message"], "who is it?");
        let asked = exchange.of("elicitation/create");
        pass(seconds(100)).await;
        let given = json!({"action": "accept", "content": {"who": "kim"}});
        client.answer(&asked[0], "result", given.clone()).await;
        let update = server.last("tasks/update");
        assert_eq!(
            update.json["params"]["inputResponses"],
            json!({"who": given})
        );
        assert_eq!(update.json["params"]["taskId"], "t-9");
        assert_eq!(update.header("mcp-name"), Some("t-9"));
        server.answer(&update, json!({"resultType": "complete"}));
        settle().await;
        // It has not read the answer yet: nobody is asked twice (C-SUB-04).
        status(&server, required).await;
        assert_eq!(exchange.of("elicitation/create").len(), 1);
        let mut completed = modern_task("completed", 2);
        completed["result"] = text(json!("done"));
        completed["result"]["resultType"] = json!("complete");
        status(&server, completed).await;
        assert_eq!(exchange.result(), text(json!("done")));
        assert_eq!(world.view("a").in_flight, 0);

        let exchange = client.call("a__hold").await;
        let mut created = modern_task("working", 0);
        created["resultType"] = json!("task");
        server.answer(&server.last("tools/call"), created.clone());
        settle().await;
        let mut failed = modern_task("failed", 1);
        failed["error"] = json!({"code": -32603, "message": "broken"});
        status(&server, failed).await;
        assert_eq!(exchange.error()["message"], "broken");

        let exchange = client.call("a__hold").await;
        server.answer(&server.last("tools/call"), created);
        settle().await;
        client.cancel(&exchange).await;
        let cancel = server.last("tasks/cancel");
        assert_eq!(cancel.json["params"]["taskId"], "t-9");
        assert_eq!(cancel.header("mcp-name"), Some("t-9"));
    });
}

#[test]
fn a_task_outlives_what_goes_wrong_between_two_looks() {
    run(async {
        let (world, server, client) = world(tasking, true).await;
        let (exchange, _) = begun(&server, &client).await;
        pass(seconds(5)).await;
        let later = || LinkError::status(503, "later");
        server.fail(&server.last("tasks/get"), later());
        status(&server, task("completed", 1)).await;
        let broken = server.last("tasks/result");
        server.fail(&broken, LinkError::Lost("broken pipe".to_owned()));
        status(&server, task("completed", 1)).await;
        let result = server.last("tasks/result");
        assert_ne!(result.json["id"], broken.json["id"]);
        server.answer(&result, text(json!("done")));
        settle().await;
        assert_eq!(exchange.result(), text(json!("done")));

        // The server forgot our session, and the task with it.
        let (exchange, _) = begun(&server, &client).await;
        pass(seconds(5)).await;
        let get = server.last("tasks/get");
        server.forget_session(0);
        server.session_gone(&get);
        pass(millis(100)).await;
        let again = server.last("tasks/get");
        assert_eq!(again.json["id"], get.json["id"]);
        server.refuse(&again, -32602, "unknown task");
        settle().await;
        assert!(exchange.sentence().contains("task is lost"));

        // The server is gone.
        let (exchange, call) = begun(&server, &client).await;
        server.crash_link(call.link, "exit 1");
        settle().await;
        assert_eq!(exchange.failure()["code"], "server_lost");
        pass(seconds(60)).await;
        assert_eq!(world.view("a").in_flight, 0);
        assert!(server.of("tasks/cancel").is_empty());
    });
}
