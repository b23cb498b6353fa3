//! Servers without sessions: what they are told, what they report.

use std::rc::Rc;

use mcpvisor::downstream::EraChoice;
use serde_json::{Value, json};

use crate::sim::served::Served;
use crate::sim::server::{SESSIONLESS, tool};
use crate::sim::world::{Plan, World, millis, pass, run, seconds, settle};

/// A server whose era is found out.
pub(crate) fn auto(plan: &mut Plan) {
    plan.settings.era = EraChoice::Auto;
}

/// A server that is found out to have a handshake.
pub(crate) fn with_handshake(plan: &mut Plan) {
    auto(plan);
    plan.script.refused.insert("server/discover");
}

/// A server that leaves these questions without an answer.
pub(crate) fn mute(plan: &mut Plan, methods: &[&'static str]) {
    auto(plan);
    plan.script.mute = methods.iter().copied().collect();
}

/// A server that is found out to be without sessions.
pub(crate) fn sessionless(plan: &mut Plan) {
    auto(plan);
    plan.script.revision = SESSIONLESS;
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
        assert_eq!(server.open_links(), [0]);
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
        assert_eq!(server.of("server/discover").len(), 3);
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
        // The older era was tried for the client.
        let tried = server.of("initialize").len();
        server.script(|script| {
            script.revision = "2025-11-25";
            script.refused.insert("server/discover");
        });
        server.refuse(&server.last("tools/call"), -32022, "no");
        settle().await;
        assert_eq!(exchange.failure()["code"], "server_protocol");
        pass(seconds(2)).await;
        assert_eq!(server.of("initialize").len(), tried + 1);
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
        // A client of the same era can have the extension that the type belongs to.
        let params = json!({"name": "a__hold"});
        let mut served = Served::send(&world, &json!({}), "tools/call", params).await;
        let receipt = json!({"resultType": "receipt", "token": "r"});
        server.answer(&server.last("tools/call"), receipt);
        settle().await;
        let result = served.result();
        assert_eq!(
            (&result["resultType"], &result["token"]),
            (&json!("receipt"), &json!("r"))
        );
    });
}

#[test]
fn s_hdr_12_parameters_of_others_go_on_to_the_server() {
    run(async {
        let world = Rc::new(World::new());
        let plan = |plan: &mut Plan| {
            sessionless(plan);
            let tools = vec![annotated("Region"), tool("echo")];
            plan.script.lists.insert("tools", tools);
        };
        let server = world.http("a", plan).await;
        pass(millis(50)).await;
        let params = json!({"name": "a__hold", "arguments": {"text": "w"}});
        let headers = [("mcp-param-region", "w"), ("mcp-param-tenant", "t-1")];
        let waiting = Served::send_with(&world, &headers, "tools/call", params.clone()).await;
        let call = server.last("tools/call");
        assert_eq!(call.header("mcp-param-region"), Some("w"));
        assert_eq!(call.header("mcp-param-tenant"), Some("t-1"));
        // Sent again, it has them again.
        server.script(|script| drop(script.lists.insert("tools", vec![annotated("Location")])));
        server.refuse(&call, -32020, "wrong");
        pass(millis(200)).await;
        let again = server.last("tools/call");
        assert_eq!(again.header("mcp-param-location"), Some("w"));
        assert_eq!(again.header("mcp-param-tenant"), Some("t-1"));
        drop(waiting);
        // Of one that the tool knows, the argument decides.
        let headers = [("mcp-param-location", "w")];
        let none = json!({"name": "a__hold", "arguments": {}});
        Served::send_with(&world, &headers, "tools/call", none).await;
        let call = server.last("tools/call");
        assert_eq!(call.header("mcp-param-location"), None);
        let refused = [("mcp-param-location", "w"), ("mcp-param-tenant", "\u{1}")];
        let mut refused = Served::send_with(&world, &refused, "tools/call", params).await;
        assert_eq!(refused.error()["code"], -32020);
    });
}
