//! The official Rust SDK in front of the gateway.

use std::sync::Arc;

use rmcp::model::{CallToolRequestParams, ClientInfo, ReadResourceRequestParams};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::json;

use crate::support::{Gateway, example, python, soon};

type Service<H> = rmcp::service::RunningService<RoleClient, H>;

async fn connect<H: ClientHandler>(gateway: &Gateway, handler: H) -> Service<H> {
    mcpvisor::transport::install_crypto_provider();
    let url: Arc<str> = format!("http://{}/mcp", gateway.address).into();
    let transport = StreamableHttpClientTransport::from_uri(url);
    soon("the handshake of the SDK", handler.serve(transport))
        .await
        .unwrap()
}

#[tokio::test]
async fn the_sdk_uses_everything() {
    let gateway = Gateway::start(&format!("{}{}", example("example"), python("py", ""))).await;
    let client = connect(&gateway, ClientInfo::default()).await;
    let tools = soon("tools", client.list_all_tools()).await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "example__echo"));
    let arguments = json!({"a": 1, "b": 2}).as_object().cloned().unwrap();
    let call = CallToolRequestParams::new("example__add").with_arguments(arguments);
    let result = soon("a call", client.call_tool(call)).await.unwrap();
    assert_eq!(result.structured_content, Some(json!({"sum": 3})));
    let prompts = soon("prompts", client.list_all_prompts()).await.unwrap();
    assert_eq!(prompts.len(), 4);
    let resources = soon("resources", client.list_all_resources())
        .await
        .unwrap();
    assert_eq!(resources.len(), 5);
    let read = ReadResourceRequestParams::new("example://about");
    soon("a resource", client.read_resource(read))
        .await
        .unwrap();
    soon("the end", client.cancel()).await.unwrap();
}
