//! A server's requests to its client: decides whether the gateway or a client answers, and builds
//! the answers.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::bridge::question::{
    self, QuestionKind, RequiredCapability, UnsupportedAnswer, answer_for_server,
};
use crate::bridge::task::with_related_task;
use crate::protocol::{
    DeclaredCapabilities, Failure, Method, Outcome, RawJson, Request, Response, Revision, code,
    error_frame, result_frame,
};

/// Whether a client, rather than the gateway, has to answer.
pub(crate) fn asks_client(method: &Method) -> bool {
    matches!(
        method,
        Method::SamplingCreateMessage | Method::ElicitationCreate | Method::RootsList
    )
}

/// The gateway's own answer when no client can be asked: `ping`, roots from the configuration, and
/// refusals (B-ASK-01).
pub(crate) fn gateway_answer(request: &Request, roots: &[String]) -> Bytes {
    frame(request, &gateway_outcome(request, roots))
}

/// Refuses a question that could be for any of several clients.
pub(crate) fn refusal(request: &Request) -> Bytes {
    let message = "several clients share this connection, and this request does not say whose call it belongs to; from now on each client has a connection of its own";
    frame(request, &error(code::INTERNAL_ERROR, message))
}

/// The capability that a question needs and the client did not declare.
pub(crate) fn undeclared(
    request: &Request,
    profile: &DeclaredCapabilities,
) -> Option<RequiredCapability> {
    let required = question::Question::of_request(request)?.required();
    (!required.is_declared(profile.as_map())).then_some(required)
}

/// Refuses a question to a client that did not declare the capability.
pub(crate) fn undeclared_refusal(request: &Request, capability: RequiredCapability) -> Bytes {
    let (method, capability) = (&request.method, capability.as_str());
    let message = format!(
        "the client whose call led to `{method}` did not declare `{capability}`; clients of other capabilities share this process"
    );
    frame(request, &error(code::METHOD_NOT_FOUND, &message))
}

/// Formats the answer to a question for a server of revision `to`, with the task that the question
/// belongs to (S-TASK-L-08).
pub(crate) fn answer_frame(
    request: &Request,
    answer: Result<Response, Failure>,
    roots: &[String],
    task: Option<&str>,
    to: Revision,
) -> Bytes {
    let outcome = match (answer, &request.method) {
        (Ok(response), _) => match fitted(request, &response, to) {
            Ok(None) if task.is_none() => return response.with_id(&request.id),
            Ok(None) => response.outcome,
            Ok(Some(result)) => Outcome::Result(result),
            Err(unsupported) => error(code::INTERNAL_ERROR, &unsupported.to_string()),
        },
        // To a server that asked a person, a missing answer means that the person cancelled; roots
        // can be answered without a client.
        (Err(_), Method::ElicitationCreate | Method::RootsList) => gateway_outcome(request, roots),
        (Err(failure), _) => error(failure.kind.rpc_code(), &failure.message),
    };
    match (&outcome, task) {
        (Outcome::Result(result), Some(task)) => {
            result_frame(&request.id, &with_related_task(result, task))
        }
        _ => frame(request, &outcome),
    }
}

/// Converts an answer in several parts for a server whose revision has only one; `None` if no
/// change is needed.
fn fitted(
    request: &Request,
    response: &Response,
    to: Revision,
) -> Result<Option<RawJson>, UnsupportedAnswer> {
    match (QuestionKind::of(&request.method), &response.outcome) {
        (Some(kind), Outcome::Result(result)) => answer_for_server(kind, result, to),
        _ => Ok(None),
    }
}

fn gateway_outcome(request: &Request, roots: &[String]) -> Outcome {
    let result = |value: Value| Outcome::Result(RawJson::from_value(&value));
    match &request.method {
        Method::Ping => result(json!({})),
        Method::RootsList => Outcome::Result(configured_roots(roots)),
        Method::ElicitationCreate => result(json!({ "action": "cancel" })),
        method => {
            let message = format!("no client is available to answer `{method}`");
            error(code::METHOD_NOT_FOUND, &message)
        }
    }
}

/// The result of `roots/list` with the roots of the configuration.
pub(crate) fn configured_roots(roots: &[String]) -> RawJson {
    let roots: Vec<Value> = roots.iter().map(|uri| json!({ "uri": uri })).collect();
    RawJson::from_value(&json!({ "roots": roots }))
}

fn error(code: i64, message: &str) -> Outcome {
    Outcome::Error(RawJson::from_value(
        &json!({ "code": code, "message": message }),
    ))
}

fn frame(request: &Request, outcome: &Outcome) -> Bytes {
    match outcome {
        Outcome::Result(result) => result_frame(&request.id, result),
        Outcome::Error(error) => error_frame(&request.id, error),
    }
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
                r#"{"jsonrpc":"2.0","id":"q1","error":{"code":-32601,"message":"no client is available to answer `sampling/createMessage`"}}"#,
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
            answer_frame(
                &request("elicitation/create"),
                gone(),
                &[],
                None,
                Revision::NEWEST
            ),
            r#"{"jsonrpc":"2.0","id":"q1","result":{"action":"cancel"}}"#
        );
        assert_eq!(
            answer_frame(
                &request("sampling/createMessage"),
                gone(),
                &[],
                None,
                Revision::NEWEST
            ),
            r#"{"jsonrpc":"2.0","id":"q1","error":{"code":-32000,"message":"gone"}}"#
        );
    }
}
