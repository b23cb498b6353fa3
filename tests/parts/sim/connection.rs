//! One connection: its handshake, lists, pings, death and return.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::sim::server::{Script, Server, note, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

fn capabilities(server: &Server, link: usize) -> Value {
    let handshakes = server.of("initialize");
    let of_link = handshakes.iter().find(|frame| frame.link == link).unwrap();
    of_link.json["params"]["capabilities"].clone()
}

fn methods(server: &Server) -> Vec<String> {
    let frames = server.frames();
    frames
        .iter()
        .map(|frame| frame.method().to_owned())
        .collect()
}

#[test]
fn every_revision_is_taken_and_initialized_follows_before_anything_else() {
    run(async {
        for revision in [
            "2024-10-07",
            "2024-11-05",
            "2025-03-26",
            "2025-06-18",
            "2025-11-25",
        ] {
            let world = World::new();
            let server = world
                .stdio("a", |plan| plan.script.revision = revision)
                .await;
            let expected = ["initialize", "notifications/initialized", "tools/list"];
            assert_eq!(methods(&server), expected, "{revision}");
            assert_eq!(world.view("a").shared.phase.to_string(), "up");
            let declared = capabilities(&server, 0);
            for name in ["elicitation", "extensions", "roots", "sampling"] {
                assert!(declared[name].is_object(), "{declared}");
            }
            let offer = &server.of("initialize")[0].json["params"];
            assert_eq!(offer["protocolVersion"], "2025-11-25");
        }
    });
}

#[test]
fn a_server_that_refuses_the_newest_revision_is_asked_with_older_ones() {
    run(async {
        let world = World::new();
        let server = world
            .stdio("a", |plan| {
                plan.script.revision = "2025-03-26";
                plan.script.insists = true;
            })
            .await;
        assert_eq!(world.view("a").shared.phase.to_string(), "up");
        let offers = server.of("initialize").into_iter();
        let offers: Vec<Value> = offers
            .map(|frame| frame.json["params"]["protocolVersion"].clone())
            .collect();
        assert_eq!(offers, ["2025-11-25", "2025-06-18", "2025-03-26"]);
        assert_eq!(server.links(), 1);
    });
}

#[test]
fn a_server_of_an_unknown_revision_is_left_with_a_sentence() {
    run(async {
        let world = World::new();
        let server = world
            .stdio("a", |plan| plan.script.revision = "1999-01-01")
            .await;
        let exit = world.view("a").shared.last_exit.unwrap();
        assert!(
            exit.contains("server speaks protocol revision `1999-01-01`"),
            "{exit}"
        );
        assert_eq!(methods(&server), ["initialize"]);
    });
}

#[test]
fn a_handshake_that_fails_says_why() {
    run(async {
        type Spoil = fn(&mut Script);
        let table: [(Spoil, u64, &str); 3] = [
            (
                |script| script.refused = ["initialize"].into(),
                0,
                "server refused `initialize`: refused by the script (-32601)",
            ),
            (
                |script| script.mute = ["initialize"].into(),
                31,
                "`initialize` was not answered in time (30s, `connect_timeout`)",
            ),
            (
                |script| script.capabilities = json!([1]),
                0,
                "answer to `initialize` has an unexpected shape",
            ),
        ];
        for (spoil, after, sentence) in table {
            let world = World::new();
            world.stdio("a", |plan| spoil(&mut plan.script)).await;
            pass(seconds(after)).await;
            let exit = world.view("a").shared.last_exit.unwrap();
            assert!(exit.contains(sentence), "{exit}");
        }
    });
}

#[test]
fn a_server_that_cannot_be_reached_is_tried_with_growing_delays() {
    run(async {
        let world = World::new();
        let server = world.start("a", false, |_| {});
        server.refuse_links(Some("no such machine"));
        settle().await;
        for (failures, delay) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16)] {
            let view = world.view("a").shared;
            assert_eq!(view.phase.to_string(), "backoff");
            assert_eq!(view.generation, failures);
            assert_eq!(view.next_attempt_ms, Some(delay * 1000));
            pass(seconds(delay)).await;
        }
        let view = world.view("a").shared;
        assert_eq!(view.phase.to_string(), "broken");
        assert!(view.last_exit.unwrap().contains("no such machine"));
        server.refuse_links(None);
        pass(millis(30_100)).await;
        assert_eq!(world.view("a").shared.phase.to_string(), "up");
        assert_eq!(world.catalog.snapshot().tools().count(), 3);
    });
}

fn paged(plan: &mut Plan, items: usize, page: usize) {
    let tools = (0..items).map(|n| tool(&format!("t{n:03}"))).collect();
    plan.script.lists.insert("tools", tools);
    plan.script.page = page;
}

#[test]
fn lists_are_drained_over_cursors_within_bounds() {
    run(async {
        // Items, items per page, what is taken, and with how many requests.
        let table = [
            (25, 10, 25, 3),
            (0, 10, 0, 1),
            (10, 10, 10, 1),
            // The limits of the settings: 100 items, 10 pages.
            (150, 60, 100, 2),
            (50, 1, 10, 10),
        ];
        for (items, page, taken, requests) in table {
            let world = World::new();
            let server = world.stdio("a", |plan| paged(plan, items, page)).await;
            pass(millis(10)).await;
            let count = world.catalog.snapshot().tools().count();
            assert_eq!(count, taken, "{items} items, {page} per page");
            assert_eq!(server.of("tools/list").len(), requests);
        }
    });
}

#[test]
fn only_what_the_server_declares_is_listed() {
    run(async {
        let table = [
            // Old servers have tools and declare nothing.
            (json!({}), vec!["tools/list"]),
            (json!({"prompts": {}, "logging": {}}), vec!["prompts/list"]),
            (
                json!({"resources": {}}),
                vec!["resources/list", "resources/templates/list"],
            ),
        ];
        for (capabilities, lists) in table {
            let world = World::new();
            let plan = |plan: &mut Plan| plan.script.capabilities = capabilities.clone();
            let server = world.stdio("a", plan).await;
            pass(millis(10)).await;
            let mut asked = methods(&server);
            asked.retain(|method| method.ends_with("/list"));
            assert_eq!(asked, lists, "{capabilities}");
            assert!(world.catalog.is_listed(), "{capabilities}");
        }
    });
}

fn changed() -> Value {
    note("notifications/tools/list_changed", json!({}))
}

#[test]
fn ten_notes_in_a_short_time_are_one_refresh() {
    run(async {
        let world = World::new();
        let server = world.stdio("a", |_| {}).await;
        server.script(|script| script.lists.get_mut("tools").unwrap().push(tool("new")));
        for _ in 0..10 {
            server.say(changed());
            pass(millis(9)).await;
        }
        pass(millis(200)).await;
        assert_eq!(server.of("tools/list").len(), 2);
        assert_eq!(world.catalog.snapshot().tools().count(), 4);
    });
}

#[test]
fn a_note_during_a_fetch_leads_to_one_more() {
    run(async {
        let world = World::new();
        let server = world.stdio("a", |_| {}).await;
        server.mute("tools/list");
        server.say(changed());
        pass(millis(150)).await;
        assert_eq!(server.of("tools/list").len(), 2);
        for _ in 0..5 {
            server.say(changed());
            pass(millis(150)).await;
        }
        assert_eq!(server.of("tools/list").len(), 2);
        server.behave();
        server.answer(&server.last("tools/list"), json!({"tools": []}));
        pass(millis(150)).await;
        assert_eq!(server.of("tools/list").len(), 3);
        assert_eq!(world.catalog.snapshot().tools().count(), 3);
        pass(seconds(10)).await;
        assert_eq!(server.of("tools/list").len(), 3);
    });
}

#[test]
fn lists_are_refreshed_by_interval_and_the_last_good_one_stays() {
    run(async {
        let world = World::new();
        let plan = |plan: &mut Plan| plan.settings.limits.refresh_every = seconds(60);
        let server = world.stdio("a", plan).await;
        pass(seconds(60)).await;
        assert_eq!(server.of("tools/list").len(), 2);
        server.fail_method("tools/list");
        pass(seconds(60)).await;
        assert_eq!(server.of("tools/list").len(), 3);
        assert_eq!(world.catalog.snapshot().tools().count(), 3);
        server.script(|script| {
            script.failing.clear();
            script.mute.insert("tools/list");
        });
        pass(seconds(60 + 31)).await;
        assert_eq!(world.catalog.snapshot().tools().count(), 3);
        assert_eq!(world.view("a").shared.generation, 1);
        server.script(|script| {
            script.mute.clear();
            script.lists.insert("tools", vec![tool("only")]);
        });
        pass(seconds(60)).await;
        assert_eq!(world.catalog.snapshot().tools().count(), 1);
    });
}

#[test]
fn a_list_that_failed_is_read_again_soon_and_then_more_rarely() {
    run(async {
        let world = World::new();
        let plan = |plan: &mut Plan| {
            plan.script.failing.insert("tools/list");
        };
        let server = world.stdio("a", plan).await;
        let lists = || server.of("tools/list").len();
        let mut seen = Vec::new();
        for _ in 0..20 {
            pass(seconds(1)).await;
            seen.push(lists());
        }
        // After 1, 2, 4 and 8 s more.
        assert_eq!((seen[0], seen[19]), (1, 5), "{seen:?}");
        server.behave();
        pass(seconds(16)).await;
        assert_eq!(world.catalog.snapshot().tools().count(), 3);
        let listed = lists();
        pass(seconds(600)).await;
        assert_eq!(lists(), listed);
    });
}

#[test]
fn a_list_that_the_server_does_not_know_is_empty_and_no_failure() {
    run(async {
        let world = World::new();
        let plan = |plan: &mut Plan| {
            plan.script.capabilities = json!({"tools": {}, "prompts": {}});
            plan.script.refused.insert("prompts/list");
        };
        let server = world.stdio("a", plan).await;
        pass(seconds(600)).await;
        assert_eq!(server.of("prompts/list").len(), 1);
        assert_eq!(world.catalog.snapshot().tools().count(), 3);
        // Items that it had before are gone.
        server.script(|script| {
            script.refused.insert("tools/list");
        });
        server.say(note("notifications/tools/list_changed", json!({})));
        pass(seconds(600)).await;
        assert_eq!(server.of("tools/list").len(), 2);
        assert_eq!(world.catalog.snapshot().tools().count(), 0);
    });
}

#[test]
fn the_last_good_list_stays_also_when_a_restarted_server_cannot_list() {
    run(async {
        let world = World::new();
        let server = world.stdio("a", |_| {}).await;
        pass(seconds(1)).await;
        server.fail_method("tools/list");
        server.crash("crashed");
        pass(seconds(2)).await;
        assert_eq!(world.view("a").shared.phase.to_string(), "up");
        assert_eq!(world.catalog.snapshot().tools().count(), 3);
        server.script(|script| script.capabilities = json!({"prompts": {}}));
        server.crash("crashed");
        pass(seconds(5)).await;
        assert_eq!(world.catalog.snapshot().tools().count(), 0);
    });
}

#[test]
fn pings_are_answered() {
    run(async {
        let world = World::new();
        let server = world.stdio("a", |_| {}).await;
        for id in [json!(7), json!("x"), json!(-1)] {
            server.say(json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
            settle().await;
            let answer = server.answer_to(&id).unwrap();
            assert_eq!(answer, json!({"jsonrpc": "2.0", "id": id, "result": {}}));
        }
    });
}

#[test]
fn an_idle_server_is_pinged_and_a_silent_one_replaced() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| plan.settings.limits.ping_every = seconds(10);
        let server = world.stdio("a", plan).await;
        let client = world.client(json!({})).await;
        for _ in 0..30 {
            pass(seconds(1)).await;
            client.call("a__echo").await.result();
        }
        assert_eq!(server.of("ping").len(), 0, "it is not idle");
        pass(seconds(35)).await;
        let pings = server.of("ping").len();
        assert!((2..=4).contains(&pings), "{pings} pings in 35 s");
        // An error is an answer, too.
        server.refuse_method("ping");
        pass(seconds(35)).await;
        assert_eq!(world.view("a").shared.generation, 1);
        server.mute("ping");
        let held = client.call("a__hold").await;
        pass(seconds(17)).await;
        assert!(world.view("a").shared.generation > 1);
        assert!(held.sentence().contains("`ping` was not answered in time"));
        let exit = world.view("a").shared.last_exit.unwrap();
        assert!(exit.contains("`ping` was not answered in time"), "{exit}");
        let reasons = world.view("a").shared.restart_reasons;
        assert_eq!(reasons, [("unresponsive", 1)].into());
    });
}

#[test]
fn calls_fail_with_the_reason_as_soon_as_the_link_closes() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(seconds(1)).await;
        let calls = [client.call("a__hold").await, client.call("a__hold").await];
        server.crash("exited with code 3");
        settle().await;
        for call in &calls {
            assert_eq!(call.failure()["code"], "server_lost");
            assert_eq!(call.failure()["retryable"], false);
            assert!(call.sentence().contains("exited with code 3"));
        }
        let refused = client.call("a__hold").await;
        assert_eq!(refused.failure()["code"], "server_unavailable");
        assert_eq!(refused.failure()["retryAfterMs"], 1000);
        assert_eq!(
            refused.sentence(),
            "server `a` is away (it failed: exited with code 3), next attempt in 1 s"
        );
        assert_eq!(world.view("a").in_flight, 0);
        pass(seconds(1)).await;
        client.call("a__echo").await.result();
    });
}

#[test]
fn calls_wait_for_a_restart_where_that_is_configured() {
    run(async {
        let world = Rc::new(World::new());
        let patience = |plan: &mut Plan| plan.settings.limits.queue_while_restarting = millis(3500);
        let server = world.stdio("a", patience).await;
        let client = world.client(json!({})).await;
        pass(seconds(1)).await;
        server.crash("gone");
        server.refuse_links(Some("still gone"));
        settle().await;
        let waiting = client.call("a__echo").await;
        assert!(waiting.is_waiting());
        // Attempts at 1 s (fails) and at 3 s.
        pass(millis(1500)).await;
        server.refuse_links(None);
        assert!(waiting.is_waiting(), "{:?}", waiting.messages());
        pass(seconds(2)).await;
        waiting.result();
        // A call does not wait for an attempt that is due after its patience.
        server.crash("gone");
        server.refuse_links(Some("still gone"));
        settle().await;
        assert_eq!(world.view("a").shared.next_attempt_ms, Some(4000));
        let refused = client.call("a__echo").await;
        assert_eq!(refused.failure()["code"], "server_unavailable");
        assert_eq!(world.counted("deadline_exceeded_connection"), 1);
    });
}
