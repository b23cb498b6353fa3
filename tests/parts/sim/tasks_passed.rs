//! Tasks between a client and a server that know the same kind of them, and what others read.

use std::rc::Rc;

use serde_json::json;

use crate::sim::client::Client;
use crate::sim::served::{Served, with_extension};
use crate::sim::server::{Server, ask, text};
use crate::sim::task_events::{STATUS, received, status};
use crate::sim::tasks::{EXTENSION, RELATED, extended, modern_task, task, tasking};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

async fn world(plan: impl FnOnce(&mut Plan)) -> (Rc<World>, Server) {
    let world = Rc::new(World::new());
    let server = world.http("a", plan).await;
    pass(millis(50)).await;
    (world, server)
}

/// A task that a client of 2025-11-25 wanted: its id for the client.
async fn wanted(server: &Server, client: &Client) -> String {
    let params = json!({"name": "a__optional", "arguments": {}, "task": {"ttl": 60_000}});
    let exchange = client.request("tools/call", params).await;
    let call = server.last("tools/call");
    assert_eq!(call.json["params"]["task"], json!({"ttl": 60_000}));
    server.answer(&call, json!({"task": task("working", 0)}));
    settle().await;
    let created = exchange.result();
    assert_eq!(created["task"]["status"], "working");
    assert_eq!(created["task"]["pollInterval"], 5000);
    let id = created["task"]["taskId"].as_str().unwrap().to_owned();
    assert!(id.starts_with("gt1."), "{id}");
    id
}

#[test]
fn s_task_l_a_client_that_knows_tasks_follows_them_itself() {
    run(async {
        let (world, server) = world(tasking).await;
        let client = world.client(json!({"elicitation": {}})).await;
        let offered = json!({"cancel": {}, "requests": {"tools": {"call": {}}}});
        assert_eq!(
            client.initialized["result"]["capabilities"]["tasks"],
            offered
        );
        let id = wanted(&server, &client).await;
        let about = json!({"taskId": id});
        let got = client.request("tasks/get", about.clone()).await;
        let get = server.last("tasks/get");
        assert_eq!(get.json["params"], json!({"taskId": "t-9"}));
        server.answer(&get, task("input_required", 1));
        settle().await;
        assert_eq!(got.result()["taskId"], about["taskId"]);
        assert_eq!(got.result()["status"], "input_required");
        // Questions say the client's id of the task, and answers the server's.
        let ended = client.request("tasks/result", about.clone()).await;
        let result = server.last("tasks/result");
        let related = json!({"message": "who?", "_meta": {RELATED: {"taskId": "t-9"}, "v": 1}});
        server.say_for(&result, ask("q1", "elicitation/create", related));
        settle().await;
        let asked = ended.of("elicitation/create");
        assert_eq!(asked[0]["params"]["_meta"], json!({RELATED: about, "v": 1}));
        let given = json!({"action": "decline", "_meta": {RELATED: about}});
        client.answer(&asked[0], "result", given).await;
        let answer = server.answer_to(&json!("q1")).unwrap();
        assert_eq!(
            answer["result"]["_meta"],
            json!({RELATED: {"taskId": "t-9"}})
        );
        let mut done = text(json!("done"));
        done["_meta"] = json!({RELATED: {"taskId": "t-9"}});
        server.answer(&result, done.clone());
        settle().await;
        done["_meta"] = json!({RELATED: about});
        assert_eq!(ended.result(), done);
        let cancelled = client.request("tasks/cancel", about.clone()).await;
        server.refuse(&server.last("tasks/cancel"), -32602, "it has ended");
        settle().await;
        assert_eq!(cancelled.error()["code"], -32602);
        assert_eq!(world.counted("tasks_followed"), 0);
        pass(seconds(60)).await;
        assert_eq!(server.of("tasks/get").len(), 1);
        // The same id in another session of the same principal, but not a changed one.
        let other = world.client(json!({"elicitation": {}})).await;
        other.request("tasks/get", about).await;
        assert_eq!(server.of("tasks/get").len(), 2);
    });
}

#[test]
fn a_client_follows_its_task_after_a_restart_of_the_gateway() {
    run(async {
        let (before, server) = world(tasking).await;
        let client = before.client(json!({})).await;
        let about = json!({"taskId": wanted(&server, &client).await});
        let (after, server) = world(tasking).await;
        let client = after.client(json!({})).await;
        let stream = client.listen(None).await;
        let got = client.request("tasks/get", about.clone()).await;
        let get = server.last("tasks/get");
        assert_eq!(get.json["params"], json!({"taskId": "t-9"}));
        server.answer(&get, task("working", 1));
        settle().await;
        assert_eq!(got.result()["taskId"], about["taskId"]);
        // From now on the client hears of it again.
        server.say_on(get.link, status("t-9", "completed"));
        settle().await;
        let heard = received(&stream, STATUS);
        assert_eq!(heard[0]["taskId"], about["taskId"], "{heard:?}");
        let ended = client.request("tasks/result", about.clone()).await;
        server.answer(&server.last("tasks/result"), text(json!("done")));
        settle().await;
        assert_eq!(ended.result()["content"], text(json!("done"))["content"]);
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let asked = client.request(method, about.clone()).await;
            server.refuse(&server.last(method), -32602, "no task t-9");
            settle().await;
            assert_eq!(asked.error()["message"], "no task t-9", "{method}");
        }
    });
}

#[test]
fn s_task_l_11_what_is_no_task_is_refused() {
    run(async {
        let (world, server) = world(tasking).await;
        let client = world.client(json!({})).await;
        let id = wanted(&server, &client).await;
        let mut changed = id.clone();
        changed.pop();
        for (id, code) in [
            (json!(changed), -32602),
            (json!("t-9"), -32602),
            (json!(7), -32602),
        ] {
            let answer = client.request("tasks/get", json!({"taskId": id})).await;
            assert_eq!(answer.error()["code"], code, "{id}");
        }
        for (method, code) in [
            ("tasks/list", -32601),
            ("tasks/update", -32601),
            ("tasks/result", -32602),
        ] {
            let answer = client.request(method, json!({})).await;
            assert_eq!(answer.error()["code"], code, "{method}");
        }
        // A tool that forbids tasks refuses to be called as one (S-TASK-L-04).
        let params = json!({"name": "a__forbidden", "task": {}});
        let answer = client.request("tools/call", params).await;
        assert_eq!(answer.error()["code"], -32601);
        assert!(server.of("tasks/get").is_empty());
        // Where nobody has tasks, there are none.
        let (world, _) = self::world(|_| {}).await;
        let client = world.client(json!({})).await;
        assert!(client.initialized["result"]["capabilities"]["tasks"].is_null());
        let answer = client.request("tasks/get", json!({"taskId": id})).await;
        assert_eq!(answer.error()["code"], -32601);
    });
}

#[test]
fn s_task_x_a_client_with_the_extension_follows_tasks_itself() {
    run(async {
        let (world, server) = world(extended).await;
        let declared = with_extension();
        let mut found = Served::send(&world, &declared, "server/discover", json!({})).await;
        assert_eq!(
            found.result()["capabilities"]["extensions"],
            json!({EXTENSION: {}})
        );
        let call = json!({"name": "a__hold", "arguments": {}});
        let mut called = Served::send(&world, &declared, "tools/call", call).await;
        let mut created = modern_task("working", 0);
        created["resultType"] = json!("task");
        server.answer(&server.last("tools/call"), created);
        settle().await;
        let created = called.result();
        assert_eq!(created["resultType"], "task");
        assert_eq!(created["pollIntervalMs"], 5000);
        let id = created["taskId"].clone();
        assert!(id.as_str().unwrap().starts_with("gt1."), "{id}");
        let about = json!({"taskId": id});
        let mut got = Served::send(&world, &declared, "tasks/get", about.clone()).await;
        let get = server.last("tasks/get");
        assert_eq!(get.json["params"]["taskId"], "t-9");
        assert_eq!(get.header("mcp-name"), Some("t-9"));
        let mut required = modern_task("input_required", 1);
        required["inputRequests"] = json!({"who": {"method": "roots/list"}});
        server.answer(&get, required.clone());
        settle().await;
        assert_eq!(got.result()["taskId"], id);
        assert_eq!(got.result()["inputRequests"], required["inputRequests"]);
        assert_eq!(got.result()["resultType"], "complete");
        let given = json!({"taskId": id, "inputResponses": {"who": {"roots": []}}});
        let mut updated = Served::send(&world, &declared, "tasks/update", given).await;
        let update = server.last("tasks/update");
        assert_eq!(update.header("mcp-name"), Some("t-9"));
        let responses = &update.json["params"]["inputResponses"];
        assert_eq!(*responses, json!({"who": {"roots": []}}));
        server.answer(&update, json!({"resultType": "complete"}));
        settle().await;
        assert_eq!(updated.result()["resultType"], "complete");
        let mut cancelled = Served::send(&world, &declared, "tasks/cancel", about.clone()).await;
        let cancel = server.last("tasks/cancel");
        assert_eq!(cancel.json["params"]["taskId"], "t-9");
        server.answer(&cancel, json!({"resultType": "complete"}));
        settle().await;
        assert_eq!(cancelled.result()["resultType"], "complete");
        // Only for those who declare it (S-TASK-X-11), and without the older methods (S-TASK-X-14).
        let none = json!({});
        let mut refused = Served::send(&world, &none, "tasks/get", about.clone()).await;
        let error = refused.error();
        assert_eq!(error["code"], -32021);
        let needed = &error["data"]["requiredCapabilities"]["extensions"];
        assert_eq!(*needed, json!({EXTENSION: {}}));
        for method in ["tasks/result", "tasks/list"] {
            let mut refused = Served::send(&world, &declared, method, about.clone()).await;
            assert_eq!(refused.error()["code"], -32601, "{method}");
        }
        let listen = json!({"notifications": {"taskIds": [id]}});
        let mut refused = Served::send(&world, &none, "subscriptions/listen", listen).await;
        assert_eq!(refused.error()["code"], -32021);
        let unknown = json!({"taskId": "t-9"});
        let mut refused = Served::send(&world, &declared, "tasks/get", unknown).await;
        assert_eq!(refused.error()["code"], -32602);
        assert_eq!(server.of("tasks/get").len(), 1);
    });
}

#[test]
fn a_client_without_a_session_reads_the_end_of_an_older_task() {
    run(async {
        let declared = json!({"elicitation": {}});
        let (world, server) = world(tasking).await;
        let call = json!({"name": "a__required", "arguments": {}});
        let mut called = Served::send(&world, &declared, "tools/call", call).await;
        pass(millis(50)).await;
        let sent = server.last("tools/call");
        assert_eq!(sent.json["params"]["task"], json!({"ttl": 3_600_000}));
        server.answer(&sent, json!({"task": task("working", 0)}));
        pass(seconds(5)).await;
        server.answer(&server.last("tasks/get"), task("completed", 1));
        settle().await;
        server.answer(&server.last("tasks/result"), text(json!("done")));
        settle().await;
        let result = called.result();
        assert_eq!(result["content"], text(json!("done"))["content"]);
        assert_eq!(result["resultType"], "complete");
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn s_task_x_02_a_task_that_takes_too_long_names_the_extension() {
    run(async {
        let (world, server) = world(tasking).await;
        let call = json!({"name": "a__required", "arguments": {}});
        let mut called = Served::send(&world, &json!({}), "tools/call", call).await;
        server.answer(
            &server.last("tools/call"),
            json!({"task": task("working", 0)}),
        );
        for _ in 0..13 {
            pass(seconds(5)).await;
            if called.answer().is_none() {
                server.answer(&server.last("tasks/get"), task("working", 0));
            }
        }
        let error = called.error();
        assert_eq!(error["code"], -32021);
        let needed = &error["data"]["requiredCapabilities"]["extensions"];
        assert_eq!(*needed, json!({EXTENSION: {}}));
        assert_eq!(server.of("tasks/cancel").len(), 1);
    });
}

#[test]
fn an_older_task_that_asks_parks_the_call_of_a_client_without_a_session() {
    run(async {
        let (world, server) = world(tasking).await;
        let declared = json!({"elicitation": {}});
        let call = json!({"name": "a__required", "arguments": {}});
        let mut called = Served::send(&world, &declared, "tools/call", call.clone()).await;
        pass(millis(50)).await;
        let created = json!({"task": task("input_required", 0)});
        server.answer(&server.last("tools/call"), created);
        settle().await;
        let result = server.last("tasks/result");
        let asked = json!({"message": "who?", "requestedSchema": {"type": "object", "properties": {}},
            "_meta": {RELATED: {"taskId": "t-9"}}});
        server.say_for(&result, ask("q1", "elicitation/create", asked));
        pass(millis(50)).await;
        let required = called.result();
        assert_eq!(required["resultType"], "input_required");
        let (key, question) = required["inputRequests"]
            .as_object()
            .unwrap()
            .iter()
            .next()
            .unwrap();
        assert!(question["params"]["_meta"].is_null(), "{question}");
        let mut again = call;
        again["requestState"] = required["requestState"].clone();
        again["inputResponses"] = json!({key: {"action": "accept", "content": {}}});
        let mut called = Served::send(&world, &declared, "tools/call", again).await;
        let answer = server.answer_to(&json!("q1")).unwrap();
        assert_eq!(answer["result"]["action"], "accept");
        assert_eq!(answer["result"]["_meta"][RELATED]["taskId"], "t-9");
        server.answer(&result, text(json!("done")));
        settle().await;
        assert_eq!(called.result()["content"], text(json!("done"))["content"]);
    });
}
