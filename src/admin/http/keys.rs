//! `/api/keys`.

use serde_json::json;

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::protocol::Failure;

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let keys = call.parts.operator.keys();
    Ok(ApiAnswer::json(json!({ "keys": keys })))
}
