//! `/api/tree` and `/api/servers`.

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::messages::{
    Explanation, Ordered, ServerLogs, Servers, ToolOfServer, WantedVersion,
};
use crate::admin::operator::{Inoperable, selected};
use crate::admin::status::ServerStatus;
use crate::downstream::ServerOrder;
use crate::protocol::Failure;

pub(super) async fn tree(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    Ok(ApiAnswer::json(call.operator.status()))
}

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = call.page()?;
    let servers = call.operator.status().servers;
    let (servers, page) = page.of(servers);
    Ok(ApiAnswer::json(Servers { servers, page }))
}

pub(super) async fn one(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    find(&call).map(ApiAnswer::json)
}

/// The server in the path.
fn find(call: &ApiRequest<'_>) -> Result<ServerStatus, Failure> {
    let mut servers = call.operator.status().servers;
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

pub(super) async fn kill(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    order(call, ServerOrder::Kill).await
}

pub(super) async fn trip(mut call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let ToolOfServer { tool } = call.read_body()?;
    order(call, ServerOrder::Trip(tool)).await
}

pub(super) async fn reset(mut call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let ToolOfServer { tool } = call.read_body()?;
    order(call, ServerOrder::Reset(tool)).await
}

pub(super) async fn upgrade(mut call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let WantedVersion { to } = call.read_body()?;
    order(call, ServerOrder::Upgrade(to)).await
}

/// The outcome as text, and the server's status afterwards.
async fn order(call: ApiRequest<'_>, order: ServerOrder) -> Result<ApiAnswer, Failure> {
    let name = find(&call)?.name;
    let message = call.operator.order(&name, order).await?;
    let server = find(&call)?;
    Ok(ApiAnswer::json(Ordered { message, server }))
}

pub(super) async fn logs(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let after = call.query.number("after", 0..=u64::MAX)?;
    let page = call.page()?;
    let server = find(&call)?;
    let lines = call.operator.logs(&server.name)?;
    let entries = selected(lines, after.unwrap_or(0), page.limit);
    Ok(ApiAnswer::json(ServerLogs { entries }))
}

pub(super) async fn crashes(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let server = find(&call)?;
    let crashes = call.operator.crashes(Some(&server.name)).await?;
    Ok(ApiAnswer::json(crashes))
}

pub(super) async fn explain(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let sentences = call.operator.explain(&find(&call)?.name).await?;
    Ok(ApiAnswer::json(Explanation { sentences }))
}

/// Crash reports of the server in the query, or of all servers. The server may have been removed
/// from the configuration.
pub(super) async fn all_crashes(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let crashes = call.operator.crashes(call.query.text("server"));
    crashes.await.map(ApiAnswer::json)
}
