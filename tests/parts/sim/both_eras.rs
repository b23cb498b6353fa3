//! Servers that speak both eras: which client is served in which, and on which connection.

use std::rc::Rc;

use mcpvisor::downstream::{EraChoice, Sharing, StartMode};
use mcpvisor::protocol::Era;
use serde_json::{Value, json};

use crate::sim::client::{Client, Exchange};
use crate::sim::eras::methods;
use crate::sim::modern::sessionless;
use crate::sim::served::Served;
use crate::sim::server::{Server, ask, note, text, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

/// A server that keeps a link to the era of its first message.
fn of_both(plan: &mut Plan) {
    sessionless(plan);
    plan.script.with_handshake = Some("2025-11-25");
}

fn asked_for() -> Value {
    json!({"elicitation": {}})
}

async fn world(
    knows_call_of_requests: bool,
    plan: impl FnOnce(&mut Plan),
) -> (Rc<World>, Server, Client) {
    let world = Rc::new(World::new());
    let server = world.start("a", knows_call_of_requests, plan);
    pass(millis(50)).await;
    let client = world.client(asked_for()).await;
    (world, server, client)
}

/// The link that the last call of a tool came on.
fn link_of_last_call(server: &Server) -> usize {
    server.last("tools/call").link
}

fn done(exchange: &Exchange) {
    let answer = json!({"content": [{"type": "text", "text": "hi"}]});
    assert_eq!(exchange.result(), answer);
}

#[test]
fn b_era_02_an_older_client_is_asked_over_a_handshake_and_nothing_is_translated() {
    run(async {
        let (world, server, client) = world(true, of_both).await;
        assert_eq!(server.links(), 1);
        let exchange = client.call("a__hold").await;
        assert_eq!(server.links(), 2);
        let opening = [
            "initialize",
            "notifications/initialized",
            "tools/list",
            "tools/call",
        ];
        assert_eq!(methods(&server.frames(), 1), opening);
        let call = server.last("tools/call");
        let declared = &server.last("initialize").json["params"]["capabilities"];
        assert_eq!(*declared, json!({"elicitation": {}, "roots": {}}));
        assert!(
            call.json["params"]["_meta"]
                .get("io.modelcontextprotocol/protocolVersion")
                .is_none()
        );
        server.say_for(
            &call,
            ask("q", "elicitation/create", json!({"message": "who?"})),
        );
        settle().await;
        let question = exchange.of("elicitation/create").remove(0);
        let answer = json!({"action": "accept", "content": {"who": "eva"}});
        client.answer(&question, "result", answer.clone()).await;
        assert_eq!(server.answer_to(&json!("q")).unwrap()["result"], answer);
        // A field that no revision knows survives only where nothing is translated.
        let mut result = text(json!("eva"));
        result["vendor"] = json!(1);
        server.answer(&call, result.clone());
        settle().await;
        assert_eq!(exchange.result(), result);
        // The server is still one of the newer era.
        let view = world.view("a");
        assert_eq!((view.era, view.own.len()), (Some(Era::Modern), 1));
        assert!(
            view.own[0].owner.ends_with(", older era"),
            "{}",
            view.own[0].owner
        );
        pass(millis(50)).await;
        assert_eq!(client.tools().await, ["a__echo", "a__hold", "a__panic"]);
    });
}

#[test]
fn b_era_02_a_program_of_both_eras_serves_clients_of_both_in_one_process() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.start("a", false, of_both);
        pass(millis(50)).await;
        assert_eq!(methods(&server.frames(), 0)[0], "initialize");
        let params = json!({"name": "a__echo", "arguments": {"text": "hi"}});
        for capabilities in [json!({}), asked_for()] {
            let mut newer = Served::send(&world, &capabilities, "tools/call", params.clone()).await;
            newer.result();
            let older = world.client(capabilities).await;
            done(&older.call("a__echo").await);
        }
        // It can ask clients of both.
        let older = world.client(asked_for()).await;
        let exchange = older.call("a__hold").await;
        let call = server.last("tools/call");
        let question = ask("q", "elicitation/create", json!({"message": "who?"}));
        server.say_for(&call, question.clone());
        settle().await;
        assert_eq!(exchange.of("elicitation/create").len(), 1);
        server.answer(&call, text(json!("eva")));
        settle().await;
        exchange.result();
        let params = json!({"name": "a__hold", "arguments": {}});
        let mut newer = Served::send(&world, &asked_for(), "tools/call", params).await;
        pass(millis(50)).await;
        let mut question = question;
        question["id"] = json!("r");
        server.say_for(&server.last("tools/call"), question);
        pass(millis(50)).await;
        assert_eq!(newer.result()["resultType"], "input_required");
        assert_eq!(server.links(), 1);
        let view = world.view("a");
        assert_eq!((view.era, view.separation), (Some(Era::Legacy), Vec::new()));
    });
}

#[test]
fn sharing_by_session_gives_each_older_client_a_connection_of_its_era() {
    run(async {
        let (world, server, _) = world(true, |plan| {
            of_both(plan);
            plan.settings.sharing = Sharing::Session;
        })
        .await;
        for link in [1, 2] {
            let silent = world.client(json!({})).await;
            for _ in 0..2 {
                done(&silent.call("a__echo").await);
                assert_eq!(link_of_last_call(&server), link);
            }
            assert_eq!(methods(&server.frames(), link)[0], "initialize");
        }
    });
}

#[test]
fn what_the_older_clients_process_lists_is_what_they_see() {
    run(async {
        let (world, server, _) = world(true, |plan| {
            of_both(plan);
            plan.script.capabilities = json!({"tools": {"listChanged": true}});
        })
        .await;
        let silent = world.client(json!({})).await;
        done(&silent.call("a__echo").await);
        server.script(|script| script.lists.get_mut("tools").unwrap().push(tool("new")));
        server.say_on(1, note("notifications/tools/list_changed", json!({})));
        pass(seconds(1)).await;
        let more = ["a__echo", "a__hold", "a__panic", "a__new"];
        assert_eq!(silent.tools().await, more);
        let mut newer = Served::send(&world, &json!({}), "tools/list", json!({})).await;
        assert_eq!(newer.result()["tools"].as_array().map(Vec::len), Some(3));
    });
}

#[test]
fn a_server_of_the_newer_era_alone_is_tried_once() {
    run(async {
        for knows_call_of_requests in [true, false] {
            let (world, server, client) = world(knows_call_of_requests, sessionless).await;
            done(&client.call("a__echo").await);
            assert_eq!(link_of_last_call(&server), 0);
            // A program is asked on its only link, before anything else.
            let links = if knows_call_of_requests { 2 } else { 1 };
            let frames = server.frames();
            assert_eq!(methods(&frames, links - 1)[0], "initialize");
            assert_eq!((server.links(), server.open_links()), (links, vec![0]));
            assert!(world.view("a").own.is_empty());
            assert!(world.crashes.lock().unwrap().is_empty());
            let another = world.client(asked_for()).await;
            for client in [&client, &another] {
                done(&client.call("a__echo").await);
            }
            pass(seconds(60)).await;
            assert_eq!(server.links(), links);
            // Nor is it by the next gateway.
            world.stop_server("a");
            pass(seconds(1)).await;
            let again = world.start("a", knows_call_of_requests, sessionless);
            pass(millis(50)).await;
            done(&client.call("a__echo").await);
            assert_eq!((again.links(), again.of("initialize").len()), (1, 0));
        }
    });
}

#[test]
fn where_the_second_connection_ends_or_is_silent_calls_are_translated() {
    run(async {
        for (ends, after) in [(true, 0), (false, 30)] {
            let (world, server, client) = world(true, |plan| {
                of_both(plan);
                match ends {
                    true => plan.script.fatal.insert("initialize"),
                    false => plan.script.mute.insert("initialize"),
                };
            })
            .await;
            let exchange = client.call("a__echo").await;
            pass(seconds(after)).await;
            done(&exchange);
            assert_eq!(link_of_last_call(&server), 0, "{ends}");
            // It is not tried again.
            pass(seconds(60)).await;
            done(&client.call("a__echo").await);
            assert_eq!((server.links(), server.open_links()), (2, vec![0]));
            assert!(world.view("a").own.is_empty());
        }
    });
}

#[test]
fn calls_are_translated_while_the_second_connection_is_away() {
    run(async {
        let (_world, server, client) = world(true, of_both).await;
        done(&client.call("a__echo").await);
        server.refuse_links(Some("no memory"));
        server.crash_link(1, "exit 1");
        pass(seconds(2)).await;
        done(&client.call("a__echo").await);
        assert_eq!(link_of_last_call(&server), 0);
        server.refuse_links(None);
        pass(seconds(60)).await;
        done(&client.call("a__echo").await);
        assert_ne!(link_of_last_call(&server), 0);
    });
}

#[test]
fn an_era_that_is_configured_is_the_only_one() {
    run(async {
        for era in [EraChoice::Modern, EraChoice::Legacy] {
            let (_world, server, client) = world(true, |plan| {
                of_both(plan);
                plan.settings.era = era;
                plan.settings.sharing = Sharing::Shared;
            })
            .await;
            done(&client.call("a__echo").await);
            assert_eq!(server.links(), 1);
        }
        let (_world, server, client) = world(true, |plan| {
            of_both(plan);
            plan.settings.era = EraChoice::Modern;
        })
        .await;
        done(&client.call("a__echo").await);
        assert!(server.of("initialize").is_empty());
    });
}

#[test]
fn both_connections_end_when_nobody_uses_them() {
    run(async {
        let (world, server, client) = world(true, |plan| {
            of_both(plan);
            plan.settings.start = StartMode::Lazy;
            plan.settings.limits.idle_stop = seconds(60);
        })
        .await;
        // A call of an older client needs the process of its era only.
        done(&client.call("a__echo").await);
        assert_eq!(server.open_links(), [1]);
        assert_eq!(methods(&server.frames(), 1)[0], "initialize");
        let silent = world.client(json!({})).await;
        done(&silent.call("a__echo").await);
        assert_eq!(server.open_links(), [1, 2]);
        pass(seconds(400)).await;
        assert!(server.open_links().is_empty());
        assert!(world.view("a").own.is_empty());
    });
}
