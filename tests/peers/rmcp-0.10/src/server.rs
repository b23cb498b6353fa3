//! The server behind the gateway.

use std::net::{Ipv4Addr, SocketAddr};

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    AnnotateAble, CallToolResult, CompleteRequestParam, CompleteResult, CompletionInfo, Content,
    CreateMessageRequestParam, GetPromptRequestParam, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, LoggingLevel,
    LoggingMessageNotificationParam, Meta, PaginatedRequestParam, ProgressNotificationParam,
    Prompt, PromptArgument, PromptMessage, PromptMessageRole, ProtocolVersion, RawResource,
    RawResourceTemplate, ReadResourceRequestParam, ReadResourceResult, ResourceContents, Role,
    SamplingMessage, ServerCapabilities, ServerInfo, SetLevelRequestParam,
};
use rmcp::service::RequestContext;
use rmcp::transport::sse_server::SseServer;
use rmcp::{ErrorData, Json, Peer, RoleServer, ServerHandler, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fallible;

pub(crate) async fn run(port: u16, version: ProtocolVersion) -> Fallible<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let server = SseServer::serve(address).await?;
    let ended = server.with_service(move || Served {
        version: version.clone(),
        tool_router: Served::tool_router(),
    });
    ended.cancelled().await;
    Ok(())
}

struct Served {
    version: ProtocolVersion,
    tool_router: ToolRouter<Self>,
}

#[derive(Deserialize, JsonSchema)]
struct Summands {
    a: i64,
    b: i64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Limit {
    to: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Question {
    question: String,
}

#[derive(Deserialize, JsonSchema)]
struct Answer {
    answer: String,
}

rmcp::elicit_safe!(Answer);

#[derive(Deserialize, JsonSchema)]
struct Thought {
    about: String,
}

fn internal(error: impl ToString) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[tool_router]
impl Served {
    #[tool]
    fn add(&self, Parameters(Summands { a, b }): Parameters<Summands>) -> Json<Sum> {
        Json(Sum { sum: a + b })
    }

    #[tool]
    async fn count(
        &self,
        Parameters(Limit { to }): Parameters<Limit>,
        meta: Meta,
        client: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        let token = meta
            .get_progress_token()
            .ok_or_else(|| internal("no token"))?;
        for step in 1..=to {
            let progress = ProgressNotificationParam {
                progress_token: token.clone(),
                progress: step.into(),
                total: Some(to.into()),
                message: None,
            };
            client.notify_progress(progress).await.map_err(internal)?;
        }
        let line = LoggingMessageNotificationParam {
            level: LoggingLevel::Info,
            logger: None,
            data: "counted".into(),
        };
        client
            .notify_logging_message(line)
            .await
            .map_err(internal)?;
        Ok(format!("counted to {to}"))
    }

    #[tool]
    async fn ask(
        &self,
        Parameters(Question { question }): Parameters<Question>,
        client: Peer<RoleServer>,
    ) -> Result<String, ErrorData> {
        let answer = client.elicit::<Answer>(question).await.map_err(internal)?;
        answer
            .map(|answer| answer.answer)
            .ok_or_else(|| internal("no answer"))
    }

    #[tool]
    async fn think(
        &self,
        Parameters(Thought { about }): Parameters<Thought>,
        client: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let asked = CreateMessageRequestParam {
            messages: vec![SamplingMessage {
                role: Role::User,
                content: Content::text(about),
            }],
            model_preferences: None,
            system_prompt: None,
            include_context: None,
            temperature: None,
            max_tokens: 10,
            stop_sequences: None,
            metadata: None,
        };
        let thought = client.create_message(asked).await.map_err(internal)?;
        Ok(CallToolResult::success(vec![thought.message.content]))
    }

    #[tool]
    fn fail(&self) -> Result<CallToolResult, ErrorData> {
        Ok(CallToolResult::error(vec![Content::text("on purpose")]))
    }
}

#[tool_handler]
impl ServerHandler for Served {
    fn get_info(&self) -> ServerInfo {
        ServerInfo {
            protocol_version: self.version.clone(),
            capabilities: ServerCapabilities::builder()
                .enable_completions()
                .enable_logging()
                .enable_prompts()
                .enable_resources()
                .enable_tools()
                .build(),
            ..ServerInfo::default()
        }
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParam,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParam>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult {
            resources: vec![RawResource::new("python://greeting", "greeting").no_annotation()],
            next_cursor: None,
        })
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParam>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let personal = RawResourceTemplate {
            uri_template: "python://greeting/{name}".to_owned(),
            name: "personal".to_owned(),
            title: None,
            description: None,
            mime_type: None,
        };
        Ok(ListResourceTemplatesResult {
            resource_templates: vec![personal.no_annotation()],
            next_cursor: None,
        })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParam,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let text = match request.uri.strip_prefix("python://greeting") {
            Some("") => "hello".to_owned(),
            Some(name) => format!("hello {}", name.trim_start_matches('/')),
            None => return Err(ErrorData::resource_not_found("no such thing", None)),
        };
        Ok(ReadResourceResult {
            contents: vec![ResourceContents::text(text, request.uri)],
        })
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParam>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let topic = PromptArgument {
            name: "topic".to_owned(),
            title: None,
            description: None,
            required: Some(true),
        };
        Ok(ListPromptsResult {
            prompts: vec![Prompt::new("poem", None::<String>, Some(vec![topic]))],
            next_cursor: None,
        })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParam,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResult, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let topic = arguments.get("topic").and_then(|topic| topic.as_str());
        let topic = topic.ok_or_else(|| ErrorData::invalid_params("no topic", None))?;
        let text = format!("Write a poem about {topic}.");
        Ok(GetPromptResult {
            description: None,
            messages: vec![PromptMessage::new_text(PromptMessageRole::User, text)],
        })
    }

    async fn complete(
        &self,
        request: CompleteRequestParam,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values = ["sea", "season"].into_iter();
        let values = values.filter(|value| value.starts_with(&request.argument.value));
        let completion = CompletionInfo::new(values.map(str::to_owned).collect());
        Ok(CompleteResult {
            completion: completion.map_err(internal)?,
        })
    }
}
