//! From the lists of servers to what clients see.

use std::rc::Rc;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::sim::server::{note, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

const CHANGED: &str = "notifications/tools/list_changed";

fn mute_list(plan: &mut Plan) {
    plan.script.mute.insert("tools/list");
}

#[test]
fn the_first_list_waits_for_the_first_listing() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.start("a", false, mute_list);
        settle().await;
        let client = world.client(json!({})).await;
        let list = client.request("tools/list", json!({})).await;
        let call = client.call("a__echo").await;
        // A request that needs no list waits for none.
        client.request("ping", json!({})).await.result();
        pass(seconds(1)).await;
        assert!(list.is_waiting() && call.is_waiting());
        let tools = json!({"tools": [tool("echo")]});
        server.answer(&server.last("tools/list"), tools);
        pass(millis(20)).await;
        assert_eq!(list.result()["tools"][0]["name"], "a__echo");
        call.result();
    });
}

#[test]
fn a_server_that_never_lists_delays_the_first_list_only_for_its_time() {
    run(async {
        type Spoil = fn(&mut Plan);
        let table: [Spoil; 3] = [
            mute_list,
            |plan| plan.script.mute = ["initialize"].into(),
            |plan| plan.script.revision = "1999-01-01",
        ];
        for spoil in table {
            let world = Rc::new(World::new());
            let start = Instant::now();
            world.start("good", false, |_| {});
            world.start("bad", false, spoil);
            settle().await;
            let client = world.client(json!({})).await;
            let list = client.request("tools/list", json!({})).await;
            pass(millis(1900)).await;
            assert!(list.is_waiting());
            pass(millis(150)).await;
            assert_eq!(list.result()["tools"].as_array().unwrap().len(), 3);
            assert!(start.elapsed() < millis(2100));
            assert_eq!(world.counted("deadline_exceeded_lists"), 1);
            // No list waits afterwards, and a call of it until nobody can know its tools.
            assert_eq!(client.tools().await.len(), 3);
            let unknown = client.call("bad__echo").await;
            pass(seconds(25)).await;
            assert_eq!(unknown.failure()["code"], "server_unavailable");
        }
    });
}

#[test]
fn a_gateway_without_servers_answers_at_once() {
    run(async {
        let world = Rc::new(World::new());
        world.arrange(|_| {});
        pass(millis(20)).await;
        let client = world.client(json!({})).await;
        assert!(client.tools().await.is_empty());
    });
}

#[test]
fn lists_that_arrive_together_are_merged_once() {
    run(async {
        let world = Rc::new(World::new());
        let servers: Vec<_> = (0..10)
            .map(|number| world.start(&format!("s{number}"), false, |_| {}))
            .collect();
        pass(millis(50)).await;
        let merged = world.counted("list_changed");
        assert_eq!(merged, 1);
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        assert_eq!(client.tools().await.len(), 30);
        for server in &servers {
            server.script(|script| drop(script.lists.insert("tools", vec![tool("one")])));
            server.say(note(CHANGED, json!({})));
        }
        pass(millis(500)).await;
        assert_eq!(world.counted("list_changed"), merged + 1);
        assert_eq!(stream.of(CHANGED).len(), 1);
        assert_eq!(stream.messages().len(), 1);
        assert_eq!(client.tools().await.len(), 10);
    });
}

#[test]
fn a_reload_orders_removes_and_adds() {
    run(async {
        let world = Rc::new(World::new());
        world.start("a", false, |plan| {
            plan.settings.names.prefix = Some(String::new())
        });
        world.start("b", false, |plan| {
            plan.settings.names.prefix = Some(String::new())
        });
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        let plain = ["echo", "hold", "panic"];
        let tools = client.tools().await;
        assert_eq!(tools[..3], plain);
        assert_eq!(tools[3], "b__echo");
        world.arrange(|order| order.reverse());
        pass(millis(50)).await;
        let tools = client.tools().await;
        assert_eq!(tools[..3], plain);
        assert_eq!(tools[3], "a__echo");
        assert_eq!(stream.of(CHANGED).len(), 1);
        // The same again changes nothing.
        world.arrange(|_| {});
        pass(millis(50)).await;
        assert_eq!(stream.of(CHANGED).len(), 1);
        world.stop_server("a");
        pass(millis(50)).await;
        assert_eq!(client.tools().await, plain);
        assert_eq!(stream.of(CHANGED).len(), 2);
        world.stop_server("b");
        pass(millis(50)).await;
        assert!(client.tools().await.is_empty());
        world.start("c", false, |_| {});
        pass(millis(50)).await;
        assert_eq!(client.tools().await.len(), 3);
        assert_eq!(stream.of(CHANGED).len(), 4);
    });
}

#[test]
fn a_server_that_is_replaced_keeps_its_list_until_it_lists_anew() {
    run(async {
        let world = Rc::new(World::new());
        let old = world.start("a", false, |_| {});
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let exchange = client.call("a__hold").await;
        let new = world.start("a", false, mute_list);
        // The call has `shutdown_timeout` to end.
        pass(seconds(6)).await;
        assert!(
            exchange
                .sentence()
                .contains("the gateway closed the connection")
        );
        assert_eq!(client.tools().await.len(), 3);
        client.call("a__echo").await.result();
        assert_eq!(
            (old.of("tools/call").len(), new.of("tools/call").len()),
            (1, 1)
        );
        new.answer(&new.last("tools/list"), json!({"tools": []}));
        pass(millis(50)).await;
        assert!(client.tools().await.is_empty());
    });
}

#[test]
fn a_dead_server_stays_in_the_lists_and_its_calls_fail_at_once() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.start("a", false, |_| {});
        world.start("b", false, |_| {});
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        server.refuse_links(Some("gone"));
        server.crash("gone");
        pass(seconds(600)).await;
        assert_eq!(client.tools().await.len(), 6);
        assert!(stream.messages().is_empty());
        assert_eq!(
            client.call("a__echo").await.failure()["code"],
            "server_unavailable"
        );
        client.call("b__echo").await.result();
    });
}

#[test]
fn an_error_of_the_owner_is_the_answer() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.start("a", false, |_| {});
        // The only server of a view decides for itself.
        let _other = world.start("b", false, |_| {});
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let capabilities = &client.initialized["result"]["capabilities"];
        assert_eq!(capabilities["resources"]["subscribe"], true);
        for (method, params) in [
            ("resources/read", json!({"uri": "x://none"})),
            ("resources/subscribe", json!({"uri": "x://none"})),
            ("prompts/get", json!({"name": "none"})),
            ("tools/call", json!({"name": "echo"})),
            ("tools/call", json!({})),
            ("vendor/thing", json!({})),
            ("initialize", json!({})),
            ("tools/list", json!({"cursor": "nonsense"})),
        ] {
            let refused = client.request(method, params).await;
            assert!(refused.error()["code"].is_i64(), "{method}");
        }
        assert_eq!(server.frames().len(), 3);
        let lists: Vec<Value> = vec![
            client.request("prompts/list", json!({})).await.result(),
            client.request("resources/list", json!({})).await.result(),
        ];
        assert_eq!(lists, [json!({"prompts": []}), json!({"resources": []})]);
    });
}

#[test]
fn a_server_is_asked_for_completions_whether_it_declares_them_or_not() {
    run(async {
        for (revision, capabilities) in [
            ("2025-11-25", json!({"prompts": {}})),
            ("2025-11-25", json!({"prompts": {}, "completions": {}})),
            // There was nothing to declare yet.
            ("2024-11-05", json!({"prompts": {}})),
        ] {
            let world = Rc::new(World::new());
            let plan = |plan: &mut Plan| {
                plan.script.revision = revision;
                plan.script.capabilities = capabilities;
                plan.script
                    .lists
                    .insert("prompts", vec![json!({"name": "p"})]);
            };
            let server = world.stdio("a", plan).await;
            pass(millis(50)).await;
            let client = world.client(json!({})).await;
            let params = json!({
                "ref": {"type": "ref/prompt", "name": "a__p"},
                "argument": {"name": "x", "value": "y"},
            });
            client.request("completion/complete", params).await;
            assert_eq!(server.of("completion/complete").len(), 1);
        }
    });
}

#[test]
fn only_so_many_requests_wait_for_the_first_lists() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.calls_max = 3));
        world.start("a", false, mute_list);
        settle().await;
        let client = world.client(json!({})).await;
        let mut waiting = Vec::new();
        for _ in 0..5 {
            waiting.push(client.request("tools/list", json!({})).await);
        }
        let shed: Vec<_> = waiting
            .iter()
            .map(crate::sim::client::Exchange::is_over)
            .collect();
        assert_eq!(shed, [false, false, false, true, true]);
        assert_eq!(waiting[3].error()["data"]["code"], "overloaded");
        pass(seconds(3)).await;
        assert!(waiting.iter().all(crate::sim::client::Exchange::is_over));
        assert!(client.tools().await.is_empty());
    });
}

#[test]
fn the_list_stays_while_a_reload_replaces_a_server_that_cannot_list_yet() {
    run(async {
        let world = Rc::new(World::new());
        world.stdio("a", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let before = client.tools().await;
        assert_eq!(before.len(), 3);
        let server = world.start("a", false, mute_list);
        pass(seconds(1)).await;
        assert_eq!(server.of("tools/list").len(), 1);
        assert_eq!(client.tools().await, before);
        // Its list is not answered in time.
        pass(seconds(31)).await;
        assert_eq!(client.tools().await, before);
        client.call("a__echo").await.result();
    });
}
