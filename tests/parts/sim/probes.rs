//! Probes: readiness at the start, and whether a server works.

use std::rc::Rc;

use mcpvisor::downstream::{ProbeSettings, ServerTies};
use mcpvisor::id::ServerName;
use serde_json::json;

use crate::sim::server::tool;
use crate::sim::world::{Plan, World, millis, pass, run, seconds};

/// A server with a probe that calls `echo`, which is marked as read-only.
fn probed(plan: &mut Plan) {
    let mut echo = tool("echo");
    echo["annotations"] = json!({"readOnlyHint": true});
    plan.script.lists.insert("tools", vec![echo, tool("hold")]);
    plan.settings.limits.probe = Some(ProbeSettings {
        tool: Some("echo".to_owned()),
        arguments: json!({"text": "probe"}).as_object().unwrap().clone(),
        ..ProbeSettings::default()
    });
}

fn phase(world: &World, name: &str) -> String {
    world.view(name).shared.phase.to_string()
}

#[test]
fn a_server_is_up_once_its_probe_passes_and_its_dependants_wait_for_that() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                probed(plan);
                plan.script.failing.insert("tools/call");
            })
            .await;
        world
            .stdio("b", |plan| {
                plan.settings.dependencies = ServerTies {
                    depends_on: vec![ServerName::try_new("a").unwrap()],
                    group: None,
                    place: 1,
                }
            })
            .await;
        pass(seconds(10)).await;
        assert_eq!(
            (phase(&world, "a"), phase(&world, "b")),
            ("starting".into(), "waiting".into())
        );
        let probes = server.of("tools/call");
        assert!((5..=12).contains(&probes.len()), "{}", probes.len());
        assert_eq!(
            probes[0].json["params"],
            json!({"name": "echo", "arguments": {"text": "probe"}})
        );
        server.behave();
        pass(seconds(3)).await;
        assert_eq!(
            (phase(&world, "a"), phase(&world, "b")),
            ("up".into(), "up".into())
        );
        assert_eq!(server.links(), 1);
    });
}

#[test]
fn a_server_that_answers_pings_and_fails_its_probe_is_restarted() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", probed).await;
        let client = world.client(json!({})).await;
        pass(seconds(100)).await;
        assert_eq!(phase(&world, "a"), "up");
        assert_eq!(server.of("tools/call").len(), 4);
        for (spoil, why) in [
            ("fails", "fails by the script"),
            ("is mute", "no answer in time"),
        ] {
            let generation = world.view("a").shared.generation;
            match spoil {
                "fails" => server.fail_method("tools/call"),
                _ => server.mute("tools/call"),
            }
            // Two failures are allowed.
            pass(seconds(59)).await;
            assert_eq!(world.view("a").shared.generation, generation, "{spoil}");
            pass(seconds(50)).await;
            server.behave();
            let exit = world.view("a").shared.last_exit.unwrap();
            assert!(
                exit.contains("its probe, a call of `echo`, failed 3 times in a row"),
                "{exit}"
            );
            assert!(exit.contains(why), "{exit}");
            pass(seconds(10)).await;
            assert_eq!(phase(&world, "a"), "up", "{spoil}");
        }
        client.call("a__echo").await.result();
    });
}

#[test]
fn a_probe_calls_no_tool_that_may_have_effects_unless_it_is_allowed() {
    run(async {
        let world = Rc::new(World::new());
        let effects = |allowed: bool| {
            move |plan: &mut Plan| {
                probed(plan);
                plan.script.lists.insert("tools", vec![tool("echo")]);
                let probe = plan.settings.limits.probe.as_mut().unwrap();
                probe.allow_effects = allowed;
            }
        };
        let refused = world.stdio("a", effects(false)).await;
        let allowed = world.stdio("b", effects(true)).await;
        pass(millis(500)).await;
        assert_eq!(
            (phase(&world, "a"), phase(&world, "b")),
            ("stopped".into(), "up".into())
        );
        assert!(refused.of("tools/call").is_empty());
        assert_eq!(allowed.of("tools/call").len(), 1);
        let exit = world.view("a").shared.last_exit.unwrap();
        assert!(
            exit.contains("`readOnlyHint`") && exit.contains("`allow_effects = true`"),
            "{exit}"
        );
    });
}

#[test]
fn a_probe_without_a_tool_is_a_ping_or_reads_a_resource() {
    run(async {
        let world = Rc::new(World::new());
        let ping = world
            .stdio("a", |plan| {
                plan.settings.limits.probe = Some(ProbeSettings::default())
            })
            .await;
        let resource = world
            .stdio("b", |plan| {
                plan.settings.limits.probe = Some(ProbeSettings {
                    resource: Some("file:///health".to_owned()),
                    ..ProbeSettings::default()
                });
            })
            .await;
        pass(seconds(1)).await;
        assert_eq!(
            (phase(&world, "a"), ping.of("ping").len()),
            ("up".into(), 1)
        );
        assert_eq!(phase(&world, "b"), "starting");
        let read = resource.last("resources/read");
        assert_eq!(read.json["params"], json!({"uri": "file:///health"}));
        resource.answer(&read, json!({"contents": []}));
        pass(seconds(1)).await;
        assert_eq!(phase(&world, "b"), "up");
        // A changed configuration ends the probes.
        world
            .retune("a", |settings| settings.limits.probe = None)
            .await;
        pass(seconds(100)).await;
        assert_eq!(ping.of("ping").len(), 1);
    });
}
