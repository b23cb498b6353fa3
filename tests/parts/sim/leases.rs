//! Connections that serve one call at a time, of clients without a session.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::sim::questions::elicit;
use crate::sim::served::Served;
use crate::sim::server::{Frame, Server, text};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

/// A program whose requests could not be attributed before.
fn isolated(plan: &mut Plan) {
    plan.reasons.push("unattributed");
}

async fn called(world: &World, server: &Server) -> (Served, Frame) {
    let params = json!({"name": "a__hold", "arguments": {}});
    let declared = json!({"elicitation": {}});
    let call = Served::send(world, &declared, "tools/call", params).await;
    pass(millis(50)).await;
    (call, server.held().pop().unwrap())
}

/// Whether a question on this link was answered without a client.
async fn is_refused(server: &Server, link: usize, id: &str) -> bool {
    server.say_on(link, elicit(id));
    settle().await;
    let answer = server.answer_to(&Value::from(id));
    answer.is_some_and(|answer| answer["result"]["action"] == "cancel")
}

#[test]
fn a_connection_serves_nobody_else_while_its_server_is_at_a_cancelled_call() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", isolated).await;
        pass(millis(50)).await;
        let (gone, gone_call) = called(&world, &server).await;
        drop(gone);
        settle().await;
        assert_eq!(server.of("notifications/cancelled").len(), 1);
        let (mut other, other_call) = called(&world, &server).await;
        assert_ne!(gone_call.link, other_call.link);
        assert!(is_refused(&server, gone_call.link, "late").await);
        assert!(other.answer().is_none());
        // Its server is done with it.
        server.answer(&gone_call, text(json!("too late")));
        settle().await;
        let (_third, third_call) = called(&world, &server).await;
        assert_eq!(third_call.link, gone_call.link);
        server.answer(&other_call, text(json!("done")));
        settle().await;
        other.result();
        let (_fourth, fourth_call) = called(&world, &server).await;
        assert_eq!(fourth_call.link, other_call.link);
    });
}

#[test]
fn a_cancelled_call_that_is_never_answered_expires() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                isolated(plan);
                plan.settings.limits.cancelled_timeout = seconds(20);
                plan.settings.limits.request_timeout = seconds(5);
            })
            .await;
        pass(millis(50)).await;
        let (mut late, late_call) = called(&world, &server).await;
        pass(seconds(5)).await;
        let failure = &late.result()["_meta"]["io.mcpvisor/error"];
        assert_eq!(failure["code"], "timeout");
        pass(seconds(10)).await;
        let (other, other_call) = called(&world, &server).await;
        assert_ne!(late_call.link, other_call.link);
        drop(other);
        pass(seconds(11)).await;
        let (_next, next_call) = called(&world, &server).await;
        assert_eq!(next_call.link, late_call.link);
        let (_last, last_call) = called(&world, &server).await;
        assert!(last_call.link > other_call.link);
    });
}

/// On a shared connection a question is attributed again once the cancelled call expired.
#[test]
fn a_question_is_for_the_call_under_way_when_the_cancelled_one_expired() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| {
                plan.settings.limits.cancelled_timeout = seconds(20);
            })
            .await;
        pass(millis(50)).await;
        let client = world.client(json!({"elicitation": {}})).await;
        let gone = client.call("a__hold").await;
        let link = server.held().pop().unwrap().link;
        client.cancel(&gone).await;
        let other = world.client(json!({"elicitation": {}})).await;
        let exchange = other.call("a__hold").await;
        assert!(is_refused(&server, link, "early").await);
        pass(seconds(20)).await;
        assert!(!is_refused(&server, link, "late").await);
        assert_eq!(exchange.of("elicitation/create").len(), 1);
    });
}
