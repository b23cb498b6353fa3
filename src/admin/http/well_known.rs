//! `/.well-known/mcp-config`, which registries of MCP servers (Smithery) read to learn how to
//! connect.

use actix_web::{HttpResponse, Resource, web};
use serde_json::json;

use super::{only_get, with_title_case_headers};

/// Served at the root and below the endpoint, since a reverse proxy may forward only the endpoint.
pub(super) fn mcp_config(endpoint: &str) -> Resource {
    let below = format!("{}/.well-known/mcp-config", endpoint.trim_end_matches('/'));
    let body = json!({
        "startCommand": { "type": "http", "endpoint": endpoint, "health": "/health" },
        "transport": "streamable-http",
        "endpoint": endpoint,
        "sseEndpoint": endpoint,
        // Clients have nothing to configure: the operator configures the servers.
        "configSchema": { "type": "object", "properties": {}, "required": [] },
    });
    let answer = move || {
        let response = HttpResponse::Ok().json(&body);
        std::future::ready(with_title_case_headers(response))
    };
    web::resource(["/.well-known/mcp-config".to_owned(), below])
        .route(web::get().to(answer.clone()))
        .route(web::head().to(answer))
        .default_service(web::route().to(only_get))
}
