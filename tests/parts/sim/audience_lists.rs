//! Clients whose servers list something else to them than to everybody: they see that from their
//! first list on.

use std::rc::Rc;

use mcpvisor::downstream::{ServerOrder, Sharing, StartMode};
use mcpvisor::id::ServerName;
use mcpvisor::protocol::Revision;
use serde_json::{Value, json};

use crate::sim::client::Client;
use crate::sim::served::Served;
use crate::sim::server::{Server, ask, note, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, separated, settle};

fn asked_for() -> Value {
    json!({"elicitation": {}, "roots": {}})
}

/// A server that lists one tool more to clients that it may ask.
async fn world(plan: impl FnOnce(&mut Plan)) -> (Rc<World>, Server) {
    let world = Rc::new(World::new());
    let plan = |planned: &mut Plan| {
        planned.script.tools_that_ask.push(tool("own"));
        separated(planned);
        plan(planned);
    };
    let server = world.stdio("a", plan).await;
    pass(millis(50)).await;
    (world, server)
}

/// From now on it lists another one to these.
fn list_more(server: &Server, name: &str) {
    server.script(|script| script.tools_that_ask.push(tool(name)));
}

/// The tools that a client reads, which may take a moment.
async fn tools(client: &Client) -> usize {
    let list = client.request("tools/list", json!({})).await;
    pass(millis(50)).await;
    list.result()["tools"].as_array().unwrap().len()
}

async fn call(client: &Client, tool: &str) -> crate::sim::client::Exchange {
    let call = client.call(tool).await;
    pass(millis(50)).await;
    call
}

/// What a client reads that names a tool which does not exist.
async fn refused(client: &Client, tool: &str) {
    let error = call(client, tool).await.error();
    let sentence = format!("there is no tool `{tool}`; `tools/list` shows what there is");
    assert_eq!(error["message"], sentence);
}

/// A tool that the list of its server lacks: the server is asked all the same.
async fn passed_on(client: &Client, server: &Server, tool: &str) {
    let held = call(client, &format!("a__{tool}")).await;
    assert!(held.is_waiting());
    assert_eq!(server.last("tools/call").json["params"]["name"], tool);
    client.cancel(&held).await;
}

#[test]
fn the_first_list_of_a_client_is_that_of_its_audience() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let plain = world.client(json!({})).await;
        assert_eq!(plain.tools().await.len(), 3);
        let client = world.client(asked_for()).await;
        let general = client.listen(None).await;
        assert_eq!(tools(&client).await, 4);
        // Nothing has changed that the client does not know.
        assert!(general.of("notifications/tools/list_changed").is_empty());
        // From now on its list is known, also to others of its audience.
        assert_eq!(world.client(asked_for()).await.tools().await.len(), 4);
        assert_eq!(plain.tools().await.len(), 3);
        assert_eq!(server.links(), 2);
        client.call("a__echo").await.result();
        assert_eq!((server.last("tools/call").link, server.links()), (1, 2));
    });
}

#[test]
fn the_first_list_of_a_client_without_a_session_is_that_of_its_audience() {
    run(async {
        for knows_call_of_requests in [true, false] {
            let world = Rc::new(World::new());
            let server = world.start("a", knows_call_of_requests, |plan| {
                plan.script.tools_that_ask.push(tool("own"));
                separated(plan);
            });
            pass(millis(50)).await;
            let list = async || {
                let mut list = Served::send(&world, &asked_for(), "tools/list", json!({})).await;
                list.result()["tools"].as_array().unwrap().len()
            };
            assert_eq!((list().await, list().await), (4, 4));
            let params = json!({"name": "a__echo", "arguments": {"text": "hi"}});
            let mut call = Served::send(&world, &asked_for(), "tools/call", params).await;
            call.result();
            assert_eq!(server.links(), 2);
        }
    });
}

#[test]
fn a_client_hears_that_its_list_waits_and_gets_what_there_is_in_the_end() {
    run(async {
        let (world, server) = world(|_| {}).await;
        server.script(|script| script.starts_after = seconds(100));
        let client = world.client(asked_for()).await;
        let general = client.listen(None).await;
        let token = json!({"_meta": {"progressToken": "t"}});
        let list = client.request("tools/list", token.clone()).await;
        let to = Revision::V2026_07_28;
        let (asked, method) = (json!({"sampling": {}}), "tools/list");
        let mut served = Served::send_as(&world, to, &asked, true, method, token).await;
        pass(millis(24_900)).await;
        assert!(list.is_stream() && list.answer().is_none());
        let message = "reading the lists of servers: a";
        let progress = list.of("notifications/progress");
        assert_eq!(progress.len(), 15);
        assert_eq!(progress[0]["params"]["message"], message);
        assert_eq!(served.events()[0]["params"]["message"], message);
        pass(millis(200)).await;
        assert_eq!(list.result()["tools"].as_array().unwrap().len(), 3);
        // It has had its time: nothing waits for it again, and the client hears of it.
        assert_eq!(client.tools().await.len(), 3);
        pass(seconds(80)).await;
        assert_eq!(general.of("notifications/tools/list_changed").len(), 1);
        assert_eq!(client.tools().await.len(), 4);
    });
}

#[test]
fn the_list_of_an_audience_outlives_its_connection() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let client = world.client(asked_for()).await;
        let general = client.listen(None).await;
        assert_eq!(tools(&client).await, 4);
        pass(seconds(400)).await;
        assert!(world.view("a").own.is_empty());
        assert_eq!(client.tools().await.len(), 4);
        assert_eq!(world.client(asked_for()).await.tools().await.len(), 4);
        assert_eq!(server.links(), 2);
        assert!(general.of("notifications/tools/list_changed").is_empty());
        // Of a server that starts anew it is read again.
        let name = ServerName::try_new("a").unwrap();
        list_more(&server, "newer");
        let order = world.downstreams.order(name, ServerOrder::Restart);
        order.await.unwrap();
        settle().await;
        assert_eq!(tools(&client).await, 5);
        assert_eq!(server.links(), 4);
    });
}

#[test]
fn a_kept_list_gives_way_when_everybody_sees_something_else() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let client = world.client(asked_for()).await;
        assert_eq!(tools(&client).await, 4);
        pass(seconds(400)).await;
        let general = client.listen(None).await;
        server.script(|script| script.lists.get_mut("tools").unwrap().push(tool("newer")));
        server.say_on(0, note("notifications/tools/list_changed", json!({})));
        pass(seconds(1)).await;
        assert_eq!(general.of("notifications/tools/list_changed").len(), 1);
        assert_eq!(tools(&client).await, 5);
        assert_eq!(server.links(), 3);
    });
}

/// Nothing says that the list of a connection that is closed has changed.
#[test]
fn a_kept_list_that_is_not_everybodys_is_read_again_when_it_is_old() {
    run(async {
        let refresh = seconds(600);
        let (world, server) = world(|plan| plan.settings.limits.refresh_every = refresh).await;
        let client = world.client(asked_for()).await;
        assert_eq!(tools(&client).await, 4);
        pass(seconds(400)).await;
        server.script(|script| script.tools_that_ask.clear());
        assert_eq!(client.tools().await.len(), 4);
        assert_eq!(server.links(), 2);
        pass(refresh).await;
        assert_eq!(tools(&client).await, 3);
        assert_eq!(server.links(), 3);
        // From now on it is everybody's, and as good as that one.
        pass(2 * refresh).await;
        assert!(world.view("a").own.is_empty());
        assert_eq!(client.tools().await.len(), 3);
        assert_eq!(server.links(), 3);
    });
}

#[test]
fn a_list_that_may_have_an_unknown_name_is_read_before_its_server_is_called() {
    run(async {
        let (world, server) = world(|plan| plan.settings.limits.refresh_every = seconds(600)).await;
        // The only server of a view decides about prompts that it does not declare.
        let _other = world.stdio("c", |_| {}).await;
        let client = world.client(asked_for()).await;
        // A name that belongs to no server starts nothing.
        refused(&client, "b__own").await;
        assert_eq!(server.links(), 1);
        let held = call(&client, "a__own").await;
        assert!(held.is_waiting());
        assert_eq!(server.last("tools/call").link, 1);
        client.cancel(&held).await;
        for round in 0..3 {
            passed_on(&client, &server, "other").await;
            let prompt = json!({"name": "a__other"});
            client.request("prompts/get", prompt).await.error();
            // The connection is closed, and its list is kept.
            pass(seconds(400)).await;
            passed_on(&client, &server, "other").await;
            assert_eq!(server.links(), 3 + 2 * round);
            // For as long as lists are good.
            pass(seconds(600)).await;
            list_more(&server, &format!("newer{round}"));
            call(&client, &format!("a__newer{round}")).await;
            assert_eq!(server.links(), 4 + 2 * round);
        }
    });
}

#[test]
fn a_tool_of_a_server_that_is_still_missing_is_waited_for() {
    run(async {
        let world = Rc::new(World::new());
        let late = |plan: &mut Plan| plan.script.starts_after = seconds(10);
        let server = world.start("a", false, late);
        pass(seconds(3)).await;
        let client = world.client(json!({})).await;
        assert_eq!(client.tools().await.len(), 0);
        let echo = client.call("a__echo").await;
        let params = json!({"name": "a__other"});
        let other = client.request("tools/call", params.clone()).await;
        let nothing = json!({});
        let served = Served::send(&world, &nothing, "tools/call", params);
        let (_served, ()) = futures_util::join!(served, pass(seconds(8)));
        echo.result();
        // Whether there is a tool that it does not list is for the server to say.
        let held = server.held();
        let names = held.iter().map(|call| &call.json["params"]["name"]);
        assert_eq!(names.collect::<Vec<_>>(), ["other", "other"]);
        assert!(other.is_waiting());
        assert_eq!(server.links(), 1);
    });
}

#[test]
fn servers_that_cannot_answer_are_not_waited_for() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let client = world.client(asked_for()).await;
        // Its second process ends over the handshake.
        server.script(|script| script.fatal = ["initialize"].into());
        assert_eq!(tools(&client).await, 3);
        assert_eq!(tools(&client).await, 3);
        assert_eq!(client.tools().await.len(), 3);
        // It is away for everybody.
        server.crash("gone");
        settle().await;
        let other = world.client(json!({"sampling": {}})).await;
        assert_eq!(other.tools().await.len(), 3);
        let name = ServerName::try_new("a").unwrap();
        let links = server.links();
        world
            .downstreams
            .order(name, ServerOrder::Stop)
            .await
            .unwrap();
        server.behave();
        assert_eq!(other.tools().await.len(), 3);
        let sentence = other.call("a__other").await.sentence();
        assert!(
            sentence.contains("was stopped by an operator"),
            "{sentence}"
        );
        pass(seconds(30)).await;
        assert_eq!(server.links(), links);
    });
}

#[test]
fn a_lazy_server_is_started_once_for_the_lists_of_an_audience() {
    run(async {
        let (world, server) = world(|plan| plan.settings.start = StartMode::Lazy).await;
        pass(seconds(400)).await;
        assert_eq!(server.open_links().len(), 0);
        let client = world.client(asked_for()).await;
        assert_eq!(tools(&client).await, 4);
        assert_eq!(world.view("a").shared.phase.as_str(), "idle");
        for _ in 0..3 {
            pass(seconds(400)).await;
            assert_eq!(server.open_links().len(), 0);
            assert_eq!(client.tools().await.len(), 4);
        }
        assert_eq!(server.links(), 2);
    });
}

#[test]
fn roots_that_a_server_asks_for_before_any_call_are_those_of_the_client_that_listed() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let client = world.client(asked_for()).await;
        let general = client.listen(None).await;
        assert_eq!(tools(&client).await, 4);
        server.say_on(1, ask("r", "roots/list", json!({})));
        settle().await;
        let asked = general.of("roots/list").remove(0);
        let roots = json!({"roots": [{"uri": "file:///mine"}]});
        client.answer(&asked, "result", roots.clone()).await;
        assert_eq!(server.answer_to(&json!("r")).unwrap()["result"], roots);
        // The others share no process any more, and need none for a list that is known.
        let other = world.client(asked_for()).await;
        assert_eq!(other.tools().await.len(), 4);
        assert_eq!(server.links(), 2);
        call(&other, "a__own").await;
        assert_eq!(server.last("tools/call").link, 2);
        call(&client, "a__own").await;
        assert_eq!(server.last("tools/call").link, 1);
    });
}

#[test]
fn sessions_that_share_nothing_need_one_process_to_know_the_list_of_their_audience() {
    run(async {
        let (world, server) = world(|plan| plan.settings.sharing = Sharing::Session).await;
        for _ in 0..3 {
            let client = world.client(asked_for()).await;
            assert_eq!(tools(&client).await, 4);
            client.end().await;
        }
        assert_eq!(server.links(), 2);
        // One that declares nothing has a process with its first call.
        let plain = world.client(json!({})).await;
        assert_eq!(plain.tools().await.len(), 3);
        assert_eq!(server.links(), 2);
    });
}

#[test]
fn a_crowd_that_lists_has_two_processes() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let mut lists = Vec::new();
        for _ in 0..10 {
            for capabilities in [json!({}), asked_for()] {
                let client = world.client(capabilities).await;
                lists.push(client.request("tools/list", json!({})).await);
            }
        }
        pass(millis(50)).await;
        for (number, list) in lists.iter().enumerate() {
            let tools = list.result()["tools"].as_array().unwrap().len();
            assert_eq!(tools, 3 + number % 2);
        }
        assert_eq!(server.links(), 2);
    });
}
