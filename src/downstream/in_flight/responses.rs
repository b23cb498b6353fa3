//! Delivers the server's answers to callers, and the clients' answers to the server's questions.

use tokio::time::Instant;

use crate::bridge::result::{InputRequired, ResultKind};
use crate::bridge::task::Task;
use crate::downstream::call_request::{ClientAnswer, TaskMode};
use crate::downstream::connection::handshake::error_text;
use crate::downstream::era::modern;
use crate::downstream::in_flight::call::CallAnswer;
use crate::downstream::in_flight::pending_questions::PendingQuestion;
use crate::downstream::in_flight::task_request::related_id;
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent};
use crate::downstream::server_request::answer_frame;
use crate::protocol::{Era, Notification, Outcome, RequestId, Response, Revision, code};

impl CallsInFlight {
    pub(super) fn on_response(
        &mut self,
        response: Response,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        let wire_id = response.id.as_ref().and_then(RequestId::as_number);
        let number = wire_id.and_then(|wire_id| self.calls.by_wire_id(wire_id));
        let call = number.and_then(|number| self.calls.get(number));
        let Some(call) = call.filter(|call| !call.is_between_rounds()) else {
            // The call was answered before, or its caller gave up; now the server is done with it.
            if let Some(wire_id) = wire_id.filter(|wire_id| self.abandoned.remove(*wire_id)) {
                self.calls.deadlines.remove(&wire_id);
                self.server.cancel_late_task(&response);
            }
            return Some(UnhandledEvent::Response(response));
        };
        let number = call.number;
        if call.concerns_task(&response, &self.server) {
            self.advance(number, |call, server| {
                call.on_task_response(response, server, now)
            });
            return None;
        }
        if self.server.is_modern {
            return self.on_modern_response(number, response, now);
        }
        if let Some(call) = self.take(number) {
            if call.task_mode == TaskMode::FollowedByClient {
                let tasks = &self.server.spec.client_tasks;
                tasks.record(&call, &response, now);
            }
            call.reply.answer(Ok(response));
        }
        None
    }

    /// Writes a client's answer to the server, and restarts the deadlines that were paused for it.
    pub(crate) fn on_client_answer(
        &mut self,
        answered: ClientAnswer,
        roots: &[String],
        now: Instant,
    ) {
        let ClientAnswer { request, answer } = answered;
        let (calls, task) = match self.server.questions.take(&request.id) {
            Some(PendingQuestion::Input { call }) => {
                return self.advance(call, |call, server| {
                    call.on_input(&request.id, answer, roots, server, now)
                });
            }
            Some(PendingQuestion::FromServer { calls, task }) => (calls, task),
            None => (Vec::new(), None),
        };
        let task = task.or_else(|| related_id(&request));
        let part = self.server.spec.last_part.load();
        let to = part.as_ref().map_or(Revision::NEWEST, |part| part.revision);
        let frame = answer_frame(&request, answer, roots, task.as_deref(), to);
        self.server.write(frame);
        for number in calls {
            self.extend(number, now);
        }
    }

    /// Notifies the client of a question that the server cancelled, so that it stops asking its
    /// user.
    pub(super) fn on_question_cancelled(&mut self, notification: &Notification, now: Instant) {
        let Some((cancelled, calls)) = self.server.questions.cancel(notification) else {
            return;
        };
        for number in calls {
            if let Some(call) = self.calls.get_mut(number) {
                call.reply.cancel_question(cancelled.clone());
            }
            self.extend(number, now);
        }
    }

    fn on_modern_response(
        &mut self,
        number: u64,
        response: Response,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        let call = self.calls.get(number)?;
        let is_legacy_client = call.caller.revision.era() == Era::Legacy;
        let is_task_of_client = call.task_mode == TaskMode::FollowedByClient;
        match &response.outcome {
            Outcome::Error(error) => match modern::error_code(error) {
                Some(code::HEADER_MISMATCH) => {
                    let server = &self.server;
                    let is_held = self
                        .calls
                        .update(number, |call| call.await_headers(server))?;
                    if is_held {
                        return Some(UnhandledEvent::HeadersRefused);
                    }
                    self.fail_call(number, &error_text(error));
                }
                Some(code::UNSUPPORTED_VERSION) => {
                    self.fail_call(number, &error_text(error));
                    return Some(UnhandledEvent::RevisionRefused);
                }
                _ => self.finish(number, Ok(response)),
            },
            Outcome::Result(result) => match ResultKind::of(result) {
                ResultKind::InputRequired if is_legacy_client => {
                    match InputRequired::parse(result) {
                        Ok(required) => self.advance(number, |call, server| {
                            call.begin_round(required, server, now)
                        }),
                        Err(error) => self.fail_call(number, &error.to_string()),
                    }
                }
                // A client of the same era may support the extension that the type belongs to.
                ResultKind::Extension if !is_legacy_client => self.finish(number, Ok(response)),
                ResultKind::Extension | ResultKind::Unknown => {
                    self.fail_call(number, "result of an unknown type");
                }
                ResultKind::Task if !is_task_of_client => {
                    let task = Task::from_modern(result);
                    self.advance(number, |call, server| call.begin_task(task, server, now));
                }
                _ => self.finish(number, Ok(response)),
            },
        }
        None
    }

    /// Ends a call with a sessionless server's answer or a task's result, converted for the caller.
    pub(super) fn finish(&mut self, number: u64, answer: CallAnswer) {
        if let Some(call) = self.take(number) {
            call.finish(answer, &self.server);
        }
    }

    fn fail_call(&mut self, number: u64, why: &str) {
        let failure = self.server.protocol_failure(why);
        self.finish(number, Err(failure));
    }
}
