//! Servers that depend on each other, and groups.

use std::rc::Rc;
use std::sync::Arc;

use futures_util::FutureExt as _;
use mcpvisor::downstream::{ServerOrder, ServerTies};
use mcpvisor::id::ServerName;
use mcpvisor::supervision::{GroupPolicy, Strategy};
use serde_json::json;

use crate::sim::server::Server;
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

fn dependent(
    place: usize,
    depends_on: &[&str],
    group: Option<&Arc<GroupPolicy>>,
) -> impl FnOnce(&mut Plan) + use<> {
    let depends_on = depends_on.iter();
    let depends_on = depends_on.map(|name| ServerName::try_new(name).unwrap());
    let dependencies = ServerTies {
        depends_on: depends_on.collect(),
        group: group.cloned(),
        place,
    };
    move |plan| plan.settings.dependencies = dependencies
}

fn group(strategy: Strategy, max_restarts: u32) -> Arc<GroupPolicy> {
    Arc::new(GroupPolicy {
        name: "data".into(),
        strategy,
        max_restarts,
        within: seconds(60),
        retry_every: seconds(30),
        jitter: 0.0,
        escalates: true,
    })
}

fn phases<const N: usize>(world: &World, names: [&str; N]) -> [String; N] {
    names.map(|name| world.view(name).shared.phase.to_string())
}

fn generations<const N: usize>(world: &World, names: [&str; N]) -> [u64; N] {
    names.map(|name| world.view(name).shared.generation)
}

async fn order(world: &World, name: &str, order: ServerOrder) {
    let name = ServerName::try_new(name).unwrap();
    let done = world.downstreams.order(name, order);
    done.await.unwrap();
    settle().await;
}

#[test]
fn a_dependant_starts_once_its_dependency_is_up_and_waits_while_it_is_away() {
    run(async {
        let world = Rc::new(World::new());
        let db = world.stdio("db", dependent(0, &["tunnel"], None)).await;
        assert_eq!(
            (db.links(), phases(&world, ["db"])),
            (0, ["waiting".to_owned()])
        );
        let tunnel = world
            .stdio("tunnel", |plan| plan.script.starts_after = seconds(3))
            .await;
        pass(seconds(2)).await;
        assert_eq!(db.links(), 0, "its dependency is not ready");
        let why = world.view("db").waits.unwrap();
        assert_eq!(why, "waits for `tunnel`, which is starting");
        let client = world.client(json!({})).await;
        pass(seconds(2)).await;
        assert_eq!(phases(&world, ["tunnel", "db"]), ["up", "up"]);
        client.call("db__echo").await.result();

        // A call that runs on the dependant is answered when its dependency dies.
        let running = client.call("db__hold").await;
        settle().await;
        tunnel.refuse_links(Some("refused"));
        tunnel.crash("dead");
        settle().await;
        let failure = running.failure();
        assert_eq!(failure["code"], "server_lost", "{failure}");
        assert_eq!(phases(&world, ["tunnel", "db"]), ["backoff", "waiting"]);
        let refused = client.call("db__echo").await;
        settle().await;
        let sentence = refused.sentence();
        assert!(
            sentence.contains("server `db` waits for `tunnel`, which is away, next attempt in 1 s"),
            "{sentence}"
        );
        assert!(refused.failure()["retryAfterMs"].as_u64() <= Some(1000));

        tunnel.refuse_links(None);
        pass(seconds(8)).await;
        assert_eq!(phases(&world, ["tunnel", "db"]), ["up", "up"]);
        let view = world.view("db").shared;
        assert_eq!(
            (view.generation, view.restart_reasons["dependency"]),
            (2, 1)
        );
        client.call("db__echo").await.result();
        assert_eq!(db.held().len(), 1, "no call ran twice");
    });
}

#[test]
fn an_operator_who_stops_a_dependency_stops_its_dependants_first() {
    run(async {
        let world = Rc::new(World::new());
        let tunnel = world.stdio("tunnel", |_| {}).await;
        let db = world.stdio("db", dependent(1, &["tunnel"], None)).await;
        pass(seconds(1)).await;
        order(&world, "tunnel", ServerOrder::Restart).await;
        pass(seconds(1)).await;
        assert_eq!(generations(&world, ["tunnel", "db"]), [2, 2]);
        order(&world, "tunnel", ServerOrder::Stop).await;
        assert_eq!(phases(&world, ["tunnel", "db"]), ["stopped", "waiting"]);
        let why = world.view("db").waits.unwrap();
        assert_eq!(why, "waits for `tunnel`, which was stopped");
        order(&world, "tunnel", ServerOrder::Start).await;
        pass(seconds(1)).await;
        assert_eq!(phases(&world, ["tunnel", "db"]), ["up", "up"]);
        assert_eq!((tunnel.links(), db.links()), (3, 3));
        world.downstreams.stop_all().await;
        assert!(tunnel.open_links().is_empty() && db.open_links().is_empty());
    });
}

#[test]
fn a_lazy_dependant_brings_its_dependency_and_keeps_it() {
    run(async {
        let world = Rc::new(World::new());
        let lazy = |plan: &mut Plan| {
            plan.settings.start = mcpvisor::downstream::StartMode::Lazy;
            plan.settings.limits.idle_stop = seconds(60);
        };
        world.stdio("tunnel", lazy).await;
        let dependencies = dependent(1, &["tunnel"], None);
        world
            .stdio("db", |plan| {
                lazy(plan);
                dependencies(plan);
                plan.settings.limits.idle_stop = seconds(600);
            })
            .await;
        let client = world.client(json!({})).await;
        pass(seconds(120)).await;
        assert_eq!(phases(&world, ["tunnel", "db"]), ["idle", "idle"]);
        client.call("db__echo").await.result();
        // The tunnel is used as long as its dependant runs.
        pass(seconds(300)).await;
        assert_eq!(phases(&world, ["tunnel", "db"]), ["up", "up"]);
        pass(seconds(900)).await;
        assert_eq!(phases(&world, ["tunnel", "db"]), ["idle", "idle"]);
    });
}

#[test]
fn a_failure_restarts_what_the_strategy_says_and_every_call_is_answered() {
    run(async {
        let table = [
            (Strategy::OneForOne, [1, 2, 1]),
            (Strategy::RestForOne, [1, 2, 2]),
            (Strategy::OneForAll, [2, 2, 2]),
        ];
        for (strategy, expected) in table {
            let world = Rc::new(World::new());
            let group = group(strategy, 5);
            let mut servers: Vec<Server> = Vec::new();
            for (place, name) in ["a", "b", "c"].into_iter().enumerate() {
                servers.push(world.stdio(name, dependent(place, &[], Some(&group))).await);
            }
            let client = world.client(json!({})).await;
            pass(seconds(1)).await;
            let mut calls = Vec::new();
            for name in ["a", "b", "c"] {
                calls.push(client.call(&format!("{name}__hold")).await);
            }
            settle().await;
            servers[1].crash("dead");
            pass(seconds(5)).await;
            let names = ["a", "b", "c"];
            assert_eq!(generations(&world, names), expected, "{strategy:?}");
            assert_eq!(phases(&world, names), ["up", "up", "up"]);
            for (call, generation) in calls.iter().zip(expected) {
                assert_eq!(call.is_waiting(), generation == 1, "{strategy:?}");
            }
            let held: Vec<usize> = servers.iter().map(|server| server.held().len()).collect();
            assert_eq!(held, [1, 1, 1], "a call ran twice");
            world.downstreams.stop_all().await;
            settle().await;
            assert!(calls.iter().all(|call| !call.is_waiting()));
        }
    });
}

#[test]
fn a_group_that_fails_too_often_is_retried_as_a_unit_and_escalates() {
    run(async {
        let world = Rc::new(World::new());
        let group = group(Strategy::OneForOne, 1);
        let a = world.stdio("a", dependent(0, &[], Some(&group))).await;
        world.stdio("b", dependent(1, &[], Some(&group))).await;
        let client = world.client(json!({})).await;
        pass(seconds(1)).await;
        a.crash("dead");
        pass(seconds(3)).await;
        assert_eq!(phases(&world, ["a", "b"]), ["up", "up"]);
        assert!(world.downstreams.escalated().now_or_never().is_none());
        a.crash("dead");
        pass(millis(100)).await;
        let groups = world.downstreams.groups();
        assert_eq!(
            (groups[0].state.as_str(), groups[0].failures),
            ("broken", 2)
        );
        assert_eq!(
            &*world.downstreams.escalated().now_or_never().unwrap(),
            "data"
        );
        assert_eq!(phases(&world, ["b"]), ["waiting"]);
        let refused = client.call("b__echo").await;
        settle().await;
        let sentence = refused.sentence();
        assert!(
            sentence.contains("waits for its group `data`, which failed too often"),
            "{sentence}"
        );
        pass(seconds(31)).await;
        assert_eq!(phases(&world, ["a", "b"]), ["up", "up"]);
        assert_eq!(world.downstreams.groups()[0].state, "working");
    });
}

#[test]
fn dependencies_that_are_removed_block_no_server() {
    run(async {
        let world = Rc::new(World::new());
        let db = world.stdio("db", dependent(0, &["tunnel"], None)).await;
        pass(seconds(1)).await;
        assert_eq!(db.links(), 0);
        let why = world.view("db").waits.unwrap();
        assert!(
            why.contains("`tunnel`, which is disabled or not usable"),
            "{why}"
        );
        world
            .retune("db", |settings| {
                settings.dependencies = ServerTies::default()
            })
            .await;
        assert_eq!(phases(&world, ["db"]), ["up"]);
        assert_eq!(world.view("db").waits, None);
    });
}
