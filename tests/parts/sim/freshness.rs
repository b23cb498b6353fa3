//! Lists that say how old they are while a part of them is not live.

use std::rc::Rc;
use std::sync::Arc;

use mcpvisor::catalog::{ItemKind, ListCaching, NameSettings, ServerPart};
use mcpvisor::downstream::Sharing;
use mcpvisor::id::ServerName;
use mcpvisor::publisher::{Arrangement, PartStore, Pins, RestoredCatalog, StartTimes};
use mcpvisor::store::MemoryStore;
use mcpvisor::supervision::Arbiters;
use serde_json::{Value, json};

use crate::sim::client::Client;
use crate::sim::modern::sessionless;
use crate::sim::served::Served;
use crate::sim::server::tool;
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

async fn freshness(client: &Client) -> Value {
    let list = client.request("tools/list", json!({})).await.result();
    assert!(list["tools"].is_array());
    list["_meta"]["io.mcpvisor/freshness"].clone()
}

#[test]
fn a_list_says_which_part_is_not_live() {
    run(async {
        let world = Rc::new(World::new());
        let a = world.stdio("a", |_| {}).await;
        world.stdio("b", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let whole = client.request("tools/list", json!({})).await.raw();
        assert_eq!(freshness(&client).await, Value::Null);
        a.refuse_links(Some("not now"));
        a.crash("gone");
        settle().await;
        let stale = freshness(&client).await;
        assert_eq!(stale["a"]["state"], "away");
        assert_eq!(stale["b"]["state"], "live");
        a.refuse_links(None);
        pass(seconds(10)).await;
        assert_eq!(freshness(&client).await, Value::Null);
        // As it was, byte for byte, but for the id.
        let again = client.request("tools/list", json!({})).await.raw();
        let result = |raw: &str| raw.split_once("\"result\"").unwrap().1.to_owned();
        assert_eq!(result(&again[0]), result(&whole[0]));
    });
}

#[test]
fn a_list_that_is_not_everybodys_is_never_public() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            sessionless(plan);
            plan.settings.sharing = Sharing::Principal;
            plan.script.ttl_ms = 60_000;
        };
        let server = world.http("a", plan).await;
        pass(millis(50)).await;
        let list = async |capabilities: Value| {
            let mut list = Served::send(&world, &capabilities, "tools/list", json!({})).await;
            let list = list.result();
            let tools = list["tools"].as_array().unwrap().len();
            (tools, list["cacheScope"].as_str().unwrap().to_owned())
        };
        let (tools, scope) = list(json!({})).await;
        assert_eq!(scope, "public");
        // The connection of one audience lists more than that of all.
        server.script(|script| script.lists.get_mut("tools").unwrap().push(tool("own")));
        let params = json!({"name": "a__echo", "arguments": {"text": "hi"}});
        Served::send(&world, &json!({}), "tools/call", params).await;
        pass(millis(50)).await;
        assert_eq!(list(json!({})).await, (tools + 1, "private".to_owned()));
        // So does that of another.
        server.script(|script| script.lists.get_mut("tools").unwrap().push(tool("other")));
        let other = json!({"elicitation": {}});
        assert_eq!(list(other).await, (tools + 2, "private".to_owned()));
        assert_eq!(list(json!({})).await, (tools + 1, "private".to_owned()));
    });
}

/// For how many seconds, begun ones included, the list of tools and the answer to `server/discover`
/// hold, as a client without a session reads it.
async fn ttls(world: &World) -> [u64; 2] {
    let mut ttls = [0; 2];
    for (ttl, method) in ttls.iter_mut().zip(["tools/list", "server/discover"]) {
        let mut answer = Served::send(world, &json!({}), method, json!({})).await;
        let ttl_ms = answer.result()["ttlMs"].as_u64().unwrap();
        *ttl = ttl_ms.div_ceil(1000);
    }
    ttls
}

/// A server without sessions whose lists hold for a minute.
fn for_a_minute(plan: &mut Plan) {
    sessionless(plan);
    plan.script.ttl_ms = 60_000;
}

#[test]
fn a_list_says_for_how_long_it_still_holds() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", for_a_minute).await;
        assert_eq!(ttls(&world).await, [60, 60]);
        pass(seconds(20)).await;
        assert_eq!(ttls(&world).await, [40, 60]);
        server.refuse_links(Some("not now"));
        server.crash("gone");
        pass(seconds(30)).await;
        assert_eq!(ttls(&world).await, [10, 0]);
        pass(seconds(30)).await;
        assert_eq!(ttls(&world).await, [0, 0]);
    });
}

#[test]
fn a_list_of_a_server_with_a_handshake_holds_only_while_it_would_say_that_it_changes() {
    run(async {
        for (capabilities, ttl) in [
            (json!({"tools": {"listChanged": true}}), 60),
            (json!({"tools": {}}), 0),
        ] {
            let world = Rc::new(World::new());
            let plan = |plan: &mut Plan| plan.script.capabilities = capabilities;
            let server = world.stdio("a", plan).await;
            pass(seconds(40)).await;
            assert_eq!(ttls(&world).await, [ttl, 60]);
            server.refuse_links(Some("not now"));
            server.crash("gone");
            settle().await;
            assert_eq!(ttls(&world).await, [0, 0]);
        }
    });
}

#[test]
fn a_server_at_rest_is_not_live() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            plan.script.capabilities = json!({"tools": {"listChanged": true}});
            plan.settings.limits.idle_stop = seconds(30);
        };
        world.stdio("a", plan).await;
        let client = world.client(json!({})).await;
        pass(seconds(20)).await;
        assert_eq!(freshness(&client).await, Value::Null);
        assert_eq!(ttls(&world).await, [60, 60]);
        pass(seconds(20)).await;
        assert_eq!(freshness(&client).await["a"]["state"], "resting");
        assert_eq!(ttls(&world).await, [0, 0]);
        client.call("a__echo").await.result();
        settle().await;
        assert_eq!(freshness(&client).await, Value::Null);
        assert_eq!(ttls(&world).await, [60, 60]);
    });
}

#[test]
fn a_list_that_lacks_a_server_holds_for_no_time() {
    run(async {
        let world = Rc::new(World::new());
        world.http("a", for_a_minute).await;
        let mute = |plan: &mut Plan| {
            plan.script.mute.insert("tools/list");
        };
        world.stdio("b", mute).await;
        pass(seconds(5)).await;
        assert_eq!(ttls(&world).await, [0, 0]);
        world.stop_server("b");
        settle().await;
        assert_eq!(ttls(&world).await[1], 60);
    });
}

#[test]
fn a_list_of_the_process_before_holds_for_the_rest_of_its_time() {
    run(async {
        let name = ServerName::try_new("a").unwrap();
        let mut part = ServerPart::new(name.clone());
        let is_public = true;
        let caching = ListCaching {
            ttl_ms: 60_000,
            is_public,
        };
        part.set_caching(ItemKind::Tools, Some(caching));
        let store = Arc::new(MemoryStore::default());
        let restored = RestoredCatalog {
            arrangement: Arrangement {
                servers: vec![(name, NameSettings::default())],
                ..Arrangement::default()
            },
            parts: vec![(Arc::new(part), 1_000)],
            part_store: PartStore::new(store.clone(), || 26_000),
            start_times: StartTimes::load(store).await.unwrap(),
            pins: Pins::default(),
        };
        // The clock of the machine began a while ago.
        tokio::time::advance(seconds(100)).await;
        let arbiters = Arbiters::current().unwrap();
        let world = World::after(Some(restored), arbiters, |_| {});
        assert_eq!(ttls(&world).await, [35, 0]);
        pass(seconds(5)).await;
        assert_eq!(ttls(&world).await, [30, 0]);
    });
}

#[test]
fn a_server_that_never_listed_is_named() {
    run(async {
        let world = Rc::new(World::new());
        world.stdio("a", |_| {}).await;
        let plan = |plan: &mut crate::sim::world::Plan| {
            plan.script.mute.insert("tools/list");
        };
        world.stdio("b", plan).await;
        let client = world.client(json!({})).await;
        pass(seconds(5)).await;
        let stale = freshness(&client).await;
        assert_eq!(stale["b"], json!({"state": "missing"}));
        world.stop_server("b");
        settle().await;
        assert_eq!(freshness(&client).await, Value::Null);
    });
}
