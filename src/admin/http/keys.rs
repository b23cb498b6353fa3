//! `/api/keys`.

use super::answer::ApiAnswer;
use super::request::ApiRequest;
use crate::admin::messages::Keys;
use crate::protocol::Failure;

pub(super) async fn list(call: ApiRequest<'_>) -> Result<ApiAnswer, Failure> {
    let keys = call.operator.keys();
    Ok(ApiAnswer::json(Keys { keys }))
}
