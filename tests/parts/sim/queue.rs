//! The queue before a busy server: turns, limits, and what is refused.

use std::rc::Rc;

use serde_json::json;

use crate::sim::client::Exchange;
use crate::sim::server::{Server, text};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

/// Two calls at once, four may wait for 5 s.
fn narrow(plan: &mut Plan) {
    plan.settings.limits.calls_max = 2;
    plan.settings.resilience.queue.max = 4;
    plan.settings.resilience.queue.wait = seconds(5);
}

/// Answers the oldest call that is not answered yet; returns its number.
async fn answer_next(server: &Server, answered: &mut usize) -> u64 {
    let call = server.held()[*answered].clone();
    *answered += 1;
    server.answer(&call, text(json!("ok")));
    settle().await;
    call.call.unwrap()
}

#[test]
fn a_session_that_floods_does_not_starve_another() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", narrow).await;
        let (flood, calm) = (world.client(json!({})).await, world.client(json!({})).await);
        pass(millis(50)).await;
        let mut floods = Vec::new();
        for _ in 0..10 {
            floods.push(flood.call("a__hold").await);
        }
        // Two run, four wait, the others are refused with the time to come back.
        let view = world.view("a");
        assert_eq!((view.in_flight, view.queued), (2, 4));
        for refused in &floods[6..] {
            let failure = refused.failure();
            assert_eq!(failure["code"], "overloaded");
            assert_eq!(failure["retryAfterMs"], 500);
        }
        // The queue is full of them, and still another session gets in: the newest gives way.
        let calms = [calm.call("a__hold").await, calm.call("a__hold").await];
        assert_eq!(floods[5].failure()["code"], "overloaded");
        assert!(calms.iter().all(Exchange::is_waiting) && floods[4].is_over());
        let mut answered = 0;
        let mut order = Vec::new();
        for _ in 0..6 {
            order.push(answer_next(&server, &mut answered).await);
        }
        let numbers = [
            &floods[0], &floods[1], &floods[2], &calms[0], &floods[3], &calms[1],
        ];
        assert_eq!(order, numbers.map(|exchange| exchange.number));
        for exchange in calms.iter().chain(&floods[..4]) {
            exchange.result();
        }
        let view = world.view("a");
        assert_eq!((view.in_flight, view.queued), (0, 0));
        calm.call("a__echo").await.result();
    });
}

#[test]
fn who_waits_too_long_is_refused_and_leaves_the_queue() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", narrow).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let running = [client.call("a__hold").await, client.call("a__hold").await];
        let waiting = client.call("a__hold").await;
        let gone = client.call("a__hold").await;
        client.cancel(&gone).await;
        assert!(gone.is_over() && gone.messages().is_empty());
        assert_eq!(world.view("a").queued, 1);
        pass(millis(4900)).await;
        assert!(waiting.is_waiting());
        pass(millis(200)).await;
        assert_eq!(waiting.failure()["code"], "overloaded");
        assert_eq!(world.counted("deadline_exceeded_queue"), 1);
        assert_eq!(world.counted("calls_shed_server"), 1);
        assert_eq!(world.view("a").queued, 0);
        // Neither was ever sent, and nobody is told that it is taken back.
        assert_eq!(server.held().len(), 2);
        assert!(server.of("notifications/cancelled").is_empty());
        let mut answered = 0;
        answer_next(&server, &mut answered).await;
        answer_next(&server, &mut answered).await;
        assert!(running.iter().all(|exchange| exchange.answer().is_some()));
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_caller_that_waits_for_a_server_that_dies_reads_that_it_did_not_run() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", narrow).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let running = [client.call("a__hold").await, client.call("a__hold").await];
        let waiting = client.call("a__hold").await;
        server.crash("gone");
        settle().await;
        for exchange in &running {
            assert_eq!(exchange.failure()["code"], "server_lost");
        }
        assert_eq!(waiting.failure()["code"], "server_unavailable");
        assert!(waiting.sentence().contains("did not run"));
        let view = world.view("a");
        assert_eq!((view.in_flight, view.queued), (0, 0));
        pass(seconds(2)).await;
        client.call("a__echo").await.result();
    });
}

#[test]
fn a_wider_gate_lets_those_in_who_wait() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", narrow).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        for _ in 0..4 {
            client.call("a__hold").await;
        }
        assert_eq!(server.held().len(), 2);
        world
            .retune("a", |settings| settings.limits.calls_max = 3)
            .await;
        settle().await;
        assert_eq!(server.held().len(), 3);
        assert_eq!(world.view("a").queued, 1);
    });
}
