//! Tasks that a gateway bridged before it was restarted.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::sim::schemas::check_task;
use crate::sim::served::{Served, with_extension};
use crate::sim::server::{Server, ask, text};
use crate::sim::tasks::task;
use crate::sim::tasks_bridged::{about, created, looked, question, shown, world};
use crate::sim::world::{World, millis, pass, run, seconds, set_wall_clock, settle};

/// The id of a task that another gateway bridged before, and the server that has the task.
async fn restarted() -> (Rc<World>, Server, Value) {
    let (before, server) = world(true).await;
    let (_, id) = created(&before, &server).await;
    let (after, server) = world(true).await;
    (after, server, id)
}

#[test]
fn a_task_outlives_the_process_that_bridged_it() {
    run(async {
        let (world, server, id) = restarted().await;
        // Two clients ask at once, and the server is asked once.
        let mut first = about(&world, "tasks/get", &id).await;
        let mut second = about(&world, "tasks/get", &id).await;
        let [get] = &server.of("tasks/get")[..] else {
            panic!("{:?}", server.frames())
        };
        assert_eq!(get.json["params"], json!({"taskId": "t-9"}));
        server.answer(get, task("working", 1));
        settle().await;
        for got in [&mut first, &mut second] {
            let state = shown(got);
            assert_eq!(
                (&state["taskId"], &state["status"], &state["createdAt"]),
                (&id, &json!("working"), &json!("2026-11-20T10:00:00Z"))
            );
        }
        let mut got = looked(&world, &server, &id, "completed").await;
        let result = server.last("tasks/result");
        assert_eq!(result.json["params"], json!({"taskId": "t-9"}));
        server.answer(&result, text(json!("done")));
        settle().await;
        let done = shown(&mut got);
        assert_eq!(done["status"], "completed");
        assert_eq!(done["result"]["content"], text(json!("done"))["content"]);
        let mut again = about(&world, "tasks/get", &id).await;
        assert_eq!(shown(&mut again)["result"], done["result"]);
        assert_eq!(server.of("tasks/get").len(), 2);
    });
}

#[test]
fn a_task_of_an_earlier_process_asks_and_ends_like_any_other() {
    run(async {
        // It has ended meanwhile.
        let (world, server, id) = restarted().await;
        let mut got = looked(&world, &server, &id, "completed").await;
        server.answer(&server.last("tasks/result"), text(json!("done")));
        settle().await;
        assert_eq!(shown(&mut got)["status"], "completed");
        // It asks.
        let (world, server, id) = restarted().await;
        let mut got = looked(&world, &server, &id, "input_required").await;
        let result = server.last("tasks/result");
        server.say_for(&result, ask("q1", "elicitation/create", question("who?")));
        pass(millis(50)).await;
        let required = shown(&mut got);
        assert_eq!(
            required["inputRequests"]["q-1"]["params"]["message"],
            "who?"
        );
        // It is cancelled.
        let (world, server, id) = restarted().await;
        let mut cancelled = about(&world, "tasks/cancel", &id).await;
        server.answer(&server.last("tasks/get"), task("working", 1));
        settle().await;
        check_task("CancelTaskResult", &cancelled.result());
        assert_eq!(
            server.last("tasks/cancel").json["params"],
            json!({"taskId": "t-9"})
        );
        let mut got = about(&world, "tasks/get", &id).await;
        assert_eq!(shown(&mut got)["status"], "cancelled");
    });
}

#[test]
fn a_task_that_its_server_lost_is_refused_in_the_words_of_the_server() {
    run(async {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let (world, server, id) = restarted().await;
            for _ in 0..2 {
                let params = json!({"taskId": id, "inputResponses": {}});
                let mut got = Served::send(&world, &with_extension(), method, params).await;
                server.refuse(&server.last("tasks/get"), -32602, "no task t-9");
                settle().await;
                let error = got.error();
                assert_eq!(error["code"], -32602, "{method}: {error}");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains("no task t-9"), "{method}: {message}");
            }
            assert_eq!(world.view("a").in_flight, 0);
        }
        // A server that is away does not end the task.
        let (world, server, id) = restarted().await;
        server.refuse_links(Some("refused"));
        server.crash("gone");
        settle().await;
        let mut got = about(&world, "tasks/get", &id).await;
        pass(seconds(60)).await;
        let error = got.error();
        assert_eq!(error["data"]["code"], "server_unavailable", "{error}");
        // Its time is over.
        let (world, _, id) = restarted().await;
        set_wall_clock(3601);
        let error = about(&world, "tasks/get", &id).await.error();
        set_wall_clock(0);
        assert_eq!(error["code"], -32602, "{error}");
    });
}
