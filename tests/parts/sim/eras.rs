//! Which era a server speaks: how it is asked, and what is remembered.

use std::rc::Rc;

use mcpvisor::downstream::{EraChoice, StartMode};
use mcpvisor::protocol::Era;
use mcpvisor::store::Store;
use mcpvisor::supervision::ChildPhase;
use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::sim::modern::{auto, mute, sessionless, with_handshake};
use crate::sim::server::{Frame, SESSIONLESS, Server};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

pub(crate) fn methods(frames: &[Frame], link: usize) -> Vec<&str> {
    let of_link = frames.iter().filter(|frame| frame.link == link);
    of_link.map(Frame::method).collect()
}

#[test]
fn a_server_over_http_is_asked_on_its_connection() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", sessionless).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let frames = server.frames();
        assert_eq!(methods(&frames, 0), ["server/discover", "tools/list"]);
        assert_eq!(frames[0].header("mcp-method"), Some("server/discover"));
        assert_eq!(frames[0].header("mcp-protocol-version"), Some(SESSIONLESS));
        assert_eq!(client.tools().await, ["a__echo", "a__hold", "a__panic"]);
        let answer = client.call("a__echo").await.result();
        assert_eq!(answer, json!({"content": [{"type": "text", "text": "hi"}]}));
        let call = server.last("tools/call");
        assert_eq!(call.header("mcp-name"), Some("echo"));
        let meta = &call.json["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/clientInfo"]["name"],
            "simulated"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientCapabilities"],
            json!({})
        );
        assert_eq!(meta["progressToken"], call.json["id"]);
        assert_eq!(world.counted("era_inquiries"), 0);
    });
}

#[test]
fn c_life_09_a_server_over_http_that_knows_nothing_newer_shakes_hands_on_the_same_link() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", with_handshake).await;
        pass(millis(50)).await;
        let expected = [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/list",
        ];
        assert_eq!(methods(&server.frames(), 0), expected);
        // It is not asked again.
        server.crash("gone");
        pass(seconds(2)).await;
        assert_eq!(methods(&server.frames(), 1), expected[1..]);
        world.stop_server("a");
        pass(seconds(1)).await;
        let again = world.http("a", auto).await;
        pass(millis(50)).await;
        assert_eq!(methods(&again.frames(), 0), expected[1..]);
    });
}

#[test]
fn an_outage_is_no_verdict() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| mute(plan, &["server/discover"]))
            .await;
        // It cannot be reached: nothing else is asked.
        let refused = LinkError::NotSent("refused".into());
        server.fail(&server.last("server/discover"), refused);
        pass(seconds(2)).await;
        assert_eq!(methods(&server.frames(), 0), ["server/discover"]);
        assert_eq!(methods(&server.frames(), 1), ["server/discover"]);
        // It is busy, or does not know the method: the next attempt starts with a handshake, and
        // none is more than one request.
        server.mute("initialize");
        server.fail(
            &server.last("server/discover"),
            LinkError::status(503, "later"),
        );
        pass(seconds(3)).await;
        assert_eq!(methods(&server.frames(), 1), ["server/discover"]);
        assert_eq!(methods(&server.frames(), 2), ["initialize"]);
        server.fail(&server.last("initialize"), LinkError::status(503, "later"));
        pass(seconds(5)).await;
        assert_eq!(methods(&server.frames(), 3), ["server/discover"]);
        server.behave();
        server.mute("server/discover");
        server.fail(
            &server.last("server/discover"),
            LinkError::status(503, "later"),
        );
        pass(seconds(9)).await;
        let shaken = ["initialize", "notifications/initialized", "tools/list"];
        assert_eq!(methods(&server.frames(), 4), shaken);
        // Whether it speaks the newer era as well is asked again.
        pass(seconds(61)).await;
        server.crash("gone");
        pass(seconds(2)).await;
        assert_eq!(methods(&server.frames(), 5), ["server/discover"]);
        server.refuse(&server.last("server/discover"), -32601, "unknown");
        pass(millis(50)).await;
        assert_eq!(methods(&server.frames(), 5)[1..], shaken);
        server.crash("gone");
        pass(seconds(10)).await;
        assert_eq!(methods(&server.frames(), 6)[0], "initialize");
    });
}

#[test]
fn a_server_over_http_that_hangs_on_unknown_methods_shakes_hands() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| mute(plan, &["server/discover"]))
            .await;
        pass(seconds(6)).await;
        assert_eq!(server.links(), 1);
        assert!(world.view("a").era == Some(Era::Legacy));
        let discover = server.last("server/discover");
        assert_eq!(server.forgotten(0), [discover.call.unwrap()]);
    });
}

#[test]
fn a_status_that_asks_for_authorization_says_how_to_give_it() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| mute(plan, &["server/discover"]))
            .await;
        let status = LinkError::status(401, "");
        server.fail(&server.last("server/discover"), status);
        settle().await;
        let exit = world.view("a").shared.last_exit.unwrap();
        assert!(exit.contains("HTTP status 401"), "{exit}");
        assert!(exit.contains("[servers.NAME.headers]"), "{exit}");
        assert!(server.of("initialize").is_empty());
    });
}

#[test]
fn c_life_08_a_process_is_asked_before_anything_else_and_started_once() {
    run(async {
        for (modern, first) in [(true, "server/discover"), (false, "initialize")] {
            let world = Rc::new(World::new());
            let server = world
                .stdio("a", |plan| {
                    with_handshake(plan);
                    if modern {
                        sessionless(plan);
                        plan.script.refused.clear();
                    }
                })
                .await;
            pass(millis(50)).await;
            let frames = server.frames();
            let expected: &[&str] = match modern {
                true => &["initialize", "server/discover", "tools/list"],
                false => &["initialize", "notifications/initialized", "tools/list"],
            };
            assert_eq!(methods(&frames, 0), expected);
            assert_eq!((server.links(), server.open_links()), (1, vec![0]));
            // The verdict is kept beyond the process and beyond what is known of the server.
            server.crash("gone");
            pass(seconds(2)).await;
            assert_eq!(methods(&server.frames(), 1)[0], first);
            world.stop_server("a");
            pass(seconds(1)).await;
            let again = world
                .stdio("a", if modern { sessionless } else { auto })
                .await;
            pass(millis(50)).await;
            assert_eq!(methods(&again.frames(), 0)[0], first);
            assert_eq!(world.counted("era_inquiries"), 1);
            let era = if modern { Era::Modern } else { Era::Legacy };
            assert_eq!(world.view("a").era, Some(era));
        }
    });
}

#[test]
fn a_process_that_is_silent_or_ends_over_a_handshake_is_asked_for_the_newer_era() {
    run(async {
        for (ends, links) in [(true, 2), (false, 1)] {
            let world = Rc::new(World::new());
            let server = world
                .stdio("a", |plan| {
                    sessionless(plan);
                    match ends {
                        true => plan.script.fatal.insert("initialize"),
                        false => plan.script.mute.insert("initialize"),
                    };
                })
                .await;
            assert_eq!(methods(&server.frames(), 0), ["initialize"]);
            pass(millis(5100)).await;
            let frames = server.frames();
            let asked = methods(&frames, links - 1);
            assert!(asked.contains(&"server/discover"), "{asked:?}");
            assert_eq!(server.links(), links);
            let view = world.view("a");
            assert_eq!(view.shared.phase, ChildPhase::Up);
            assert_eq!(view.era, Some(Era::Modern));
            // It is remembered, also by the next gateway.
            world.stop_server("a");
            pass(seconds(1)).await;
            let again = world.stdio("a", sessionless).await;
            pass(millis(50)).await;
            assert_eq!(methods(&again.frames(), 0)[0], "server/discover");
        }
    });
}

#[test]
fn a_slow_process_that_ends_over_the_second_question_gets_the_first_one_alone() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                mute(plan, &["initialize"]);
                plan.script.fatal.insert("server/discover");
            })
            .await;
        pass(millis(5100)).await;
        assert_eq!(methods(&server.frames(), 1), ["initialize"]);
        pass(seconds(10)).await;
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        server.answer(&server.last("initialize"), result);
        settle().await;
        let status = world.view("a").shared;
        assert_eq!((status.phase, status.restarts), (ChildPhase::Up, 0));
        assert_eq!(
            methods(&server.frames(), 1)[..2],
            ["initialize", "notifications/initialized"]
        );
    });
}

#[test]
fn an_era_that_an_earlier_gateway_found_without_a_handshake_is_tried_again() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", sessionless).await;
        pass(millis(50)).await;
        let key = "era/a";
        let kept = world.store.get(key).await.unwrap().unwrap();
        let mut kept: Value = serde_json::from_slice(&kept).unwrap();
        assert_eq!(
            (&kept["era"], &kept["speaks_older"]),
            (&json!("modern"), &json!(false))
        );
        kept["speaks_older"] = json!(null);
        let day = Some(seconds(24 * 3600));
        world
            .store
            .put(key, kept.to_string().into(), day)
            .await
            .unwrap();
        drop(server);
        world.stop_server("a");
        pass(seconds(1)).await;
        let again = world
            .stdio("a", |plan| {
                sessionless(plan);
                plan.script.with_handshake = Some("2025-11-25");
            })
            .await;
        pass(millis(50)).await;
        assert_eq!(methods(&again.frames(), 0)[0], "initialize");
        assert_eq!(world.view("a").era, Some(Era::Legacy));
    });
}

#[test]
fn a_late_answer_to_the_question_counts() {
    type Answer = fn(&Server);
    let refuses: Answer = |server| {
        server.refuse(&server.last("server/discover"), -32601, "unknown");
        let initialize = server.last("initialize");
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"version": "1"}});
        server.answer(&initialize, result);
    };
    let answers: Answer = |server| {
        let result = json!({"supportedVersions": [SESSIONLESS], "capabilities": {}});
        server.answer(&server.last("server/discover"), result);
    };
    let refuses_the_handshake: Answer = |server| {
        server.refuse(&server.last("initialize"), -32601, "unknown");
        let result = json!({"supportedVersions": [SESSIONLESS], "capabilities": {}});
        server.answer(&server.last("server/discover"), result);
    };
    let both: Answer = |server| {
        let result = json!({"supportedVersions": [SESSIONLESS, "2025-11-25"], "capabilities": {}});
        server.answer(&server.last("server/discover"), result);
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"version": "1"}});
        server.answer(&server.last("initialize"), result);
    };
    let table = [
        (refuses, Era::Legacy),
        (answers, Era::Modern),
        (refuses_the_handshake, Era::Modern),
        (both, Era::Legacy),
    ];
    run(async {
        for (case, (answer, era)) in table.into_iter().enumerate() {
            let world = Rc::new(World::new());
            let server = world
                .stdio("a", |plan| mute(plan, &["server/discover", "initialize"]))
                .await;
            pass(seconds(20)).await;
            assert_eq!(
                methods(&server.frames(), 0),
                ["initialize", "server/discover"]
            );
            answer(&server);
            settle().await;
            let view = world.view("a");
            assert_eq!(view.shared.phase, ChildPhase::Up, "{case}");
            assert_eq!((view.era, server.links()), (Some(era), 1), "{case}");
        }
    });
}

#[test]
fn a_server_that_answers_neither_question_names_the_key() {
    run(async {
        for (refused, after) in [(true, 0), (false, 36)] {
            let world = Rc::new(World::new());
            world
                .stdio("a", |plan| {
                    auto(plan);
                    let methods = ["server/discover", "initialize"].into();
                    match refused {
                        true => plan.script.refused = methods,
                        false => plan.script.mute = methods,
                    }
                })
                .await;
            pass(seconds(after)).await;
            let exit = world.view("a").shared.last_exit.unwrap();
            assert!(exit.contains("set `era` in [servers.NAME]"), "{exit}");
            assert!(exit.contains("`server/discover`"), "{exit}");
            assert_eq!(world.view("a").era, None);
        }
    });
}

#[test]
fn a_verdict_that_proves_wrong_is_dropped() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", sessionless).await;
        pass(millis(50)).await;
        // It was replaced by an older release.
        server.script(|script| {
            script.revision = "2025-11-25";
            script.refused.insert("server/discover");
        });
        server.crash("upgrade");
        pass(seconds(10)).await;
        let frames = server.frames();
        assert_eq!(methods(&frames, 1)[..2], ["server/discover", "initialize"]);
        assert_eq!(world.view("a").era, Some(Era::Legacy));
        // And by a newer one that knows nothing else.
        server.script(|script| {
            script.revision = SESSIONLESS;
            script.refused = ["initialize"].into();
        });
        server.crash("upgrade");
        pass(seconds(10)).await;
        assert_eq!(
            methods(&server.frames(), 2)[..2],
            ["initialize", "server/discover"]
        );
        let client = world.client(json!({})).await;
        client.call("a__echo").await.result();
        assert_eq!((server.links(), server.open_links()), (3, vec![2]));
    });
}

#[test]
fn a_remembered_era_is_known_before_a_server_runs() {
    run(async {
        let world = Rc::new(World::new());
        world.http("a", sessionless).await;
        pass(millis(50)).await;
        world.stop_server("a");
        pass(seconds(1)).await;
        let again = world
            .http("a", |plan| {
                sessionless(plan);
                plan.settings.start = StartMode::Lazy;
            })
            .await;
        again.refuse_links(Some("not yet"));
        settle().await;
        assert_eq!(world.view("a").era, Some(Era::Modern));
    });
}

#[test]
fn a_configured_era_is_not_asked() {
    run(async {
        let world = Rc::new(World::new());
        let modern = |plan: &mut Plan| {
            sessionless(plan);
            plan.settings.era = EraChoice::Modern;
        };
        let server = world.stdio("a", modern).await;
        pass(millis(50)).await;
        assert_eq!(methods(&server.frames(), 0)[0], "server/discover");
        server.script(|script| {
            script.refused.insert("server/discover");
        });
        server.crash("gone");
        pass(seconds(10)).await;
        assert!(server.of("initialize").is_empty());
        assert_eq!(world.counted("era_inquiries"), 0);
    });
}
