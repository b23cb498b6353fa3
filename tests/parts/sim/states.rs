//! States that clients without a session come back with: taken once, and by the server that they
//! are of.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use mcpvisor::downstream::TransportSettings;
use serde_json::{Value, json};

use crate::sim::modern::sessionless;
use crate::sim::served::{Served, with_extension};
use crate::sim::server::{Frame, Server};
use crate::sim::tasks::{extended, modern_task};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, set_wall_clock, settle};

fn declared() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}})
}

async fn world(plan: impl FnOnce(&mut Plan)) -> (Rc<World>, Server) {
    let world = Rc::new(World::new());
    let server = world.http("a", plan).await;
    pass(millis(50)).await;
    (world, server)
}

fn params() -> Value {
    json!({"name": "a__hold", "arguments": {}})
}

async fn called(world: &World, params: Value) -> Served {
    let served = Served::send(world, &declared(), "tools/call", params).await;
    pass(millis(50)).await;
    served
}

/// The request of a client that comes back with these answers.
fn back(asked: &Value, responses: Value) -> Value {
    let mut params = params();
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = responses;
    params
}

/// The server wants a page to be opened before it can do what it is asked for.
fn visit_first(server: &Server, call: &Frame) {
    let page = json!({"mode": "url", "elicitationId": "e1", "url": "https://x.example/", "message": "open it"});
    let error =
        json!({"code": -32042, "message": "open it first", "data": {"elicitations": [page]}});
    let id = &call.json["id"];
    server.say_for(call, json!({"jsonrpc": "2.0", "id": id, "error": error}));
}

fn code(served: &mut Served) -> Value {
    served.result()["_meta"]["io.mcpvisor/error"]["code"].clone()
}

fn form() -> Value {
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": "who?",
        "requestedSchema": {"type": "object", "properties": {}}}})
}

#[test]
fn s_req_13_a_call_goes_on_only_when_every_page_was_opened() {
    run(async {
        let (world, server) = world(|_| {}).await;
        for action in ["decline", "cancel"] {
            let before = server.held().len();
            let mut call = called(&world, params()).await;
            visit_first(&server, &server.held().pop().unwrap());
            settle().await;
            let asked = call.result();
            assert_eq!(asked["resultType"], "input_required");
            let responses = json!({"u0": {"action": action}});
            let mut answer = called(&world, back(&asked, responses)).await;
            assert_eq!(server.held().len(), before + 1, "{action}");
            assert_eq!(code(&mut answer), "input_refused");
        }
        let mut call = called(&world, params()).await;
        visit_first(&server, &server.held().pop().unwrap());
        settle().await;
        let asked = call.result();
        // What is no answer uses nothing up.
        for responses in [json!({}), json!({"u0": {"action": "maybe"}}), json!(7)] {
            let mut answer = called(&world, back(&asked, responses)).await;
            assert_eq!(answer.error()["code"], -32602);
        }
        assert_eq!(server.held().len(), 3);
        let accepted = json!({"u0": {"action": "accept"}});
        called(&world, back(&asked, accepted.clone())).await;
        let again = server.held().pop().unwrap();
        assert_eq!(server.held().len(), 4);
        assert!(again.json["params"]["inputResponses"].is_null());
        // A state is good for one return.
        let mut replay = called(&world, back(&asked, accepted)).await;
        assert_used(&replay.error());
        assert_eq!(server.held().len(), 4);
    });
}

fn assert_used(error: &Value) {
    assert_eq!(error["code"], -32602, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("already used"), "{message}");
}

/// A call of a sessionless server that wants input, and what its client is asked.
async fn asked_by(world: &World, server: &Server) -> Value {
    let mut call = called(world, params()).await;
    server.need(&server.held().pop().unwrap(), json!({"k": form()}), "state");
    settle().await;
    call.result()
}

fn declined() -> Value {
    json!({"k": {"action": "decline"}})
}

#[test]
fn s_mrtr_09_the_state_of_a_server_is_taken_once() {
    run(async {
        let (world, server) = world(sessionless).await;
        let asked = asked_by(&world, &server).await;
        called(&world, back(&asked, declined())).await;
        let again = server.held().pop().unwrap();
        assert_eq!(again.json["params"]["requestState"], "state");
        assert_eq!(server.held().len(), 2);
        let mut replay = called(&world, back(&asked, declined())).await;
        assert_used(&replay.error());
        assert_eq!(server.held().len(), 2);
        // Nor by two at a time.
        let asked = asked_by(&world, &server).await;
        let params = back(&asked, declined());
        let first = Served::send(&world, &declared(), "tools/call", params.clone()).await;
        let mut second = Served::send(&world, &declared(), "tools/call", params).await;
        assert_used(&second.error());
        drop(first);
    });
}

#[test]
fn a_replaced_server_is_not_given_the_state_of_the_one_before_it() {
    run(async {
        let (world, server) = world(extended).await;
        let asked = asked_by(&world, &server).await;
        let mut call = Served::send(&world, &with_extension(), "tools/call", params()).await;
        let mut task = modern_task("working", 0);
        task["resultType"] = json!("task");
        server.answer(&server.held().pop().unwrap(), task);
        settle().await;
        let id = call.result()["taskId"].clone();
        let other = world.start("a", true, |plan| {
            extended(plan);
            let TransportSettings::Stdio(stdio) = &mut plan.settings.transport else {
                panic!("another transport")
            };
            stdio.command = "other".to_owned();
        });
        pass(seconds(10)).await;
        assert_eq!(other.links(), 1);
        let mut refused = called(&world, back(&asked, declined())).await;
        let about = json!({"taskId": id});
        let mut refused_task = Served::send(&world, &with_extension(), "tasks/get", about).await;
        for error in [refused.error(), refused_task.error()] {
            assert_eq!(error["code"], -32602, "{error}");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("server `a` was replaced"), "{message}");
        }
        assert!(other.held().is_empty());
        assert!(other.of("tasks/get").is_empty());
    });
}

#[test]
fn a_state_whose_use_cannot_be_kept_is_not_sent_on() {
    run(async {
        let (world, server) = world(sessionless).await;
        let asked = asked_by(&world, &server).await;
        world.store_is_down.store(true, Ordering::Relaxed);
        let mut refused = called(&world, back(&asked, declined())).await;
        assert_eq!(code(&mut refused), "overloaded");
        assert_eq!(server.held().len(), 1);
        // It was not used up.
        world.store_is_down.store(false, Ordering::Relaxed);
        called(&world, back(&asked, declined())).await;
        assert_eq!(server.held().len(), 2);
    });
}

#[test]
fn used_states_have_a_limit_and_make_room_when_they_expire() {
    run(async {
        let world = Rc::new(World::with(|settings| {
            settings.used_states_max = 1;
        }));
        let server = world.http("a", sessionless).await;
        pass(millis(50)).await;
        let first = asked_by(&world, &server).await;
        let second = asked_by(&world, &server).await;
        called(&world, back(&first, declined())).await;
        assert_eq!(server.held().len(), 3);
        let mut refused = called(&world, back(&second, declined())).await;
        assert_eq!(code(&mut refused), "overloaded");
        assert_eq!(server.held().len(), 3);
        // Later, the first has expired, and may be forgotten.
        set_wall_clock(500);
        let third = asked_by(&world, &server).await;
        set_wall_clock(700);
        called(&world, back(&third, declined())).await;
        assert_eq!(server.held().len(), 5);
        let mut expired = called(&world, back(&first, declined())).await;
        assert_eq!(expired.error()["message"], "invalid requestState");
        set_wall_clock(0);
    });
}
