//! `/api/sessions`.

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::messages::Sessions;
use crate::protocol::{ErrorKind, Failure};

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = call.page()?;
    let sessions = &call.operator.state.sessions;
    let (total, views) = sessions.list(page.offset, page.limit).await;
    Ok(ApiAnswer::json(Sessions {
        sessions: views,
        page: page.among(total),
    }))
}

pub(super) async fn one(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let sessions = &call.operator.state.sessions;
    let found = sessions.find_by_handle(call.name()).await;
    found.map(ApiAnswer::json).ok_or_else(unknown)
}

pub(super) async fn end(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let sessions = &call.operator.state.sessions;
    match sessions.end_by_handle(call.name()).await {
        true => Ok(ApiAnswer::no_content()),
        false => Err(unknown()),
    }
}

fn unknown() -> Failure {
    let message = "no session has this handle; `GET /api/sessions` lists those that there are";
    Failure::new(ErrorKind::SessionNotFound, message)
}
