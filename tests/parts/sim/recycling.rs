//! Planned restarts of servers.

use std::rc::Rc;
use std::sync::Arc;

use mcpvisor::downstream::{RecycleSettings, ServerTies};
use mcpvisor::id::ServerName;
use mcpvisor::supervision::{GroupPolicy, Strategy};
use mcpvisor::transport::{LinkEnd, ProcessExit};
use serde_json::json;

use crate::sim::world::{Plan, World, pass, run, seconds, settle};

fn by_age(seconds_up: u64) -> impl Fn(&mut Plan) {
    move |plan| {
        plan.settings.limits.recycle = Some(RecycleSettings {
            after: Some(seconds(seconds_up)),
            ..RecycleSettings::default()
        });
    }
}

fn generation(world: &World, name: &str) -> u64 {
    world.view(name).shared.generation
}

#[test]
fn a_server_is_recycled_between_calls_and_sessions_stay() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                by_age(600)(plan);
                plan.settings.limits.request_timeout = seconds(1000);
            })
            .await;
        let client = world.client(json!({})).await;
        pass(seconds(520)).await;
        let running = client.call("a__hold").await;
        pass(seconds(300)).await;
        assert_eq!((generation(&world, "a"), running.is_waiting()), (1, true));
        server.answer(&server.held()[0], json!({"content": []}));
        settle().await;
        running.result();
        pass(seconds(20)).await;
        let view = world.view("a").shared;
        assert_eq!((view.generation, view.restart_reasons["recycled"]), (2, 1));
        assert_eq!(
            (view.phase.to_string(), view.failures),
            ("up".to_owned(), 0)
        );
        client.call("a__echo").await.result();
    });
}

#[test]
fn a_server_is_recycled_after_so_many_calls() {
    run(async {
        let world = Rc::new(World::new());
        world
            .stdio("a", |plan| {
                plan.settings.limits.recycle = Some(RecycleSettings {
                    calls: Some(10),
                    ..RecycleSettings::default()
                });
            })
            .await;
        let client = world.client(json!({})).await;
        pass(seconds(20)).await;
        for _ in 0..8 {
            client.call("a__echo").await.result();
        }
        pass(seconds(60)).await;
        assert_eq!(generation(&world, "a"), 1);
        for _ in 0..2 {
            client.call("a__echo").await.result();
        }
        pass(seconds(60)).await;
        assert_eq!(generation(&world, "a"), 2);
    });
}

#[test]
fn one_server_of_a_group_is_recycled_at_a_time_and_dependants_stop_before() {
    run(async {
        let world = Rc::new(World::new());
        let group = Arc::new(GroupPolicy {
            name: "data".into(),
            strategy: Strategy::OneForOne,
            max_restarts: 5,
            within: seconds(60),
            retry_every: seconds(30),
            jitter: 0.0,
            escalates: false,
        });
        for (place, name) in ["a", "b"].into_iter().enumerate() {
            let group = Some(group.clone());
            world
                .stdio(name, |plan| {
                    by_age(100)(plan);
                    plan.script.starts_after = seconds(20);
                    plan.settings.dependencies = ServerTies {
                        depends_on: Vec::new(),
                        group,
                        place,
                    };
                })
                .await;
        }
        let dependencies = ServerTies {
            depends_on: vec![ServerName::try_new("a").unwrap()],
            group: None,
            place: 2,
        };
        world
            .stdio("web", |plan| plan.settings.dependencies = dependencies)
            .await;
        let mut seen = Vec::new();
        for _ in 0..200 {
            pass(seconds(1)).await;
            let up = |name: &str| world.view(name).shared.phase.to_string() == "up";
            let were_up = generation(&world, "a") > 1 || generation(&world, "b") > 1;
            assert!(!were_up || up("a") || up("b"), "both are away");
            seen.push(generation(&world, "a") + generation(&world, "b"));
        }
        assert_eq!(seen.last(), Some(&4));
        let web = world.view("web").shared;
        assert_eq!((web.generation, web.restart_reasons["dependency"]), (2, 1));
        assert_eq!(world.downstreams.groups()[0].failures, 0);
    });
}

#[test]
fn a_program_that_asks_for_a_restart_by_its_exit_code_has_not_failed() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| plan.settings.limits.restart_on_exit = vec![75])
            .await;
        let client = world.client(json!({})).await;
        let exit = |link, code| {
            server.crash_link(
                link,
                LinkEnd {
                    exit: Some(ProcessExit::Code(code)),
                    ..LinkEnd::from("it exited")
                },
            );
        };
        let generation = || generation(&world, "a");
        // An end soon after the start is a failure, whatever its code, so the restart waits.
        exit(0, 75);
        settle().await;
        assert_eq!((generation(), world.view("a").shared.failures), (1, 1));
        pass(seconds(100)).await;
        assert_eq!(generation(), 2);

        exit(1, 75);
        settle().await;
        assert_eq!(generation(), 3);
        client.call("a__echo").await.result();

        pass(seconds(100)).await;
        exit(2, 1);
        settle().await;
        assert_eq!(generation(), 3);
    });
}
