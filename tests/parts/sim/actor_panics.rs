//! The gateway's own actors panic: the one that starts servers, the one that merges the catalog and
//! carries events, and the one that has the calls of a worker.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use mcpvisor::publisher::{Arrangement, PartStore, Pins, RestoredCatalog, StartTimes};
use mcpvisor::store::MemoryStore;
use mcpvisor::supervision::{Arbiters, ChildPhase, ChildView};
use serde_json::{Value, json};

use crate::sim::minting::mints_panic;
use crate::sim::served::Served;
use crate::sim::server::{ask, note, text, tool};
use crate::sim::world::{
    World, event_logs_panic, millis, panic_if_due, pass, run, seconds, separated, settle,
};

const CHANGED: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

/// Incarnation, phase and panics.
fn received(view: &ChildView) -> (u64, &'static str, u64) {
    (view.generation, view.phase.as_str(), view.panics)
}

#[test]
fn a_panic_of_the_connection_manager_costs_no_server_anything() {
    run(async {
        let world = Rc::new(World::new());
        let a = world.stdio("a", separated).await;
        pass(millis(50)).await;
        let asked = json!({"elicitation": {"form": {}}});
        let first = world.client(asked).await;
        first.call("a__echo").await.result();
        assert_eq!(
            received(&world.downstreams.connection_manager_view()),
            (1, "up", 0)
        );
        // The next one does the change that it dies over, and those that came with it.
        world.starts_panic.store(1, SeqCst);
        world.start("b", false, |_| {});
        let second = world.client(json!({"sampling": {}})).await;
        let call = second.call("a__echo").await;
        world.start("c", false, |_| {});
        pass(millis(100)).await;
        call.result();
        assert_eq!(
            received(&world.downstreams.connection_manager_view()),
            (2, "up", 1)
        );
        for server in ["a", "b", "c"] {
            let view = world.view(server);
            assert_eq!(received(&view.shared), (1, "up", 0), "{server}");
            first.call(&format!("{server}__echo")).await.result();
        }
        // Both clients have the connection that the first or the second connection manager opened.
        let view = world.view("a");
        assert_eq!((view.own.len(), view.own_refused, a.links()), (2, 0, 3));
        assert!(
            view.own
                .iter()
                .all(|own| received(&own.connection) == (1, "up", 0))
        );
        // Its periodic work goes on.
        pass(seconds(400)).await;
        assert!(world.view("a").own.is_empty());
        world.stop_server("a");
        pass(seconds(1)).await;
        assert!(a.open_links().is_empty());
    });
}

#[test]
fn a_server_whose_start_panics_is_given_up_and_no_other() {
    run(async {
        let world = Rc::new(World::new());
        world.stdio("a", |_| {}).await;
        world.starts_panic.store(2, SeqCst);
        world.start("bad", false, |_| {});
        world.start("b", false, |_| {});
        pass(seconds(3)).await;
        let client = world.client(json!({})).await;
        assert_eq!(client.tools().await.len(), 6);
        client.call("b__echo").await.result();
        assert_eq!(
            received(&world.downstreams.connection_manager_view()),
            (3, "up", 2)
        );
        // The next change of its configuration.
        world.start("bad", false, |_| {});
        pass(millis(100)).await;
        client.call("bad__echo").await.result();
    });
}

#[test]
fn a_lazy_server_rests_after_its_lists_whoever_started_it() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.start("lazy", false, |plan| {
            plan.settings.start = mcpvisor::downstream::StartMode::Lazy;
            plan.script.mute.insert("tools/list");
        });
        settle().await;
        world.starts_panic.store(1, SeqCst);
        world.start("other", false, |_| {});
        pass(millis(100)).await;
        assert_eq!(world.downstreams.connection_manager_view().panics, 1);
        server.answer(&server.last("tools/list"), json!({"tools": [tool("echo")]}));
        pass(millis(500)).await;
        assert_eq!(world.view("lazy").shared.phase.as_str(), "idle");
    });
}

#[test]
fn all_servers_are_stopped_while_the_connection_manager_is_away() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        world.starts_panic.store(1, SeqCst);
        world.start("b", false, |_| {});
        settle().await;
        assert_eq!(
            world.downstreams.connection_manager_view().phase.as_str(),
            "backoff"
        );
        world.downstreams.stop_all().await;
        assert!(server.open_links().is_empty());
        assert_eq!(
            world.downstreams.connection_manager_view().phase.as_str(),
            "stopped"
        );
        pass(seconds(5)).await;
        assert!(world.downstreams.all().is_empty());
    });
}

thread_local!(static LISTINGS_PANIC: AtomicU32 = const { AtomicU32::new(0) });

fn listings_panic(times: u32) {
    LISTINGS_PANIC.with(|panics| panics.store(times, SeqCst));
}

/// Is asked at each listing of a server.
fn clock() -> u64 {
    LISTINGS_PANIC.with(panic_if_due);
    0
}

/// Panics where the lists of servers are taken in.
async fn keeping(first_list_wait: u64) -> Rc<World> {
    let store = Arc::new(MemoryStore::default());
    let nobody = mcpvisor::id::ServerName::try_new("never-listed").unwrap();
    let restored = RestoredCatalog {
        arrangement: Arrangement {
            servers: vec![(nobody, Default::default())],
            ..Arrangement::default()
        },
        parts: Vec::new(),
        part_store: PartStore::new(store.clone(), clock),
        start_times: StartTimes::load(store).await.unwrap(),
        pins: Pins::default(),
    };
    let world = World::after(Some(restored), Arbiters::current().unwrap(), |settings| {
        settings.first_list_wait = seconds(first_list_wait);
    });
    Rc::new(world)
}

#[test]
fn a_panic_of_the_dispatcher_loses_no_list() {
    run(async {
        let world = keeping(5).await;
        listings_panic(1);
        let servers = ["a", "b"].map(|name| world.start(name, false, |_| {}));
        pass(millis(100)).await;
        assert_eq!(received(&world.publisher.view()), (2, "up", 1));
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        assert_eq!(client.tools().await.len(), 6);
        // A change of both, over the first of which it dies, is told once.
        listings_panic(1);
        for server in &servers {
            server.script(|script| drop(script.lists.insert("tools", vec![tool("one")])));
            server.say(note(CHANGED, json!({})));
        }
        pass(millis(500)).await;
        assert_eq!(received(&world.publisher.view()), (3, "up", 2));
        assert_eq!(client.tools().await, ["a__one", "b__one"]);
        assert_eq!(stream.of(CHANGED).len(), 1);
        assert!(servers.iter().all(|server| server.links() == 1));
        assert_eq!(world.view("a").shared.panics, 0);
    });
}

#[test]
fn events_that_come_while_the_dispatcher_is_away_are_carried_afterwards() {
    run(async {
        let world = keeping(5).await;
        let server = world.start("a", false, |plan| {
            plan.script.capabilities = json!({"tools": {}, "resources": {"subscribe": true}});
            let resource = json!({"uri": "x://1", "name": "one"});
            plan.script.lists.insert("resources", vec![resource]);
        });
        pass(millis(100)).await;
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        let uri = json!({"uri": "x://1"});
        client
            .request("resources/subscribe", uri.clone())
            .await
            .result();
        // Twice: this list is given up, and nothing else.
        listings_panic(2);
        server.script(|script| drop(script.lists.insert("tools", Vec::new())));
        server.say(note(CHANGED, json!({})));
        while world.publisher.view().panics == 0 {
            pass(millis(1)).await;
        }
        assert_eq!(world.publisher.view().phase.as_str(), "backoff");
        server.say(note(UPDATED, uri));
        settle().await;
        assert!(stream.of(UPDATED).is_empty());
        pass(seconds(1)).await;
        assert_eq!(received(&world.publisher.view()), (3, "up", 2));
        assert_eq!(stream.of(UPDATED).len(), 1);
        // A list waits a moment for the change that the server announced.
        let list = client.request("tools/list", json!({})).await;
        pass(seconds(2)).await;
        assert_eq!(list.result()["tools"].as_array().unwrap().len(), 3);
        // It is read again from time to time, or when the server says so.
        server.say(note(CHANGED, json!({})));
        pass(seconds(1)).await;
        assert!(client.tools().await.is_empty());
    });
}

#[test]
fn the_first_list_does_not_wait_for_ever_when_the_dispatcher_dies() {
    run(async {
        let world = keeping(2).await;
        listings_panic(1);
        world.start("good", false, |_| {});
        world.start("bad", false, |plan| {
            plan.script.mute.insert("tools/list");
        });
        settle().await;
        let client = world.client(json!({})).await;
        let list = client.request("tools/list", json!({})).await;
        pass(millis(1500)).await;
        assert_eq!(world.publisher.view().panics, 1);
        assert!(list.is_waiting());
        pass(millis(600)).await;
        assert_eq!(list.result()["tools"].as_array().unwrap().len(), 3);
    });
}

#[test]
fn a_call_without_a_session_that_panics_ends_alone() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", separated).await;
        pass(millis(50)).await;
        let call = async |capabilities: Value| {
            let params = json!({"name": "a__hold", "arguments": {}});
            let call = Served::send(&world, &capabilities, "tools/call", params).await;
            pass(millis(50)).await;
            (call, server.held().pop().unwrap())
        };
        let (mut other, other_held) = call(json!({})).await;
        let (mut asked, held) = call(json!({"elicitation": {}})).await;
        let form = json!({"mode": "form", "message": "who?",
            "requestedSchema": {"type": "object", "properties": {}}});
        server.say_for(&held, ask("q", "elicitation/create", form));
        // Where it is parked.
        mints_panic(1);
        pass(millis(50)).await;
        assert_eq!(asked.error()["data"]["code"], "internal");
        // Its server is told that nobody answers, and nobody waits.
        assert!(server.answer_to(&json!("q")).is_some());
        assert_eq!(server.of("notifications/cancelled").len(), 1);
        server.answer(&other_held, text(json!("done")));
        settle().await;
        assert_eq!(other.result()["content"], text(json!("done"))["content"]);
        let (mut next, held) = call(json!({})).await;
        server.answer(&held, text(json!("done")));
        settle().await;
        next.result();
    });
}

#[test]
fn a_call_of_a_session_that_panics_ends_alone() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let other = client.call("a__hold").await;
        let failed = client.call_with_progress("a__hold", json!("t")).await;
        let held = server.held();
        // Its first progress opens a stream.
        event_logs_panic(1);
        server.progress(&held[1], 1.0);
        settle().await;
        assert_eq!(failed.error()["data"]["code"], "internal");
        assert_eq!(server.of("notifications/cancelled").len(), 1);
        server.answer(&held[0], text(json!("done")));
        settle().await;
        other.result();
        assert_eq!(world.counted("sessions_rebuilt"), 0);
    });
}

#[test]
fn a_call_whose_admission_panics_ends_alone() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let other = client.call("a__hold").await;
        let failed = client.call("a__panic").await;
        assert_eq!(failed.error()["data"]["code"], "internal");
        server.answer(&server.held()[0], text(json!("done")));
        settle().await;
        other.result();
        assert_eq!(world.counted("sessions_rebuilt"), 0);
    });
}

#[test]
fn connections_of_clients_are_retried_as_soon_as_their_server_is_up_again() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", separated).await;
        pass(millis(50)).await;
        let client = world.client(json!({"elicitation": {"form": {}}})).await;
        client.call("a__echo").await.result();
        let [shared, own] = server.open_links()[..] else {
            panic!("links: {:?}", server.open_links());
        };
        let phases = || {
            let view = world.view("a");
            (view.shared.phase, view.own[0].connection.phase)
        };
        // Both fail after 1, 2, 4, 8 and 16 s, and the one of the client begins later.
        server.refuse_links(Some("away"));
        server.crash_link(shared, "gone");
        pass(seconds(14)).await;
        server.crash_link(own, "gone");
        pass(seconds(16)).await;
        server.refuse_links(None);
        assert_eq!(phases(), (ChildPhase::Backoff, ChildPhase::Backoff));
        pass(seconds(2)).await;
        assert_eq!(phases(), (ChildPhase::Up, ChildPhase::Up));
        client.call("a__echo").await.result();
    });
}
