//! Lists that say how old they are while a part of them is not live.

use std::rc::Rc;

use mcpvisor::downstream::Sharing;
use serde_json::{Value, json};

use crate::client::Client;
use crate::modern::sessionless;
use crate::served::Served;
use crate::server::tool;
use crate::world::{Plan, World, millis, pass, run, seconds, settle};

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
        let other = json!({"elicitation": {}});
        assert_eq!(list(other).await, (tools, "private".to_owned()));
    });
}

#[test]
fn a_server_that_never_listed_is_named() {
    run(async {
        let world = Rc::new(World::new());
        world.stdio("a", |_| {}).await;
        let plan = |plan: &mut crate::world::Plan| {
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
