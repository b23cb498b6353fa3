//! `/api/sessions`.

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::messages::Sessions;
use crate::protocol::{ErrorKind, Failure};
use crate::sessions::SessionList;

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = call.page()?;
    let sessions = SessionList::of(&call.operator.state.sessions);
    let (total, views) = sessions.page(page.offset, page.limit).await;
    Ok(ApiAnswer::json(Sessions {
        sessions: views,
        page: page.among(total),
    }))
}

pub(super) async fn one(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let sessions = SessionList::of(&call.operator.state.sessions);
    let found = sessions.find(call.name()).await;
    found.map(ApiAnswer::json).ok_or_else(unknown)
}

pub(super) async fn end(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let sessions = SessionList::of(&call.operator.state.sessions);
    match sessions.end(call.name()).await {
        true => Ok(ApiAnswer::no_content()),
        false => Err(unknown()),
    }
}

fn unknown() -> Failure {
    let message = "unknown session handle; `GET /api/sessions` lists the sessions";
    Failure::new(ErrorKind::SessionNotFound, message)
}
