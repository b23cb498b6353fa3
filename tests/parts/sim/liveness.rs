//! How soon it is noticed that a server hangs, and what a status says of it.

use std::rc::Rc;

use mcpvisor::downstream::BreakerState;
use mcpvisor::transport::LinkError;
use serde_json::json;

use crate::sim::modern::mute;
use crate::sim::world::{World, millis, pass, run, seconds, settle};

#[test]
fn a_server_that_falls_silent_is_pinged_when_the_silence_has_lasted() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                plan.settings.limits.ping_every = seconds(5);
                plan.settings.limits.ping_timeout = seconds(2);
            })
            .await;
        let client = world.client(json!({})).await;
        // It is asked so often that it is never silent for long.
        for _ in 0..40 {
            pass(millis(200)).await;
            client.call("a__echo").await.result();
        }
        assert!(server.of("ping").is_empty());
        server.mute("ping");
        pass(millis(4900)).await;
        assert!(server.of("ping").is_empty());
        pass(millis(200)).await;
        assert_eq!(server.of("ping").len(), 1);
        assert_eq!(world.view("a").shared.generation, 1);
        pass(seconds(2)).await;
        let exit = world.view("a").shared.last_exit.unwrap();
        assert!(exit.contains("`ping` was not answered"), "{exit}");
    });
}

#[test]
fn a_call_that_times_out_has_its_server_pinged_at_once() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                plan.settings.limits.ping_every = seconds(3600);
                plan.settings.limits.request_timeout = seconds(3);
            })
            .await;
        let client = world.client(json!({})).await;
        pass(seconds(1)).await;
        let exchange = client.call("a__hold").await;
        pass(millis(3100)).await;
        assert!(exchange.is_over());
        assert_eq!(server.of("ping").len(), 1);
        // The server answers: nothing else happens.
        pass(seconds(60)).await;
        assert_eq!(server.of("ping").len(), 1);
        assert_eq!(world.view("a").shared.generation, 1);
    });
}

#[test]
fn a_breaker_that_opens_has_the_server_pinged_at_once() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| {
                plan.settings.limits.ping_every = seconds(3600);
                plan.settings.resilience.breaker.failures = 2;
            })
            .await;
        let client = world.client(json!({})).await;
        pass(seconds(1)).await;
        for _ in 0..2 {
            assert!(server.of("ping").is_empty());
            client.call("a__hold").await;
            let nonsense = LinkError::Protocol("nonsense".into());
            server.fail(&server.held().pop().unwrap(), nonsense);
            settle().await;
        }
        assert_eq!(world.view("a").breaker.state, BreakerState::Open);
        assert_eq!(server.of("ping").len(), 1);
    });
}

#[test]
fn a_process_that_does_not_read_is_given_up_and_one_that_reads_again_is_not() {
    run(async {
        for reads_again in [true, false] {
            let world = Rc::new(World::new());
            let server = world
                .stdio("a", |plan| {
                    plan.script.queue = 8;
                    plan.settings.limits.ping_every = seconds(3600);
                    plan.settings.limits.ping_timeout = seconds(2);
                    plan.settings.resilience.breaker.failures = 0;
                })
                .await;
            let client = world.client(json!({})).await;
            pass(seconds(1)).await;
            server.stop_reading(true);
            for _ in 0..12 {
                client.call("a__echo").await;
            }
            assert_eq!(world.view("a").shared.generation, 1);
            pass(seconds(1)).await;
            server.stop_reading(!reads_again);
            pass(seconds(2)).await;
            let view = world.view("a").shared;
            let exit = view.last_exit.unwrap_or_default();
            assert_eq!(exit.contains("does not read"), !reads_again, "{exit}");
            if reads_again {
                assert_eq!(server.of("ping").len(), 1);
                client.call("a__echo").await.result();
            }
        }
    });
}

#[test]
fn a_server_whose_tools_are_not_listed_is_not_up() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| {
                plan.script.mute.insert("tools/list");
            })
            .await;
        let state = || world.view("a").state(None);
        pass(seconds(1)).await;
        let (word, why) = state();
        assert_eq!(word, "starting");
        assert!(why.unwrap().contains("no answer to `tools/list` yet"));
        pass(seconds(31)).await;
        assert!(state().1.unwrap().contains("`tools/list` failed"));
        server.behave();
        // The second attempt is in flight, and fails.
        pass(seconds(35)).await;
        assert_eq!(state(), ("up".to_owned(), None));
    });
}

#[test]
fn no_attempt_to_connect_is_made_before_the_server_wants_it() {
    for status in [408, 429, 502, 503, 504] {
        run(async {
            let world = Rc::new(World::new());
            let server = world
                .http("a", |plan| mute(plan, &["server/discover", "initialize"]))
                .await;
            let refusal = LinkError::Status {
                status,
                text: "come back later".to_owned(),
                retry_after: Some(seconds(40)),
            };
            server.fail(&server.last("server/discover"), refusal);
            pass(seconds(39)).await;
            assert_eq!(server.frames().len(), 1, "{status}");
            let view = world.view("a").shared;
            assert!(view.last_exit.unwrap().contains("come back later"));
            server.behave();
            pass(seconds(2)).await;
            assert_eq!(world.view("a").shared.phase.to_string(), "up", "{status}");
        });
    }
}
