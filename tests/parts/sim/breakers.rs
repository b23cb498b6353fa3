//! Breakers: when a server or a tool that fails is not asked, and when it is again.

use std::rc::Rc;

use mcpvisor::downstream::{BreakerSettings, BreakerState, ServerOrder};
use mcpvisor::id::ServerName;
use mcpvisor::transport::LinkError;
use serde_json::json;

use crate::sim::client::Client;
use crate::sim::served::Served;
use crate::sim::server::{Server, text, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

const BREAKER: BreakerSettings = BreakerSettings {
    failures: 3,
    within: seconds(30),
    open_for: seconds(10),
    tools: true,
    tool_errors: false,
};

fn planned(plan: &mut Plan) {
    plan.settings.resilience.breaker = BREAKER;
    let tools = ["echo", "hold", "holdfast"].map(tool).to_vec();
    plan.script.lists.insert("tools", tools);
}

/// Calls a tool that the server then breaks the protocol for.
async fn fail(client: &Client, server: &Server, tool: &str) {
    let exchange = client.call(tool).await;
    let call = server.held().pop().unwrap();
    server.fail(&call, LinkError::Protocol("nonsense".into()));
    settle().await;
    assert_eq!(exchange.failure()["code"], "server_protocol");
}

/// A server whose breaker has just opened, and a client of it.
async fn failing(world: &Rc<World>) -> (Server, Client) {
    let server = world.http("a", planned).await;
    let client = world.client(json!({})).await;
    pass(millis(50)).await;
    for _ in 0..3 {
        fail(&client, &server, "a__hold").await;
    }
    (server, client)
}

#[test]
fn an_open_breaker_answers_at_once_and_lets_one_call_try() {
    run(async {
        let world = Rc::new(World::new());
        let (server, client) = failing(&world).await;
        assert_eq!(world.view("a").breaker.state, BreakerState::Open);
        assert_eq!(world.counted("breaker_transitions_open"), 2);
        pass(seconds(4)).await;
        let sent = server.held().len();
        let failure = client.call("a__echo").await.failure();
        assert_eq!(failure["code"], "breaker_open");
        assert_eq!(failure["retryable"], true);
        let after = failure["retryAfterMs"].as_u64().unwrap();
        assert!((5_000..=6_001).contains(&after), "{after}");
        assert_eq!(world.counted("breaker_refusals"), 1);
        pass(millis(after)).await;
        // One call tries; until it is answered the others are refused.
        let trial = client.call("a__hold").await;
        assert_eq!(server.held().len(), sent + 1);
        assert_eq!(world.view("a").breaker.state, BreakerState::HalfOpen);
        let failure = client.call("a__echo").await.failure();
        assert_eq!(failure["code"], "breaker_open");
        server.answer(&server.held().pop().unwrap(), text(json!("back")));
        settle().await;
        assert_eq!(trial.result(), text(json!("back")));
        client.call("a__echo").await.result();
        assert_eq!(world.view("a").breaker.state, BreakerState::Closed);
        assert!(world.view("a").tool_breakers.is_empty());
        assert_eq!(world.counted("breaker_transitions_closed"), 2);
    });
}

#[test]
fn a_slow_trial_does_not_keep_everybody_from_trying() {
    run(async {
        let world = Rc::new(World::new());
        let (_server, client) = failing(&world).await;
        pass(seconds(11)).await;
        let slow = client.call("a__hold").await;
        let failure = client.call("a__echo").await.failure();
        assert_eq!(failure["code"], "breaker_open");
        pass(seconds(11)).await;
        client.call("a__echo").await.result();
        assert_eq!(world.view("a").breaker.state, BreakerState::Closed);
        assert!(!slow.is_over());
    });
}

#[test]
fn a_server_whose_every_call_fails_is_not_well_though_its_breaker_is_closed() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", planned).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        for _ in 0..3 {
            assert_eq!(world.view("a").failing(), None);
            // Too far apart to open it.
            pass(seconds(60)).await;
            fail(&client, &server, "a__hold").await;
        }
        assert_eq!(world.view("a").breaker.state, BreakerState::Closed);
        let why = world.view("a").failing();
        assert_eq!(why.as_deref(), Some("its last 3 calls failed"));
        client.call("a__echo").await.result();
        assert_eq!(world.view("a").failing(), None);
        pass(seconds(60)).await;
        for _ in 0..3 {
            fail(&client, &server, "a__hold").await;
        }
        let why = world.view("a").failing().unwrap();
        assert!(why.contains("is not called now"), "{why}");
    });
}

#[test]
fn calls_that_a_breaker_refuses_are_counted_with_or_without_a_session() {
    run(async {
        let world = Rc::new(World::new());
        let (_server, client) = failing(&world).await;
        let failed = world.counted("calls_failed");
        client.call("a__echo").await.failure();
        let params = json!({"name": "a__echo", "arguments": {}});
        let mut alone = Served::send(&world, &json!({}), "tools/call", params).await;
        assert_eq!(
            alone.result()["_meta"]["io.mcpvisor/error"]["code"],
            "breaker_open"
        );
        assert_eq!(world.counted("breaker_refusals"), 2);
        assert_eq!(world.counted("calls_failed"), failed);
    });
}

#[test]
fn a_failing_tool_leaves_the_others_alone() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", planned).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        for _ in 0..3 {
            fail(&client, &server, "a__hold").await;
            client.call("a__echo").await.result();
        }
        let failure = client.call("a__hold").await.failure();
        assert_eq!(failure["code"], "breaker_open");
        client.call("a__echo").await.result();
        let view = world.view("a");
        assert_eq!(view.breaker.state, BreakerState::Closed);
        assert_eq!(view.tool_breakers[0].tool.as_deref(), Some("hold"));
        assert_eq!(view.tool_breakers[0].state, BreakerState::Open);
        pass(seconds(10)).await;
        // A trial that its client takes back leaves the next call to try.
        let trial = client.call("a__hold").await;
        client.cancel(&trial).await;
        fail(&client, &server, "a__hold").await;
        let failure = client.call("a__hold").await.failure();
        assert_eq!(failure["code"], "breaker_open");
    });
}

#[test]
fn one_crash_with_many_calls_is_one_failure() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", planned).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let mut lost = Vec::new();
        for _ in 0..10 {
            lost.push(client.call("a__hold").await);
        }
        server.crash("gone");
        settle().await;
        for exchange in &lost {
            assert_eq!(exchange.failure()["code"], "server_lost");
        }
        pass(seconds(2)).await;
        client.call("a__echo").await.result();
        let view = world.view("a");
        assert_eq!(
            (view.breaker.state, view.breaker.failures),
            (BreakerState::Closed, 0)
        );
        assert_eq!(view.tool_breakers[0].failures, 1);
    });
}

#[test]
fn results_with_is_error_count_only_where_they_are_to() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", planned).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let failed = json!({"content": [], "isError": true});
        let call = async || {
            let exchange = client.call("a__hold").await;
            server.answer(&server.held().pop().unwrap(), failed.clone());
            settle().await;
            assert_eq!(exchange.result(), failed);
        };
        for _ in 0..5 {
            call().await;
        }
        let counting = BreakerSettings {
            tool_errors: true,
            ..BREAKER
        };
        let tune = |settings: &mut mcpvisor::downstream::ServerSettings| {
            settings.resilience.breaker = counting;
        };
        world.retune("a", tune).await;
        for _ in 0..3 {
            call().await;
        }
        let failure = client.call("a__hold").await.failure();
        assert_eq!(failure["code"], "breaker_open");
        client.call("a__echo").await.result();
    });
}

#[test]
fn an_operator_trips_and_resets_a_server_or_a_tool() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", planned).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let name = || ServerName::try_new("a").unwrap();
        let order = |order| world.downstreams.order(name(), order);
        let tool = || Some("echo".to_owned());
        order(ServerOrder::Trip(tool())).await.unwrap();
        let failure = client.call("a__echo").await.failure();
        assert_eq!(failure["code"], "breaker_open");
        assert!(failure["retryAfterMs"].is_null(), "{failure}");
        fail(&client, &server, "a__hold").await;
        pass(seconds(600)).await;
        let sentence = client.call("a__echo").await.sentence();
        assert!(
            sentence.contains("mcpvisor servers reset a echo"),
            "{sentence}"
        );
        order(ServerOrder::Reset(tool())).await.unwrap();
        client.call("a__echo").await.result();
        order(ServerOrder::Trip(None)).await.unwrap();
        assert_eq!(world.view("a").breaker.state, BreakerState::Tripped);
        client.call("a__echo").await.failure();
        // A fresh connection does not overrule the operator.
        order(ServerOrder::Restart).await.unwrap();
        client.call("a__echo").await.failure();
        order(ServerOrder::Reset(None)).await.unwrap();
        client.call("a__echo").await.result();
        let refused = order(ServerOrder::Trip(Some("nothing".to_owned()))).await;
        assert!(refused.unwrap_err().to_string().contains("has no tool"));
    });
}
