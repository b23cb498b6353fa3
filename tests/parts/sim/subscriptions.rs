//! Subscriptions and log levels of sessions.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use mcpvisor::catalog::Wrap;
use serde_json::{Value, json};

use crate::sim::client::Exchange;
use crate::sim::served::Served;
use crate::sim::server::{Server, text};
use crate::sim::sessions::{UPDATED, full, levels, log_line, updated};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, separated, settle};

/// A full server whose clients share only with equal capabilities.
fn full_and_separated(plan: &mut Plan) {
    full(plan);
    separated(plan);
}

#[test]
fn resource_updates_reach_subscribers_only() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full_and_separated).await;
        let clients = [
            world.client(json!({})).await,
            world.client(json!({})).await,
            // Its calls go over another connection.
            world.client(json!({"sampling": {}})).await,
        ];
        pass(millis(50)).await;
        let mut streams = Vec::new();
        for client in &clients {
            streams.push(client.listen(None).await);
        }
        let counts = |streams: &[Exchange]| {
            streams
                .iter()
                .map(|s| s.of(UPDATED).len())
                .collect::<Vec<_>>()
        };
        let uri = json!({"uri": "x://1"});
        for number in [2, 0] {
            let subscribed = clients[number]
                .request("resources/subscribe", uri.clone())
                .await;
            assert_eq!(subscribed.result(), json!({}));
        }
        // Each connection is told for itself: its process has resources of its own.
        let received = server.of("resources/subscribe");
        let links: BTreeSet<_> = received.iter().map(|frame| frame.link).collect();
        assert_eq!(links, BTreeSet::from([0, 1]));
        server.say_on(0, updated("x://1"));
        server.say_on(0, updated("x://2"));
        server.say_on(0, updated("x://1/part"));
        settle().await;
        assert_eq!(counts(&streams), [2, 0, 2]);
        assert_eq!(streams[0].of(UPDATED)[0], updated("x://1"));
        // The subscriber on the other connection leaves: the first still hears of it.
        clients[2].end().await;
        server.say_on(0, updated("x://1"));
        settle().await;
        assert_eq!(counts(&streams[..2]), [3, 0]);
        let unsubscribed = || -> Vec<_> {
            let frames = server.of("resources/unsubscribe");
            frames.iter().map(|frame| frame.link).collect()
        };
        assert_eq!(unsubscribed(), [1]);
        clients[0]
            .request("resources/unsubscribe", uri)
            .await
            .result();
        assert_eq!(unsubscribed(), [1, 0]);
        server.say_on(0, updated("x://1"));
        settle().await;
        assert_eq!(counts(&streams[..2]), [3, 0]);
    });
}

/// The finding: 967 subscriptions cost 126 MiB of memory and 252 MiB of disk.
#[test]
fn many_long_subscriptions_are_bounded_and_each_is_written_once() {
    run(async {
        let world = Rc::new(World::new());
        let uri = |number: usize, bytes: usize| format!("x://{number:0>bytes$}", bytes = bytes - 4);
        let _server = world
            .stdio("a", |plan| {
                full(plan);
                let template = json!({"uriTemplate": "x://{id}", "name": "any"});
                let lists = &mut plan.script.lists;
                lists.insert("resourceTemplates", vec![template]);
            })
            .await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let subscribe = async |uri: String| {
            let params = json!({ "uri": uri });
            client.request("resources/subscribe", params).await
        };
        let error = subscribe(uri(1, 4097)).await.error();
        assert_eq!(error["code"], -32602);
        assert!(
            error["message"].as_str().unwrap().contains("4096"),
            "{error}"
        );
        let before = world.store_written.load(Ordering::Relaxed);
        let mut taken = 0;
        for number in 0..967 {
            let answer = subscribe(uri(number, 4096)).await;
            let is_refused = answer
                .answer()
                .is_some_and(|answer| answer.get("error").is_some());
            taken += usize::from(!is_refused);
        }
        // 256 KiB, each URI with that of its server.
        assert_eq!(taken, 31);
        let refused = subscribe(uri(966, 4096)).await.error();
        let why = refused["message"].as_str().unwrap();
        assert!(why.contains("subscriptions_bytes_per_session"), "{why}");
        pass(seconds(1)).await;
        let written = world.store_written.load(Ordering::Relaxed) - before;
        // Each with its URI as the client and as its server knows it.
        assert!(written > 31 * 2 * 4096, "{written}");
        assert!(written < 31 * 2 * 4200, "{written}");
    });
}

#[test]
fn a_burst_of_subscriptions_is_written_in_proportion() {
    run(async {
        let world = Rc::new(World::new());
        let _server = world
            .stdio("a", |plan| {
                full(plan);
                let template = json!({"uriTemplate": "x://{id}", "name": "any"});
                let lists = &mut plan.script.lists;
                lists.insert("resourceTemplates", vec![template]);
            })
            .await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let before = world.store_written.load(Ordering::Relaxed);
        for number in 0..967 {
            let params = json!({"uri": format!("x://n{number}")});
            client.request("resources/subscribe", params).await.result();
            pass(millis(10)).await;
        }
        let written = world.store_written.load(Ordering::Relaxed) - before;
        assert!(written < 967 * 100, "{written}");
    });
}

#[test]
fn the_last_subscriber_that_ends_is_unsubscribed() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let uri = json!({"uri": "x://2"});
        client.request("resources/subscribe", uri).await.result();
        client.end().await;
        assert_eq!(
            server.last("resources/unsubscribe").json["params"]["uri"],
            "x://2"
        );
    });
}

#[test]
fn subscriptions_and_levels_are_sent_again_after_a_restart() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full).await;
        let clients = [world.client(json!({})).await, world.client(json!({})).await];
        pass(millis(50)).await;
        for (client, uri, level) in [
            (&clients[0], "x://1", "warning"),
            (&clients[1], "x://2", "info"),
        ] {
            client
                .request("resources/subscribe", json!({"uri": uri}))
                .await
                .result();
            client
                .request("logging/setLevel", json!({"level": level}))
                .await
                .result();
        }
        let received = |server: &Server, link: usize| {
            let mut subscriptions = Vec::new();
            for frame in server.frames().iter().filter(|frame| frame.link == link) {
                match frame.method() {
                    "resources/subscribe" => {
                        subscriptions.push(frame.json["params"]["uri"].clone())
                    }
                    "logging/setLevel" => subscriptions.push(frame.json["params"]["level"].clone()),
                    _ => {}
                }
            }
            subscriptions.sort_by_key(Value::to_string);
            subscriptions
        };
        assert_eq!(received(&server, 0), ["info", "warning", "x://1", "x://2"]);
        server.crash("gone");
        pass(seconds(2)).await;
        assert_eq!(received(&server, 1), ["info", "x://1", "x://2"]);
        let stream = clients[1].listen(None).await;
        server.say(updated("x://2"));
        settle().await;
        assert_eq!(stream.of(UPDATED).len(), 1);
    });
}

#[test]
fn a_refused_subscription_is_forgotten_and_no_other() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let stream = client.listen(None).await;
        server.mute("resources/subscribe");
        let first = client
            .request("resources/subscribe", json!({"uri": "x://1"}))
            .await;
        let second = client
            .request("resources/subscribe", json!({"uri": "x://2"}))
            .await;
        let asked = server.of("resources/subscribe");
        server.refuse(&asked[0], -32602, "not this one");
        server.answer(&asked[1], json!({}));
        settle().await;
        assert_eq!(first.error()["message"], "not this one");
        second.result();
        server.say(updated("x://1"));
        server.say(updated("x://2"));
        settle().await;
        let seen = stream.of(UPDATED);
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0]["params"]["uri"], "x://2");
        server.behave();
        server.crash("gone");
        pass(seconds(2)).await;
        let again = server.of("resources/subscribe").split_off(2);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].json["params"]["uri"], "x://2");
    });
}

#[test]
fn log_lines_are_filtered_for_each_session() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full).await;
        let clients = [
            world.client(json!({})).await,
            world.client(json!({})).await,
            world.client(json!({})).await,
        ];
        pass(millis(50)).await;
        let mut streams = Vec::new();
        for client in &clients {
            streams.push(client.listen(None).await);
        }
        for (client, level) in [(&clients[0], "error"), (&clients[1], "info")] {
            let set = client
                .request("logging/setLevel", json!({"level": level}))
                .await;
            assert_eq!(set.result(), json!({}));
        }
        let bad = clients[0]
            .request("logging/setLevel", json!({"level": "loud"}))
            .await;
        assert_eq!(bad.error()["code"], -32602);
        let received = server.of("logging/setLevel");
        let received: Vec<_> = received
            .iter()
            .map(|f| f.json["params"]["level"].clone())
            .collect();
        assert_eq!(received, ["error", "info"]);
        for level in ["debug", "info", "error"] {
            server.say(log_line(level));
        }
        settle().await;
        assert_eq!(levels(&streams[0]), ["error"]);
        assert_eq!(levels(&streams[1]), ["info", "error"]);
        assert_eq!(levels(&streams[2]), ["debug", "info", "error"]);
    });
}

#[test]
fn a_server_that_floods_loses_only_its_own_events() {
    run(async {
        let world = Rc::new(World::new());
        let loud = world.stdio("loud", full).await;
        let calm = world.stdio("calm", full).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let stream = client.listen(None).await;
        for _ in 0..20_000 {
            loud.say(log_line("info"));
        }
        calm.say(log_line("error"));
        settle().await;
        let seen = levels(&stream);
        assert!(world.counted("server_events_lost") > 0);
        assert_eq!(seen.iter().filter(|level| *level == "error").count(), 1);
        for server in ["calm", "loud"] {
            client.call(&format!("{server}__echo")).await.result();
        }
    });
}

#[test]
fn an_own_connection_hears_of_the_level_too() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full_and_separated).await;
        pass(millis(50)).await;
        let client = world.client(json!({"sampling": {}})).await;
        client
            .request("logging/setLevel", json!({"level": "info"}))
            .await
            .result();
        client.call("a__echo").await.result();
        client
            .request("logging/setLevel", json!({"level": "debug"}))
            .await
            .result();
        let received = server.of("logging/setLevel");
        let received: Vec<_> = received
            .iter()
            .map(|f| (f.link, f.json["params"]["level"].clone()))
            .collect();
        let [info, debug] = ["info", "debug"].map(|level| json!(level));
        assert_eq!(
            received,
            [(0, info.clone()), (1, info), (0, debug.clone()), (1, debug)]
        );
    });
}

#[test]
fn a_session_subscribes_to_so_many_resources() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.subscriptions_max = 10));
        let many = |plan: &mut Plan| {
            full(plan);
            let template = json!({"uriTemplate": "x://{id}", "name": "any"});
            plan.script
                .lists
                .insert("resourceTemplates", vec![template]);
        };
        world.stdio("a", many).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let mut refused = 0;
        for number in 0..13 {
            let params = json!({"uri": format!("x://n{number}")});
            let message = json!({"jsonrpc": "2.0", "id": 10_000 + number, "method": "resources/subscribe", "params": params});
            let exchange = client.exchange(message, true).await;
            settle().await;
            let error = &exchange.answer().unwrap()["error"];
            if !error.is_null() {
                refused += 1;
                let says = "10 subscriptions, the limit (`limits.subscriptions_per_session`)";
                assert!(error["message"].to_string().contains(says), "{error}");
            }
        }
        assert_eq!(refused, 3);
        let uris: Vec<_> = (0..11).map(|number| format!("x://n{number}")).collect();
        for notifications in [
            json!({"resourceSubscriptions": uris}),
            json!({"taskIds": uris}),
        ] {
            let params = json!({"notifications": notifications});
            let mut refused =
                Served::send(&world, &json!({}), "subscriptions/listen", params).await;
            let message = refused.error()["message"].to_string();
            let says = "names more than 10, the limit (`limits.subscriptions_per_session`)";
            assert!(message.contains(says), "{message}");
        }
    });
}

#[test]
fn what_is_always_wrapped_is_read_and_watched_under_the_name_of_its_server() {
    run(async {
        let world = Rc::new(World::new());
        let wrapped = |plan: &mut Plan| {
            full(plan);
            plan.settings.names.wrap = Wrap::Always;
        };
        let servers = [
            world.stdio("a", wrapped).await,
            world.stdio("b", wrapped).await,
        ];
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let listed = client.request("resources/list", json!({})).await.result();
        let uris: Vec<_> = listed["resources"].as_array().unwrap().iter().collect();
        let uris: Vec<_> = uris.iter().map(|item| item["uri"].clone()).collect();
        let expected = ["a+x://1", "a+x://2", "b+x://1", "b+x://2"];
        assert_eq!(uris, expected.map(|uri| json!(format!("mcpgw+{uri}"))));
        let stream = client.listen(None).await;
        let uri = json!({"uri": "mcpgw+b+x://1"});
        client
            .request("resources/subscribe", uri.clone())
            .await
            .result();
        servers
            .iter()
            .for_each(|server| server.say(updated("x://1")));
        settle().await;
        assert_eq!(stream.of(UPDATED), [updated("mcpgw+b+x://1")]);
        let read = client.request("resources/read", uri).await;
        let asked = servers[1].last("resources/read");
        assert_eq!(asked.json["params"]["uri"], "x://1");
        assert!(servers[0].of("resources/read").is_empty());
        servers[1].answer(&asked, json!({"contents": [{"uri": "x://1", "text": ""}]}));
        settle().await;
        assert_eq!(read.result()["contents"][0]["uri"], "mcpgw+b+x://1");
        let plain = client
            .request("resources/read", json!({"uri": "x://1"}))
            .await;
        assert_eq!(plain.error()["code"], -32002);
    });
}

#[test]
fn a_call_that_floods_loses_progress_and_log_lines_but_no_answer() {
    run(async {
        let world = Rc::new(World::new());
        let loud = world
            .stdio("a", |plan| plan.settings.limits.undelivered_max = 8 * 1024)
            .await;
        let calm = world.stdio("b", |_| {}).await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let flooded = client.call_with_progress("a__hold", json!("loud")).await;
        let other = client.call_with_progress("b__hold", json!("calm")).await;
        let (call, calm_call) = (&loud.held()[0], &calm.held()[0]);
        for number in 0..20_000 {
            loud.progress(call, f64::from(number));
        }
        calm.progress(calm_call, 1.0);
        loud.answer(call, text(json!("done")));
        settle().await;
        assert!(world.counted("call_notifications_lost") > 0);
        assert_eq!(other.of("notifications/progress").len(), 1);
        assert_eq!(flooded.result(), text(json!("done")));
        // What was taken makes room.
        let lost = world.counted("call_notifications_lost");
        let next = client.call_with_progress("a__hold", json!("again")).await;
        let call = loud.held().pop().unwrap();
        loud.progress(&call, 1.0);
        settle().await;
        assert_eq!(next.of("notifications/progress").len(), 1);
        assert_eq!(world.counted("call_notifications_lost"), lost);
    });
}

/// The finding: a call that followed the acknowledgement at once overtook the subscription.
#[test]
fn a_stream_is_acknowledged_after_an_older_server_has_answered() {
    run(async {
        let world = Rc::new(World::new());
        let mute = |plan: &mut Plan| {
            full(plan);
            plan.script.mute.insert("resources/subscribe");
        };
        let server = world.stdio("a", mute).await;
        pass(millis(50)).await;
        let wanted = json!({"notifications": {"resourceSubscriptions": ["x://1"]}});
        let listen = || {
            let (method, wanted) = ("subscriptions/listen", wanted.clone());
            async { Served::send(&world, &json!({}), method, wanted).await }
        };
        let mut stream = listen().await;
        pass(millis(100)).await;
        assert_eq!(stream.events(), [] as [Value; 0]);
        server.answer(&server.last("resources/subscribe"), json!({}));
        settle().await;
        let granted = &stream.events()[0]["params"]["notifications"];
        assert_eq!(granted["resourceSubscriptions"], json!(["x://1"]));
        // A server that never answers delays a stream for five seconds.
        drop(stream);
        pass(millis(50)).await;
        let mut stream = listen().await;
        pass(seconds(6)).await;
        assert_eq!(stream.events().len(), 1);
    });
}
