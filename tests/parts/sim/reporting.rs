//! The stream on which a sessionless server reports changes.

use std::cell::Cell;
use std::rc::Rc;

use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::sim::modern::sessionless;
use crate::sim::served::Served;
use crate::sim::server::{Frame, note};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

/// A server with lists that change and resources that can be watched.
fn reporting(plan: &mut Plan) {
    sessionless(plan);
    plan.script.capabilities =
        json!({"tools": {"listChanged": true}, "resources": {"subscribe": true}});
    let resource = |uri: &str| json!({"uri": uri, "name": uri});
    let resources = vec![resource("x://1"), resource("x://2")];
    plan.script.lists.insert("resources", resources);
}

#[test]
fn changes_are_reported_on_a_stream_that_is_replaced_when_more_is_wanted() {
    run(async {
        for is_http in [true, false] {
            let world = Rc::new(World::new());
            let server = match is_http {
                true => world.http("a", reporting).await,
                false => world.stdio("a", reporting).await,
            };
            let client = world.client(json!({})).await;
            let events = client.listen(None).await;
            pass(millis(50)).await;
            let first = server.last("subscriptions/listen");
            let wanted = |frame: &Frame| frame.json["params"]["notifications"].clone();
            assert_eq!(wanted(&first), json!({"toolsListChanged": true}));
            let listed = server.of("tools/list").len();
            server.report(&first, note("notifications/tools/list_changed", json!({})));
            pass(millis(200)).await;
            assert_eq!(server.of("tools/list").len(), listed + 1);

            server.mute("subscriptions/listen");
            let subscribed = client
                .request("resources/subscribe", json!({"uri": "x://1"}))
                .await;
            let second = server.last("subscriptions/listen");
            let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"]});
            assert_eq!(wanted(&second), filter);
            assert!(subscribed.is_waiting());
            // The old one serves until the new one does.
            assert!(server.forgotten(first.link).is_empty());
            server.acknowledge(&second, &filter);
            settle().await;
            assert_eq!(subscribed.result(), json!({}));
            assert_eq!(server.forgotten(first.link), [first.call.unwrap()]);
            let received = server.of("notifications/cancelled").len();
            assert_eq!(received, usize::from(!is_http));

            let updated = || note("notifications/resources/updated", json!({"uri": "x://1"}));
            server.report(&first, updated());
            settle().await;
            assert!(events.of("notifications/resources/updated").is_empty());
            server.report(&second, updated());
            settle().await;
            let seen = events.of("notifications/resources/updated");
            assert_eq!(seen[0]["params"]["uri"], "x://1");

            server.behave();
            client
                .request("resources/unsubscribe", json!({"uri": "x://1"}))
                .await
                .result();
            settle().await;
            assert_eq!(wanted(&server.last("subscriptions/listen")), wanted(&first));
        }
    });
}

#[test]
fn c_sub_03_after_a_break_everything_may_have_changed() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", reporting).await;
        let client = world.client(json!({})).await;
        let events = client.listen(None).await;
        pass(millis(50)).await;
        client
            .request("resources/subscribe", json!({"uri": "x://1"}))
            .await
            .result();
        let listed = server.of("tools/list").len();
        let stream = server.last("subscriptions/listen");
        server.fail(&stream, LinkError::Lost("broken".to_owned()));
        pass(seconds(1)).await;
        assert_eq!(server.of("subscriptions/listen").len(), 3);
        assert!(server.of("tools/list").len() > listed);
        assert_eq!(events.of("notifications/resources/updated").len(), 1);
        // The server ends it in order: the same.
        let stream = server.last("subscriptions/listen");
        server.answer(&stream, json!({"resultType": "complete"}));
        pass(seconds(1)).await;
        assert_eq!(server.of("subscriptions/listen").len(), 4);
        assert_eq!(events.of("notifications/resources/updated").len(), 2);
        // A server that never acknowledges is asked again, ever more rarely.
        server.mute("subscriptions/listen");
        let stream = server.last("subscriptions/listen");
        server.fail(&stream, LinkError::Lost("broken".to_owned()));
        pass(seconds(300)).await;
        let attempts = server.of("subscriptions/listen").len();
        assert!((8..14).contains(&attempts), "{attempts}");
        assert_eq!(world.view("a").shared.restarts, 0);
    });
}

#[test]
fn a_stream_of_changes_that_ends_at_once_is_opened_ever_more_rarely() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", reporting).await;
        pass(millis(50)).await;
        let mut ended = 0;
        for _ in 0..300 {
            let streams = server.of("subscriptions/listen");
            for stream in streams.iter().skip(ended) {
                server.fail(stream, LinkError::Lost("broken".to_owned()));
            }
            ended = streams.len();
            pass(seconds(1)).await;
        }
        assert!((8..14).contains(&ended), "{ended}");
        // One that lasts is opened again soon after its end.
        pass(seconds(120)).await;
        let before = server.of("subscriptions/listen").len();
        let stream = server.last("subscriptions/listen");
        server.fail(&stream, LinkError::Lost("broken".to_owned()));
        pass(seconds(1)).await;
        assert_eq!(server.of("subscriptions/listen").len(), before + 1);
    });
}

/// The finding: 1,000 URIs were compared with all templates in one turn of a thread.
#[test]
fn who_listens_to_many_resources_keeps_nobody_waiting() {
    run(async {
        const URIS: usize = 400;
        let world = Rc::new(World::new());
        let uris: Vec<_> = (0..URIS).map(|number| format!("x://{number}")).collect();
        let listed = uris.clone();
        let many = move |plan: &mut Plan| {
            reporting(plan);
            plan.settings.limits.list_items_max = URIS;
            let resource = |uri: &String| json!({"uri": uri, "name": uri});
            let resources = listed.iter().map(resource).collect();
            plan.script.lists.insert("resources", resources);
        };
        let _server = world.http("a", many).await;
        pass(millis(50)).await;
        let wanted = json!({"notifications": {"resourceSubscriptions": uris}});
        let method = "subscriptions/listen";
        let turns = Rc::new(Cell::new(0));
        let others = Rc::clone(&turns);
        let others = actix_rt::spawn(async move {
            loop {
                others.set(others.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let before = turns.get();
        let mut listening = Served::send(&world, &json!({}), method, wanted).await;
        let mut events = listening.events();
        while events.is_empty() {
            tokio::task::yield_now().await;
            events = listening.events();
        }
        let had = turns.get() - before;
        others.abort();
        assert!(had >= URIS, "others on the thread had {had} turns");
        let granted = &events[0]["params"]["notifications"]["resourceSubscriptions"];
        assert_eq!(granted.as_array().unwrap().len(), URIS);
    });
}

/// A client without a session is told at once what it will hear of; its server is asked then.
#[test]
fn changes_before_the_server_reports_them_are_not_missed() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", reporting).await;
        pass(millis(50)).await;
        server.mute("subscriptions/listen");
        let filter = |uri: &str| json!({"notifications": {"resourceSubscriptions": [uri]}});
        let (declared, method) = (json!({}), "subscriptions/listen");
        let mut one = Served::send(&world, &declared, method, filter("x://1")).await;
        assert_eq!(one.events().len(), 1);
        let updates = |served: &mut Served| {
            let uri = |events: Value| events["params"]["uri"].clone();
            served.events().into_iter().map(uri).collect::<Vec<_>>()
        };
        let granted = |uris: Value| {
            let listen = server.last(method);
            server.acknowledge(&listen, &json!({"resourceSubscriptions": uris}));
        };
        // It may have changed by now.
        granted(json!(["x://1"]));
        settle().await;
        assert_eq!(updates(&mut one), [json!("x://1")]);
        // The next stream goes on where this one ends.
        let mut other = Served::send(&world, &declared, method, filter("x://2")).await;
        assert_eq!(other.events().len(), 1);
        granted(json!(["x://1", "x://2"]));
        settle().await;
        assert_eq!(updates(&mut other), [json!("x://2")]);
        assert!(updates(&mut one).is_empty());
    });
}

#[test]
fn a_subscription_that_is_not_granted_is_refused() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", reporting).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        server.mute("subscriptions/listen");
        let watch = async |uri: &str| {
            client
                .request("resources/subscribe", json!({"uri": uri}))
                .await
        };
        let one = watch("x://1").await;
        let stream = server.last("subscriptions/listen");
        server.acknowledge(&stream, &json!({"toolsListChanged": true}));
        settle().await;
        assert_eq!(one.error()["code"], -32602);
        let two = watch("x://2").await;
        let stream = server.last("subscriptions/listen");
        server.refuse(&stream, -32603, "too many");
        settle().await;
        assert!(
            two.error()["message"]
                .as_str()
                .unwrap()
                .contains("too many")
        );
    });
}

#[test]
fn s_sub_05_and_06_a_subscription_has_no_log_lines_and_ends_with_its_result() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", reporting).await;
        pass(millis(50)).await;
        let (declared, method) = (json!({}), "subscriptions/listen");
        let wanted = json!({"notifications": {"resourceSubscriptions": ["x://1"]}});
        let mut stream = Served::send(&world, &declared, method, wanted).await;
        pass(millis(100)).await;
        let first = &stream.events()[0];
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        let listen = server.last(method);
        let progress = json!({"progressToken": listen.json["id"], "progress": 1});
        for (method, params) in [
            (
                "notifications/message",
                json!({"level": "error", "data": "x"}),
            ),
            ("notifications/progress", progress),
            ("notifications/resources/updated", json!({"uri": "x://1"})),
        ] {
            server.report(&listen, note(method, params));
        }
        settle().await;
        let events = stream.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["method"], "notifications/resources/updated");

        // Nothing is left to be reported.
        let nothing = json!({"notifications": {}});
        let mut stream = Served::send(&world, &declared, method, nothing).await;
        let events = stream.events();
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(
            (&events[1]["id"], &events[1]["result"]["resultType"]),
            (&json!("r"), &json!("complete"))
        );
        let id = &events[1]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
        assert_eq!(*id, "r");
    });
}
