//! The first list of a gateway, while servers start that were never listed.

use std::rc::Rc;
use std::sync::Arc;

use mcpvisor::catalog::NameSettings;
use mcpvisor::downstream::TransportSettings;
use mcpvisor::id::ServerName;
use mcpvisor::protocol::Revision;
use mcpvisor::publisher::{Arrangement, PartStore, Pins, RestoredCatalog, StartTimes};
use mcpvisor::store::MemoryStore;
use mcpvisor::supervision::Arbiters;
use serde_json::{Value, json};

use crate::sim::modern::with_handshake;
use crate::sim::served::Served;
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

/// A gateway without lists that remembers what the store holds.
async fn gateway(store: &Arc<MemoryStore>) -> Rc<World> {
    let never_listed = ServerName::try_new("never-listed").unwrap();
    let restored = RestoredCatalog {
        arrangement: Arrangement {
            servers: vec![(never_listed, NameSettings::default())],
            ..Arrangement::default()
        },
        parts: Vec::new(),
        part_store: PartStore::new(store.clone(), || 0),
        start_times: StartTimes::load(store.clone()).await.unwrap(),
        pins: Pins::default(),
    };
    let arbiters = Arbiters::current().unwrap();
    Rc::new(World::after(Some(restored), arbiters, |_| {}))
}

/// A server of this command that takes so many seconds until it answers.
fn taking(command: &'static str, after: u64) -> impl FnOnce(&mut Plan) {
    move |plan| {
        with_handshake(plan);
        plan.script.starts_after = seconds(after);
        if let TransportSettings::Stdio(stdio) = &mut plan.settings.transport {
            stdio.command = command.to_owned();
        }
    }
}

/// The store after a server of npx took so many seconds.
async fn after_npx_took(took: u64) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::default());
    let world = gateway(&store).await;
    world.start("before", false, taking("npx", took));
    pass(seconds(took + 1)).await;
    store
}

/// The states of the servers that a list says are not live.
fn states(list: &Value) -> &Value {
    &list["_meta"]["io.mcpvisor/freshness"]
}

#[test]
fn the_first_list_waits_as_long_as_servers_of_the_kind_took_before() {
    run(async {
        let store = after_npx_took(10).await;
        let world = gateway(&store).await;
        world.start("a", false, taking("/usr/bin/npx", 13));
        world.start("b", false, |_| {});
        settle().await;
        let client = world.client(json!({})).await;
        let token = json!({"_meta": {"progressToken": "t"}});
        let silent = client.request("tools/list", json!({})).await;
        let list = client.request("tools/list", token.clone()).await;
        let to = Revision::V2026_07_28;
        let mut served = Served::send_as(&world, to, &json!({}), true, "tools/list", token).await;
        pass(millis(12_900)).await;
        assert!(silent.is_waiting());
        assert!(list.is_stream() && list.answer().is_none());
        let progress = list.of("notifications/progress");
        assert_eq!(progress.len(), 12);
        let expected = json!({
            "progressToken": "t", "progress": 12, "message": "waiting for the first start of servers: a",
        });
        assert_eq!(progress[11]["params"], expected);
        assert_eq!(served.events()[11]["params"]["progress"], 12);
        pass(millis(200)).await;
        let served = served.events().remove(0)["result"].clone();
        for result in [silent.result(), list.result(), served] {
            assert_eq!(result["tools"].as_array().unwrap().len(), 6);
            assert_eq!(states(&result), &Value::Null);
        }
    });
}

#[test]
fn a_list_that_waits_no_longer_names_the_servers_that_are_missing() {
    run(async {
        // The command, how long npx took before, and how long the list waits.
        let table = [
            ("npx", 40, 25_000),
            ("npx", 4, 6_000),
            ("uvx", 40, 2_000),
            ("", 40, 2_000),
        ];
        for (command, took, waits) in table {
            let store = after_npx_took(took).await;
            let world = gateway(&store).await;
            world.start("slow", false, taking(command, 100));
            world.start("good", false, |_| {});
            settle().await;
            let client = world.client(json!({})).await;
            let list = client.request("tools/list", json!({})).await;
            pass(millis(waits - 100)).await;
            assert!(list.is_waiting(), "{command} {took}");
            pass(millis(200)).await;
            let result = list.result();
            assert_eq!(result["tools"].as_array().unwrap().len(), 3);
            assert_eq!(states(&result)["slow"], json!({"state": "missing"}));
            // Nothing waits afterwards.
            assert_eq!(client.tools().await.len(), 3);
        }
    });
}

#[test]
fn a_server_whose_start_fails_is_not_waited_for_as_long_as_others_took() {
    run(async {
        let store = after_npx_took(10).await;
        let world = gateway(&store).await;
        let server = world.start("a", false, taking("npx", 100));
        settle().await;
        let client = world.client(json!({})).await;
        let list = client.request("tools/list", json!({})).await;
        pass(seconds(5)).await;
        assert!(list.is_waiting());
        server.crash("no token");
        settle().await;
        assert_eq!(states(&list.result())["a"], json!({"state": "missing"}));
    });
}
