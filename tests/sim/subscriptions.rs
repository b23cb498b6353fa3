//! What sessions want of servers: subscriptions and log levels.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::client::Exchange;
use crate::server::Server;
use crate::sessions::{UPDATED, full, levels, log_line, updated};
use crate::world::{Plan, World, millis, pass, run, seconds, settle};

#[test]
fn resource_updates_reach_subscribers_only() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full).await;
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
fn many_long_subscriptions_are_bounded_and_written_once() {
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
        assert!(written < 1 << 20, "{written}");
        assert!(written > 31 * 4096, "{written}");
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
        assert!(world.counted("news_lost") > 0);
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
        let server = world.stdio("a", full).await;
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
        let world = Rc::new(World::new());
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
        for number in 0..1_100 {
            let params = json!({"uri": format!("x://n{number}")});
            let message = json!({"jsonrpc": "2.0", "id": 10_000 + number, "method": "resources/subscribe", "params": params});
            let exchange = client.exchange(message, true).await;
            settle().await;
            if !exchange.answer().unwrap()["error"].is_null() {
                refused += 1;
            }
        }
        assert_eq!(refused, 100);
    });
}
