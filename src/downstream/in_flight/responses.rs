//! Delivers the server's answers to callers.

use serde_json::json;
use tokio::time::Instant;

use crate::bridge::result::{InputRequired, ResultKind, strip_for_legacy};
use crate::bridge::task::Task;
use crate::downstream::call_request::TaskMode;
use crate::downstream::connection::handshake::error_text;
use crate::downstream::era::modern;
use crate::downstream::in_flight::call::InFlightCall;
use crate::downstream::in_flight::endings::protocol_failure;
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent};
use crate::protocol::{
    Era, Failure, Method, Notification, Outcome, RawJson, RequestId, Response, Revision, code,
};

impl CallsInFlight {
    pub(super) fn on_response(
        &mut self,
        response: Response,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        let wire_id = response.id.as_ref().and_then(RequestId::as_number);
        let number = wire_id.and_then(|wire_id| self.by_wire_id(wire_id));
        let Some(number) = number.filter(|number| !self.is_between_rounds(*number)) else {
            // The call was answered before, or its caller gave up; now the server is done with it.
            if let Some(wire_id) = wire_id.filter(|wire_id| self.abandoned.remove(*wire_id)) {
                self.deadlines.remove(&wire_id);
                self.cancel_late_task(&response);
            }
            return Some(UnhandledEvent::Response(response));
        };
        let response = self.on_task_response(number, response, now)?;
        if self.is_modern {
            return self.on_modern_response(number, response, now);
        }
        if let Some(call) = self.take(number) {
            if call.task_mode == TaskMode::FollowedByClient {
                self.record_task(&call, &response, now);
            }
            call.reply.answer(Ok(response));
        }
        None
    }

    /// Whether a call's last request was answered and another one will follow.
    fn is_between_rounds(&self, number: u64) -> bool {
        let call = self.calls.get(&number);
        call.is_some_and(InFlightCall::is_between_rounds)
    }

    fn on_modern_response(
        &mut self,
        number: u64,
        response: Response,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        let call = self.calls.get(&number)?;
        let is_legacy_client = call.caller.revision.era() == Era::Legacy;
        let is_task_of_client = call.task_mode == TaskMode::FollowedByClient;
        match &response.outcome {
            Outcome::Error(error) => match modern::error_code(error) {
                Some(code::HEADER_MISMATCH) => return self.on_headers_refused(number, error),
                Some(code::UNSUPPORTED_VERSION) => {
                    self.fail_call(number, &error_text(error));
                    return Some(UnhandledEvent::RevisionRefused);
                }
                _ => self.finish(number, Ok(response)),
            },
            Outcome::Result(result) => match ResultKind::of(result) {
                ResultKind::InputRequired if is_legacy_client => {
                    match InputRequired::parse(result) {
                        Ok(required) => self.begin_round(number, required, now),
                        Err(error) => self.fail_call(number, &error.to_string()),
                    }
                }
                // A client of the same era may support the extension that the type belongs to.
                ResultKind::Extension if !is_legacy_client => self.finish(number, Ok(response)),
                ResultKind::Extension | ResultKind::Unknown => {
                    self.fail_call(number, "result of an unknown type");
                }
                ResultKind::Task if !is_task_of_client => {
                    self.begin_task(number, Task::from_modern(result), now);
                }
                _ => self.finish(number, Ok(response)),
            },
        }
        None
    }

    /// Ends a call with a sessionless server's answer or a task's result, converted for the caller.
    pub(super) fn finish(&mut self, number: u64, answer: Result<Response, Failure>) {
        let Some(mut call) = self.take(number) else {
            return;
        };
        let Some(repeatable) = &call.repeatable else {
            return call.reply.answer(answer);
        };
        if call.caller.revision == Revision::V2025_11_25 {
            for id in &repeatable.elicitation_ids {
                let params = RawJson::from_value(&json!({ "elicitationId": id }));
                let complete = Notification::new(Method::ElicitationComplete, &params);
                call.reply
                    .notify(complete, &self.spec.of_server.notification_budget);
            }
        }
        let is_legacy_client = call.caller.revision.era() == Era::Legacy;
        call.reply.answer(match answer {
            Ok(response) if is_legacy_client => Ok(for_legacy_client(response)),
            answer => answer,
        });
    }

    pub(super) fn fail_call(&mut self, number: u64, why: &str) {
        let failure = protocol_failure(&self.spec.server, why);
        self.finish(number, Err(failure));
    }
}

/// Converts a result of the sessionless revision for a client with a handshake.
fn for_legacy_client(response: Response) -> Response {
    let (Outcome::Result(result), Some(id)) = (&response.outcome, &response.id) else {
        return response;
    };
    match strip_for_legacy(result) {
        Some(result) => Response::new(id, &Outcome::Result(result)),
        None => response,
    }
}
