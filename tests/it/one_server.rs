//! The view of one server: its clients find what they would find at the server itself.

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, ListPromptsResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServiceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{
    Gateway, Http, INITIALIZE, Setup, StdioClient, Visitor, answer_in, example, initialize, names,
    quick, request, soon, text_of,
};

/// A server of the official SDK with every member of `serverInfo` and several capabilities.
#[derive(Clone)]
struct Whole;

/// The pages of its tools, each with the cursor that leads to the next one.
const PAGES: [(&[&str], Option<&str>); 3] = [
    (&["who", "one__who"], Some("page \"2\"/ü")),
    (&["a/b c", "p__who"], Some("")),
    (
        &["a_name_that_is_much_longer_than_other_clients_than_this_one_take"],
        None,
    ),
];

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl ServerHandler for Whole {
    fn get_info(&self) -> ServerConfig {
        read(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "tools": {},
                "prompts": {"listChanged": true},
                "resources": {"subscribe": true},
                "experimental": {"com.example/tried": {"deep": [1, 2]}},
            },
            "serverInfo": {
                "name": "whole",
                "title": "The whole server",
                "version": "1.2.3",
                "description": "Says everything.",
                "icons": [{"src": "https://example.com/icon.png", "mimeType": "image/png"}],
                "websiteUrl": "https://example.com/whole",
            },
            "instructions": "  # A heading\n\nCall `who` first.\n",
        }))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let page = match &cursor {
            None => Some(0),
            Some(cursor) => PAGES
                .iter()
                .position(|(_, next)| *next == Some(cursor))
                .map(|page| page + 1),
        };
        let page = page.ok_or_else(|| ErrorData::invalid_params("no such cursor", None))?;
        let (names, next) = PAGES[page];
        let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
        let tools: Vec<_> = names.iter().map(tool).collect();
        Ok(read(json!({"tools": tools, "nextCursor": next})))
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(read(json!({"prompts": [{"name": "ask/me"}]})))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = |uri| json!({"uri": uri, "name": "a resource"});
        let resources = ["whole://a", "mcpgw+one+whole://a"].map(resource);
        Ok(read(json!({"resources": resources})))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_listed = PAGES
            .iter()
            .any(|(names, _)| names.contains(&&*request.name));
        if !is_listed {
            let data = json!({"asked": request.name});
            return Err(ErrorData::invalid_params("unknown tool", Some(data)));
        }
        let client = context.client_info().map(|info| json!(info));
        let text = format!("{} by {}", request.name, client.unwrap_or_default());
        let result = CallToolResult::success(vec![ContentBlock::text(text)]);
        let mut result = json!(result);
        result["_meta"] = json!({"com.example/mark": 1});
        Ok(read::<CallToolResult>(result).into())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let content = json!({"type": "text", "text": request.name});
        let messages = json!([{"role": "user", "content": content}]);
        Ok(read::<GetPromptResult>(json!({"messages": messages})).into())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = json!([{"uri": request.uri, "text": "whole"}]);
        Ok(read::<ReadResourceResult>(json!({"contents": contents})).into())
    }
}

const ARGUMENTS: [&str; 4] = [
    "one_server::whole_server",
    "--exact",
    "--nocapture",
    "--test-threads=2",
];

/// Not a test unless a gateway started it: then it is [`Whole`] on stdin and stdout.
#[tokio::test]
async fn whole_server() {
    if std::env::var_os("IT_WHOLE_SERVER").is_none() {
        return;
    }
    let service = Whole.serve(rmcp::transport::io::stdio()).await.unwrap();
    service.waiting().await.unwrap();
}

/// `[servers.one]` with [`Whole`]: in every other view its names and URIs are others.
fn whole(settings: &str) -> String {
    let binary = std::env::current_exe().unwrap();
    let (binary, arguments) = (binary.display(), json!(ARGUMENTS));
    format!(
        r#"
[servers.one]
command = "{binary}"
args = {arguments}
tools = {{ prefix = "p" }}
resources = {{ wrap = "always" }}
{settings}
env = {{ IT_WHOLE_SERVER = "1", IT_MARK = "${{IT_MARK}}", IT_SERVER = "one" }}
"#
    )
}

/// A way to a server.
enum Way {
    Direct(Child, ChildStdin, tokio::io::Lines<BufReader<ChildStdout>>),
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
        Self::Direct(child, stdin, lines)
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
            Self::Direct(_, stdin, _) => {
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
            Self::Direct(_, _, _) => {
                self.say(message).await;
                let Self::Direct(_, _, lines) = self else {
                    unreachable!()
                };
                soon("an answer of the server", async {
                    loop {
                        let line = lines.next_line().await.unwrap().unwrap();
                        // The test runner writes lines of its own.
                        let start = line.find('{').unwrap_or(line.len());
                        if let Ok(answer) = serde_json::from_str::<Value>(&line[start..])
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
                    let name = ["name", "uri"].map(|key| message["params"][key].as_str());
                    if let Some(name) = name.into_iter().flatten().next() {
                        http = http.header("Mcp-Name", name);
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
            let result = answer["result"].as_object_mut();
            result.and_then(|result| result.remove(member));
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

fn compare(what: &str, direct: &[(String, Value)], seen: &[(String, Value)]) {
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
