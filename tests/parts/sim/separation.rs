//! A program that needs more than one process: what shows that, and what follows from it.

use std::rc::Rc;

use mcpvisor::downstream::SeparationReason::{AsksUndeclared, ListsDiffer, Roots, Unattributed};
use mcpvisor::downstream::{SeparationReason, StartMode};
use mcpvisor::protocol::DeclaredCapabilities;
use serde_json::{Value, json};

use crate::sim::client::Client;
use crate::sim::questions::{elicit, held, question};
use crate::sim::served::Served;
use crate::sim::server::{Server, ask, text, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

const CHANGED: &str = "notifications/tools/list_changed";

fn asked_for() -> Value {
    json!({"elicitation": {}})
}

/// A program that no gateway has started before.
fn new(plan: &mut Plan) {
    plan.lists_equally = false;
}

async fn world(plan: impl FnOnce(&mut Plan)) -> (Rc<World>, Server) {
    let world = Rc::new(World::new());
    let server = world
        .stdio("a", |planned| {
            new(planned);
            plan(planned);
        })
        .await;
    pass(millis(50)).await;
    (world, server)
}

fn reasons(world: &World) -> Vec<SeparationReason> {
    world.view("a").separation
}

/// The gateway starts again, and the program with it.
async fn restarted(world: &Rc<World>, plan: impl FnOnce(&mut Plan)) -> Server {
    world.stop_server("a");
    pass(seconds(1)).await;
    let again = world.stdio("a", plan).await;
    pass(millis(50)).await;
    again
}

fn declares_elicitation(server: &Server, link: usize) -> bool {
    let handshakes = server.of("initialize");
    let mut handshakes = handshakes.iter().filter(|frame| frame.link == link);
    handshakes.any(|frame| frame.json["params"]["capabilities"]["elicitation"].is_object())
}

async fn link_of_call(client: &Client, server: &Server) -> usize {
    client.call("a__echo").await.result();
    server.last("tools/call").link
}

#[test]
fn b_share_01_lists_are_compared_once_and_clients_share_if_they_are_equal() {
    run(async {
        let (world, server) = world(|_| {}).await;
        // No client has asked for a list yet.
        assert_eq!((server.links(), server.open_links()), (2, vec![0]));
        for capabilities in [json!({}), asked_for(), json!({"sampling": {}})] {
            let client = world.client(capabilities).await;
            assert_eq!(client.tools().await.len(), 3);
            assert_eq!(link_of_call(&client, &server).await, 0);
        }
        assert!(declares_elicitation(&server, 0) && !declares_elicitation(&server, 1));
        assert!(reasons(&world).is_empty() && world.view("a").own.is_empty());
        server.crash_link(0, "exit 1");
        pass(seconds(10)).await;
        assert_eq!((server.links(), server.open_links()), (3, vec![2]));
        // The next gateway knows.
        let again = restarted(&world, new).await;
        assert_eq!(world.client(json!({})).await.tools().await.len(), 3);
        pass(seconds(1)).await;
        assert_eq!(again.links(), 1);
    });
}

/// A program that no gateway has started before, and that lists more to clients that can be asked.
fn lists_more(plan: &mut Plan) {
    new(plan);
    plan.script.tools_that_ask.push(tool("own"));
}

/// A client that declares everything.
fn full() -> Value {
    json!(DeclaredCapabilities::all())
}

#[test]
fn b_share_01_a_program_that_lists_differently_gets_a_process_for_each_set_of_capabilities() {
    run(async {
        let (world, server) = world(lists_more).await;
        assert_eq!(reasons(&world), [ListsDiffer]);
        let plain = world.client(json!({})).await;
        assert_eq!(plain.tools().await.len(), 3);
        assert_eq!(link_of_call(&plain, &server).await, 1);
        let able = world.client(full()).await;
        assert_eq!(able.tools().await.len(), 4);
        assert_eq!(link_of_call(&able, &server).await, 0);
        let asked = world.client(asked_for()).await;
        let list = asked.request("tools/list", json!({})).await;
        pass(millis(50)).await;
        assert_eq!(list.result()["tools"].as_array().unwrap().len(), 4);
        assert_eq!(link_of_call(&asked, &server).await, 2);
        let declares = [0, 1, 2].map(|link| declares_elicitation(&server, link));
        assert_eq!(declares, [true, false, true]);
        pass(seconds(60)).await;
        assert_eq!(server.open_links(), [0, 1, 2]);
        // The next gateway shows the list without capabilities, and starts one process for it.
        let again = restarted(&world, lists_more).await;
        let plain = world.client(json!({})).await;
        assert_eq!(plain.tools().await.len(), 3);
        assert_eq!(link_of_call(&plain, &again).await, 0);
        assert_eq!((again.links(), reasons(&world)), (1, vec![ListsDiffer]));
        assert!(!declares_elicitation(&again, 0));
    });
}

#[test]
fn b_share_01_lists_wait_for_the_comparison_and_no_call_fails_meanwhile() {
    run(async {
        let (world, server) = world(|plan| {
            lists_more(plan);
            plan.script.starts_after = millis(200);
        })
        .await;
        pass(millis(200)).await;
        // The shared process has listed, and the second one has not begun to read.
        assert_eq!((server.links(), reasons(&world)), (2, Vec::new()));
        let able = world.client(full()).await;
        assert_eq!(able.tools().await.len(), 4);
        let plain = world.client(json!({})).await;
        let general = plain.listen(None).await;
        let (exchange, call) = held(&plain, &server).await;
        assert_eq!(call.link, 0);
        let list = plain.request("tools/list", json!({})).await;
        settle().await;
        assert!(list.is_waiting());
        pass(millis(300)).await;
        assert_eq!(reasons(&world), [ListsDiffer]);
        assert_eq!(list.result()["tools"].as_array().unwrap().len(), 3);
        assert_eq!(link_of_call(&plain, &server).await, 1);
        assert_eq!(link_of_call(&able, &server).await, 0);
        pass(seconds(20)).await;
        server.answer(&call, text(json!("done")));
        settle().await;
        exchange.result();
        assert!(general.of(CHANGED).is_empty());
        assert_eq!(server.open_links(), [0, 1]);
        assert_eq!(world.view("a").shared.restarts, 0);
    });
}

#[test]
fn b_share_01_after_a_crash_clients_without_capabilities_use_the_shared_process_again() {
    run(async {
        let (world, server) = world(lists_more).await;
        let plain = world.client(json!({})).await;
        let (exchange, call) = held(&plain, &server).await;
        assert_eq!(call.link, 1);
        server.crash_link(0, "exit 1");
        settle().await;
        // They do not notice that the other process is away.
        assert_eq!(link_of_call(&plain, &server).await, 1);
        pass(seconds(10)).await;
        assert!(!declares_elicitation(&server, 2));
        assert_eq!(link_of_call(&plain, &server).await, 2);
        assert_eq!(plain.tools().await.len(), 3);
        assert_eq!(server.open_links(), [1, 2]);
        server.answer(&call, text(json!("done")));
        settle().await;
        exchange.result();
        pass(seconds(3)).await;
        assert_eq!(server.open_links(), [2]);
        assert_eq!(plain.tools().await.len(), 3);
        let able = world.client(full()).await;
        let list = able.request("tools/list", json!({})).await;
        pass(millis(50)).await;
        assert_eq!(list.result()["tools"].as_array().unwrap().len(), 4);
        assert_eq!(link_of_call(&able, &server).await, 3);
    });
}

#[test]
fn b_share_01_a_program_of_which_only_one_process_can_run_keeps_it() {
    run(async {
        let (world, server) = world(|plan| {
            lists_more(plan);
            plan.script.runs_once = true;
        })
        .await;
        pass(seconds(600)).await;
        // The comparison was tried once.
        assert_eq!((server.links(), server.open_links()), (2, vec![0]));
        assert!(reasons(&world).is_empty() && world.view("a").own.is_empty());
        let plain = world.client(json!({})).await;
        assert_eq!(plain.tools().await.len(), 4);
        let (exchange, call) = held(&plain, &server).await;
        server.say_on(0, elicit("q"));
        settle().await;
        assert_eq!(reasons(&world), [AsksUndeclared]);
        server.answer(&call, text(json!("done")));
        settle().await;
        exchange.result();
        // Calls go on in the only process, although others are wanted.
        for capabilities in [json!({}), json!({"sampling": {}}), full()] {
            let client = world.client(capabilities).await;
            for _ in 0..3 {
                assert_eq!(link_of_call(&client, &server).await, 0);
                pass(seconds(1)).await;
            }
        }
        assert_eq!(world.view("a").shared.restarts, 0);
    });
}

#[test]
fn the_order_of_a_list_is_no_difference() {
    run(async {
        let slow = |plan: &mut Plan| plan.script.starts_after = millis(200);
        let (world, server) = world(slow).await;
        pass(millis(200)).await;
        assert_eq!(server.links(), 2);
        server.script(|script| script.lists.get_mut("tools").unwrap().reverse());
        pass(seconds(1)).await;
        assert_eq!(
            (server.open_links(), reasons(&world)),
            (vec![0], Vec::new())
        );
    });
}

#[test]
fn a_lazy_program_is_compared_after_its_first_start() {
    run(async {
        let lazy = |plan: &mut Plan| {
            plan.settings.start = StartMode::Lazy;
            plan.settings.limits.idle_stop = seconds(60);
        };
        let (world, server) = world(lazy).await;
        pass(seconds(100)).await;
        assert_eq!((server.links(), server.open_links()), (2, Vec::new()));
        let client = world.client(json!({})).await;
        assert_eq!(client.tools().await.len(), 3);
        assert_eq!(link_of_call(&client, &server).await, 2);
        pass(seconds(10)).await;
        assert_eq!(server.open_links(), [2]);
    });
}

#[test]
fn a_lazy_program_that_lists_differently_starts_without_capabilities_once_it_was_idle() {
    run(async {
        let (world, server) = world(|plan| {
            lists_more(plan);
            plan.settings.start = StartMode::Lazy;
            plan.settings.limits.idle_stop = seconds(60);
        })
        .await;
        let plain = world.client(json!({})).await;
        assert_eq!(plain.tools().await.len(), 3);
        assert_eq!(link_of_call(&plain, &server).await, 1);
        pass(seconds(200)).await;
        assert!(server.open_links().is_empty());
        assert_eq!(plain.tools().await.len(), 3);
        assert_eq!(link_of_call(&plain, &server).await, 2);
        pass(seconds(10)).await;
        assert_eq!(plain.tools().await.len(), 3);
        assert_eq!(server.open_links(), [2]);
        assert!(!declares_elicitation(&server, 2));
    });
}

#[test]
fn b_share_01_a_request_to_a_client_that_cannot_answer_is_declined_and_separates() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let asked = world.client(asked_for()).await;
        assert_eq!(link_of_call(&asked, &server).await, 0);
        let sampling = world.client(json!({"sampling": {}})).await;
        let (exchange, call) = held(&sampling, &server).await;
        server.say_on(0, elicit("q"));
        settle().await;
        let refused = &server.answer_to(&json!("q")).unwrap()["error"];
        let why = refused["message"].as_str().unwrap();
        assert!(why.contains("did not declare `elicitation.form`"), "{why}");
        assert!(exchange.messages().is_empty());
        assert_eq!(reasons(&world), [AsksUndeclared]);
        // The call is not disturbed; the next ones go to processes that know their clients.
        pass(seconds(5)).await;
        server.answer(&call, text(json!("done")));
        settle().await;
        exchange.result();
        let link = link_of_call(&sampling, &server).await;
        assert!(link != 0 && !declares_elicitation(&server, link));
        let (exchange, call) = held(&asked, &server).await;
        assert!(call.link != 0 && declares_elicitation(&server, call.link));
        server.say_on(call.link, elicit("r"));
        settle().await;
        question(&exchange);
        server.answer(&call, text(json!("done")));
        settle().await;
        exchange.result();
        pass(seconds(5)).await;
        let plain = world.client(json!({})).await;
        let link = link_of_call(&plain, &server).await;
        assert!(link != 0 && !declares_elicitation(&server, link));
        let again = restarted(&world, new).await;
        assert_eq!(reasons(&world), [AsksUndeclared]);
        assert!(!declares_elicitation(&again, 0));
    });
}

#[test]
fn b_share_01_a_request_of_several_calls_isolates_the_clients_that_can_be_asked() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let params = json!({"name": "a__hold", "arguments": {}});
        let mut calls = Vec::new();
        for _ in 0..2 {
            let call = Served::send(&world, &asked_for(), "tools/call", params.clone()).await;
            calls.push(call);
        }
        pass(millis(50)).await;
        assert_eq!(server.open_links(), [0]);
        server.say_on(0, elicit("q"));
        pass(millis(50)).await;
        assert!(server.answer_to(&json!("q")).unwrap()["error"].is_object());
        assert!(calls.iter_mut().all(|call| call.answer().is_none()));
        assert_eq!(reasons(&world), [Unattributed]);
        let again = restarted(&world, new).await;
        let mut own = Served::send(&world, &asked_for(), "tools/call", params.clone()).await;
        let _other = Served::send(&world, &asked_for(), "tools/call", params).await;
        pass(millis(50)).await;
        let [first, second] = &again.held()[..] else {
            panic!("{:?}", again.held());
        };
        assert!(first.link != second.link && !declares_elicitation(&again, 0));
        again.say_on(first.link, elicit("q"));
        pass(millis(50)).await;
        assert_eq!(own.result()["resultType"], "input_required");
    });
}

#[test]
fn b_share_01_only_clients_with_roots_leave_a_program_that_asks_for_roots() {
    run(async {
        let (world, server) = world(|_| {}).await;
        // As many servers do right after the handshake.
        server.say_on(0, ask("r", "roots/list", json!({})));
        settle().await;
        let configured = json!({"roots": [{"uri": "file:///configured"}]});
        assert_eq!(server.answer_to(&json!("r")).unwrap()["result"], configured);
        assert_eq!(reasons(&world), [Roots]);
        for capabilities in [json!({}), asked_for(), json!({"sampling": {}})] {
            let client = world.client(capabilities).await;
            assert_eq!(link_of_call(&client, &server).await, 0);
        }
        let rooted = world.client(json!({"roots": {}, "elicitation": {}})).await;
        let listed_first = server.links();
        assert_eq!(rooted.tools().await.len(), 3);
        let link = link_of_call(&rooted, &server).await;
        assert!(link >= listed_first, "{link}");
        let (exchange, call) = held(&rooted, &server).await;
        server.say_on(call.link, ask("s", "roots/list", json!({})));
        settle().await;
        assert_eq!(exchange.of("roots/list").len(), 1);
    });
}

#[test]
fn roots_of_a_client_are_not_put_into_a_process_that_others_used() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let plain = world.client(json!({})).await;
        assert_eq!(link_of_call(&plain, &server).await, 0);
        let rooted = world.client(json!({"roots": {}})).await;
        let (exchange, call) = held(&rooted, &server).await;
        server.say_on(0, ask("r", "roots/list", json!({})));
        settle().await;
        assert!(exchange.messages().is_empty());
        let configured = json!({"roots": [{"uri": "file:///configured"}]});
        assert_eq!(server.answer_to(&json!("r")).unwrap()["result"], configured);
        server.answer(&call, text(json!("done")));
        settle().await;
        assert_ne!(link_of_call(&rooted, &server).await, 0);
        assert_eq!(link_of_call(&plain, &server).await, 0);
    });
}

#[test]
fn a_client_with_an_extension_that_few_know_has_a_process_that_knows_it() {
    run(async {
        let (world, server) = world(|_| {}).await;
        let extended = json!({"extensions": {"com.example/x": {}}});
        let client = world.client(extended.clone()).await;
        let link = link_of_call(&client, &server).await;
        assert_ne!(link, 0);
        let handshakes = server.of("initialize");
        let handshake = handshakes.iter().find(|frame| frame.link == link).unwrap();
        let declared = &handshake.json["params"]["capabilities"]["extensions"];
        assert_eq!(*declared, extended["extensions"]);
        let ui = json!({"extensions": {"io.modelcontextprotocol/ui": {}}});
        let client = world.client(ui).await;
        assert_eq!(link_of_call(&client, &server).await, 0);
    });
}

#[test]
fn a_process_with_the_roots_of_a_client_without_a_session_serves_nobody_else() {
    run(async {
        let (world, server) = world(|plan| plan.lists_equally = true).await;
        let (params, rooted) = (json!({"name": "a__hold"}), json!({"roots": {}}));
        let mut call = Served::send(&world, &rooted, "tools/call", params).await;
        pass(millis(50)).await;
        server.say_on(0, ask("r", "roots/list", json!({})));
        pass(millis(50)).await;
        assert_eq!(call.result()["resultType"], "input_required");
        assert_eq!(reasons(&world), [Roots]);
        let plain = world.client(json!({})).await;
        assert_eq!(link_of_call(&plain, &server).await, 1);
        let held = server.held().pop().unwrap();
        server.answer(&held, text(json!("done")));
        // The process is replaced when its call is over.
        pass(seconds(600)).await;
        assert!(!server.open_links().contains(&0));
        let link = link_of_call(&plain, &server).await;
        assert!(link > 1, "{link}");
    });
}
