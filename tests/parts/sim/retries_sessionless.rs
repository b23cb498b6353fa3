//! Calls of clients without a session that the gateway sends once more, and those that it does not.

use std::rc::Rc;

use mcpvisor::protocol::Revision;
use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::sim::modern::sessionless;
use crate::sim::retries::{trusted, trusted_with_tasks};
use crate::sim::served::{Served, with_extension};
use crate::sim::server::{Server, ask, text};
use crate::sim::tasks::task;
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

/// Clients without a session are of the newest revision, or served by a stateless gateway.
const REVISIONS: [Revision; 2] = [Revision::V2026_07_28, Revision::V2025_11_25];

async fn world(plan: impl FnOnce(&mut Plan)) -> (Rc<World>, Server) {
    let world = Rc::new(World::new());
    let server = world.stdio("a", plan).await;
    pass(millis(50)).await;
    (world, server)
}

async fn called_as(world: &World, revision: Revision, tool: &str) -> Served {
    let params = json!({"name": tool, "arguments": {}, "_meta": {"progressToken": "t"}});
    Served::send_as(world, revision, &json!({}), true, "tools/call", params).await
}

async fn called(world: &World, tool: &str) -> Served {
    called_as(world, Revision::V2026_07_28, tool).await
}

/// Why a tool call failed.
fn code(served: &mut Served) -> Value {
    served.result()["_meta"]["io.mcpvisor/error"]["code"].clone()
}

#[test]
fn a_call_of_a_read_only_tool_survives_the_crash_of_its_server() {
    run(async {
        for revision in REVISIONS {
            let (world, server) = world(trusted).await;
            let mut reads = called_as(&world, revision, "a__reads").await;
            let mut holds = called_as(&world, revision, "a__hold").await;
            server.crash("gone");
            settle().await;
            // A call that may not run twice is answered, the other waits for the server.
            assert_eq!(code(&mut holds), "server_lost");
            assert!(reads.answer().is_none());
            pass(seconds(2)).await;
            let held = server.held();
            assert_eq!(held.len(), 3);
            let again = &held[2];
            assert_eq!(again.link, 1);
            assert_eq!(again.json["params"]["name"], "reads");
            // The server sees another request.
            assert_ne!(again.json["id"], held[0].json["id"]);
            server.answer(again, text(json!("done")));
            settle().await;
            assert_eq!(reads.result()["content"], text(json!("done"))["content"]);
            assert_eq!(world.counted("calls_repeated"), 1);
            assert_eq!(world.view("a").repeated, 1);
            assert_eq!(world.view("a").in_flight, 0);
        }
    });
}

#[test]
fn progress_that_was_sent_goes_on_with_the_call_that_is_sent_again() {
    run(async {
        let (world, server) = world(trusted).await;
        let mut reads = called(&world, "a__reads").await;
        server.progress(&server.held()[0], 2.0);
        settle().await;
        let received = reads.events();
        assert_eq!(received[0]["params"]["progress"], 2.0);
        server.crash("gone");
        pass(seconds(2)).await;
        // It begins anew, which its client is not told (S-PROG-02).
        let again = &server.held()[1];
        server.progress(again, 1.0);
        server.progress(again, 3.0);
        server.answer(again, text(json!("done")));
        settle().await;
        let events = reads.events();
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(events[0]["params"]["progress"], 3.0);
        assert_eq!(events[0]["params"]["progressToken"], "t");
        assert_eq!(
            events[1]["result"]["content"],
            text(json!("done"))["content"]
        );
    });
}

#[test]
fn a_call_that_was_never_written_is_sent_again_whatever_its_tool() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", trusted).await;
        pass(millis(50)).await;
        let mut holds = called(&world, "a__hold").await;
        for attempt in 0..4 {
            assert_eq!(server.held().len(), attempt + 1);
            let refused = LinkError::NotSent("connection refused".into());
            server.fail(&server.held()[attempt], refused);
            pass(seconds(2)).await;
        }
        // Three times at most.
        assert_eq!(code(&mut holds), "server_unavailable");
        assert_eq!(world.counted("calls_repeated"), 3);
    });
}

#[test]
fn nothing_is_sent_again_unless_it_is_allowed_and_there_is_a_budget() {
    run(async {
        let (world, server) = world(trusted).await;
        world
            .retune("a", |settings| settings.resilience.retry.per_minute = 1)
            .await;
        let mut calls = [
            called(&world, "a__reads").await,
            called(&world, "a__reads").await,
        ];
        server.crash("gone");
        settle().await;
        let over = calls.iter_mut().filter_map(Served::answer).count();
        assert_eq!(over, 1, "the budget is for one");
        pass(seconds(2)).await;
        assert_eq!(server.held().len(), 3);
        server.answer(&server.held()[2], text(json!("done")));
        settle().await;
        world
            .retune("a", |settings| settings.resilience.retry.is_allowed = false)
            .await;
        pass(seconds(60)).await;
        let mut reads = called(&world, "a__reads").await;
        server.crash("gone");
        settle().await;
        assert_eq!(code(&mut reads), "server_lost");
        assert_eq!(world.counted("calls_repeated"), 1);
    });
}

#[test]
fn a_client_that_leaves_takes_its_call_back_before_and_after_it_is_sent_again() {
    run(async {
        let (world, server) = world(trusted).await;
        let early = called(&world, "a__reads").await;
        let late = called(&world, "a__reads").await;
        server.crash("gone");
        settle().await;
        drop(early);
        pass(seconds(2)).await;
        let held = server.held();
        assert_eq!(held.len(), 3);
        drop(late);
        settle().await;
        let note = server.last("notifications/cancelled");
        assert_eq!(note.json["params"]["requestId"], held[2].json["id"]);
        assert_eq!(world.counted("calls_cancelled"), 2);
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_call_is_sent_again_within_its_deadline_only() {
    run(async {
        let (world, server) = world(|plan| {
            trusted(plan);
            plan.settings.limits.request_timeout_max = seconds(3);
        })
        .await;
        let mut old = called(&world, "a__reads").await;
        pass(millis(2950)).await;
        let mut young = called(&world, "a__reads").await;
        server.refuse_links(Some("no"));
        server.crash("gone");
        settle().await;
        // There is no time left for another attempt.
        assert_eq!(code(&mut old), "server_lost");
        assert!(young.answer().is_none());
        // Its server is not back in time; the first attempt may have run.
        pass(seconds(3)).await;
        assert_eq!(code(&mut young), "server_lost");
        assert_eq!(server.held().len(), 2);
        assert_eq!(world.counted("calls_repeated"), 1);
    });
}

#[test]
fn a_call_whose_client_was_asked_is_not_sent_again() {
    run(async {
        let (world, server) = world(trusted).await;
        let params = json!({"name": "a__reads", "arguments": {}});
        let asked = json!({"elicitation": {}});
        let mut call = Served::send(&world, &asked, "tools/call", params.clone()).await;
        // It has a connection for itself.
        pass(millis(50)).await;
        let held = server.held()[0].clone();
        let form = json!({"mode": "form", "message": "who?",
            "requestedSchema": {"type": "object", "properties": {"who": {"type": "string"}}}});
        server.say_for(&held, ask("q", "elicitation/create", form));
        pass(millis(50)).await;
        let required = call.result();
        assert_eq!(required["resultType"], "input_required");
        server.crash_link(held.link, "gone");
        pass(seconds(2)).await;
        assert_eq!(server.held().len(), 1);
        // Its client reads it when it is back.
        let key = required["inputRequests"].as_object().unwrap().keys().next();
        let mut back = params;
        back["requestState"] = required["requestState"].clone();
        back["inputResponses"] = json!({ key.unwrap(): {"action": "decline"} });
        let mut back = Served::send(&world, &asked, "tools/call", back).await;
        assert_eq!(code(&mut back), "server_lost");
        assert_eq!(world.counted("calls_repeated"), 0);
    });
}

#[test]
fn an_answered_call_is_sent_again_only_if_it_was_not_written() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            sessionless(plan);
            trusted(plan);
        };
        let server = world.http("a", plan).await;
        pass(millis(50)).await;
        let params = json!({"name": "a__reads", "arguments": {}});
        let asked = json!({"elicitation": {}});
        let mut call = Served::send(&world, &asked, "tools/call", params.clone()).await;
        let form = json!({"method": "elicitation/create", "params": {"mode": "form",
            "message": "who?", "requestedSchema": {"type": "object", "properties": {}}}});
        server.need(&server.held()[0], json!({ "q": form }), "state");
        settle().await;
        let required = call.result();
        let mut back = params;
        back["requestState"] = required["requestState"].clone();
        back["inputResponses"] = json!({"q": {"action": "decline"}});
        let mut back = Served::send(&world, &asked, "tools/call", back).await;
        let refused = LinkError::NotSent("connection refused".into());
        server.fail(&server.held()[1], refused);
        pass(millis(150)).await;
        let again = server.held()[2].clone();
        assert_eq!(again.json["params"]["requestState"], "state");
        assert_eq!(
            again.json["params"]["inputResponses"]["q"]["action"],
            "decline"
        );
        server.fail(&again, LinkError::Lost("gone".to_owned()));
        settle().await;
        assert_eq!(code(&mut back), "server_lost");
        assert_eq!(world.counted("calls_repeated"), 1);
    });
}

#[test]
fn a_call_whose_task_was_created_is_not_sent_again() {
    run(async {
        // With the extension a client follows the task itself, otherwise the gateway does.
        for capabilities in [with_extension(), json!({})] {
            let (world, server) = world(trusted_with_tasks).await;
            let params = json!({"name": "a__required", "arguments": {}});
            let mut call = Served::send(&world, &capabilities, "tools/call", params).await;
            pass(millis(50)).await;
            let held = server.held()[0].clone();
            server.answer(&held, json!({"task": task("working", 0)}));
            settle().await;
            server.crash_link(held.link, "gone");
            pass(seconds(2)).await;
            assert_eq!(server.held().len(), 1, "{capabilities}");
            let answer = call.result();
            if answer["resultType"] == "complete" {
                assert_eq!(code(&mut call), "server_lost");
            } else {
                let about = json!({"taskId": answer["taskId"]});
                let mut got = Served::send(&world, &capabilities, "tasks/get", about).await;
                assert_eq!(got.result()["status"], "failed");
            }
            assert_eq!(world.counted("calls_repeated"), 0);
        }
    });
}

/// What a client may be asked in front of a server that wants to know something.
fn form() -> Value {
    json!({"mode": "form", "message": "who?", "requestedSchema": {"type": "object", "properties": {}}})
}

#[test]
fn a_call_for_which_there_is_no_place_to_be_parked_may_have_run() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.parked_max = 1));
        let server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let asked = json!({"elicitation": {}});
        let mut calls = Vec::new();
        for id in ["q1", "q2"] {
            let params = json!({"name": "a__hold", "arguments": {}});
            let call = Served::send(&world, &asked, "tools/call", params).await;
            pass(millis(50)).await;
            let held = server.held().pop().unwrap();
            server.say_for(&held, ask(id, "elicitation/create", form()));
            pass(millis(50)).await;
            calls.push(call);
        }
        assert_eq!(calls[0].result()["resultType"], "input_required");
        let failure = calls[1].result()["_meta"]["io.mcpvisor/error"].clone();
        assert_eq!(failure["code"], "server_lost");
        assert_eq!(failure["retryable"], false);
        assert!(failure["retryAfterMs"].is_null());
        assert_eq!(server.of("notifications/cancelled").len(), 1);
    });
}

#[test]
fn a_call_that_goes_on_with_answers_is_not_said_not_to_have_run() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", sessionless).await;
        pass(millis(50)).await;
        let (asked, params) = (
            json!({"elicitation": {}}),
            json!({"name": "a__hold", "arguments": {}}),
        );
        let mut call = Served::send(&world, &asked, "tools/call", params.clone()).await;
        let question = json!({"method": "elicitation/create", "params": form()});
        server.need(&server.held()[0], json!({ "q": question }), "state");
        settle().await;
        let required = call.result();
        let mut back = params;
        back["requestState"] = required["requestState"].clone();
        back["inputResponses"] = json!({"q": {"action": "decline"}});
        let mut back = Served::send(&world, &asked, "tools/call", back).await;
        let refused = LinkError::NotSent("connection refused".into());
        server.fail(&server.held()[1], refused);
        settle().await;
        // What it was asked before may have been done in part.
        assert_eq!(code(&mut back), "server_lost");
    });
}
