//! Tasks of a server that another one of its name replaces: while it drains, and after that, its
//! tasks are known by their own ids, and nobody takes a task of the new one for one of them.

use std::rc::Rc;

use mcpvisor::downstream::TransportSettings;
use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::sim::served::{Served, with_extension};
use crate::sim::server::{Server, ask, note, text};
use crate::sim::task_events::{
    PROGRESS, STATUS, extended_task, listening, progress, received, status, wanted,
};
use crate::sim::tasks::{RELATED, extended, modern_task, task, tasking};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

async fn world(plan: impl FnOnce(&mut Plan)) -> (Rc<World>, Server) {
    let world = Rc::new(World::new());
    let server = world.http("a", plan).await;
    pass(millis(50)).await;
    (world, server)
}

/// Another server of the same name; it begins when the calls of the one before have ended.
async fn replaced(world: &World, plan: impl FnOnce(&mut Plan)) -> Server {
    let server = world.start("a", true, |planned| {
        plan(planned);
        let TransportSettings::Stdio(stdio) = &mut planned.settings.transport else {
            panic!("another transport")
        };
        stdio.command = "other".to_owned();
    });
    pass(millis(50)).await;
    assert_eq!(server.links(), 0);
    server
}

fn assert_replaced(error: &Value) {
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("server `a` was replaced"), "{message}");
}

#[test]
fn what_a_draining_server_says_of_its_tasks_names_them_as_before() {
    run(async {
        let (world, server) = world(tasking).await;
        let client = world.client(json!({"elicitation": {}})).await;
        let stream = client.listen(None).await;
        let (call, id) = wanted(&server, &client, "t-9").await;
        let about = json!({ "taskId": id });
        let ended = client.request("tasks/result", about.clone()).await;
        let result = server.last("tasks/result");
        let other = replaced(&world, tasking).await;

        server.say_on(call.link, progress(&call, 1));
        server.say_on(call.link, status("t-9", "input_required"));
        let related = json!({"message": "who?", "_meta": {RELATED: {"taskId": "t-9"}}});
        server.say_for(&result, ask("q1", "elicitation/create", related));
        settle().await;
        let of_task = json!({ RELATED: about });
        assert_eq!(received(&stream, PROGRESS)[0]["_meta"], of_task);
        assert_eq!(received(&stream, STATUS)[0]["taskId"], id);
        let asked = ended.of("elicitation/create");
        assert_eq!(asked[0]["params"]["_meta"], of_task);
        let given = json!({"action": "decline", "_meta": of_task});
        client.answer(&asked[0], "result", given).await;
        server.answer(&result, text(json!("done")));
        settle().await;
        assert_eq!(ended.result()["content"], text(json!("done"))["content"]);

        // The new one has a task of the same name.
        pass(millis(100)).await;
        assert_eq!(other.links(), 1);
        let (call, of_other) = wanted(&other, &client, "t-9").await;
        assert_ne!(of_other, id);
        other.say_on(call.link, status("t-9", "working"));
        settle().await;
        assert_eq!(received(&stream, STATUS)[1]["taskId"], of_other);
        assert_replaced(&client.request("tasks/get", about).await.error());
        assert!(other.of("tasks/get").is_empty());
        let about = json!({ "taskId": of_other });
        let got = client.request("tasks/get", about).await;
        other.answer(&other.last("tasks/get"), task("working", 1));
        settle().await;
        assert_eq!(got.result()["taskId"], of_other);
    });
}

fn listened(id: &Value) -> Value {
    json!({"notifications": {"taskIds": [id]}})
}

fn reported(state: &str) -> Value {
    let mut task = modern_task(state, 1);
    task.as_object_mut().unwrap().remove("resultType");
    note("notifications/tasks", task)
}

#[test]
fn who_listens_to_a_task_hears_nothing_of_another_servers_task_of_the_same_id() {
    run(async {
        let (world, server) = world(extended).await;
        let declared = with_extension();
        let id = extended_task(&world, &server).await;
        let listen = |id| Served::send(&world, &declared, "subscriptions/listen", listened(id));
        let mut stream = listen(&id).await;
        stream.events();
        let asked = listening(&server).await;
        let call = json!({"name": "a__hold", "arguments": {}});
        let mut called = Served::send(&world, &declared, "tools/call", call).await;
        let other = replaced(&world, extended).await;
        server.report(&asked, reported("working"));
        settle().await;
        let events = stream.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["params"]["taskId"], id);

        server.answer(&server.last("tools/call"), text(json!("done")));
        pass(millis(200)).await;
        called.result();
        assert_eq!(other.links(), 1);
        // It is asked for none of its predecessor's tasks.
        assert!(other.of("subscriptions/listen").is_empty());
        let of_other = extended_task(&world, &other).await;
        assert_ne!(of_other, id);
        let mut of_another = listen(&of_other).await;
        of_another.events();
        let asked = listening(&other).await;
        other.report(&asked, reported("input_required"));
        settle().await;
        let events = of_another.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["params"]["taskId"], of_other);
        assert!(stream.events().is_empty());
    });
}

#[test]
fn a_request_for_a_task_that_is_sent_again_does_not_go_to_another_server() {
    run(async {
        let (world, server) = world(|plan| {
            tasking(plan);
            plan.settings.resilience.retry.is_allowed = true;
        })
        .await;
        let client = world.client(json!({})).await;
        let (_, id) = wanted(&server, &client, "t-9").await;
        let got = client.request("tasks/get", json!({ "taskId": id })).await;
        let other = replaced(&world, |plan| {
            tasking(plan);
            plan.settings.resilience.retry.is_allowed = true;
        })
        .await;
        let unsent = LinkError::NotSent("connection refused".into());
        server.fail(&server.last("tasks/get"), unsent);
        pass(seconds(5)).await;
        assert_eq!(world.counted("calls_repeated"), 1);
        assert_replaced(&got.error());
        assert!(other.of("tasks/get").is_empty());
    });
}
