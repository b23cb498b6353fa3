//! `/api/tools`: the tools that clients see, and their token costs.

use std::collections::BTreeMap;

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::messages::{Tools, ToolsOfServer};
use crate::admin::status::ToolView;
use crate::protocol::Failure;

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = call.page()?;
    let view = call.operator.view_named(call.query.text("view"))?;
    let mut tools = call.operator.state.tools(&view);
    if let Some(server) = call.query.server()? {
        tools.retain(|tool| tool.server == server);
    }
    let servers = by_server(&tools);
    let tokens: usize = tools.iter().map(|tool| tool.tokens).sum();
    let (tools, page) = page.of(tools);
    Ok(ApiAnswer::json(Tools {
        tools,
        servers,
        tokens,
        page,
    }))
}

/// Number and token cost of tools per server.
fn by_server(tools: &[ToolView]) -> Vec<ToolsOfServer> {
    let mut sums: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for tool in tools {
        let (count, tokens) = sums.entry(&tool.server).or_default();
        *count += 1;
        *tokens += tool.tokens;
    }
    let sums = sums.into_iter();
    let of_server = |(name, (tools, tokens)): (&str, _)| ToolsOfServer {
        name: name.to_owned(),
        tools,
        tokens,
    };
    sums.map(of_server).collect()
}
