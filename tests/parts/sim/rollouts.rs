//! New versions of servers that are tried beside the old ones.

use std::rc::Rc;

use mcpvisor::downstream::{RolloutSettings, TransportSettings};
use mcpvisor::supervision::{RolloutPolicy, RolloutState, RolloutView, SideFigures};
use serde_json::{Value, json};

use crate::sim::script::tool;
use crate::sim::server::{Server, note};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

fn read_only(name: &str) -> Value {
    let mut tool = tool(name);
    tool["annotations"] = json!({"readOnlyHint": true});
    tool
}

/// A version with these tools, whose successors are tried for a minute with all read-only calls.
fn version(number: &str, tools: Vec<Value>) -> impl FnOnce(&mut Plan) {
    let number = number.to_owned();
    move |plan| {
        plan.script.lists.insert("tools", tools);
        let TransportSettings::Stdio(stdio) = &mut plan.settings.transport else {
            panic!("no program");
        };
        stdio.args.push(number.into());
        plan.settings.rollout = Some(RolloutSettings {
            policy: RolloutPolicy {
                window: seconds(60),
                share: 1.0,
                ..RolloutPolicy::default()
            },
            ..RolloutSettings::default()
        });
    }
}

fn tools() -> Vec<Value> {
    vec![read_only("echo"), read_only("hold"), tool("write")]
}

/// A world with a server, and a new version of it that is watched.
async fn watching(more: Vec<Value>) -> (Rc<World>, Server, Server) {
    let world = Rc::new(World::new());
    let old = world.stdio("a", version("1", tools())).await;
    pass(seconds(1)).await;
    let all = [tools(), more].concat();
    let new = world.stdio("a", version("2", all)).await;
    pass(seconds(1)).await;
    (world, old, new)
}

fn rollout(world: &World) -> RolloutView {
    world.view("a").rollout.unwrap()
}

fn calls(server: &Server) -> usize {
    server.of("tools/call").len()
}

#[test]
fn calls_of_read_only_tools_reach_the_new_version_and_clients_get_the_old_answer() {
    run(async {
        let (world, old, new) = watching(vec![tool("added")]).await;
        assert_eq!(rollout(&world).state, RolloutState::Watching);
        let client = world.client(json!({})).await;
        client.call("a__echo").await.result();
        assert_eq!((calls(&old), calls(&new)), (1, 1));
        let held = client.call("a__hold").await;
        old.answer(&old.held()[0], json!({"content": []}));
        settle().await;
        // The new version still works on it.
        held.result();
        new.answer(&new.held()[0], json!({"content": []}));
        // No client hears of the new version.
        new.say(note("notifications/tools/list_changed", json!({})));
        pass(seconds(1)).await;
        assert!(!client.tools().await.contains(&"a__added".to_owned()));

        pass(seconds(50)).await;
        let writing = client.call("a__write").await;
        assert_eq!((calls(&old), calls(&new)), (3, 2));
        pass(seconds(10)).await;
        let promoted = rollout(&world);
        assert_eq!(
            (promoted.state, promoted.calls),
            (RolloutState::Promoted, 2)
        );
        assert!(client.tools().await.contains(&"a__added".to_owned()));
        client.call("a__echo").await.result();
        assert_eq!((calls(&old), calls(&new)), (3, 3));
        // The old version ends once its calls are answered.
        assert!(writing.is_waiting());
        old.answer(&old.recent_held(1)[0], json!({"content": []}));
        pass(seconds(10)).await;
        writing.result();
        assert_eq!(old.open_links(), Vec::<usize>::new());
        assert_eq!(new.open_links().len(), 1);
    });
}

#[test]
fn a_new_version_that_is_five_times_slower_is_rolled_back() {
    run(async {
        let (world, old, new) = watching(Vec::new()).await;
        let client = world.client(json!({})).await;
        for _ in 0..6 {
            let held = client.call("a__hold").await;
            pass(millis(100)).await;
            old.answer(&old.recent_held(1)[0], json!({"content": []}));
            pass(millis(400)).await;
            held.result();
            new.answer(&new.recent_held(1)[0], json!({"content": []}));
            settle().await;
        }
        pass(seconds(60)).await;
        let view = rollout(&world);
        assert_eq!((view.state, view.calls), (RolloutState::RolledBack, 6));
        assert_eq!(view.why.as_deref(), Some("it is slower"));
        let p99 = |side: &SideFigures| side.p99_ms.unwrap() / 100;
        assert_eq!((p99(&view.old), p99(&view.candidate)), (1, 5));
        let note = view.note.unwrap();
        assert!(
            note.contains("until the configuration changes again"),
            "{note}"
        );
        assert_eq!(new.open_links(), Vec::<usize>::new());
        client.call("a__echo").await.result();
        // The configuration that names the old version again restarts nothing.
        let links = old.links();
        let unused = world.stdio("a", version("1", tools())).await;
        pass(seconds(10)).await;
        assert_eq!((old.links(), unused.links()), (links, 0));
        assert!(world.view("a").rollout.is_none());
    });
}

#[test]
fn a_new_version_ends_with_the_server_that_it_would_replace() {
    run(async {
        let (world, old, new) = watching(Vec::new()).await;
        world.stop_server("a");
        pass(seconds(10)).await;
        assert_eq!(old.open_links(), Vec::<usize>::new());
        assert_eq!(new.open_links(), Vec::<usize>::new());
    });
}
