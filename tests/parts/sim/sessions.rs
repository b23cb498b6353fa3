//! Sessions: what reaches which of them, what waits, what survives their death.

use std::rc::Rc;

use mcpvisor::downstream::Sharing;
use mcpvisor::store::Store;
use serde_json::{Value, json};

use crate::sim::client::{Client, Exchange};
use crate::sim::server::{Server, note, text, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

const CHANGED: &str = "notifications/tools/list_changed";
pub(crate) const UPDATED: &str = "notifications/resources/updated";
const LOG: &str = "notifications/message";

pub(crate) fn full(plan: &mut Plan) {
    plan.script.capabilities =
        json!({"tools": {}, "resources": {"subscribe": true}, "logging": {}});
    let resources = ["x://1", "x://2"].map(|uri| json!({"uri": uri, "name": uri}));
    plan.script.lists.insert("resources", resources.to_vec());
}

async fn new_tool(server: &Server, name: &str) {
    server.script(|script| script.lists.get_mut("tools").unwrap().push(tool(name)));
    server.say(note(CHANGED, json!({})));
    pass(seconds(1)).await;
}

pub(crate) fn updated(uri: &str) -> Value {
    note(UPDATED, json!({"uri": uri, "vendor": true}))
}

pub(crate) fn log_line(level: &str) -> Value {
    note(LOG, json!({"level": level, "data": level}))
}

pub(crate) fn levels(stream: &Exchange) -> Vec<Value> {
    let lines = stream.of(LOG);
    let levels = lines.iter().map(|line| line["params"]["level"].clone());
    levels.collect()
}

#[test]
fn events_without_an_open_stream_are_a_flag_and_no_queue() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full).await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let subscribe = json!({"uri": "x://1"});
        client
            .request("resources/subscribe", subscribe)
            .await
            .result();
        for number in 0..5 {
            new_tool(&server, &format!("new{number}")).await;
            server.say(updated("x://1"));
        }
        settle().await;
        let stream = client.listen(None).await;
        assert_eq!(stream.of(CHANGED).len(), 1);
        assert_eq!(stream.of(UPDATED).len(), 1);
        assert_eq!(stream.messages().len(), 2);
        // The next stream says nothing twice.
        let next = client.listen(None).await;
        assert!(stream.is_over());
        assert!(next.messages().is_empty());
        new_tool(&server, "last").await;
        assert_eq!(next.of(CHANGED).len(), 1);
    });
}

#[test]
fn a_refresh_without_change_says_nothing() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full).await;
        pass(millis(50)).await;
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        server.say(note(CHANGED, json!({})));
        server.crash("gone");
        pass(seconds(5)).await;
        assert_eq!(world.view("a").shared.generation, 2);
        assert!(stream.messages().is_empty());
    });
}

#[test]
fn a_stream_that_was_cut_is_resumed_where_it_stopped() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call_with_progress("a__hold", json!("t")).await;
        let call = &server.held()[0];
        server.progress(call, 1.0);
        settle().await;
        assert_eq!(exchange.messages().len(), 1);
        let last = exchange.last_event_id();
        exchange.cut();
        server.progress(call, 2.0);
        server.answer(call, text(json!("done")));
        settle().await;
        let resumed = client.listen(last.clone()).await;
        let messages = resumed.messages();
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[0]["params"]["progress"], 2.0);
        assert_eq!(messages[1]["result"], text(json!("done")));
        assert!(resumed.is_over());
        // Again, as often as the client likes.
        assert_eq!(client.listen(last).await.messages().len(), 2);
    });
}

#[test]
fn a_general_stream_that_missed_more_than_is_kept_says_that_everything_changed() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.events_per_stream = 3));
        let server = world.stdio("a", full).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let stream = client.listen(None).await;
        new_tool(&server, "first").await;
        let seen = stream.last_event_id();
        new_tool(&server, "second").await;
        for _ in 0..5 {
            server.say(log_line("info"));
        }
        settle().await;
        // The client lost what came after `seen`.
        let resumed = client.listen(seen).await;
        assert_eq!(levels(&resumed).len(), 3);
        assert_eq!(resumed.of(CHANGED).len(), 1);
    });
}

#[test]
fn a_session_that_panicked_is_rebuilt_from_its_record() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", full).await;
        let client = world.client(json!({})).await;
        let other = world.client(json!({})).await;
        pass(millis(50)).await;
        let uri = json!({"uri": "x://1"});
        client
            .request("resources/subscribe", uri.clone())
            .await
            .result();
        client
            .request("logging/setLevel", json!({"level": "error"}))
            .await
            .result();
        let general = client.listen(None).await;
        let running = client.call_with_progress("a__hold", json!(1)).await;
        server.progress(&server.held()[0], 1.0);
        settle().await;
        let (general_id, running_id) = (general.last_event_id(), running.last_event_id());
        let panicked = world.session_panics(&client).await;
        assert!(panicked.is_lost() && general.is_over() && running.is_over());
        assert!(running.answer().is_none());
        // Nobody else is concerned.
        other.call("a__echo").await.result();
        // Its next request is served by a fresh actor.
        client.call("a__echo").await.result();
        assert_eq!(world.counted("sessions_rebuilt"), 1);
        let resumed = client.listen(running_id).await;
        let error = resumed.messages().remove(0);
        assert_eq!(error["id"], running.id);
        assert!(
            error["error"]["message"]
                .as_str()
                .unwrap()
                .contains("may have run")
        );
        let stream = client
            .listen(general_id.or(Some("0.0.0.".to_owned())))
            .await;
        assert_eq!(stream.of(CHANGED).len(), 1, "what was missed is unknown");
        server.say(log_line("info"));
        server.say(log_line("alert"));
        server.say(updated("x://1"));
        settle().await;
        assert_eq!(levels(&stream), ["alert"]);
        assert_eq!(stream.of(UPDATED).len(), 2, "one may have been missed");
        assert_eq!(world.sessions.len(), 2);
    });
}

#[test]
fn a_session_can_be_rebuilt_however_long_it_is_in_use() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.idle_timeout = seconds(100)));
        world.stdio("a", full).await;
        let client = world.client(json!({})).await;
        for _ in 0..50 {
            pass(seconds(60)).await;
            client.call("a__echo").await.result();
        }
        client.call("a__panic").await;
        assert!(client.address().await.is_some());
        client.call("a__echo").await.result();
    });
}

#[test]
fn idle_sessions_end_and_those_in_use_stay() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.idle_timeout = seconds(100)));
        let server = world
            .stdio("a", |plan| {
                plan.settings.sharing = Sharing::Session;
                plan.settings.limits.request_timeout = seconds(600);
            })
            .await;
        let idle = world.client(json!({"sampling": {}})).await;
        let listening = world.client(json!({})).await;
        let calling = world.client(json!({})).await;
        pass(millis(50)).await;
        let stream = listening.listen(None).await;
        let call = calling.call("a__hold").await;
        idle.call("a__echo").await.result();
        assert_eq!(world.view("a").own.len(), 2);
        pass(seconds(98)).await;
        assert!(idle.address().await.is_some());
        pass(seconds(98)).await;
        assert_eq!(world.sessions.len(), 3, "it was used meanwhile");
        pass(seconds(4)).await;
        assert!(idle.address().await.is_none());
        // That of the call under way.
        assert_eq!(world.view("a").own.len(), 1);
        assert_eq!(world.sessions.len(), 2);
        pass(seconds(500 - 200)).await;
        assert_eq!(world.sessions.len(), 2);
        server.answer(&server.held()[0], text(json!("done")));
        settle().await;
        call.result();
        drop(stream);
        // From the end of their use they have the whole time again.
        pass(seconds(95)).await;
        assert_eq!(world.sessions.len(), 2);
        pass(seconds(210)).await;
        assert_eq!(world.sessions.len(), 0);
        assert_eq!(world.counted("sessions_expired"), 3);
    });
}

#[test]
fn a_client_whose_stream_was_cut_has_the_whole_time_to_come_back() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.idle_timeout = seconds(100)));
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        pass(seconds(98)).await;
        stream.cut();
        pass(seconds(90)).await;
        assert!(client.address().await.is_some());
        pass(seconds(202)).await;
        assert!(client.address().await.is_none());
    });
}

#[test]
fn a_session_that_died_and_is_never_asked_for_leaves_nothing() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.idle_timeout = seconds(100)));
        let server = world
            .stdio("a", |plan| {
                full(plan);
                plan.settings.sharing = Sharing::Session;
            })
            .await;
        let client = world.client(json!({"sampling": {}})).await;
        pass(millis(50)).await;
        client
            .request("resources/subscribe", json!({"uri": "x://1"}))
            .await
            .result();
        client
            .request("logging/setLevel", json!({"level": "debug"}))
            .await
            .result();
        client.call("a__echo").await.result();
        client.call("a__panic").await;
        pass(seconds(210)).await;
        assert_eq!(world.sessions.len(), 0);
        assert_eq!(world.view("a").own.len(), 0);
        // The subscription ended with the connection that it was on.
        assert!(server.of("resources/unsubscribe").is_empty());
        assert_eq!(world.subscription_registry.level(), None);
        // But for the keys of the gateway.
        let mut kept = world.store.scan("").await.unwrap();
        kept.retain(|entry| !entry.key.starts_with("sealing/"));
        kept.retain(|entry| !entry.key.starts_with("separation/"));
        assert_eq!(kept, []);
    });
}

#[test]
fn there_is_room_for_so_many_sessions() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.sessions_max = 2));
        world.stdio("a", full).await;
        for _ in 0..3 {
            let clients = [world.client(json!({})).await, world.client(json!({})).await];
            assert_eq!(world.sessions.len(), 2);
            for client in &clients {
                client.end().await;
            }
            assert_eq!(world.sessions.len(), 0);
        }
    });
}

#[test]
fn s_life_04_only_log_lines_come_before_the_client_is_initialized() {
    run(async {
        type Begin = (&'static str, bool);
        let begins: [Begin; 2] = [("notifications/initialized", true), ("tools/list", false)];
        for (method, is_notification) in begins {
            let world = Rc::new(World::new());
            let server = world.stdio("a", full).await;
            pass(millis(50)).await;
            let client = Client::open_silent(world.clone(), 0, json!({}))
                .await
                .unwrap();
            let stream = client.listen(None).await;
            new_tool(&server, "new").await;
            server.say(log_line("error"));
            client.request("ping", json!({})).await.result();
            pass(seconds(1)).await;
            assert_eq!(levels(&stream), ["error"]);
            assert_eq!(stream.messages().len(), 1);
            if is_notification {
                client.notify(method, json!({})).await;
            } else {
                client.request(method, json!({})).await.result();
            }
            assert_eq!(stream.of(CHANGED).len(), 1);
            new_tool(&server, "newer").await;
            assert_eq!(stream.of(CHANGED).len(), 2);
        }
    });
}
