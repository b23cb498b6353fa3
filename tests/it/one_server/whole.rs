//! A server with an identity, pages and names that a gateway could change.

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

/// A server of the official SDK with every member of `serverInfo` and several capabilities.
#[derive(Clone)]
pub(super) struct Whole;

/// The pages of its tools, each with the cursor that leads to the next one.
pub(super) const PAGES: [(&[&str], Option<&str>); 3] = [
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

pub(super) const ARGUMENTS: [&str; 4] = [
    "one_server::whole::whole_server",
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
pub(super) fn whole(settings: &str) -> String {
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
