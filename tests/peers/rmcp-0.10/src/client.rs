//! The client in front of the gateway.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ArgumentInfo, CallToolRequestParam, CallToolResult, ClientCapabilities, ClientInfo,
    CompleteRequestParam, Content, CreateElicitationRequestParam, CreateElicitationResult,
    CreateMessageRequestParam, CreateMessageResult, ElicitationAction, GetPromptRequestParam,
    Implementation, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
    PromptMessageContent, ProtocolVersion, ReadResourceRequestParam, Reference, ResourceContents,
    Role, SamplingMessage, SetLevelRequestParam,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::SseClientTransport;
use rmcp::{ClientHandler, ErrorData, RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use crate::Fallible;

/// The longest that a notification may come after the answer.
const LATE_MAX: Duration = Duration::from_secs(10);

pub(crate) async fn run(url: &str, version: ProtocolVersion) -> Fallible<()> {
    let transport = SseClientTransport::start(format!("{url}/sse")).await?;
    let received = Arc::<Received>::default();
    let served = Asked {
        version: version.clone(),
        received: received.clone(),
    }
    .serve(transport)
    .await?;
    let agreed = served.peer_info().map(|info| info.protocol_version.clone());
    assert_eq!(agreed, Some(version.clone()));
    let level = LoggingLevel::Info;
    served.set_level(SetLevelRequestParam { level }).await?;
    let client = Client {
        served,
        received,
        version,
    };
    client.tools().await?;
    client.questions().await?;
    client.rest().await?;
    client.served.cancel().await?;
    Ok(())
}

/// Messages that came without being asked for.
#[derive(Default)]
struct Received {
    progress: Mutex<Vec<(f64, Option<f64>)>>,
    logs: Mutex<Vec<Value>>,
}

struct Asked {
    version: ProtocolVersion,
    received: Arc<Received>,
}

impl ClientHandler for Asked {
    fn get_info(&self) -> ClientInfo {
        ClientInfo {
            protocol_version: self.version.clone(),
            capabilities: ClientCapabilities::builder()
                .enable_elicitation()
                .enable_sampling()
                .build(),
            client_info: Implementation::from_build_env(),
        }
    }

    async fn create_elicitation(
        &self,
        request: CreateElicitationRequestParam,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateElicitationResult, ErrorData> {
        Ok(CreateElicitationResult {
            action: ElicitationAction::Accept,
            content: Some(json!({ "answer": format!("re: {}", request.message) })),
        })
    }

    async fn create_message(
        &self,
        request: CreateMessageRequestParam,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let about = request.messages[0].content.as_text();
        let about = about.map_or("", |content| &content.text);
        Ok(CreateMessageResult {
            model: "a model".to_owned(),
            stop_reason: None,
            message: SamplingMessage {
                role: Role::Assistant,
                content: Content::text(format!("thought: {about}")),
            },
        })
    }

    async fn on_progress(
        &self,
        report: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let report = (report.progress, report.total);
        self.received.progress.lock().await.push(report);
    }

    async fn on_logging_message(
        &self,
        line: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.received.logs.lock().await.push(line.data);
    }
}

struct Client {
    served: RunningService<RoleClient, Asked>,
    received: Arc<Received>,
    version: ProtocolVersion,
}

fn text(result: &CallToolResult) -> &str {
    let first = result.content.first().and_then(|content| content.as_text());
    first.map_or("", |content| &content.text)
}

impl Client {
    async fn call(&self, tool: &'static str, arguments: Value) -> Fallible<CallToolResult> {
        let request = CallToolRequestParam {
            name: tool.into(),
            arguments: arguments.as_object().cloned(),
        };
        Ok(self.served.call_tool(request).await?)
    }

    /// Whether the revision has forms and structured output.
    fn is_newer(&self) -> bool {
        self.version == ProtocolVersion::V_2025_06_18
    }

    async fn tools(&self) -> Fallible<()> {
        let tools = self.served.list_all_tools().await?;
        let names: HashSet<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert!(
            ["add", "count", "ask", "think", "fail"]
                .iter()
                .all(|name| names.contains(name))
        );
        let sum = self.call("add", json!({ "a": 2, "b": 40 })).await?;
        let structured = sum.structured_content.clone();
        assert_eq!(structured, self.is_newer().then(|| json!({ "sum": 42 })));
        assert_eq!(
            serde_json::from_str::<Value>(text(&sum))?,
            json!({ "sum": 42 })
        );
        assert_eq!(self.call("fail", json!({})).await?.is_error, Some(true));

        // The SDK puts a token into every request: those before may have been reported on, too.
        self.received.progress.lock().await.clear();
        let counted = self.call("count", json!({ "to": 3 })).await?;
        assert_eq!(text(&counted), "counted to 3");
        // The SDK hands out each notification on a task of its own.
        timeout(LATE_MAX, async {
            while self.received.progress.lock().await.len() < 3
                || !self.received.logs.lock().await.contains(&json!("counted"))
            {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await?;
        let reports = self.received.progress.lock().await;
        assert_eq!(*reports, [1.0, 2.0, 3.0].map(|step| (step, Some(3.0))));
        Ok(())
    }

    async fn questions(&self) -> Fallible<()> {
        let asked = self.call("ask", json!({ "question": "who?" })).await;
        match asked {
            Ok(answer) if self.is_newer() => assert_eq!(text(&answer), "re: who?"),
            // There are no words for the question; the reason is told in one way or another.
            Ok(refusal) => assert_ne!(text(&refusal), "re: who?"),
            Err(error) if self.is_newer() => return Err(error),
            Err(_) => {}
        }
        let thought = self.call("think", json!({ "about": "why" })).await?;
        assert_eq!(text(&thought), "thought: why");
        Ok(())
    }

    async fn rest(&self) -> Fallible<()> {
        for (end, greeting) in [("", "hello"), ("/anna", "hello anna")] {
            let uri = format!("python://greeting{end}");
            let read = self
                .served
                .read_resource(ReadResourceRequestParam { uri })
                .await?;
            let [ResourceContents::TextResourceContents { text, .. }] = &read.contents[..] else {
                return Err(format!("{read:?}").into());
            };
            assert_eq!(text, greeting);
        }
        let request = GetPromptRequestParam {
            name: "poem".to_owned(),
            arguments: json!({ "topic": "rain" }).as_object().cloned(),
        };
        let prompt = self.served.get_prompt(request).await?;
        let PromptMessageContent::Text { text } = &prompt.messages[0].content else {
            return Err(format!("{prompt:?}").into());
        };
        assert_eq!(text, "Write a poem about rain.");
        let request = CompleteRequestParam {
            r#ref: Reference::for_prompt("poem"),
            argument: ArgumentInfo {
                name: "topic".to_owned(),
                value: "seas".to_owned(),
            },
            context: None,
        };
        let completed = self.served.complete(request).await?;
        assert_eq!(completed.completion.values, ["season"]);
        Ok(())
    }
}
