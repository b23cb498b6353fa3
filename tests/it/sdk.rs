//! The official Rust SDK on both sides of the gateway.

#![expect(
    deprecated,
    reason = "the newest revision drops sampling; those with a handshake have it"
)]

use std::sync::Arc;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
    ContentBlock, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, GetPromptRequestParams, Implementation, InputRequiredResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, SamplingMessage, ServerCapabilities, ServerConfig,
    SubscribeRequestParams, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ErrorData, RoleClient, RoleServer, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::{Gateway, example, python, quick, soon};

/// A user at an SDK client: answers every question with a name, and hears what is said.
#[derive(Clone)]
struct Person {
    name: &'static str,
    events: mpsc::UnboundedSender<&'static str>,
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({"elicitation": {}, "sampling": {}});
        let capabilities: ClientCapabilities = serde_json::from_value(capabilities).unwrap();
        ClientConfig::new(capabilities, Implementation::new("person", "1"))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let answer = json!({ "answer": self.name });
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(answer))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let message = SamplingMessage::assistant_text(format!("model of {}", self.name));
        Ok(CreateMessageResult::new(message, "none".to_owned()))
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let _ = self.events.send("progress");
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        let _ = self.events.send("tools");
    }
}

type Connected = RunningService<RoleClient, Person>;

async fn connect(
    gateway: &Gateway,
    name: &'static str,
) -> (Connected, mpsc::UnboundedReceiver<&'static str>) {
    mcpvisor::transport::install_crypto_provider();
    let (events, received) = mpsc::unbounded_channel();
    let url: Arc<str> = format!("http://{}/mcp", gateway.address).into();
    let transport = StreamableHttpClientTransport::from_uri(url);
    let person = Person { name, events };
    let connected = soon("the handshake of the SDK", person.serve(transport)).await;
    (connected.unwrap(), received)
}

async fn call(client: &Connected, tool: &'static str, arguments: Value) -> CallToolResult {
    let arguments = arguments.as_object().cloned().unwrap();
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    soon("a call of the SDK", client.call_tool(params))
        .await
        .unwrap()
}

fn text(result: &CallToolResult) -> String {
    let result = serde_json::to_value(result).unwrap();
    crate::support::text_of(&result).to_owned()
}

/// A server that is made with the SDK. It is started as a process of its own: this very test
/// binary, told by the environment to be the server.
#[derive(Clone)]
struct SdkServer;

impl ServerHandler for SdkServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_instructions("Made with the SDK.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().cloned().unwrap();
        let tool = |name| Tool::new(name, "A tool.", schema.clone());
        Ok(ListToolsResult::with_all_items(vec![
            tool("greet"),
            tool("think"),
            tool("slow"),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = match &*request.name {
            "greet" => format!("hello {}", json!(request.arguments)),
            "think" if is_sessionless(&context) => match &request.input_responses {
                Some(answers) => json!(answers).to_string(),
                None => {
                    let asked = SamplingMessage::user_text("who are you?");
                    let params = CreateMessageRequestParams::new(vec![asked], 10);
                    let question = json!({"method": "sampling/createMessage", "params": params});
                    let asked =
                        json!({"resultType": "input_required", "inputRequests": {"q": question}});
                    let asked: InputRequiredResult = serde_json::from_value(asked)
                        .map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
                    return Ok(asked.into());
                }
            },
            "think" => {
                let asked = SamplingMessage::user_text("who are you?");
                let params = CreateMessageRequestParams::new(vec![asked], 10);
                let answer = context.peer.create_message(params).await;
                let answer = answer.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
                json!(answer.message).to_string()
            }
            "slow" => {
                context.ct.cancelled().await;
                "cancelled".to_owned()
            }
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

fn is_sessionless(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// Not a test unless a gateway started it: then it is [`SdkServer`] on stdin and stdout.
#[tokio::test]
async fn sdk_server() {
    if std::env::var_os("IT_SDK_SERVER").is_none() {
        return;
    }
    let service = SdkServer.serve(rmcp::transport::io::stdio()).await.unwrap();
    service.waiting().await.unwrap();
}

/// `[servers.NAME]` with [`SdkServer`]. The test runner's own words on its stdout are lines outside the protocol.
fn sdk(name: &str, era: &str) -> String {
    let binary = std::env::current_exe().unwrap();
    let binary = binary.display();
    format!(
        r#"
[servers.{name}]
command = "{binary}"
era = "{era}"
args = ["sdk::sdk_server", "--exact", "--nocapture", "--test-threads=2"]
env = {{ IT_SDK_SERVER = "1", IT_MARK = "${{IT_MARK}}", IT_SERVER = "{name}" }}
"#
    )
}

#[tokio::test]
async fn an_sdk_client_uses_everything() {
    let gateway = Gateway::start(&format!("{}{}", example("example"), python("py", ""))).await;
    let (client, mut received) = connect(&gateway, "Ada").await;
    let tools = soon("tools", client.list_all_tools()).await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "example__echo"));
    let sum = call(&client, "example__add", json!({"a": 1, "b": 2})).await;
    assert_eq!(sum.structured_content, Some(json!({"sum": 3})));
    let prompts = soon("prompts", client.list_all_prompts()).await.unwrap();
    assert_eq!(prompts.len(), 4);
    let about = GetPromptRequestParams::new("example__about");
    assert_eq!(
        soon("a prompt", client.get_prompt(about))
            .await
            .unwrap()
            .messages
            .len(),
        1
    );
    let resources = soon("resources", client.list_all_resources())
        .await
        .unwrap();
    assert_eq!(resources.len(), 5);
    let read = ReadResourceRequestParams::new("example://about");
    soon("a resource", client.read_resource(read))
        .await
        .unwrap();
    let subscribed = client.subscribe(SubscribeRequestParams::new("example://counter"));
    soon("a subscription", subscribed).await.unwrap();
    // The SDK asks for progress by itself, and is told of the lists on its own stream.
    call(&client, "example__slow", json!({"steps": 2, "delay_ms": 5})).await;
    assert_eq!(soon("progress", received.recv()).await, Some("progress"));
    call(&client, "example__add_tool", json!({"name": "new"})).await;
    soon("the change of the list", async {
        while received.recv().await != Some("tools") {}
    })
    .await;
    soon("the end", client.cancel()).await.unwrap();
}

#[tokio::test]
async fn sdk_clients_answer_their_own_questions() {
    let config = format!(
        "{}{}{}",
        example("example"),
        python("py", ""),
        sdk("sdk", "auto")
    );
    let config = config + &sdk("old", "legacy");
    let config = config.replace("command =", "sharing = \"session\"\ncommand =");
    let gateway = Gateway::start(&config).await;
    let (ada, _ada_hears) = connect(&gateway, "Ada").await;
    let (bob, _bob_hears) = connect(&gateway, "Bob").await;
    let asked = async |client: &Connected| {
        (
            text(&call(client, "example__ask", json!({})).await),
            text(&call(client, "py__sample", json!({"text": "x"})).await),
            text(&call(client, "sdk__think", json!({})).await),
            text(&call(client, "old__think", json!({})).await),
        )
    };
    let (of_ada, of_bob) = tokio::join!(asked(&ada), asked(&bob));
    for (name, (elicited, sampled, thought, of_old)) in [("Ada", of_ada), ("Bob", of_bob)] {
        assert_eq!(elicited, format!("the user answered: {name}"));
        assert!(sampled.contains(&format!("model of {name}")), "{sampled}");
        assert!(thought.contains(&format!("model of {name}")), "{thought}");
        assert!(of_old.contains(&format!("model of {name}")), "{of_old}");
    }
}

#[tokio::test]
async fn an_sdk_server_works_behind_the_gateway() {
    let gateway = Gateway::start(&(quick() + &sdk("sdk", "auto"))).await;
    let (client, _hears) = connect(&gateway, "Ada").await;
    let greeting = call(&client, "sdk__greet", json!({"to": "you"})).await;
    assert_eq!(text(&greeting), "hello {\"to\":\"you\"}");
    let plain = crate::support::Client::open(&gateway).await;
    let params = json!({"name": "sdk__slow", "arguments": {}});
    let http = plain.post(&crate::support::request("s", "tools/call", params));
    let slow = tokio::spawn(http.send());
    crate::support::until("the call under way", || async {
        let server = gateway.server("sdk").await;
        (server["connection"]["in_flight"] == 1).then_some(())
    })
    .await;
    plain
        .notify("notifications/cancelled", json!({"requestId": "s"}))
        .await;
    soon("the end of the call", slow).await.unwrap();
    let server = gateway.server("sdk").await;
    assert!(
        server["connection"]["log"]["stray"].as_u64().unwrap() > 0,
        "{server}"
    );
    // It comes back like any other.
    let pid = gateway.server_pids("sdk")[0];
    crate::support::signal(pid, rustix::process::Signal::KILL);
    crate::support::until("an answer", || async {
        let result = plain.call("sdk__greet", json!({})).await;
        (result["isError"] != true).then_some(())
    })
    .await;
}
