//! Requests of a server: which the gateway answers itself, which go to a client, and what the
//! server hears when there is nobody to ask.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::protocol::{Failure, Method, Request, Response, code};

/// Whether a client, and not the gateway, has the answer.
pub(crate) fn asks_client(method: &Method) -> bool {
    matches!(
        method,
        Method::SamplingCreateMessage | Method::ElicitationCreate | Method::RootsList
    )
}

/// The gateway's own answer to a request that no client can be asked: `ping`, roots from the
/// configuration, and refusals (B-ASK-01).
pub(crate) fn gateway_answer(request: &Request, roots: &[String]) -> Bytes {
    match &request.method {
        Method::Ping => result(request, &json!({})),
        Method::RootsList => {
            let roots: Vec<Value> = roots.iter().map(|uri| json!({ "uri": uri })).collect();
            result(request, &json!({ "roots": roots }))
        }
        Method::ElicitationCreate => result(request, &json!({ "action": "cancel" })),
        method => {
            let message = format!("no client is there to answer `{method}`");
            let error = json!({ "code": code::METHOD_NOT_FOUND, "message": message });
            frame(request, "error", &error)
        }
    }
}

/// What the server reads as the answer to its question.
pub(crate) fn answer_frame(
    request: &Request,
    answer: Result<Response, Failure>,
    roots: &[String],
) -> Bytes {
    match (answer, &request.method) {
        (Ok(response), _) => response.with_id(&request.id),
        // Whoever asked a person and got no answer reads that the person went away; roots are
        // known without one.
        (Err(_), Method::ElicitationCreate | Method::RootsList) => gateway_answer(request, roots),
        (Err(failure), _) => {
            let error = json!({ "code": failure.kind.rpc_code(), "message": failure.message });
            frame(request, "error", &error)
        }
    }
}

fn result(request: &Request, result: &Value) -> Bytes {
    frame(request, "result", result)
}

fn frame(request: &Request, member: &str, value: &Value) -> Bytes {
    let id = request.id.as_str();
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Envelope, ErrorKind};

    fn request(method: &str) -> Request {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":"q1","method":"{method}"}}"#);
        match Envelope::parse(Bytes::from(frame)) {
            Ok(Envelope::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_gateway_answers_what_no_client_can_be_asked() {
        let roots = ["file:///srv".to_owned()];
        let table = [
            ("ping", r#"{"jsonrpc":"2.0","id":"q1","result":{}}"#),
            (
                "roots/list",
                r#"{"jsonrpc":"2.0","id":"q1","result":{"roots":[{"uri":"file:///srv"}]}}"#,
            ),
            (
                "elicitation/create",
                r#"{"jsonrpc":"2.0","id":"q1","result":{"action":"cancel"}}"#,
            ),
            (
                "sampling/createMessage",
                r#"{"jsonrpc":"2.0","id":"q1","error":{"code":-32601,"message":"no client is there to answer `sampling/createMessage`"}}"#,
            ),
        ];
        for (method, expected) in table {
            assert_eq!(
                gateway_answer(&request(method), &roots),
                expected,
                "{method}"
            );
        }
    }

    #[test]
    fn a_lost_client_cancels_the_elicitation_and_fails_the_sampling() {
        let gone = || Err(Failure::new(ErrorKind::SessionNotFound, "gone"));
        assert_eq!(
            answer_frame(&request("elicitation/create"), gone(), &[]),
            r#"{"jsonrpc":"2.0","id":"q1","result":{"action":"cancel"}}"#
        );
        assert_eq!(
            answer_frame(&request("sampling/createMessage"), gone(), &[]),
            r#"{"jsonrpc":"2.0","id":"q1","error":{"code":-32000,"message":"gone"}}"#
        );
    }
}
