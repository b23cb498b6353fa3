//! `POST /mcp?serverId=…`: one request to one server, without `initialize` and without a session.

use std::sync::Arc;

use actix_web::http::{Method, header};
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

use super::AdminEndpoints;
use super::answer::ApiAnswer;
use super::api::{Check, authorize, read_body, respond};
use super::request::{Query, check_json, header_text, invalid};
use crate::admin::operator::Operator;
use crate::protocol::{Envelope, ErrorKind, Failure, Method as RpcMethod};

const SERVER_ID: &str = "serverId";

pub(super) async fn serve(
    request: HttpRequest,
    payload: web::Payload,
    endpoints: web::Data<AdminEndpoints>,
    check: web::Data<Check>,
) -> HttpResponse {
    respond(request, payload, &endpoints, &**check, handle).await
}

async fn handle(
    request: &HttpRequest,
    payload: &mut web::Payload,
    operator: &Arc<Operator>,
) -> Result<ApiAnswer, Failure> {
    authorize(request, operator).await?;
    if request.method() != Method::POST {
        let message = "with `serverId`, the endpoint supports only POST";
        return Err(Failure::new(ErrorKind::HttpMethodNotAllowed, message));
    }
    let query = Query::read(request.query_string(), &[SERVER_ID])?;
    let server = query.text(SERVER_ID).unwrap_or_default();
    let body = read_body(payload).await?;
    check_json(header_text(request, &header::CONTENT_TYPE)?)?;
    let message = Envelope::parse(body.freeze());
    let message = message.map_err(|why| invalid(format!("body: {why}")))?;
    let Envelope::Request(message) = message else {
        return Err(invalid("body: must be one JSON-RPC request"));
    };
    if message.method == RpcMethod::Initialize {
        return Err(invalid(
            "with `serverId` nothing is initialized: send the request itself, or use \
             `/mcp/server/NAME`",
        ));
    }
    let answer = operator.ask(server, message).await?;
    match failure_in(&answer) {
        Some(failure) => Err(failure),
        None => Ok(ApiAnswer::raw(answer)),
    }
}

/// An answer that reports a failure of the gateway, as an error or as a tool result.
#[derive(Deserialize)]
struct FailedAnswer {
    error: Option<FailedRequest>,
    result: Option<FailedTool>,
}

#[derive(Deserialize)]
struct FailedRequest {
    message: String,
    data: FailureData,
}

#[derive(Deserialize)]
struct FailedTool {
    #[serde(rename = "_meta")]
    meta: FailureMeta,
    content: Vec<FailureText>,
}

#[derive(Deserialize)]
struct FailureMeta {
    #[serde(rename = "io.mcpvisor/error")]
    data: FailureData,
}

#[derive(Deserialize)]
struct FailureText {
    text: String,
}

/// The machine-readable part of a failure. `retryable` is always present, which identifies the
/// failure as the gateway's.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FailureData {
    #[serde(rename = "retryable")]
    _retryable: bool,
    code: Option<String>,
    cause: Option<String>,
    server: Option<String>,
    retry_after_ms: Option<u64>,
}

/// The gateway's failure in an answer, or `None` for an answer of the server.
fn failure_in(answer: &[u8]) -> Option<Failure> {
    let answer: FailedAnswer = serde_json::from_slice(answer).ok()?;
    let (data, message) = match (answer.error, answer.result) {
        (Some(error), _) => (error.data, error.message),
        (None, Some(tool)) => {
            let mut texts = tool.content.into_iter().map(|content| content.text);
            (tool.meta.data, texts.next().unwrap_or_default())
        }
        (None, None) => return None,
    };
    let named = |code: Option<&String>| {
        let code = code?;
        ErrorKind::ALL.iter().find(|kind| kind.as_str() == code)
    };
    let kind = named(data.cause.as_ref()).or_else(|| named(data.code.as_ref()))?;
    let mut failure = Failure::new(*kind, message);
    if let Some(server) = data.server {
        failure = failure.server(server);
    }
    match data.retry_after_ms {
        Some(milliseconds) => Some(failure.retry_after_ms(milliseconds)),
        None => Some(failure),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_failures_of_the_gateway_become_error_objects() {
        let data = |code: &str| json!({"code": code, "retryable": false, "server": "one"});
        let tool = |meta: Value| json!({"result": {"content": [{"type": "text", "text": "why"}], "_meta": meta}});
        let table = [
            (json!({"result": {}}), None),
            (json!({"error": {"code": -32602, "message": "mine"}}), None),
            (
                json!({"error": {"code": 1, "message": "mine", "data": {"code": "timeout"}}}),
                None,
            ),
            (
                json!({"error": {"code": 1, "message": "why", "data": data("invalid_params")}}),
                Some(ErrorKind::InvalidParams),
            ),
            (tool(json!({})), None),
            (
                tool(json!({"io.mcpvisor/error": data("server_lost")})),
                Some(ErrorKind::ServerLost),
            ),
        ];
        for (answer, expected) in table {
            let found = failure_in(answer.to_string().as_bytes());
            assert_eq!(
                found.as_ref().map(|failure| failure.kind),
                expected,
                "{answer}"
            );
            assert!(found.is_none_or(|failure| failure.message == "why"));
        }
    }
}
