//! Events of tasks that clients follow themselves: to the client whose task it is, under
//! the id that it knows, and to nobody else.

use std::rc::Rc;

use mcpvisor::supervision::ChildPhase;
use serde_json::{Value, json};

use crate::sim::client::{Client, Exchange};
use crate::sim::schemas::{check_notification, check_task};
use crate::sim::served::{Served, with_extension};
use crate::sim::server::{Frame, Server, note, text};
use crate::sim::tasks::{RELATED, extended, modern_task, task, tasking};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

pub(crate) const STATUS: &str = "notifications/tasks/status";
pub(crate) const PROGRESS: &str = "notifications/progress";

async fn world(plan: impl FnOnce(&mut Plan), knows_call_of_requests: bool) -> (Rc<World>, Server) {
    let world = Rc::new(World::new());
    let server = if knows_call_of_requests {
        world.http("a", plan).await
    } else {
        world.stdio("a", plan).await
    };
    pass(millis(50)).await;
    (world, server)
}

/// A task that a client wanted: the call that its server saw, and the task's id for the client.
pub(crate) async fn wanted(server: &Server, client: &Client, native: &str) -> (Frame, Value) {
    let params = json!({"name": "a__optional", "arguments": {}, "task": {"ttl": 60_000},
        "_meta": {"progressToken": "mine"}});
    let exchange = client.request("tools/call", params).await;
    let call = server.last("tools/call");
    let mut created = task("working", 0);
    created["taskId"] = json!(native);
    server.answer(&call, json!({ "task": created }));
    settle().await;
    let id = exchange.result()["task"]["taskId"].clone();
    (call, id)
}

pub(crate) fn status(native: &str, status: &str) -> Value {
    let mut params = task(status, 1);
    params["taskId"] = json!(native);
    note(STATUS, params)
}

pub(crate) fn progress(call: &Frame, progress: u64) -> Value {
    let token = call.json["params"]["_meta"]["progressToken"].clone();
    let related = json!({RELATED: {"taskId": "t-9"}});
    note(
        PROGRESS,
        json!({"progressToken": token, "progress": progress, "message": "on it", "_meta": related}),
    )
}

pub(crate) fn received(stream: &Exchange, method: &str) -> Vec<Value> {
    let received = stream.of(method);
    received.iter().for_each(check_notification);
    received
        .iter()
        .map(|message| message["params"].clone())
        .collect()
}

#[test]
fn events_of_a_task_reach_only_the_client_that_made_it() {
    run(async {
        for knows_call_of_requests in [true, false] {
            for capabilities in [json!({}), json!({"elicitation": {}})] {
                let (world, server) = world(tasking, knows_call_of_requests).await;
                let owner = world.client(capabilities.clone()).await;
                let other = world.client(capabilities).await;
                let stream = owner.listen(None).await;
                let elsewhere = other.listen(None).await;
                let (call, id) = wanted(&server, &owner, "t-9").await;
                let (_, of_other) = wanted(&server, &other, "t-8").await;
                assert_ne!(id, of_other);

                server.say_on(call.link, progress(&call, 1));
                server.say_on(call.link, status("t-9", "input_required"));
                server.say_on(call.link, status("t-7", "working"));
                settle().await;
                let events = received(&stream, PROGRESS);
                assert_eq!(events.len(), 1);
                assert_eq!(events[0]["progressToken"], "mine");
                assert_eq!(events[0]["_meta"], json!({RELATED: {"taskId": id}}));
                let events = received(&stream, STATUS);
                assert_eq!(events.len(), 1);
                assert_eq!(events[0]["taskId"], id);
                assert_eq!(events[0]["status"], "input_required");
                assert_eq!(events[0]["ttl"], 3_600_000);

                // Progress that stands still is not told (S-PROG-02), nor anything after the end
                // (S-PROG-04).
                server.say_on(call.link, progress(&call, 1));
                server.say_on(call.link, progress(&call, 2));
                server.say_on(call.link, status("t-9", "completed"));
                server.say_on(call.link, progress(&call, 3));
                server.say_on(call.link, status("t-9", "working"));
                settle().await;
                assert_eq!(received(&stream, PROGRESS).len(), 2);
                assert_eq!(received(&stream, STATUS)[1..].len(), 1);
                assert_eq!(received(&stream, STATUS)[1]["status"], "completed");
                assert!(
                    elsewhere.messages().is_empty(),
                    "{:?}",
                    elsewhere.messages()
                );
            }
        }
    });
}

#[test]
fn a_task_that_changes_unread_is_sent_once_in_its_last_state() {
    run(async {
        let (world, server) = world(tasking, true).await;
        let client = world.client(json!({})).await;
        let (call, id) = wanted(&server, &client, "t-9").await;
        for state in ["working", "input_required", "failed"] {
            server.say_on(call.link, status("t-9", state));
        }
        server.say_on(call.link, progress(&call, 1));
        settle().await;
        let stream = client.listen(None).await;
        let events = received(&stream, STATUS);
        assert_eq!(events.len(), 1);
        assert_eq!(
            (&events[0]["taskId"], &events[0]["status"]),
            (&id, &json!("failed"))
        );
        assert!(received(&stream, PROGRESS).is_empty());
    });
}

#[test]
fn s_prog_04_nothing_is_sent_about_a_task_that_its_client_knows_to_have_ended() {
    run(async {
        let (world, server) = world(tasking, true).await;
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        // By asking, by cancelling, by its result, or because its time is over.
        for way in ["tasks/get", "tasks/cancel", "tasks/result", "ttl"] {
            let (call, id) = wanted(&server, &client, "t-9").await;
            if way == "ttl" {
                pass(seconds(3600)).await;
            } else {
                client.request(way, json!({"taskId": id})).await;
                let ended = match way {
                    "tasks/get" => task("completed", 1),
                    "tasks/cancel" => task("cancelled", 1),
                    _ => text(json!("done")),
                };
                server.answer(&server.last(way), ended);
                settle().await;
            }
            server.say_on(call.link, progress(&call, 1));
            server.say_on(call.link, status("t-9", "working"));
            settle().await;
            assert!(
                stream.messages().is_empty(),
                "{way}: {:?}",
                stream.messages()
            );
        }
    });
}

#[test]
fn a_server_with_a_task_of_a_client_is_not_at_rest() {
    run(async {
        let idle = |plan: &mut Plan| {
            tasking(plan);
            plan.settings.limits.idle_stop = seconds(60);
        };
        let (world, server) = world(idle, false).await;
        let client = world.client(json!({})).await;
        let (call, _) = wanted(&server, &client, "t-9").await;
        pass(seconds(600)).await;
        assert_eq!(world.view("a").shared.phase, ChildPhase::Up);
        server.say_on(call.link, status("t-9", "completed"));
        pass(seconds(120)).await;
        assert_eq!(world.view("a").shared.phase, ChildPhase::Idle);
    });
}

#[test]
fn a_server_that_was_restarted_tells_nobody_of_tasks_that_it_does_not_know() {
    run(async {
        let (world, server) = world(tasking, false).await;
        let client = world.client(json!({})).await;
        let stream = client.listen(None).await;
        let (call, _) = wanted(&server, &client, "t-9").await;
        server.crash_link(call.link, "exit 1");
        pass(seconds(5)).await;
        let link = *server.open_links().last().unwrap();
        server.say_on(link, status("t-9", "working"));
        settle().await;
        assert!(received(&stream, STATUS).is_empty());
    });
}

/// The last stream that a server was asked for, acknowledged with all that was wanted.
pub(crate) async fn listening(server: &Server) -> Frame {
    pass(millis(100)).await;
    let listen = server.last("subscriptions/listen");
    server.acknowledge(&listen, &listen.json["params"]["notifications"]);
    settle().await;
    listen
}

/// A task of a sessionless server: its id for the client.
pub(crate) async fn extended_task(world: &World, server: &Server) -> Value {
    let call = json!({"name": "a__hold", "arguments": {}});
    let mut called = Served::send(world, &with_extension(), "tools/call", call).await;
    let mut created = modern_task("working", 0);
    created["resultType"] = json!("task");
    server.answer(&server.last("tools/call"), created);
    settle().await;
    let created = called.result();
    check_task("CreateTaskResult", &created);
    created["taskId"].clone()
}

#[test]
fn a_client_without_a_session_listens_to_its_tasks() {
    run(async {
        let (world, server) = world(extended, true).await;
        let id = extended_task(&world, &server).await;
        let declared = with_extension();
        let filter = json!({"notifications": {"taskIds": [id, "t-9", "gt1.k1.x"]}});
        let mut stream = Served::send(&world, &declared, "subscriptions/listen", filter).await;
        let acknowledged = stream.events();
        let params = &acknowledged[0]["params"];
        assert_eq!(params["notifications"], json!({"taskIds": [id]}));
        let nothing = json!({"notifications": {"toolsListChanged": true}});
        let mut other = Served::send(&world, &declared, "subscriptions/listen", nothing).await;
        other.events();
        let listen = listening(&server).await;
        assert_eq!(
            listen.json["params"]["notifications"]["taskIds"],
            json!(["t-9"])
        );
        let declared = "io.modelcontextprotocol/clientCapabilities";
        assert!(listen.json["params"]["_meta"][declared]["extensions"].is_object());

        let mut required = modern_task("input_required", 1);
        required.as_object_mut().unwrap().remove("resultType");
        required["inputRequests"] = json!({"who": {"method": "roots/list"}});
        server.report(&listen, note("notifications/tasks", required.clone()));
        // Events of a call are not for those who listen (S-TASK-X-13).
        for method in [PROGRESS, "notifications/message"] {
            let params =
                json!({"progressToken": listen.json["id"], "progress": 1, "level": "error"});
            server.report(&listen, note(method, params));
        }
        let mut unknown = required.clone();
        unknown["taskId"] = json!("t-8");
        server.report(&listen, note("notifications/tasks", unknown));
        settle().await;
        let events = stream.events();
        assert_eq!(events.len(), 1, "{events:?}");
        check_task("TaskStatusNotification", &events[0]);
        required["taskId"] = id.clone();
        required["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": "r"});
        assert_eq!(events[0]["params"], required);

        let mut completed = modern_task("completed", 2);
        completed["result"] = text(json!("done"));
        let link = json!({"type": "resource_link", "uri": "x://1", "name": "x"});
        completed["result"]["content"] = json!([link]);
        let ended = note("notifications/tasks", completed);
        server.report(&listen, ended.clone());
        server.report(&listen, ended);
        settle().await;
        let events = stream.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["params"]["result"]["content"][0]["uri"], "x://1");
        assert_eq!(events[0]["params"]["taskId"], id);
        assert!(other.events().is_empty());
        // One that has ended is no reason for another stream.
        assert_eq!(server.of("subscriptions/listen").len(), 1);
    });
}

#[test]
fn a_server_that_refuses_a_stream_with_tasks_is_asked_for_one_without() {
    run(async {
        let (world, server) = world(extended, true).await;
        let id = extended_task(&world, &server).await;
        let filter = json!({"notifications": {"taskIds": [id]}});
        let declared = with_extension();
        server.mute("subscriptions/listen");
        let mut stream = Served::send(&world, &declared, "subscriptions/listen", filter).await;
        assert_eq!(stream.events().len(), 1);
        pass(millis(100)).await;
        let listen = server.last("subscriptions/listen");
        server.refuse(&listen, -32602, "unknown task");
        pass(seconds(120)).await;
        let asked = server.of("subscriptions/listen");
        let wants = |frame: &Frame| frame.json["params"]["notifications"]["taskIds"].is_array();
        assert_eq!(asked.iter().filter(|frame| wants(frame)).count(), 1);
        assert!(stream.events().is_empty());
    });
}
