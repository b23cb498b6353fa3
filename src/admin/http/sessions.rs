//! `/api/sessions`.

use serde_json::json;

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::protocol::{ErrorKind, Failure};

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = call.query.page()?;
    let sessions = call.parts.operator.sessions();
    let (total, views) = sessions.list(page.offset, page.limit).await;
    Ok(ApiAnswer::json(json!({
        "sessions": views,
        "total": total,
        "limit": page.limit,
        "offset": page.offset,
    })))
}

pub(super) async fn one(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let sessions = call.parts.operator.sessions();
    let found = sessions.find_by_handle(call.name()).await;
    found.map(ApiAnswer::json).ok_or_else(unknown)
}

pub(super) async fn end(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let sessions = call.parts.operator.sessions();
    match sessions.end_by_handle(call.name()).await {
        true => Ok(ApiAnswer::no_content()),
        false => Err(unknown()),
    }
}

fn unknown() -> Failure {
    let message = "no session has this handle; `GET /api/sessions` lists those that there are";
    Failure::new(ErrorKind::SessionNotFound, message)
}
