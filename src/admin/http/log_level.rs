//! `/api/loglevel`: from which level on the gateway logs, until its next start.

use serde_json::json;

use super::answer::ApiAnswer;
use super::request::{ApiRequest, invalid};
use crate::protocol::Failure;
use crate::telemetry::{log_level, set_log_level};

pub(super) async fn show(_: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    Ok(ApiAnswer::json(json!({ "level": log_level() })))
}

pub(super) async fn change(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let level = call.sole_text("level")?;
    if !level.is_some_and(|level| set_log_level(&level)) {
        let message = "body: `level` must be one of error, warn, info, debug, trace";
        return Err(invalid(message));
    }
    show(call).await
}
