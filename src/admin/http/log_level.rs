//! `/api/loglevel`: the minimum log level, which can be changed until the next start.

use super::answer::ApiAnswer;
use super::request::{ApiRequest, invalid};
use crate::admin::messages::LogLevel;
use crate::protocol::Failure;
use crate::telemetry::{log_level, set_log_level};

pub(super) async fn show(_: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    Ok(ApiAnswer::json(LogLevel {
        level: log_level().to_owned(),
    }))
}

pub(super) async fn change(mut call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let LogLevel { level } = call.read_body()?;
    if !set_log_level(&level) {
        let message = "body: `level` must be one of error, warn, info, debug, trace";
        return Err(invalid(message));
    }
    show(call).await
}
