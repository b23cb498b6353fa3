//! Capabilities of a server: nothing else is asked of it.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::sim::client::Client;
use crate::sim::modern::sessionless;
use crate::sim::served::Served;
use crate::sim::server::Server;
use crate::sim::tasks::{task, tasking};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

/// A server that declares `capabilities` and offers `x://1` and the prompt `p`.
async fn world(capabilities: Value) -> (Rc<World>, Server, Client) {
    let world = Rc::new(World::new());
    let plan = |plan: &mut Plan| {
        plan.script.capabilities = capabilities;
        let lists = &mut plan.script.lists;
        lists.insert("resources", vec![json!({"uri": "x://1", "name": "x"})]);
        lists.insert("prompts", vec![json!({"name": "p"})]);
    };
    let server = world.stdio("a", plan).await;
    pass(millis(50)).await;
    let client = world.client(json!({})).await;
    (world, server, client)
}

fn completion() -> Value {
    json!({
        "ref": {"type": "ref/prompt", "name": "a__p"},
        "argument": {"name": "x", "value": "y"},
    })
}

#[test]
fn s_life_05_a_server_is_not_asked_for_what_it_did_not_declare() {
    run(async {
        let wrapped = json!({"uri": "mcpgw+a+x://1"});
        for method in ["resources/read", "resources/subscribe"] {
            let (world, server, client) = world(json!({"tools": {}})).await;
            // The only server of a view decides for itself.
            let _other = world.stdio("b", |_| {}).await;
            pass(millis(50)).await;
            let refused = client.request(method, wrapped.clone()).await;
            assert_eq!(refused.error()["code"], -32601, "{method}");
            let message = refused.error()["message"].to_string();
            let says = "server `a` does not declare the capability `resources`";
            assert!(message.contains(says), "{message}");
            assert!(server.of(method).is_empty(), "{method}");
        }
    });
}

#[test]
fn a_server_says_itself_whether_it_completes_or_reports_updates_without_declaring_it() {
    run(async {
        let declared = json!({"prompts": {}, "resources": {}});
        let (_world, server, client) = world(declared).await;
        let uri = json!({"uri": "x://1"});
        for (method, params) in [
            ("resources/subscribe", uri),
            ("completion/complete", completion()),
        ] {
            server.mute(method);
            let asked = client.request(method, params).await;
            server.refuse(&server.last(method), -32601, "not here");
            settle().await;
            let expected = json!({"code": -32601, "message": "not here"});
            assert_eq!(asked.error(), expected, "{method}");
        }
    });
}

#[test]
fn tools_of_a_server_that_declares_no_list_are_listed_and_called() {
    run(async {
        for capabilities in [json!({}), json!([]), json!({"logging": {}})] {
            let (world, server, client) = world(capabilities.clone()).await;
            assert!(
                client.tools().await.contains(&"a__echo".to_owned()),
                "{capabilities}"
            );
            let called = client.call("a__echo").await;
            assert!(called.result()["content"].is_array(), "{capabilities}");
            // What is not asked for stays unknown.
            assert!(server.of("resources/list").is_empty(), "{capabilities}");
            assert!(server.of("prompts/list").is_empty(), "{capabilities}");
            // It keeps them over a restart.
            server.crash("again");
            pass(seconds(10)).await;
            assert_eq!(world.view("a").shared.phase.to_string(), "up");
            assert!(
                client.tools().await.contains(&"a__echo".to_owned()),
                "{capabilities}"
            );
            client.end().await;
        }
    });
}

#[test]
fn a_server_that_declares_no_list_and_refuses_is_asked_once() {
    run(async {
        let refusals: [fn(&mut Plan); 3] = [
            |plan| plan.script.refused = ["tools/list"].into(),
            |plan| plan.script.failing = ["tools/list"].into(),
            |plan| plan.script.mute = ["tools/list"].into(),
        ];
        for refuse in refusals {
            let world = World::new();
            let server = world
                .stdio("a", |plan| {
                    plan.script.capabilities = json!({});
                    refuse(plan);
                })
                .await;
            pass(seconds(3600)).await;
            assert_eq!(world.view("a").shared.phase.to_string(), "up");
            assert_eq!(server.of("tools/list").len(), 1);
        }
    });
}

#[test]
fn s_life_05_a_subscription_ends_without_the_server_that_declares_it_no_more() {
    run(async {
        let (_world, server, client) = world(json!({"resources": {"subscribe": true}})).await;
        let uri = json!({"uri": "x://1"});
        let subscribed = client.request("resources/subscribe", uri.clone()).await;
        assert_eq!(subscribed.result(), json!({}));
        server.script(|script| script.capabilities = json!({"resources": {}}));
        server.crash("again");
        pass(seconds(10)).await;
        assert_eq!(server.of("resources/subscribe").len(), 1);
        let ended = client.request("resources/unsubscribe", uri).await;
        assert_eq!(ended.result(), json!({}));
        client.end().await;
        assert!(server.of("resources/unsubscribe").is_empty());
    });
}

#[test]
fn s_life_05_a_task_is_cancelled_only_where_that_is_declared() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            tasking(plan);
            plan.script.capabilities =
                json!({"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}});
        };
        let server = world.stdio("a", plan).await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let params = json!({"name": "a__required", "task": {}});
        let call = client.request("tools/call", params).await;
        server.answer(
            &server.last("tools/call"),
            json!({"task": task("working", 0)}),
        );
        settle().await;
        let id = call.result()["task"]["taskId"].clone();
        let cancelled = client
            .request("tasks/cancel", json!({ "taskId": id }))
            .await;
        assert_eq!(cancelled.error()["code"], -32601);
        // One that the gateway follows for its client ends with its time to live.
        let followed = client.call("a__required").await;
        server.answer(
            &server.last("tools/call"),
            json!({"task": task("working", 0)}),
        );
        settle().await;
        client.cancel(&followed).await;
        // One that begins after its call was taken back.
        let late = client.call("a__required").await;
        client.cancel(&late).await;
        server.answer(
            &server.last("tools/call"),
            json!({"task": task("working", 0)}),
        );
        settle().await;
        assert!(server.of("tasks/cancel").is_empty());
    });
}

#[test]
fn s_comp_02_a_client_is_shown_100_values_and_that_there_are_more() {
    run(async {
        let values: Vec<String> = (0..150).map(|number| number.to_string()).collect();
        for is_modern in [false, true] {
            let world = Rc::new(World::new());
            let plan = |plan: &mut Plan| {
                if is_modern {
                    sessionless(plan);
                }
                plan.script.capabilities = json!({"prompts": {}, "completions": {}});
                plan.script.mute.insert("completion/complete");
                let lists = &mut plan.script.lists;
                lists.insert("prompts", vec![json!({"name": "p"})]);
            };
            let server = world.stdio("a", plan).await;
            pass(millis(50)).await;
            let completed = json!({"completion": {"values": values, "total": 400}});
            let expected = json!({"values": values[..100], "total": 400, "hasMore": true});
            let client = world.client(json!({})).await;
            let asked = client.request("completion/complete", completion()).await;
            server.answer(&server.last("completion/complete"), completed.clone());
            settle().await;
            assert_eq!(asked.result()["completion"], expected);
            let method = "completion/complete";
            let mut served = Served::send(&world, &json!({}), method, completion()).await;
            server.answer(&server.last("completion/complete"), completed);
            settle().await;
            assert_eq!(served.result()["completion"], expected);
        }
    });
}

#[test]
fn s_mrtr_05_a_client_without_a_session_is_asked_only_for_what_it_declared() {
    run(async {
        let form = json!({"method": "elicitation/create", "params": {
            "mode": "form", "message": "who?", "requestedSchema": {"type": "object", "properties": {}},
        }});
        let sampling =
            json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}});
        let world = Rc::new(World::new());
        let server = world.http("a", sessionless).await;
        pass(millis(50)).await;
        let params = json!({"name": "a__hold", "arguments": {}});
        for (declared, asked) in [
            (json!({}), json!({"q": form})),
            (
                json!({"elicitation": {}}),
                json!({"q": form, "r": sampling}),
            ),
        ] {
            let mut call = Served::send(&world, &declared, "tools/call", params.clone()).await;
            server.need(&server.last("tools/call"), asked, "state");
            settle().await;
            let answer = call.answer().unwrap();
            assert_eq!(answer["error"]["code"], -32021, "{answer}");
        }
        assert_eq!(world.view("a").in_flight, 0);
    });
}
