//! Delivers the server's answers to callers, and the clients' answers to the server's questions.
//!
//! Calls whose session the server refused are held until it is known whether the session exists, and
//! resent once in a new session.

use tokio::time::Instant;

use crate::bridge::result::{InputRequired, ResultKind};
use crate::bridge::task::Task;
use crate::downstream::call_request::{ClientAnswer, TaskMode, lost};
use crate::downstream::connection::handshake::error_text;
use crate::downstream::era::modern;
use crate::downstream::in_flight::call::{CallAnswer, InFlightCall, WireState};
use crate::downstream::in_flight::endings::not_sent;
use crate::downstream::in_flight::pending_questions::PendingQuestion;
use crate::downstream::in_flight::task_request::related_id;
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent};
use crate::downstream::refusal::session_refused;
use crate::downstream::server_request::answer_frame;
use crate::protocol::{Envelope, Era, Notification, Outcome, RequestId, Response, Revision, code};
use crate::transport::{HttpSession, LinkError, SessionRefusal};

impl CallsInFlight {
    pub(super) fn on_response(&mut self, response: Response, now: Instant) {
        let wire_id = response.id.as_ref().and_then(RequestId::as_number);
        let number = wire_id.and_then(|wire_id| self.calls.by_wire_id(wire_id));
        let call = number.and_then(|number| self.calls.get(number));
        let Some(call) = call.filter(|call| !call.is_between_rounds()) else {
            // The call was answered before, or its caller gave up; now the server is done with it.
            if let Some(wire_id) = wire_id.filter(|wire_id| self.abandoned.remove(*wire_id)) {
                self.calls.deadlines.remove(&wire_id);
                self.server.cancel_late_task(&response);
            }
            return self.unhandled.push(UnhandledEvent::Response(response));
        };
        let number = call.number;
        if call.concerns_task(&response, &self.server) {
            return self.advance(number, |call, server| {
                call.on_task_response(response, server, now)
            });
        }
        if self.server.is_modern() {
            return self.on_modern_response(number, response, now);
        }
        if let Some(call) = self.take(number) {
            if call.task_mode == TaskMode::FollowedByClient {
                let tasks = &self.server.spec.client_tasks;
                tasks.record(&call, &response, now);
            }
            call.reply.answer(Ok(response));
        }
    }

    /// Writes a client's answer to the server, and restarts the deadlines that were paused for it.
    pub(crate) fn on_client_answer(&mut self, answered: ClientAnswer, now: Instant) {
        let ClientAnswer { request, answer } = answered;
        let settings = self.server.spec.settings();
        let roots = &settings.roots;
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
        self.server.link.write(frame);
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

    fn on_modern_response(&mut self, number: u64, response: Response, now: Instant) {
        let Some(call) = self.calls.get(number) else {
            return;
        };
        let is_legacy_client = call.caller.revision.era() == Era::Legacy;
        let is_task_of_client = call.task_mode == TaskMode::FollowedByClient;
        match &response.outcome {
            Outcome::Error(error) => match modern::error_code(error) {
                Some(code::HEADER_MISMATCH) => {
                    let server = &self.server;
                    let is_held = self.calls.update(number, |call| call.await_headers(server));
                    match is_held {
                        Some(true) => self.unhandled.push(UnhandledEvent::HeadersRefused),
                        _ => self.fail_call(number, &error_text(error)),
                    }
                }
                Some(code::UNSUPPORTED_VERSION) => {
                    self.fail_call(number, &error_text(error));
                    self.unhandled.push(UnhandledEvent::RevisionRefused);
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

    /// Handles the refusal of a request's session.
    pub(super) fn on_session_refused(
        &mut self,
        wire_id: Option<u64>,
        refusal: Box<SessionRefusal>,
        now: Instant,
    ) {
        let is_stale = refusal.is_stale;
        let error = refusal.error.clone();
        let number = wire_id.and_then(|wire_id| self.calls.by_wire_id(wire_id));
        let Some(call) = number.and_then(|number| self.calls.get_mut(number)) else {
            if wire_id.is_some() || !is_stale {
                self.report_session_refused(wire_id, error);
            }
            return;
        };
        let number = call.number;
        if call.is_resent || refusal.may_have_run {
            self.refuse(number, &refusal, now);
        } else if is_stale {
            call.is_resent = true;
            call.state = WireState::AwaitsHandshake;
            if !self.server.link.awaits_handshake.get() {
                self.resend(now);
            }
            return;
        } else {
            call.state = WireState::AwaitsVerdict(refusal);
        }
        self.report_session_refused(None, error);
    }

    fn report_session_refused(&mut self, number: Option<u64>, error: LinkError) {
        let session = self.server.link.http_session();
        self.unhandled.push(UnhandledEvent::SessionRefused {
            number,
            session,
            error,
        });
    }

    /// Answers the refused calls with their refusals, because the session exists.
    pub(crate) fn session_confirmed(&mut self, now: Instant) {
        for number in self.refused_calls() {
            let call = self.calls.get_mut(number);
            let state = call.map(|call| std::mem::replace(&mut call.state, WireState::Sent));
            if let Some(WireState::AwaitsVerdict(refusal)) = state {
                self.refuse(number, &refusal, now);
            }
        }
    }

    /// Answers a call with its refusal.
    fn refuse(&mut self, number: u64, refusal: &SessionRefusal, now: Instant) {
        let is_resent = self.calls.get(number).is_some_and(|call| call.is_resent);
        if is_resent && !refusal.may_have_run {
            let Some(call) = self.take(number) else {
                return;
            };
            let (server, status) = (self.server.name(), refusal.error.to_string());
            // The task continues at the server, whether or not the gateway asks about it.
            let failure = match call.task.is_some() {
                true => lost(server, &status),
                false => session_refused(server, &status),
            };
            return call.reply.answer(Err(failure));
        }
        match refusal.answer.clone() {
            Some(Envelope::Response(response)) => {
                self.server.spec.note_refusal(&refusal.error, now);
                self.on_response(response, now);
            }
            _ => self.on_failed(number, &refusal.error, now),
        }
    }

    /// A new handshake is done: sends the calls that were refused or held, over HTTP in this
    /// session.
    pub(crate) fn on_renewed(&mut self, session: Option<HttpSession>, now: Instant) {
        let link = &self.server.link;
        // The connection's own link opened the session.
        if let Some(session) = session
            && link.http_session().as_ref() != Some(&session)
        {
            link.with(|link| link.set_session(session));
        }
        self.resend(now);
    }

    /// Sends the held calls, in the order in which they were made.
    fn resend(&mut self, now: Instant) {
        self.server.link.awaits_handshake.set(false);
        for number in self.refused_calls() {
            if let Some(call) = self.calls.get_mut(number) {
                call.is_resent = true;
                call.state = WireState::AwaitsHandshake;
            }
        }
        let waits = |call: &&InFlightCall| matches!(call.state, WireState::AwaitsHandshake);
        let waiting = self.calls.iter().filter(waits);
        let mut waiting: Vec<_> = waiting.map(|call| (call.wire_id, call.number)).collect();
        waiting.sort_unstable();
        for (_, number) in waiting {
            let Some(call) = self.calls.get_mut(number) else {
                continue;
            };
            call.reply.sent(now);
            call.state = WireState::Sent;
            if let Err(error) = self.server.link.send(call.outgoing.clone())
                && let Some(call) = self.take(number)
            {
                let failure = not_sent(self.server.name(), error);
                call.reply.answer(Err(failure));
            }
        }
    }

    /// Numbers of the calls whose session was refused.
    fn refused_calls(&self) -> Vec<u64> {
        let is_refused = |call: &InFlightCall| matches!(call.state, WireState::AwaitsVerdict(_));
        self.calls.numbers(is_refused)
    }
}
