//! Tasks of servers of 2025-11-25 as clients of the newer era follow them (B-TASK-03).

use std::rc::Rc;

use mcpvisor::downstream::BreakerState;
use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::sim::schemas::check_task;
use crate::sim::served::{Served, with_extension};
use crate::sim::server::{Frame, Server, ask, note, text};
use crate::sim::tasks::{EXTENSION, RELATED, task, tasking};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

pub(crate) async fn world(knows_call_of_requests: bool) -> (Rc<World>, Server) {
    world_with(World::new(), knows_call_of_requests).await
}

async fn world_with(world: World, knows_call_of_requests: bool) -> (Rc<World>, Server) {
    let world = Rc::new(world);
    let server = if knows_call_of_requests {
        world.http("a", tasking).await
    } else {
        world.stdio("a", tasking).await
    };
    pass(millis(50)).await;
    (world, server)
}

async fn called(world: &World) -> Served {
    let call = json!({"name": "a__required", "arguments": {"ref": "main"}});
    let called = Served::send(world, &with_extension(), "tools/call", call).await;
    pass(millis(50)).await;
    called
}

/// A task: the call that its server saw, and the task's id for the client.
pub(crate) async fn created(world: &World, server: &Server) -> (Frame, Value) {
    let mut called = called(world).await;
    let call = server.last("tools/call");
    assert_eq!(call.json["params"]["task"], json!({"ttl": 3_600_000}));
    server.answer(&call, json!({"task": task("working", 0)}));
    settle().await;
    let result = called.result();
    check_task("CreateTaskResult", &result);
    assert_eq!(result["resultType"], "task");
    assert_eq!(
        (&result["status"], &result["ttlMs"]),
        (&json!("working"), &json!(3_600_000))
    );
    assert_eq!(result["pollIntervalMs"], 5000);
    let id = result["taskId"].clone();
    assert!(id.as_str().unwrap().starts_with("gt1."), "{id}");
    (call, id)
}

pub(crate) async fn about(world: &World, method: &str, id: &Value) -> Served {
    let params = json!({ "taskId": id });
    Served::send(world, &with_extension(), method, params).await
}

pub(crate) fn shown(served: &mut Served) -> Value {
    let result = served.result();
    check_task("GetTaskResult", &result);
    assert_eq!(result["resultType"], "complete");
    result
}

/// Asks for a task whose server says this of it.
pub(crate) async fn looked(world: &World, server: &Server, id: &Value, status: &str) -> Served {
    let asked = server.of("tasks/get").len();
    let got = about(world, "tasks/get", id).await;
    assert_eq!(server.of("tasks/get").len(), asked + 1);
    let get = server.last("tasks/get");
    assert_eq!(get.json["params"], json!({"taskId": "t-9"}));
    server.answer(&get, task(status, 1));
    settle().await;
    got
}

pub(crate) fn question(message: &str) -> Value {
    json!({"mode": "form", "message": message, "_meta": {RELATED: {"taskId": "t-9"}},
        "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}})
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, or a table of cases")]
fn s_task_x_a_task_of_an_older_server_is_followed_in_the_newer_words() {
    run(async {
        for knows_call_of_requests in [true, false] {
            let (world, server) = world(knows_call_of_requests).await;
            let mut found =
                Served::send(&world, &with_extension(), "server/discover", json!({})).await;
            let extensions = found.result()["capabilities"]["extensions"].clone();
            assert_eq!(extensions, json!({EXTENSION: {}}));
            let (call, id) = created(&world, &server).await;
            // Nobody asks but the client.
            pass(seconds(600)).await;
            assert!(server.of("tasks/get").is_empty());
            let mut got = looked(&world, &server, &id, "working").await;
            assert_eq!(shown(&mut got)["status"], "working");
            assert_eq!(shown(&mut got)["taskId"], id);

            // The question comes only where the result does.
            let mut got = looked(&world, &server, &id, "input_required").await;
            assert!(got.answer().is_none());
            let result = server.last("tasks/result");
            assert_eq!(
                (result.link, &result.json["params"]),
                (call.link, &json!({"taskId": "t-9"}))
            );
            server.say_for(
                &result,
                ask("q1", "elicitation/create", question("to prod?")),
            );
            pass(millis(50)).await;
            let required = shown(&mut got);
            assert_eq!(required["status"], "input_required");
            let requests = required["inputRequests"].as_object().unwrap();
            assert_eq!(requests.keys().collect::<Vec<_>>(), ["q-1"]);
            assert_eq!(requests["q-1"]["params"]["message"], "to prod?");
            assert!(requests["q-1"]["params"]["_meta"].is_null());
            // It is asked for again, and there is nothing new.
            let mut again = about(&world, "tasks/get", &id).await;
            assert_eq!(
                shown(&mut again)["inputRequests"],
                required["inputRequests"]
            );

            let accept = json!({"action": "accept", "content": {"ok": true}});
            let given = json!({"taskId": id, "inputResponses": {"q-1": accept, "q-7": accept}});
            let update = Served::send(&world, &with_extension(), "tasks/update", given).await;
            let acknowledged = { update }.result();
            check_task("UpdateTaskResult", &acknowledged);
            assert_eq!(acknowledged["resultType"], "complete");
            let answer = server.answer_to(&json!("q1")).unwrap();
            assert_eq!(answer["result"]["content"], json!({"ok": true}));
            assert_eq!(
                answer["result"]["_meta"],
                json!({RELATED: {"taskId": "t-9"}})
            );
            let mut got = about(&world, "tasks/get", &id).await;
            assert_eq!(shown(&mut got)["status"], "working");

            // Another question has another name (S-TASK-X-08).
            server.say_for(&result, ask("q2", "elicitation/create", question("sure?")));
            pass(millis(50)).await;
            let mut got = about(&world, "tasks/get", &id).await;
            let requests = shown(&mut got)["inputRequests"].clone();
            assert_eq!(requests["q-2"]["params"]["message"], "sure?");
            assert!(requests["q-1"].is_null());
            let given = json!({"taskId": id, "inputResponses": {"q-2": {"action": "decline"}}});
            Served::send(&world, &with_extension(), "tasks/update", given)
                .await
                .result();
            assert_eq!(
                server.answer_to(&json!("q2")).unwrap()["result"]["action"],
                "decline"
            );

            // A result that is an error of the tool completes the task (S-TASK-X-07).
            let mut failed = text(json!("exited 3"));
            failed["isError"] = json!(true);
            failed["_meta"] = json!({RELATED: {"taskId": "t-9"}});
            server.answer(&result, failed);
            settle().await;
            assert_eq!(world.view("a").in_flight, 0);
            let mut got = about(&world, "tasks/get", &id).await;
            let done = shown(&mut got);
            assert_eq!(done["status"], "completed");
            assert_eq!(
                done["result"]["content"],
                text(json!("exited 3"))["content"]
            );
            assert_eq!(
                (&done["result"]["isError"], &done["result"]["resultType"]),
                (&json!(true), &json!("complete"))
            );
            assert!(done["result"]["_meta"][RELATED].is_null());
            assert_eq!(server.of("tasks/get").len(), 2);
            assert!(server.of("tasks/cancel").is_empty());
        }
    });
}

#[test]
fn a_task_that_outlives_its_time_is_taken_back() {
    run(async {
        let (world, server) = world(true).await;
        created(&world, &server).await;
        pass(seconds(3601)).await;
        assert_eq!(server.of("tasks/cancel").len(), 1);
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_task_ends_in_any_way_that_its_server_or_client_wants() {
    run(async {
        let (world, server) = world(true).await;
        // An error of the protocol.
        let (_, id) = created(&world, &server).await;
        let mut got = looked(&world, &server, &id, "failed").await;
        server.refuse(&server.last("tasks/result"), -32603, "broken");
        settle().await;
        let failed = shown(&mut got);
        assert_eq!(
            (&failed["status"], &failed["error"]["message"]),
            (&json!("failed"), &json!("broken"))
        );

        // Cancelled there.
        let (_, id) = created(&world, &server).await;
        let mut got = looked(&world, &server, &id, "cancelled").await;
        assert_eq!(shown(&mut got)["status"], "cancelled");

        // Cancelled here, with a question open.
        let (_, id) = created(&world, &server).await;
        looked(&world, &server, &id, "input_required").await;
        let result = server.last("tasks/result");
        server.say_for(&result, ask("q1", "elicitation/create", question("?")));
        pass(millis(50)).await;
        let mut cancelled = about(&world, "tasks/cancel", &id).await;
        check_task("CancelTaskResult", &cancelled.result());
        assert_eq!(
            server.last("tasks/cancel").json["params"],
            json!({"taskId": "t-9"})
        );
        assert!(server.of("notifications/cancelled").is_empty());
        let answer = server.answer_to(&json!("q1")).unwrap();
        assert_eq!(answer["result"]["action"], "cancel");
        server.answer(&server.last("tasks/cancel"), task("cancelled", 2));
        settle().await;
        let mut got = about(&world, "tasks/get", &id).await;
        assert_eq!(shown(&mut got)["status"], "cancelled");
        // The end of a task that has ended is acknowledged, and its state stays (S-TASK-X-09).
        about(&world, "tasks/cancel", &id).await.result();
        let given = json!({"taskId": id, "inputResponses": {"q-1": {"action": "decline"}}});
        Served::send(&world, &with_extension(), "tasks/update", given)
            .await
            .result();
        assert_eq!(server.of("tasks/cancel").len(), 1);

        // Forgotten there.
        let (_, id) = created(&world, &server).await;
        let mut got = about(&world, "tasks/get", &id).await;
        server.refuse(&server.last("tasks/get"), -32602, "unknown task");
        settle().await;
        let failed = shown(&mut got);
        assert_eq!(failed["status"], "failed");
        assert!(
            failed["error"]["message"]
                .as_str()
                .unwrap()
                .contains("unknown task")
        );

        // The server is gone.
        let (call, id) = created(&world, &server).await;
        server.crash_link(call.link, "exit 1");
        settle().await;
        let mut got = about(&world, "tasks/get", &id).await;
        assert_eq!(shown(&mut got)["status"], "failed");
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_look_that_fails_is_answered_with_what_is_known() {
    run(async {
        let (world, server) = world(true).await;
        let (_, id) = created(&world, &server).await;
        let mut got = about(&world, "tasks/get", &id).await;
        let later = LinkError::status(503, "later");
        server.fail(&server.last("tasks/get"), later);
        settle().await;
        assert_eq!(shown(&mut got)["status"], "working");
        // A server that does not answer.
        let mut got = about(&world, "tasks/get", &id).await;
        pass(seconds(1)).await;
        assert!(got.answer().is_none());
        pass(seconds(1)).await;
        assert_eq!(shown(&mut got)["status"], "working");
        // One that says by itself how it is.
        let mut half = task("working", 1);
        half["statusMessage"] = json!("half");
        let mut got = about(&world, "tasks/get", &id).await;
        server.say_for(
            &server.last("tools/call"),
            note("notifications/tasks/status", half),
        );
        settle().await;
        assert_eq!(shown(&mut got)["statusMessage"], "half");
        assert_eq!(server.of("tasks/get").len(), 2);
    });
}

#[test]
fn a_question_that_the_client_cannot_be_asked_is_refused() {
    run(async {
        let (world, server) = world(true).await;
        let (_, id) = created(&world, &server).await;
        let mut got = looked(&world, &server, &id, "input_required").await;
        let result = server.last("tasks/result");
        let sampling =
            json!({"messages": [], "maxTokens": 1, "_meta": {RELATED: {"taskId": "t-9"}}});
        server.say_for(&result, ask("q1", "sampling/createMessage", sampling));
        pass(seconds(2)).await;
        assert!(server.answer_to(&json!("q1")).unwrap()["error"].is_object());
        assert_eq!(shown(&mut got)["status"], "working");
        // An answer of the wrong shape is refused, and the question stays.
        server.say_for(&result, ask("q2", "elicitation/create", question("?")));
        pass(millis(50)).await;
        about(&world, "tasks/get", &id).await.result();
        let given = json!({"taskId": id, "inputResponses": {"q-1": {"action": 7}}});
        let mut update = Served::send(&world, &with_extension(), "tasks/update", given).await;
        assert_eq!(update.error()["code"], -32602);
        let mut got = about(&world, "tasks/get", &id).await;
        assert_eq!(shown(&mut got)["status"], "input_required");
    });
}

#[test]
fn s_task_x_a_task_is_for_those_who_declare_them() {
    run(async {
        let (world, server) = world(true).await;
        let (_, id) = created(&world, &server).await;
        let params = json!({ "taskId": id });
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let mut refused = Served::send(&world, &json!({}), method, params.clone()).await;
            assert_eq!(refused.error()["code"], -32021, "{method}");
        }
        let filter = json!({"notifications": {"taskIds": [id]}});
        let mut stream =
            Served::send(&world, &with_extension(), "subscriptions/listen", filter).await;
        // S-SUB-03: it cannot be told of.
        assert_eq!(stream.events()[0]["params"]["notifications"], json!({}));
        assert!(server.of("tasks/get").is_empty());
    });
}

#[test]
fn a_server_that_goes_on_in_a_task_works_as_far_as_its_breaker_is_concerned() {
    run(async {
        let world = Rc::new(World::new());
        let breaking = |plan: &mut Plan| {
            tasking(plan);
            plan.settings.resilience.breaker.failures = 1;
            plan.settings.resilience.breaker.open_for = seconds(10);
        };
        let server = world.http("a", breaking).await;
        pass(millis(50)).await;
        let mut failed = called(&world).await;
        let nonsense = LinkError::Protocol("nonsense".into());
        server.fail(&server.last("tools/call"), nonsense);
        settle().await;
        assert_eq!(failed.result()["isError"], true);
        pass(seconds(11)).await;
        created(&world, &server).await;
        assert_eq!(world.view("a").breaker.state, BreakerState::Closed);
        created(&world, &server).await;
    });
}

#[test]
fn a_call_that_is_taken_back_takes_its_task_back() {
    run(async {
        let (world, server) = world(true).await;
        let waiting = called(&world).await;
        let call = server.last("tools/call");
        drop(waiting);
        settle().await;
        assert!(server.of("notifications/cancelled").is_empty());
        server.answer(&call, json!({"task": task("working", 0)}));
        settle().await;
        assert_eq!(server.of("tasks/cancel").len(), 1);
        // A server that answers at once does.
        let mut answered = called(&world).await;
        server.answer(&server.last("tools/call"), text(json!("at once")));
        settle().await;
        assert_eq!(
            answered.result()["content"],
            text(json!("at once"))["content"]
        );
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn as_many_tasks_are_held_as_calls_may_be_parked() {
    run(async {
        let few = World::with(|settings| settings.parked_max = 1);
        let (world, server) = world_with(few, true).await;
        created(&world, &server).await;
        let mut refused = called(&world).await;
        let call = server.last("tools/call");
        server.answer(&call, json!({"task": task("working", 0)}));
        settle().await;
        let result = refused.result();
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(server.of("tasks/cancel").len(), 1);
    });
}
