//! `/api/tree` and `/api/servers`.

use serde_json::json;

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::operator::{Inoperable, selected};
use crate::admin::status::ServerStatus;
use crate::downstream::ServerOrder;
use crate::protocol::Failure;

pub(super) async fn tree(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    Ok(ApiAnswer::json(call.parts.operator.status()))
}

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = call.query.page()?;
    let servers = call.parts.operator.status().servers;
    let total = servers.len();
    let shown: Vec<_> = servers
        .into_iter()
        .skip(page.offset)
        .take(page.limit)
        .collect();
    Ok(ApiAnswer::json(json!({
        "servers": shown,
        "total": total,
        "limit": page.limit,
        "offset": page.offset,
    })))
}

pub(super) async fn one(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    find(&call).map(ApiAnswer::json)
}

/// The server that the path names.
fn find(call: &ApiRequest<'_>) -> Result<ServerStatus, Failure> {
    let mut servers = call.parts.operator.status().servers;
    let wanted = call.name();
    let by_id = servers.iter().position(|server| server.id == wanted);
    let found = by_id.or_else(|| servers.iter().position(|server| server.name == wanted));
    match found {
        Some(at) => Ok(servers.swap_remove(at)),
        None => {
            let known: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
            Err(Inoperable::Unknown(&known).failure(wanted))
        }
    }
}

pub(super) async fn start(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    order(call, ServerOrder::Start).await
}

pub(super) async fn stop(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    order(call, ServerOrder::Stop).await
}

pub(super) async fn restart(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    order(call, ServerOrder::Restart).await
}

pub(super) async fn trip(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let tool = call.sole_text("tool")?;
    order(call, ServerOrder::Trip(tool)).await
}

pub(super) async fn reset(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let tool = call.sole_text("tool")?;
    order(call, ServerOrder::Reset(tool)).await
}

/// The outcome in words, and the server as it is then.
async fn order(call: ApiRequest<'_>, order: ServerOrder) -> Result<ApiAnswer, Failure> {
    let name = find(&call)?.name;
    let message = call.parts.operator.order(&name, order).await?;
    let server = find(&call)?;
    Ok(ApiAnswer::json(
        json!({ "message": message, "server": server }),
    ))
}

pub(super) async fn logs(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let after = call.query.number("after", 0..=u64::MAX)?;
    let limit = call.query.page()?.limit;
    let server = find(&call)?;
    let lines = call.parts.operator.logs(&server.name)?;
    let entries = selected(lines, after.unwrap_or(0), Some(limit));
    Ok(ApiAnswer::json(json!({ "entries": entries })))
}

pub(super) async fn crashes(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let server = find(&call)?;
    let crashes = call.parts.operator.crashes(Some(&server.name)).await?;
    Ok(ApiAnswer::json(crashes))
}
