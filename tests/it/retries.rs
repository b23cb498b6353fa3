//! Calls whose server dies under them: which of them are sent again when it is back, and which not,
//! for clients with a session and without one.

use std::fs;

use serde_json::{Value, json};

use crate::sessionless::modern_as;
use crate::support::{
    Client, Gateway, Http, Setup, answer_in, call_params, failure_of, quick, request, text_of,
};

/// Who calls.
#[derive(Clone, Copy, Debug)]
enum Caller {
    WithSession,
    OfNewestRevision,
    OfStatelessGateway,
}

const CALLERS: [Caller; 3] = [
    Caller::WithSession,
    Caller::OfNewestRevision,
    Caller::OfStatelessGateway,
];

/// Calls may be sent again.
const TRUSTED: &str = "trusted = true\nretry = true\n";

/// The only argument of the only call.
const NUMBER: usize = 7;

/// A gateway whose server dies as soon as it has read a call, once.
struct Scene {
    gateway: Gateway,
    caller: Caller,
}

impl Scene {
    /// `extra` are further keys of the server.
    async fn set(caller: Caller, extra: &str) -> Self {
        let stateless = matches!(caller, Caller::OfStatelessGateway);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mortal.py");
        let config = format!(
            "{}\n[gateway]\nstateless = {stateless}\n\n[servers.mortal]\n\
             command = \"python3\"\nargs = [\"{script}\", \".\"]\n\
             env = {{ IT_MARK = \"${{IT_MARK}}\", IT_SERVER = \"mortal\" }}\n{extra}",
            quick()
        );
        let gateway = Setup::new(&config).serve().await;
        gateway.all_up().await;
        fs::write(gateway.setup.path("die"), "read tools/call").unwrap();
        Self { gateway, caller }
    }

    /// The result of a tool.
    async fn call(&self, tool: &str) -> Value {
        let params = call_params(&format!("mortal__{tool}"), json!({ "number": NUMBER }));
        let http = match self.caller {
            Caller::WithSession => {
                let client = Client::open(&self.gateway).await;
                return client.get("tools/call", params).await;
            }
            Caller::OfNewestRevision => {
                modern_as(&self.gateway, "1", "tools/call", params, json!({}))
            }
            Caller::OfStatelessGateway => {
                let call = request("1", "tools/call", params);
                Http::post(self.gateway.address, call.to_string())
                    .header("MCP-Protocol-Version", "2025-11-25")
            }
        };
        answer_in(http.send().await).await["result"].clone()
    }

    /// How often the server read the call, in all its lives.
    fn reads(&self) -> usize {
        let journal = fs::read_to_string(self.gateway.setup.path("journal")).unwrap_or_default();
        let calls = journal.lines();
        calls.filter(|line| line.starts_with("tools/call ")).count()
    }

    /// How often the gateway says that it sent a call again.
    async fn repeated(&self) -> Value {
        let server = self.gateway.server("mortal").await;
        let counters = &self.gateway.status().await["counters"];
        let repeated = &server["connection"]["repeated"];
        assert_eq!(*repeated, counters["calls_repeated"], "{server}");
        repeated.clone()
    }
}

#[tokio::test]
async fn a_call_of_a_read_only_tool_is_answered_by_the_server_that_came_back() {
    for caller in CALLERS {
        let scene = Scene::set(caller, TRUSTED).await;
        let old = scene.gateway.server_pid("mortal");
        let result = scene.call("look").await;
        let received: Value = serde_json::from_str(text_of(&result)).unwrap();
        assert_eq!(received["number"], NUMBER, "{caller:?}");
        assert_eq!(scene.reads(), 2, "{caller:?}");
        assert_eq!(scene.repeated().await, 1, "{caller:?}");
        assert_ne!(scene.gateway.server_pid("mortal"), old, "{caller:?}");
        let generation = scene.gateway.generation("mortal").await;
        assert_eq!(generation, 2, "{caller:?}");
    }
}

#[tokio::test]
async fn a_call_that_may_not_run_twice_is_lost_with_its_server() {
    for caller in CALLERS {
        let rows = [
            // It may change something.
            ("echo", TRUSTED),
            // Its server's hints cannot be relied on.
            ("look", ""),
            ("look", "trusted = true\n"),
        ];
        for (tool, extra) in rows {
            let scene = Scene::set(caller, extra).await;
            let result = scene.call(tool).await;
            let code = &failure_of(&result)["code"];
            assert_eq!(code, "server_lost", "{caller:?} {tool} {extra}");
            scene.gateway.wait_renewed("mortal", 1).await;
            assert_eq!(scene.reads(), 1, "{caller:?} {tool} {extra}");
            assert_eq!(scene.repeated().await, 0, "{caller:?} {tool} {extra}");
        }
    }
}

#[tokio::test]
async fn no_call_is_sent_again_that_has_no_time_left() {
    // As long as the gateway waits before it sends a call again.
    let limits = "request_timeout = \"100ms\"\nrequest_timeout_max = \"100ms\"\n";
    for caller in CALLERS {
        let scene = Scene::set(caller, &format!("{TRUSTED}{limits}")).await;
        let result = scene.call("look").await;
        // On a slow machine its time is over before its server is.
        let code = failure_of(&result)["code"].as_str().unwrap();
        assert!(["server_lost", "timeout"].contains(&code), "{result}");
        scene.gateway.wait_renewed("mortal", 1).await;
        assert!(scene.reads() <= 1, "{caller:?}");
        assert_eq!(scene.repeated().await, 0, "{caller:?}");
    }
}
