//! `/api/notices`: notices for operators, and whether they are dismissed.

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::messages::Notices;
use crate::protocol::Failure;

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let notices = call.operator.notices();
    Ok(ApiAnswer::json(Notices { notices }))
}

pub(super) async fn dismiss(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    set(&call, true).await
}

pub(super) async fn restore(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    set(&call, false).await
}

async fn set(call: &ApiRequest<'_>, dismissed: bool) -> Result<ApiAnswer, Failure> {
    let notice = call.operator.set_dismissed(call.name(), dismissed).await;
    notice.map(ApiAnswer::json)
}
