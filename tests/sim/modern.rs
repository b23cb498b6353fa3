//! Servers without sessions: which era a server speaks, what it is told, what it reports.

use std::rc::Rc;

use mcpvisor::downstream::{EraChoice, StartMode};
use mcpvisor::protocol::Era;
use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::server::{Frame, SESSIONLESS, tool};
use crate::world::{Plan, World, millis, pass, run, seconds, settle};

/// A server whose era is found out.
fn auto(plan: &mut Plan) {
    plan.settings.era = EraChoice::Auto;
}

/// A server that is found out to be without sessions.
pub(crate) fn sessionless(plan: &mut Plan) {
    auto(plan);
    plan.script.revision = SESSIONLESS;
}

fn methods(frames: &[Frame], link: usize) -> Vec<&str> {
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
            "mcpvisor"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientCapabilities"],
            json!({})
        );
        assert_eq!(meta["progressToken"], call.json["id"]);
        assert_eq!(world.counted("eras_probed"), 0);
    });
}

#[test]
fn c_life_09_a_server_over_http_that_knows_nothing_newer_shakes_hands_on_the_same_link() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| {
                auto(plan);
                plan.script.refused.insert("server/discover");
            })
            .await;
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
            .http("a", |plan| {
                auto(plan);
                plan.script.mute.insert("server/discover");
            })
            .await;
        let status = LinkError::Status {
            status: 503,
            text: "later".to_owned(),
        };
        server.fail(&server.last("server/discover"), status);
        pass(seconds(2)).await;
        assert_eq!(methods(&server.frames(), 1), ["server/discover"]);
        server.refuse(&server.last("server/discover"), -32601, "unknown");
        pass(millis(50)).await;
        assert_eq!(server.of("initialize").len(), 1);
    });
}

#[test]
fn c_life_08_a_process_that_was_asked_is_gone_before_the_real_one_starts() {
    run(async {
        for (modern, first) in [(true, "server/discover"), (false, "initialize")] {
            let world = Rc::new(World::new());
            let server = world
                .stdio("a", |plan| {
                    auto(plan);
                    plan.script.refused.insert("server/discover");
                    if modern {
                        sessionless(plan);
                        plan.script.refused.clear();
                    }
                })
                .await;
            pass(millis(50)).await;
            let frames = server.frames();
            assert_eq!(methods(&frames, 0), ["server/discover"]);
            assert_eq!(methods(&frames, 1)[0], first);
            assert_eq!(server.open_links(), [1]);
            // The verdict is kept beyond the process and beyond what is known of the server.
            server.crash("gone");
            pass(seconds(2)).await;
            assert_eq!(methods(&server.frames(), 2)[0], first);
            world.stop_server("a");
            pass(seconds(1)).await;
            let again = world
                .stdio("a", if modern { sessionless } else { auto })
                .await;
            pass(millis(50)).await;
            assert_eq!(methods(&again.frames(), 0)[0], first);
            assert_eq!(world.counted("eras_probed"), 1);
            let era = if modern { Era::Modern } else { Era::Legacy };
            assert_eq!(world.view("a").era, Some(era));
        }
    });
}

#[test]
fn a_process_that_stays_silent_or_ends_speaks_the_older_era() {
    run(async {
        for crashes in [true, false] {
            let world = Rc::new(World::new());
            let server = world
                .stdio("a", |plan| {
                    auto(plan);
                    plan.script.mute.insert("server/discover");
                })
                .await;
            assert_eq!(methods(&server.frames(), 0), ["server/discover"]);
            if crashes {
                server.crash("exit 1");
            } else {
                pass(millis(4900)).await;
                assert_eq!(server.links(), 1);
                pass(millis(200)).await;
            }
            settle().await;
            assert_eq!(methods(&server.frames(), 1)[0], "initialize");
            let status = world.view("a").shared;
            assert_eq!(status.restarts, 0);
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
        assert_eq!(methods(&frames, 2), ["server/discover"]);
        assert_eq!(methods(&frames, 3), ["server/discover"]);
        assert_eq!(methods(&frames, 4)[0], "initialize");
        // And by a newer one that knows nothing else.
        server.script(|script| {
            script.revision = SESSIONLESS;
            script.refused = ["initialize"].into();
        });
        server.crash("upgrade");
        pass(seconds(10)).await;
        let client = world.client(json!({})).await;
        client.call("a__echo").await.result();
    });
}

#[test]
fn what_is_remembered_is_known_before_a_server_runs() {
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
fn what_is_configured_is_not_asked() {
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
        assert_eq!(world.counted("eras_probed"), 0);
    });
}

#[test]
fn clients_that_can_be_asked_share_the_one_connection() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.stdio("a", sessionless).await;
        pass(millis(50)).await;
        let capabilities = json!({"elicitation": {}, "sampling": {}});
        let client = world.client(capabilities).await;
        client.call("a__echo").await.result();
        assert_eq!(server.open_links(), [1]);
        let call = server.last("tools/call");
        let declared = &call.json["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(declared["sampling"], json!({}));
        assert!(declared["elicitation"].is_object());
        client
            .request("logging/setLevel", json!({"level": "error"}))
            .await;
        client.call("a__echo").await.result();
        let meta = server.last("tools/call").json["params"]["_meta"].clone();
        assert_eq!(meta["io.modelcontextprotocol/logLevel"], "error");
        assert!(server.of("logging/setLevel").is_empty());
    });
}

#[test]
fn c_canc_02_a_call_is_taken_back_as_the_transport_does() {
    run(async {
        let world = Rc::new(World::new());
        let servers = [
            world.http("h", sessionless).await,
            world.stdio("s", sessionless).await,
        ];
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        for (name, server) in ["h", "s"].iter().zip(&servers) {
            let exchange = client.call(&format!("{name}__hold")).await;
            let call = server.last("tools/call");
            client.cancel(&exchange).await;
            let notes = server.of("notifications/cancelled");
            assert!(server.forgotten(call.link).contains(&call.call.unwrap()));
            match *name {
                "h" => assert!(notes.is_empty()),
                _ => assert_eq!(notes[0].json["params"]["requestId"], call.json["id"]),
            }
        }
    });
}

#[test]
fn a_sessionless_server_is_alive_as_long_as_it_answers_discover() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .stdio("a", |plan| {
                sessionless(plan);
                plan.settings.limits.ping_every = seconds(10);
            })
            .await;
        pass(seconds(25)).await;
        assert_eq!(server.of("server/discover").len(), 4);
        assert!(server.of("ping").is_empty());
        server.mute("server/discover");
        pass(seconds(20)).await;
        assert!(world.view("a").shared.restarts > 0);
    });
}

#[test]
fn c_cache_03_a_list_is_read_again_when_its_time_is_over() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| {
                sessionless(plan);
                plan.script.ttl_ms = 60_000;
            })
            .await;
        pass(seconds(59)).await;
        assert_eq!(server.of("tools/list").len(), 1);
        pass(seconds(2)).await;
        assert_eq!(server.of("tools/list").len(), 2);
        // However short: it is no poll interval.
        server.script(|script| script.ttl_ms = 10);
        pass(seconds(60)).await;
        assert_eq!(server.of("tools/list").len(), 3);
        pass(seconds(60)).await;
        assert_eq!(server.of("tools/list").len(), 5);
    });
}

fn annotated(header: &str) -> Value {
    let region = json!({"type": "string", "x-mcp-header": header});
    json!({"name": "hold", "inputSchema": {"type": "object", "properties": {"text": region}}})
}

#[test]
fn c_http_09_refused_headers_are_built_anew_once() {
    run(async {
        let world = Rc::new(World::new());
        let server = world
            .http("a", |plan| {
                sessionless(plan);
                let tools = vec![annotated("Region"), annotated("bad name"), tool("echo")];
                plan.script.lists.insert("tools", tools);
            })
            .await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        assert_eq!(client.tools().await, ["a__hold", "a__echo"]);
        let exchange = client.call("a__hold").await;
        let call = server.last("tools/call");
        assert_eq!(call.header("mcp-param-region"), Some("hi"));
        server.script(|script| {
            script.lists.insert("tools", vec![annotated("Location")]);
        });
        server.refuse(&call, -32020, "Mcp-Param-Location is missing");
        pass(millis(200)).await;
        let again = server.last("tools/call");
        assert_eq!(again.header("mcp-param-location"), Some("hi"));
        assert_ne!(again.json["id"], call.json["id"]);
        assert!(exchange.is_waiting());
        server.refuse(&again, -32020, "still wrong");
        settle().await;
        assert_eq!(exchange.failure()["code"], "server_protocol");
        assert_eq!(server.of("tools/call").len(), 2);
        assert_eq!(world.view("a").in_flight, 0);
    });
}

#[test]
fn a_server_that_dropped_the_revision_is_asked_anew() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", sessionless).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        let exchange = client.call("a__hold").await;
        server.script(|script| {
            script.revision = "2025-11-25";
            script.refused.insert("server/discover");
        });
        server.refuse(&server.last("tools/call"), -32022, "no");
        settle().await;
        assert_eq!(exchange.failure()["code"], "server_protocol");
        pass(seconds(2)).await;
        assert_eq!(server.of("initialize").len(), 1);
        client.call("a__echo").await.result();
    });
}

#[test]
fn a_result_of_an_unknown_type_is_no_result() {
    run(async {
        let world = Rc::new(World::new());
        let server = world.http("a", sessionless).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        for kind in ["new", "task"] {
            let exchange = client.call("a__hold").await;
            server.answer(&server.last("tools/call"), json!({"resultType": kind}));
            settle().await;
            assert_eq!(exchange.failure()["code"], "server_protocol", "{kind}");
        }
    });
}
