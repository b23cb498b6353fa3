//! `/api/tools`: what clients see, and what it costs them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::status::ToolView;
use crate::id::ViewId;
use crate::protocol::Failure;

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = call.query.page()?;
    let mut tools = call.parts.operator.tools(&ViewId::Default);
    if let Some(server) = call.query.server()? {
        tools.retain(|tool| tool.server == server);
    }
    let total = tools.len();
    let servers = by_server(&tools);
    let tokens: usize = tools.iter().map(|tool| tool.tokens).sum();
    let shown: Vec<ToolView> = tools
        .into_iter()
        .skip(page.offset)
        .take(page.limit)
        .collect();
    Ok(ApiAnswer::json(json!({
        "tools": shown,
        "servers": servers,
        "tokens": tokens,
        "total": total,
        "limit": page.limit,
        "offset": page.offset,
    })))
}

/// The number of tools of each server and their tokens.
fn by_server(tools: &[ToolView]) -> Vec<Value> {
    let mut sums: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for tool in tools {
        let (count, tokens) = sums.entry(&tool.server).or_default();
        *count += 1;
        *tokens += tool.tokens;
    }
    let sums = sums.into_iter();
    sums.map(|(name, (count, tokens))| json!({ "name": name, "tools": count, "tokens": tokens }))
        .collect()
}
