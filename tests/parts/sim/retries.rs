//! Calls that the gateway sends once more, and those that it does not.

use std::rc::Rc;

use mcpvisor::transport::LinkError;
use serde_json::json;

use crate::sim::server::{text, tool};
use crate::sim::tasks::{task, tasking};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

/// A server whose calls may be sent again, with a tool that changes nothing.
pub(crate) fn trusted(plan: &mut Plan) {
    plan.settings.resilience.retry.is_allowed = true;
    let mut reads = tool("reads");
    reads["annotations"] = json!({"readOnlyHint": true});
    let tools = vec![tool("echo"), tool("hold"), reads];
    plan.script.lists.insert("tools", tools);
}

#[test]
fn a_call_of_a_read_only_tool_survives_the_crash_of_its_server() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", trusted).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let reads = client.call_with_progress("a__reads", json!("t")).await;
        let holds = client.call("a__hold").await;
        server.progress(&server.held()[0], 1.0);
        server.crash("gone");
        settle().await;
        // A call that may not run twice is answered, the other waits for the server.
        assert_eq!(holds.failure()["code"], "server_lost");
        pass(seconds(2)).await;
        let held = server.held();
        assert_eq!(held.len(), 3);
        let again = &held[2];
        assert_eq!(again.json["params"]["name"], "reads");
        // The server sees another request.
        assert_ne!(again.json["id"], held[0].json["id"]);
        server.progress(again, 2.0);
        server.answer(again, text(json!("done")));
        settle().await;
        assert_eq!(reads.result(), text(json!("done")));
        assert_eq!(reads.of("notifications/progress").len(), 2);
        assert_eq!(world.counted("calls_repeated"), 1);
        assert_eq!(world.view("a").repeated, 1);
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_call_that_was_never_written_is_sent_again_whatever_its_tool() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", trusted).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        let refused = LinkError::NotSent("connection refused".into());
        server.fail(&server.held()[0], refused);
        pass(millis(150)).await;
        let held = server.held();
        assert_eq!(held.len(), 2);
        server.answer(&held[1], text(json!("done")));
        settle().await;
        assert_eq!(exchange.result(), text(json!("done")));
    });
}

#[test]
fn nothing_is_sent_again_unless_it_is_allowed_and_there_is_a_budget() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", trusted).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        world
            .retune("a", |settings| settings.resilience.retry.per_minute = 1)
            .await;
        let calls = [client.call("a__reads").await, client.call("a__reads").await];
        server.crash("gone");
        settle().await;
        let over = calls.iter().filter(|call| call.is_over()).count();
        assert_eq!(over, 1, "the budget is for one");
        pass(seconds(2)).await;
        assert_eq!(server.held().len(), 3);
        server.answer(&server.held()[2], text(json!("done")));
        settle().await;
        world
            .retune("a", |settings| settings.resilience.retry.is_allowed = false)
            .await;
        pass(seconds(60)).await;
        let exchange = client.call("a__reads").await;
        server.crash("gone");
        settle().await;
        assert_eq!(exchange.failure()["code"], "server_lost");
        assert_eq!(world.counted("calls_repeated"), 1);
    });
}

#[test]
fn a_call_can_be_taken_back_before_and_after_it_is_sent_again() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", trusted).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let early = client.call("a__reads").await;
        let late = client.call("a__reads").await;
        server.crash("gone");
        settle().await;
        client.cancel(&early).await;
        assert!(early.is_over() && early.messages().is_empty());
        pass(seconds(2)).await;
        let held = server.held();
        assert_eq!(held.len(), 3);
        client.cancel(&late).await;
        let note = server.last("notifications/cancelled");
        assert_eq!(note.json["params"]["requestId"], held[2].json["id"]);
        assert!(late.is_over() && late.messages().is_empty());
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_call_does_not_wait_in_vain_for_a_server_that_stays_away() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", trusted).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__reads").await;
        server.refuse_links(Some("no"));
        server.crash("gone");
        pass(seconds(10)).await;
        assert!(exchange.is_waiting());
        // It is broken long before the call's deadline.
        pass(seconds(40)).await;
        assert_eq!(exchange.failure()["code"], "server_lost");
    });
}

#[test]
fn a_call_whose_task_was_created_is_not_sent_again() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", trusted_with_tasks).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let early = client.call("a__required").await;
        let late = client.call("a__required").await;
        server.answer(&server.held()[0], json!({"task": task("working", 0)}));
        settle().await;
        server.crash("gone");
        settle().await;
        assert_eq!(early.failure()["code"], "server_lost");
        pass(seconds(2)).await;
        let held = server.held();
        assert_eq!(held.len(), 3, "the other is sent again");
        client.cancel(&late).await;
        assert_eq!(world.counted("calls_repeated"), 1);
    });
}

/// The same of a server that goes on in tasks.
pub(crate) fn trusted_with_tasks(plan: &mut Plan) {
    tasking(plan);
    plan.settings.resilience.retry.is_allowed = true;
    for tool in plan.script.lists.get_mut("tools").unwrap() {
        tool["annotations"] = json!({"readOnlyHint": true});
    }
}
