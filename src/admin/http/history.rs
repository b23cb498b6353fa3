//! `/api/history` and `/api/logs`: the call history and the log, as read by `mcpvisor history` and
//! `mcpvisor logs`.

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::history::{history_entry, history_page, log_page};
use crate::protocol::Failure;

pub(super) async fn calls(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let history = &call.operator.state.history;
    let page = history_page(history, call.query.pairs()).await?;
    Ok(ApiAnswer::json(page))
}

pub(super) async fn one(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let history = &call.operator.state.history;
    let entry = history_entry(history, call.name()).await?;
    Ok(ApiAnswer::json(entry))
}

pub(super) async fn replay(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let answer = call.operator.replay(call.name()).await?;
    Ok(ApiAnswer::json(answer))
}

pub(super) async fn logs(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let page = log_page(&call.operator.state.log, call.query.pairs())?;
    Ok(ApiAnswer::json(page))
}
