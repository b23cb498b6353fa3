//! Messages of servers outside of calls, and the clients that get them.

use std::rc::Rc;

use serde_json::{Value, json};

use crate::sim::client::{Client, Exchange};
use crate::sim::server::{Server, ask, note};
use crate::sim::sessions::log_line;
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

const LOG: &str = "notifications/message";

/// Two clients with general streams in front of a server whose transport names the call of a
/// message, or does not.
async fn world(
    knows_call_of_requests: bool,
    plan: impl FnOnce(&mut Plan),
) -> (Rc<World>, Server, [(Client, Exchange); 2]) {
    let world = Rc::new(World::new());
    let server = world.start("a", knows_call_of_requests, |planned| {
        planned.script.capabilities = json!({"tools": {}, "logging": {}});
        planned.settings.limits.share_logs = false;
        plan(planned);
    });
    pass(millis(50)).await;
    let client = async || {
        let client = world.client(json!({})).await;
        let general = client.listen(None).await;
        (client, general)
    };
    let clients = [client().await, client().await];
    (world, server, clients)
}

#[test]
fn a_log_line_of_no_call_is_for_the_only_client_with_calls_under_way_or_just_over() {
    run(async {
        for knows_call_of_requests in [false, true] {
            let (_world, server, clients) = world(knows_call_of_requests, |_| {}).await;
            let [(one, of_one), (two, of_two)] = &clients;
            let lines = || [of_one, of_two].map(|general| general.of(LOG).len());
            // There is no client for it.
            server.say(log_line("info"));
            settle().await;
            assert_eq!(lines(), [0, 0]);
            let first = one.call("a__hold").await;
            server.say(log_line("info"));
            settle().await;
            assert_eq!(first.of(LOG).len(), 1);
            // The newest of two calls of one client gets it.
            let second = one.call("a__hold").await;
            server.say(log_line("info"));
            settle().await;
            assert_eq!((first.of(LOG).len(), second.of(LOG).len()), (1, 1));
            // With two clients, it could be about either.
            let other = two.call("a__hold").await;
            server.say(log_line("info"));
            settle().await;
            assert_eq!(other.of(LOG).len(), 0);
            for held in server.held() {
                server.answer(&held, json!({"content": []}));
            }
            settle().await;
            server.say(log_line("info"));
            settle().await;
            assert_eq!(lines(), [0, 0]);
            // An answer can overtake a line of its call.
            pass(seconds(2)).await;
            let last = two.call("a__hold").await;
            server.answer(&server.last("tools/call"), json!({"content": []}));
            settle().await;
            last.result();
            server.say(log_line("info"));
            settle().await;
            assert_eq!(lines(), [0, 1]);
            pass(seconds(2)).await;
            server.say(log_line("info"));
            settle().await;
            assert_eq!(lines(), [0, 1]);
        }
    });
}

#[test]
fn a_log_line_right_before_answers_is_for_no_other_client() {
    run(async {
        for knows_call_of_requests in [false, true] {
            let (_world, server, clients) = world(knows_call_of_requests, |_| {}).await;
            let [(one, of_one), (two, of_two)] = &clients;
            // One of the calls, or both, are over when the line has passed all senders.
            for answered in [1, 2] {
                let calls = [one.call("a__hold").await, two.call("a__hold").await];
                let held = server.held();
                let held = &held[held.len() - 2..];
                server.say(log_line("info"));
                for call in &held[..answered] {
                    server.answer(call, json!({"content": []}));
                }
                settle().await;
                for call in &held[answered..] {
                    server.answer(call, json!({"content": []}));
                }
                settle().await;
                for call in &calls {
                    call.result();
                    assert!(call.of(LOG).is_empty());
                }
                assert!(of_one.of(LOG).is_empty() && of_two.of(LOG).is_empty());
                pass(seconds(2)).await;
            }
        }
    });
}

#[test]
fn that_a_page_was_visited_reaches_the_client_that_was_sent_there() {
    run(async {
        let method = "notifications/elicitation/complete";
        let complete = |id: &str| note(method, json!({"elicitationId": id}));
        for knows_call_of_requests in [false, true] {
            let (world, server, clients) = world(knows_call_of_requests, |_| {}).await;
            let evil = world.stdio("evil", |_| {}).await;
            pass(millis(50)).await;
            let [(one, of_one), (_two, of_two)] = &clients;
            let heard = || [of_one, of_two].map(|general| general.of(method).len());
            let call = one.call("a__hold").await;
            let page = json!({
                "mode": "url", "elicitationId": "e1", "url": "https://page.example/",
                "message": "sign in",
            });
            let held = server.last("tools/call");
            let error =
                json!({"code": -32042, "message": "visit", "data": {"elicitations": [page]}});
            let answer = json!({"jsonrpc": "2.0", "id": held.json["id"], "error": error});
            server.say_for(&held, answer);
            settle().await;
            assert_eq!(call.error(), error);
            // Neither another server's nor another page.
            evil.say(complete("e1"));
            server.say(complete("e2"));
            settle().await;
            assert_eq!(heard(), [0, 0]);
            server.say(complete("e1"));
            settle().await;
            assert_eq!(heard(), [1, 0]);
            server.say(complete("e1"));
            settle().await;
            assert_eq!(heard(), [1, 0]);
        }
    });
}

#[test]
fn a_visit_is_heard_of_when_the_client_listens_again() {
    run(async {
        let (_world, server, clients) = world(false, |_| {}).await;
        let [(one, of_one), _] = &clients;
        let call = one.call("a__hold").await;
        let held = server.last("tools/call");
        let page = json!({"elicitationId": "e", "url": "https://page.example/", "message": "m"});
        let error = json!({"code": -32042, "message": "visit", "data": {"elicitations": [page]}});
        let answer = json!({"jsonrpc": "2.0", "id": held.json["id"], "error": error});
        of_one.cut();
        server.say_for(&held, answer);
        settle().await;
        call.error();
        let method = "notifications/elicitation/complete";
        server.say(note(method, json!({"elicitationId": "e"})));
        settle().await;
        assert_eq!(one.listen(None).await.of(method).len(), 1);
    });
}

#[test]
fn changed_roots_reach_every_server_that_asked_for_them() {
    run(async {
        let declared = json!({"roots": {"listChanged": true}});
        let changed = "notifications/roots/list_changed";
        for knows_call_of_requests in [false, true] {
            let world = Rc::new(World::new());
            let server = world.start("a", knows_call_of_requests, |_| {});
            let other = world.start("b", true, |_| {});
            pass(millis(50)).await;
            let client = world.client(declared.clone()).await;
            // Another of its audience shares its connections.
            let same: Value = declared.clone();
            let _neighbour = world.client(same).await;
            let call = client.call("a__hold").await;
            client.call("b__hold").await;
            let held = server.last("tools/call");
            server.say_for(&held, ask("roots", "roots/list", json!({})));
            settle().await;
            assert_eq!(call.of("roots/list").len(), 1);
            client.notify(changed, json!({})).await;
            assert_eq!(server.of(changed).len(), 1, "{knows_call_of_requests}");
            // It never asked.
            assert_eq!(other.of(changed).len(), 0);
        }
    });
}
