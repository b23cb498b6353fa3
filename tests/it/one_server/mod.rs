//! The view of one server: its clients find what they would find at the server itself.

mod own;
mod whole;

use rmcp::handler::server::ServerHandler;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{
    Gateway, Http, Setup, StdioClient, Visitor, answer_in, example, initialize, names, python,
    quick, request, soon, text_of,
};
use whole::{ARGUMENTS, PAGES, Whole, whole};

/// A way to a server.
enum Way {
    Direct {
        stdin: ChildStdin,
        lines: Lines<BufReader<ChildStdout>>,
        /// Killed when it is dropped.
        _child: Child,
    },
    Http(Gateway, &'static str, Option<String>),
    Stdio {
        client: StdioClient,
        /// Keeps the directory alive.
        _setup: Setup,
    },
}

impl Way {
    fn direct() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(ARGUMENTS)
            .env("IT_WHOLE_SERVER", "1")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self::Direct {
            stdin,
            lines,
            _child: child,
        }
    }

    async fn http(config: &str, path: &'static str) -> Self {
        Self::Http(Setup::new(config).serve().await, path, None)
    }

    fn stdio(config: &str) -> Self {
        let setup = Setup::new(config);
        let client = StdioClient::start(&setup, &["--server", "one"]);
        Self::Stdio {
            client,
            _setup: setup,
        }
    }

    async fn say(&mut self, message: &Value) {
        match self {
            Self::Direct { stdin, .. } => {
                let line = format!("{message}\n");
                stdin.write_all(line.as_bytes()).await.unwrap();
            }
            Self::Http(gateway, path, session) => {
                let http = Http::post(gateway.address, message.to_string()).path(path);
                let http = http.header("Mcp-Session-Id", session.as_deref().unwrap());
                assert_eq!(http.send().await.status, 202, "{message}");
            }
            Self::Stdio { client, .. } => client.say(message).await,
        }
    }

    async fn ask(&mut self, message: &Value) -> Value {
        match self {
            Self::Direct { .. } => {
                self.say(message).await;
                let Self::Direct { lines, .. } = self else {
                    unreachable!()
                };
                soon("an answer of the server", async {
                    loop {
                        let line = lines.next_line().await.unwrap().unwrap();
                        // The test runner writes lines of its own.
                        let json = line.find('{').and_then(|start| line.get(start..));
                        if let Ok(answer) = serde_json::from_str::<Value>(json.unwrap_or_default())
                            && answer["id"] == message["id"]
                        {
                            return answer;
                        }
                    }
                })
                .await
            }
            Self::Http(gateway, path, session) => {
                let mut http = Http::post(gateway.address, message.to_string()).path(path);
                let method = message["method"].as_str().unwrap();
                if message["params"]["_meta"].is_object() {
                    http = http.header("MCP-Protocol-Version", "2026-07-28");
                    http = http.header("Mcp-Method", method);
                    for key in ["name", "uri"] {
                        let name = message["params"][key].as_str();
                        http = name
                            .into_iter()
                            .fold(http, |http, name| http.header("Mcp-Name", name));
                    }
                } else if let Some(session) = session {
                    http = http.header("Mcp-Session-Id", session);
                }
                let answer = http.send().await;
                if let Some(opened) = answer.header("mcp-session-id") {
                    *session = Some(opened.to_owned());
                }
                answer_in(answer).await
            }
            Self::Stdio { client, .. } => {
                client.say(message).await;
                client.answer(message["id"].clone()).await
            }
        }
    }
}

/// A client and the answers that it got.
struct Visit {
    way: Way,
    is_modern: bool,
    answers: Vec<(String, Value)>,
}

impl Visit {
    async fn ask(&mut self, method: &str, mut params: Value) -> Value {
        if self.is_modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "visitor", "version": "7"},
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let id = self.answers.len() + 1;
        let mut answer = self.way.ask(&request(id, method, params.clone())).await;
        params.as_object_mut().unwrap().remove("_meta");
        // The gateway adds these members to each answer.
        for member in ["resultType", "ttlMs", "cacheScope"] {
            if let Some(Value::Object(result)) = answer.get_mut("result") {
                result.remove(member);
            }
        }
        answer.as_object_mut().unwrap().remove("id");
        self.answers
            .push((format!("{method} {params}"), answer.clone()));
        answer
    }

    fn new(way: Way, is_modern: bool) -> Self {
        Self {
            way,
            is_modern,
            answers: Vec::new(),
        }
    }

    async fn open(&mut self) {
        let visit = self;
        if visit.is_modern {
            let discovered = visit.ask("server/discover", json!({})).await;
            assert!(discovered["result"].is_object(), "{discovered}");
            // Which revisions are spoken differs: the gateway bridges.
            let (_, discovered) = visit.answers.last_mut().unwrap();
            discovered["result"]["supportedVersions"] = Value::Null;
        } else {
            let client = json!({"name": "visitor", "version": "7"});
            let params =
                json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
            visit.ask("initialize", params).await;
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            visit.way.say(&initialized).await;
        }
    }

    /// Everything that a client can ask, in one era.
    async fn of(way: Way, is_modern: bool) -> Vec<(String, Value)> {
        let mut visit = Self::new(way, is_modern);
        visit.open().await;
        let mut params = json!({});
        loop {
            let page = visit.ask("tools/list", params).await;
            match page["result"].get("nextCursor") {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => break,
            }
        }
        visit.ask("prompts/list", json!({})).await;
        visit.ask("resources/list", json!({})).await;
        let names = PAGES.iter().flat_map(|(names, _)| names.iter());
        for name in names.chain(&["not_listed"]) {
            let params = json!({"name": name, "arguments": {}});
            visit.ask("tools/call", params).await;
        }
        visit.ask("prompts/get", json!({"name": "ask/me"})).await;
        for uri in ["whole://a", "mcpgw+one+whole://a", "whole://not-listed"] {
            visit.ask("resources/read", json!({"uri": uri})).await;
        }
        visit.answers
    }
}

/// Without the stamp of the server on its lists, which this server leaves out.
fn without_stamp(answers: &[(String, Value)]) -> Vec<(String, Value)> {
    let mut answers = answers.to_vec();
    for (asked, answer) in &mut answers {
        if asked.contains("/list")
            && let Some(result) = answer["result"].as_object_mut()
        {
            result.remove("_meta");
        }
    }
    answers
}

fn compare(what: &str, direct: &[(String, Value)], seen: &[(String, Value)]) {
    let (direct, seen) = (&without_stamp(direct), &without_stamp(seen));
    let different = direct.iter().zip(seen).filter(|(one, other)| one != other);
    let different = different.map(|((asked, direct), (also, seen))| {
        format!("{asked} {also}\n  direct: {direct}\n  here:   {seen}\n")
    });
    let different: String = different.collect();
    assert!(different.is_empty(), "{what}\n{different}");
    assert_eq!(direct.len(), seen.len(), "{what}");
}

#[tokio::test]
async fn a_view_of_one_server_answers_as_the_server_does() {
    for (era, is_modern) in [("legacy", false), ("modern", true)] {
        let direct = Visit::of(Way::direct(), is_modern).await;
        let config = quick() + &whole(&format!("era = \"{era}\"\nsharing = \"session\""));
        let config = config + &example("two");
        let way = Way::http(&config, "/mcp/server/one").await;
        compare(
            &format!("{era}, HTTP"),
            &direct,
            &Visit::of(way, is_modern).await,
        );
        let way = Way::stdio(&config);
        compare(
            &format!("{era}, stdio"),
            &direct,
            &Visit::of(way, is_modern).await,
        );
    }
}

const REVISIONS: [&str; 4] = ["2024-10-07", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The result of `initialize` of a view, for a client of this revision.
async fn opened(gateway: &Gateway, path: &str, revision: &str) -> Value {
    let http = Http::post(
        gateway.address,
        initialize(revision, &json!({})).to_string(),
    );
    answer_in(http.path(path).send().await).await["result"].clone()
}

#[tokio::test]
async fn a_server_says_who_it_is_in_each_revision_and_in_the_other_era() {
    let members = |revision: &str| match revision {
        "2024-10-07" | "2024-11-05" | "2025-03-26" => ["name", "version"].as_slice(),
        "2025-06-18" => &["name", "title", "version"],
        _ => &[
            "description",
            "icons",
            "name",
            "title",
            "version",
            "websiteUrl",
        ],
    };
    for era in ["legacy", "modern"] {
        let config = quick() + &whole(&format!("era = \"{era}\"")) + &example("two");
        let gateway = Setup::new(&config).serve().await;
        for revision in REVISIONS {
            let result = opened(&gateway, "/mcp/server/one", revision).await;
            let mut known: Vec<_> = result["serverInfo"].as_object().unwrap().keys().collect();
            known.sort_unstable();
            assert_eq!(known, members(revision), "{era} {revision}: {result}");
            assert_eq!(result["serverInfo"]["name"], "whole", "{era} {revision}");
            let mut declared: Vec<_> = result["capabilities"].as_object().unwrap().keys().collect();
            declared.sort_unstable();
            let expected = ["experimental", "prompts", "resources", "tools"];
            assert_eq!(declared, expected, "{era} {revision}: {result}");
            let instructions = Whole.get_info().instructions;
            assert_eq!(
                result["instructions"],
                json!(instructions),
                "{era} {revision}"
            );
            // Every other view is the gateway's.
            let all = opened(&gateway, "/mcp", revision).await;
            assert_eq!(all["serverInfo"]["name"], "mcpvisor", "{era} {revision}");
        }
        // A client of the other era reads the same, but what bridging adds.
        let mut modern = Visit::new(Way::Http(gateway, "/mcp/server/one", None), true);
        let discovered = modern.ask("server/discover", json!({})).await;
        let called = modern.ask("tools/call", json!({"name": "who"})).await;
        // A server of the newer era decides what its results say.
        let url = json!("https://example.com/whole");
        let of_result = if era == "legacy" { &url } else { &Value::Null };
        for (answer, expected) in [(&discovered, &url), (&called, of_result)] {
            let info = &answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
            assert_eq!(&info["websiteUrl"], expected, "{era} {answer}");
        }
        assert_eq!(discovered["result"]["capabilities"]["tools"], json!({}));
    }
}

#[tokio::test]
async fn a_server_that_is_away_keeps_its_identity_and_its_pages() {
    let binary = std::env::current_exe().unwrap();
    let script = format!(
        "test ! -e away && exec {} {}",
        binary.display(),
        ARGUMENTS.join(" ")
    );
    let program = json!(["-c", script]);
    let config =
        whole("era = \"legacy\"").replace(&json!(ARGUMENTS).to_string(), &program.to_string());
    let config = config.replace(&format!("{:?}", binary.display().to_string()), "\"sh\"");
    let mut gateway = Setup::new(&(quick() + &config)).serve().await;
    let before = opened(&gateway, "/mcp/server/one", "2025-11-25").await;
    assert_eq!(before["serverInfo"]["name"], "whole", "{before}");
    gateway.all_up().await;
    gateway.kill();
    std::fs::write(gateway.setup.path("away"), "").unwrap();
    gateway.start_again().await;
    assert_eq!(
        opened(&gateway, "/mcp/server/one", "2025-11-25").await,
        before
    );
    let visitor = Visitor::open(&gateway, "/mcp/server/one").await;
    let cursor = json!({"cursor": PAGES[0].1});
    let page = visitor.ask("tools/list", cursor).await;
    assert_eq!(names(&page["result"]["tools"]), PAGES[1].0, "{page}");
    let called = visitor.call("who").await.to_string();
    assert!(called.contains("code 1"), "{called}");
}

#[tokio::test]
async fn a_server_reads_the_name_of_a_client_that_is_alone_on_its_connection() {
    let table = [
        ("era = \"legacy\"", false, "mcpvisor"),
        ("era = \"legacy\"\nsharing = \"session\"", false, "visitor"),
        ("era = \"modern\"", false, "visitor"),
        ("era = \"modern\"", true, "visitor"),
        ("era = \"legacy\"", true, "mcpvisor"),
    ];
    for (settings, is_modern, expected) in table {
        let config = quick() + &whole(settings);
        let mut visit = Visit::new(Way::http(&config, "/mcp/server/one").await, is_modern);
        visit.open().await;
        let called = visit.ask("tools/call", json!({"name": "who"})).await;
        let text = text_of(&called["result"]);
        let name = format!("\"name\":\"{expected}\"");
        assert!(text.contains(&name), "{settings} {is_modern}: {text}");
    }
}

#[tokio::test]
async fn a_shared_process_hears_what_clients_of_its_view_notify() {
    let gateway = Gateway::start(&(quick() + &python("py", ""))).await;
    let mut visit = Visit::new(Way::Http(gateway, "/mcp/server/py", None), false);
    visit.open().await;
    let said = json!({"jsonrpc": "2.0", "method": "com.example/said"});
    visit.way.say(&said).await;
    let heard = visit.ask("tools/call", json!({"name": "heard"})).await;
    let heard = text_of(&heard["result"]);
    assert!(heard.contains("com.example/said"), "{heard}");
}

#[tokio::test]
async fn the_meta_of_a_servers_handshake_is_shown() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/says.py");
    let config = format!(
        "{}[servers.s]\ncommand = \"python3\"\nargs = [\"{script}\", \"s.json\"]\n",
        quick()
    );
    let setup = Setup::new(&config);
    std::fs::write(setup.path("s.json"), "{}").unwrap();
    let gateway = setup.serve().await;
    let opened = opened(&gateway, "/mcp/server/s", "2025-11-25").await;
    assert_eq!(opened["_meta"]["com.example/built"], "today", "{opened}");
    let mut modern = Visit::new(Way::Http(gateway, "/mcp/server/s", None), true);
    let discovered = modern.ask("server/discover", json!({})).await;
    let meta = &discovered["result"]["_meta"];
    assert_eq!(meta["com.example/built"], "today", "{discovered}");
    assert_eq!(meta["io.modelcontextprotocol/serverInfo"]["name"], "says");
}
