//! Connections that do not belong to everybody: opened, listed, counted, closed.

use std::collections::BTreeSet;
use std::rc::Rc;

use mcpvisor::downstream::Sharing;
use serde_json::{Value, json};

use crate::sim::client::Client;
use crate::sim::questions::held;
use crate::sim::server::{Server, note, text, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, separated, settle};

fn asked_for() -> Value {
    json!({"elicitation": {"form": {}}})
}

const CHANGED: &str = "notifications/tools/list_changed";

#[test]
fn a_connection_declares_exactly_what_its_client_did_and_roots() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", separated).await;
        let declared = json!({"elicitation": {"form": {}}, "sampling": {"tools": {}}, "tasks": {}});
        let client = world.client(declared).await;
        pass(millis(50)).await;
        client.call("a__echo").await.result();
        let offered: Vec<_> = server
            .of("initialize")
            .iter()
            .map(|frame| frame.json["params"]["capabilities"].clone())
            .collect();
        let own = json!({"elicitation": {"form": {}}, "sampling": {"tools": {}}, "roots": {}});
        assert_eq!(offered, [json!({"roots": {}}), own]);
    });
}

#[test]
fn who_shares_a_connection_is_configured() {
    run(async {
        // Sharing, whether the transport knows the call of a request, links after calls of two silent and two asked clients.
        let table = [
            (Sharing::Auto, true, 2),
            (Sharing::Auto, false, 1),
            (Sharing::Shared, false, 1),
            (Sharing::Principal, true, 3),
            (Sharing::Principal, false, 3),
            (Sharing::Session, true, 5),
            (Sharing::Session, false, 5),
        ];
        for (sharing, knows_call_of_requests, links) in table {
            let world = Rc::new(World::new());
            let server = world.start("a", knows_call_of_requests, |plan| {
                plan.settings.sharing = sharing
            });
            pass(millis(50)).await;
            for capabilities in [json!({}), json!({}), asked_for(), asked_for()] {
                let client = world.client(capabilities).await;
                client.call("a__echo").await.result();
                client.call("a__echo").await.result();
            }
            assert_eq!(
                server.links(),
                links,
                "{sharing:?} {knows_call_of_requests}"
            );
        }
    });
}

#[test]
fn over_the_cap_the_connection_that_is_unused_for_longest_makes_room() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            plan.settings.sharing = Sharing::Session;
            plan.settings.limits.entries_max = Some(2);
        };
        let server = world.stdio("a", plan).await;
        pass(millis(50)).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            let client = world.client(asked_for()).await;
            client.call("a__echo").await.result();
            pass(seconds(2)).await;
            clients.push(client);
        }
        let view = world.view("a");
        assert_eq!(
            (view.own.len(), view.own_refused, server.links()),
            (2, 0, 5)
        );
        // The last two still have theirs.
        clients[2].call("a__echo").await.result();
        clients[3].call("a__echo").await.result();
        assert_eq!(server.links(), 5);
        let (_, first) = held(&clients[2], &server).await;
        let (_, second) = held(&clients[3], &server).await;
        assert_ne!(first.link, second.link);
        // Nobody is served by the connection of all.
        let refused = clients[0].call("a__echo").await.result();
        assert!(refused.to_string().contains("`entries_max`"), "{refused}");
        server.answer(&first, text(json!("done")));
        pass(seconds(2)).await;
        clients[0].call("a__echo").await.result();
        assert_eq!(server.links(), 6);
    });
}

#[test]
fn where_sharing_is_left_to_us_the_shared_connection_serves_over_the_cap() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            separated(plan);
            plan.settings.limits.entries_max = Some(1);
        };
        let server = world.stdio("a", plan).await;
        pass(millis(50)).await;
        let asked = world.client(asked_for()).await;
        let _held = held(&asked, &server).await;
        let other = world.client(json!({"sampling": {}})).await;
        other.call("a__echo").await.result();
        let view = world.view("a");
        assert_eq!(
            (view.own.len(), view.own_refused, server.links()),
            (1, 1, 2)
        );
    });
}

#[test]
fn an_own_connection_goes_when_it_is_idle_but_not_while_a_call_runs() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                plan.settings.sharing = Sharing::Session;
                plan.settings.limits.request_timeout = seconds(600);
            })
            .await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        let exchange = client.call("a__hold").await;
        pass(seconds(500)).await;
        assert_eq!(world.view("a").own.len(), 1);
        server.answer(&server.held()[0], text(json!("done")));
        settle().await;
        exchange.result();
        pass(seconds(290)).await;
        assert_eq!(world.view("a").own.len(), 1);
        pass(seconds(40)).await;
        assert_eq!(world.view("a").own.len(), 0);
        // It comes back with the next call.
        client.call("a__echo").await.result();
        assert_eq!(world.view("a").own.len(), 1);
        client.end().await;
        assert_eq!(world.view("a").own.len(), 0);
        pass(seconds(20)).await;
        assert_eq!(server.links(), 3);
    });
}

#[test]
fn an_own_connection_that_is_away_fails_calls_at_once_too() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", separated).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        client.call("a__echo").await.result();
        server.refuse_links(Some("no more processes"));
        server.crash_link(1, "gone");
        settle().await;
        let refused = client.call("a__echo").await;
        assert_eq!(refused.failure()["code"], "server_unavailable");
        assert_eq!(refused.failure()["retryAfterMs"], 1000);
        // A first connection that cannot be opened is no better.
        let other = world.client(asked_for()).await;
        let refused = other.call("a__echo").await;
        assert_eq!(refused.failure()["code"], "server_unavailable");
        server.refuse_links(None);
        pass(seconds(3)).await;
        client.call("a__echo").await.result();
        other.call("a__echo").await.result();
    });
}

async fn with_own_list(world: &Rc<World>, server: &Server) -> Client {
    let client = world.client(asked_for()).await;
    server.script(|script| script.lists.get_mut("tools").unwrap().push(tool("extra")));
    client.call("a__echo").await.result();
    server.script(|script| drop(script.lists.get_mut("tools").unwrap().pop()));
    pass(millis(50)).await;
    client
}

#[test]
fn a_session_sees_the_list_of_its_own_connection_and_nobody_else_does() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", separated).await;
        pass(millis(50)).await;
        let other = world.client(json!({})).await;
        let other_stream = other.listen(None).await;
        let shared = ["a__echo", "a__hold", "a__panic"];
        let own = ["a__echo", "a__hold", "a__panic", "a__extra"];
        let client = with_own_list(&world, &server).await;
        let stream = client.listen(None).await;
        assert_eq!(stream.of(CHANGED).len(), 1);
        assert_eq!(client.tools().await, own);
        assert_eq!(other.tools().await, shared);
        assert!(other_stream.messages().is_empty());
        // Tools of its own can be called; others ask for them where their calls go.
        let exchange = client.call("a__extra").await;
        assert_eq!(server.held()[0].link, 1);
        assert!(exchange.is_waiting());
        other.call("a__extra").await;
        assert_eq!(server.held()[1].link, 0);
        // A change of the shared list is none of this session.
        server.script(|script| drop(script.lists.insert("tools", vec![tool("new")])));
        server.say_on(0, note(CHANGED, json!({})));
        pass(seconds(1)).await;
        assert_eq!(other.tools().await, ["a__new"]);
        assert_eq!(other_stream.of(CHANGED).len(), 1);
        assert_eq!(client.tools().await, own);
        assert_eq!(stream.of(CHANGED).len(), 1);
    });
}

#[test]
fn the_shared_list_is_back_when_the_own_connection_is_closed() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| plan.settings.sharing = Sharing::Session)
            .await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        server.script(|script| script.lists.get_mut("tools").unwrap().push(tool("extra")));
        client.call("a__echo").await.result();
        pass(millis(50)).await;
        assert_eq!(client.tools().await.len(), 4);
        pass(seconds(330)).await;
        assert_eq!(world.view("a").own.len(), 0);
        assert_eq!(client.tools().await.len(), 3);
        assert_eq!(stream.of(CHANGED).len(), 2);
    });
}

#[test]
fn a_rebuilt_session_sees_its_own_list_again() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", separated).await;
        pass(millis(50)).await;
        let client = with_own_list(&world, &server).await;
        world.session_panics(&client).await;
        pass(seconds(1)).await;
        assert_eq!(client.tools().await.len(), 4);
        assert_eq!(world.counted("sessions_rebuilt"), 1);
        assert_eq!(server.links(), 2);
    });
}

#[test]
fn changed_roots_are_announced_only_on_own_connections() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| plan.settings.sharing = Sharing::Session)
            .await;
        pass(millis(50)).await;
        let client = world.client(json!({"roots": {"listChanged": true}})).await;
        client.call("a__echo").await.result();
        client
            .notify("notifications/roots/list_changed", json!({}))
            .await;
        let received = server.of("notifications/roots/list_changed");
        assert_eq!(
            received.iter().map(|frame| frame.link).collect::<Vec<_>>(),
            [1]
        );
    });
}

#[test]
fn a_subscription_outlives_an_own_connection_that_was_idle() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            plan.script.capabilities = json!({"tools": {}, "resources": {"subscribe": true}});
            let resource = json!({"uri": "x://1", "name": "one"});
            plan.script.lists.insert("resources", vec![resource]);
        };
        let server = world.stdio("a", plan).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        let stream = client.listen(None).await;
        client.call("a__echo").await.result();
        let subscribe = client.request("resources/subscribe", json!({"uri": "x://1"}));
        subscribe.await.result();
        pass(seconds(400)).await;
        // The server tells those connections that it was asked on.
        let updated = note("notifications/resources/updated", json!({"uri": "x://1"}));
        for asked in server.of("resources/subscribe") {
            server.say_on(asked.link, updated.clone());
        }
        settle().await;
        assert_eq!(stream.of("notifications/resources/updated").len(), 1);
    });
}

#[test]
fn new_settings_hold_for_connections_that_are_open() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", separated).await;
        pass(millis(50)).await;
        let client = world.client(asked_for()).await;
        client.call("a__echo").await.result();
        world
            .retune("a", |settings| {
                settings.limits.calls_max = 1;
                settings.resilience.queue.max = 0;
                settings.limits.ping_every = seconds(10);
                settings.limits.request_timeout = seconds(15);
            })
            .await;
        let held = client.call("a__hold").await;
        let shed = client.call("a__hold").await;
        assert!(shed.sentence().contains("has 1 calls in flight"));
        pass(seconds(14)).await;
        assert!(held.is_waiting());
        pass(seconds(1)).await;
        assert_eq!(held.failure()["code"], "timeout");
        pass(seconds(20)).await;
        let pings: BTreeSet<_> = server.of("ping").iter().map(|ping| ping.link).collect();
        assert_eq!(pings, [0, 1].into());
        assert_eq!(server.links(), 2);
    });
}
