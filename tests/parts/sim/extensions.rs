//! Requests and notifications that only an extension knows.

use std::rc::Rc;

use mcpvisor::downstream::Sharing;
use serde_json::{Value, json};

use crate::sim::modern::sessionless;
use crate::sim::served::Served;
use crate::sim::server::{Server, note};
use crate::sim::world::{Plan, World, millis, pass, run, settle};

const METHOD: &str = "chat/send";
const NOTE: &str = "notifications/chat/typing";

/// A server that declares the extension `chat`.
fn chatting(plan: &mut Plan) {
    plan.settings.sharing = Sharing::Session;
    let resources = json!({"uri": "x://chat", "name": "x"});
    plan.script.capabilities =
        json!({"tools": {}, "resources": {}, "experimental": {"com.example/chat": {}}});
    plan.script.lists.insert("resources", vec![resources]);
}

async fn servers<const N: usize>(
    names: [&str; N],
    plan: impl Fn(&mut Plan),
) -> (Rc<World>, Vec<Server>) {
    let world = Rc::new(World::new());
    let mut servers = Vec::new();
    for name in names {
        servers.push(world.http(name, &plan).await);
    }
    pass(millis(50)).await;
    (world, servers)
}

#[test]
fn a_request_of_an_extension_goes_to_the_one_server_that_it_may_be_for() {
    run(async {
        let (world, servers) = servers(["a", "b"], chatting).await;
        let other = world.stdio("other", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        // Nothing tells which of the two is meant, so clients do not learn of the extension either.
        let offered = |found: Value| found["capabilities"]["experimental"].clone();
        let nothing = json!({});
        let mut found = Served::send(&world, &nothing, "server/discover", json!({})).await;
        assert_eq!(offered(found.result()), Value::Null);
        for params in [json!({}), json!({"name": "b__echo"})] {
            let refused = client.request(METHOD, params.clone()).await.error();
            assert_eq!(refused["code"], -32601, "{params}");
        }
        world.stop_server("a");
        pass(millis(50)).await;
        let mut found = Served::send(&world, &nothing, "server/discover", json!({})).await;
        assert_eq!(offered(found.result()), json!({"com.example/chat": {}}));
        for (params, expected) in [
            (
                json!({"name": "b__echo", "x": 1}),
                json!({"name": "echo", "x": 1}),
            ),
            (
                json!({"uri": "mcpgw+b+x://chat"}),
                json!({"uri": "x://chat"}),
            ),
        ] {
            let asked = client.request(METHOD, params).await;
            let call = servers[1].last(METHOD);
            let mut sent = call.json["params"].clone();
            sent.as_object_mut().unwrap().remove("_meta");
            assert_eq!(sent, expected);
            servers[1].answer(&call, json!({"done": true}));
            settle().await;
            assert_eq!(asked.result(), json!({"done": true}));
        }
        client.request(METHOD, json!({"name": 7})).await;
        assert_eq!(servers[1].last(METHOD).json["params"]["name"], 7);
        let unknown = client
            .request("mail/send", json!({"name": "b__echo"}))
            .await;
        assert_eq!(unknown.error()["code"], -32601);
        assert_eq!(servers[0].of(METHOD).len() + other.of(METHOD).len(), 0);
    });
}

#[test]
fn a_request_of_an_extension_needs_no_session() {
    run(async {
        let plan = |plan: &mut Plan| {
            chatting(plan);
            sessionless(plan);
            plan.script.mute.extend([METHOD, "mail/send"]);
        };
        let (world, servers) = servers(["a"], plan).await;
        let nothing = json!({});
        let mut asked = Served::send(&world, &nothing, METHOD, json!({"to": "you"})).await;
        let call = servers[0].last(METHOD);
        assert_eq!(call.json["params"]["to"], "you");
        servers[0].answer(&call, json!({"resultType": "complete", "done": true}));
        settle().await;
        assert_eq!(asked.result()["done"], true);
        // The only server decides about a method that it does not declare.
        let mut unknown = Served::send(&world, &nothing, "mail/send", json!({})).await;
        let refusal = json!({"code": -32601, "message": "no mail", "data": {"why": 1}});
        let asked = servers[0].last("mail/send").json["id"].clone();
        servers[0].say_for(
            &servers[0].last("mail/send"),
            json!({"jsonrpc": "2.0", "id": asked, "error": refusal}),
        );
        settle().await;
        assert_eq!(unknown.error(), refusal);
    });
}

#[test]
fn what_an_extension_says_of_a_call_goes_to_its_client() {
    run(async {
        let (world, servers) = servers(["a"], chatting).await;
        let clients = [world.client(json!({})).await, world.client(json!({})).await];
        let mut calls = Vec::new();
        for client in &clients {
            let exchange = client.call("a__hold").await;
            calls.push((exchange, servers[0].last("tools/call")));
        }
        let typing = note(NOTE, json!({"who": "you", "x": 1.50}));
        servers[0].say_for(&calls[0].1, typing.clone());
        settle().await;
        assert_eq!(calls[0].0.of(NOTE), [typing]);
        assert!(calls[1].0.messages().is_empty());
    });
}

#[test]
fn a_notification_of_an_extension_passes_between_a_session_and_its_own_server() {
    run(async {
        let world = Rc::new(World::new());
        let chat = world.stdio("a", chatting).await;
        let other = world
            .stdio("b", |plan| plan.settings.sharing = Sharing::Session)
            .await;
        pass(millis(50)).await;
        let clients = [world.client(json!({})).await, world.client(json!({})).await];
        let mut streams = Vec::new();
        let mut links = Vec::new();
        for client in &clients {
            client.call("a__echo").await.result();
            links.push(chat.last("tools/call").link);
            client.call("b__echo").await.result();
            streams.push(client.listen(None).await);
        }
        let typing = note(NOTE, json!({"who": "you"}));
        chat.say_on(links[1], typing.clone());
        // Of the connection that lists for everybody, nobody can tell.
        chat.say_on(0, typing.clone());
        settle().await;
        assert_eq!(streams[1].of(NOTE), std::slice::from_ref(&typing));
        assert!(streams[0].of(NOTE).is_empty());
        clients[0].notify(NOTE, json!({"who": "me"})).await;
        clients[0]
            .notify("notifications/mail/read", json!({}))
            .await;
        let heard = chat.of(NOTE);
        let heard: Vec<(usize, &Value)> = heard
            .iter()
            .map(|it| (it.link, &it.json["params"]))
            .collect();
        assert_eq!(heard, [(links[0], &json!({"who": "me"}))]);
        assert!(other.of(NOTE).is_empty());
        assert!(chat.of("notifications/mail/read").is_empty());
    });
}

#[test]
fn a_session_hears_what_a_server_of_its_own_says() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| plan.settings.sharing = Sharing::Session)
            .await;
        pass(millis(50)).await;
        let clients = [world.client(json!({})).await, world.client(json!({})).await];
        let mut streams = Vec::new();
        for client in &clients {
            client.call("a__echo").await.result();
            streams.push(client.listen(None).await);
        }
        let own = server.last("tools/call").link;
        // The lists are the same as before, and the client did not ask for the others.
        for (method, params) in [
            ("notifications/tools/list_changed", json!({})),
            ("notifications/prompts/list_changed", json!({})),
            ("notifications/resources/list_changed", json!({})),
            ("notifications/resources/updated", json!({"uri": "x://y"})),
            (
                "notifications/elicitation/complete",
                json!({"elicitationId": "e"}),
            ),
        ] {
            server.say_on(own, note(method, params));
            pass(millis(1000)).await;
            let heard: Vec<usize> = streams.iter().map(|it| it.of(method).len()).collect();
            assert_eq!(heard, [0, 1], "{method}");
        }
    });
}
