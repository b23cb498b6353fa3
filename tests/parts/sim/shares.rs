//! The share of one address in what all clients have in common.

use std::rc::Rc;

use mcpvisor::id::Peer;
use mcpvisor::protocol::Failure;
use serde_json::json;

use crate::sim::client::Client;
use crate::sim::served::Served;
use crate::sim::server::{Server, ask};
use crate::sim::world::{World, millis, pass, run, seconds, settle};

fn peer(last: u8) -> Peer {
    Peer::of([10, 0, 0, last].into())
}

async fn open(world: &Rc<World>, last: u8) -> Result<Client, Failure> {
    Client::try_open_from(world.clone(), peer(last), 0, json!({})).await
}

/// Opens sessions and uses them, as long as there is a place.
async fn use_all(world: &Rc<World>, last: u8) -> (Vec<Client>, Failure) {
    let mut clients = Vec::new();
    loop {
        match open(world, last).await {
            Ok(client) => {
                client.request("ping", json!({})).await.result();
                clients.push(client);
            }
            Err(failure) => return (clients, failure),
        }
    }
}

fn assert_names(failure: &Failure, key: &str) {
    let message = &failure.message;
    assert_eq!(failure.kind.http_status(), 503);
    assert!(message.contains(key), "{message}");
    assert!(message.contains("try again later"), "{message}");
}

#[test]
fn one_address_leaves_sessions_to_others() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.sessions_max = 20));
        let (mut greedy, refused) = use_all(&world, 1).await;
        assert_eq!(greedy.len(), 18);
        assert_names(&refused, "sessions.peer_share");
        let (others, refused) = use_all(&world, 2).await;
        assert_eq!(others.len(), 2);
        assert_names(&refused, "sessions.peer_share");
        let (none, refused) = use_all(&world, 3).await;
        assert!(none.is_empty());
        assert_names(&refused, "sessions.max");
        // A place that becomes free is not for who has most of them.
        greedy.pop().unwrap().end().await;
        assert!(open(&world, 1).await.is_err());
        assert!(open(&world, 3).await.is_ok());
    });
}

#[test]
fn a_lone_user_gets_every_session() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.sessions_max = 20));
        for _ in 0..20 {
            let client = world.client(json!({})).await;
            client.request("ping", json!({})).await.result();
        }
        let refused = Client::try_open(world.clone(), 0, json!({})).await;
        assert_names(&refused.err().unwrap(), "sessions.max");
    });
}

#[test]
fn sessions_that_were_never_used_make_room() {
    run(async {
        let world = Rc::new(World::with(|settings| settings.sessions_max = 20));
        // Health checks that only initialize, and a client that goes on.
        let used = open(&world, 1).await.unwrap();
        used.request("ping", json!({})).await.result();
        let listening = open(&world, 1).await.unwrap();
        let stream = listening.listen(None).await;
        for _ in 0..16 {
            open(&world, 1).await.unwrap();
        }
        // They may be about to be used.
        assert_names(&open(&world, 1).await.err().unwrap(), "sessions.peer_share");
        pass(seconds(11)).await;
        for _ in 0..16 {
            open(&world, 1).await.unwrap();
        }
        assert_eq!(world.sessions.len(), 18);
        assert_eq!(world.counted("sessions_unused"), 16);
        assert!(open(&world, 1).await.is_err());
        pass(seconds(11)).await;
        // Where all are taken, those of anybody do.
        let (others, _) = use_all(&world, 2).await;
        let (more, _) = use_all(&world, 3).await;
        assert_eq!((others.len(), more.len()), (2, 2));
        used.request("ping", json!({})).await.result();
        assert!(!stream.is_over());
        assert!(listening.address().await.is_some());
    });
}

#[test]
fn one_address_leaves_streams_of_changes_to_others() {
    run(async {
        let world = World::with(|settings| settings.listeners_max = 10);
        world.stdio("a", |_| {}).await;
        pass(millis(50)).await;
        let listen = async |last| {
            let params = json!({"notifications": {"toolsListChanged": true}});
            let method = "subscriptions/listen";
            Served::send_from(&world, peer(last), &json!({}), method, params).await
        };
        let mut greedy = Vec::new();
        for _ in 0..9 {
            greedy.push(listen(1).await);
        }
        let mut refused = listen(1).await;
        let why = refused.error()["message"].to_string();
        assert!(why.contains("sessions.peer_share"), "{why}");
        let mut other = listen(2).await;
        assert_eq!(other.events().len(), 1);
        drop(other);
        settle().await;
        assert!(listen(1).await.error()["message"].is_string());
        listen(3).await.events();
    });
}

#[test]
fn one_address_leaves_parked_calls_to_others() {
    run(async {
        let world = World::with(|settings| settings.parked_max = 10);
        let server: Server = world.http("a", |_| {}).await;
        pass(millis(50)).await;
        let park = async |last| {
            let capabilities = json!({"elicitation": {}});
            let params = json!({"name": "a__hold"});
            let mut call =
                Served::send_from(&world, peer(last), &capabilities, "tools/call", params).await;
            pass(millis(50)).await;
            let held = server.held().pop().unwrap();
            let form = json!({"mode": "form", "message": "who?",
                "requestedSchema": {"type": "object", "properties": {"who": {"type": "string"}}}});
            server.say_for(&held, ask("q", "elicitation/create", form));
            pass(millis(50)).await;
            let result = call.result();
            (result, call)
        };
        let mut parked = Vec::new();
        for _ in 0..9 {
            let (result, call) = park(1).await;
            assert_eq!(result["resultType"], "input_required", "{result}");
            parked.push(call);
        }
        let (refused, _call) = park(1).await;
        let why = refused["content"][0]["text"].as_str().unwrap();
        assert!(why.contains("sessions.peer_share"), "{refused}");
        let (result, _call) = park(2).await;
        assert_eq!(result["resultType"], "input_required", "{result}");
    });
}
