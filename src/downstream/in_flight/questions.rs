//! Requests of the server to the client of a call, and the clients' answers.

use serde::Deserialize;
use tokio::time::Instant;

use crate::downstream::call_request::{CancelledQuestion, ClientAnswer, Question};
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent, task_request};
use crate::downstream::server_request;
use crate::id::SessionId;
use crate::protocol::{Notification, Request, RequestId, Revision};
use crate::transport::OutgoingFrame;

/// An open question to a client, and the calls that wait for its answer.
pub(super) enum OpenQuestion {
    /// The server asked, for one of these calls and for the task with this id.
    FromServer {
        calls: Vec<u64>,
        task: Option<String>,
    },
    /// Input that a sessionless server requires for this call; the answer is sent with the repeated
    /// call.
    Input { call: u64 },
}

/// The clients whose calls were sent over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkUsers {
    Nobody,
    One(SessionId),
    /// Several sessions, or a client without a session.
    Several,
}

impl LinkUsers {
    pub(super) fn add(&mut self, session: Option<SessionId>) {
        *self = match (*self, session) {
            (Self::Nobody, Some(session)) => Self::One(session),
            (Self::One(first), Some(session)) if session == first => Self::One(first),
            _ => Self::Several,
        };
    }
}

impl OpenQuestion {
    fn concerns(&self, number: u64) -> bool {
        match self {
            Self::FromServer { calls, .. } => calls.contains(&number),
            Self::Input { call } => *call == number,
        }
    }
}

impl CallsInFlight {
    pub(super) fn on_request(
        &mut self,
        wire_id: Option<u64>,
        request: Request,
    ) -> Option<UnhandledEvent> {
        // Outer `Option`: whether the server names a call. Inner: whether that call is in flight.
        let named = match wire_id {
            Some(wire_id) => Some(self.by_wire_id(wire_id)),
            None => self.of_task(&request).map(Some),
        };
        let named = named.filter(|_| server_request::asks_client(&request.method));
        let Some(call) = named
            .flatten()
            .and_then(|number| self.calls.get_mut(&number))
        else {
            return Some(UnhandledEvent::Request {
                request,
                of_ended_call: named.is_some(),
            });
        };
        call.expires = call.deadline.latest;
        self.deadlines.set(call.number, call.due());
        let id = request.id.clone();
        let (request, task) = task_request::detach_from_task(request, call.task_mode);
        let calls = vec![call.number];
        call.reply.ask(Question::new(request, self.asker.clone()));
        self.questions
            .insert(id, OpenQuestion::FromServer { calls, task });
        None
    }

    /// The session that receives questions which name no call: the only session that ever called;
    /// before the first call, the one that opened the connection; otherwise the session of all
    /// calls that the server may be working on. `None` if there can be several.
    pub(crate) fn session_of_questions(&self) -> Option<SessionId> {
        match self.users {
            LinkUsers::Nobody => return self.spec.opener,
            LinkUsers::One(session) => return Some(session),
            LinkUsers::Several => {}
        }
        let session = self.calls.values().next()?.caller.session?;
        let now = Instant::now();
        let mut in_flight = self.calls.values().map(|call| call.caller.session);
        let are_same =
            in_flight.all(|it| it == Some(session)) && self.abandoned.are_of(session, now);
        // Clients' tasks can also ask questions.
        (are_same && !self.spec.client_tasks.any(now)).then_some(session)
    }

    /// Asks the client of the calls in flight, on a link that cannot attribute questions but serves
    /// only one client, because any of its calls may wait for the answer. Returns the request if no
    /// call is in flight.
    pub(crate) fn ask_any(&mut self, request: Request) -> Option<Request> {
        for call in self.calls.values_mut() {
            call.expires = call.deadline.latest;
            self.deadlines.set(call.number, call.due());
        }
        let Some(newest) = self.calls.values_mut().max_by_key(|call| call.wire_id) else {
            return Some(request);
        };
        let id = request.id.clone();
        newest
            .reply
            .ask(Question::unattributed(request, self.asker.clone()));
        let calls = self.calls.keys().copied().collect();
        let question = OpenQuestion::FromServer { calls, task: None };
        self.questions.insert(id, question);
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
        let (calls, task) = match self.questions.remove(&request.id) {
            Some(OpenQuestion::Input { call }) => {
                return self.on_input(call, &request.id, answer, roots, now);
            }
            Some(OpenQuestion::FromServer { calls, task }) => (calls, task),
            None => (Vec::new(), None),
        };
        let task = task.or_else(|| task_request::related_id(&request));
        let part = self.spec.last_part.load();
        let to = part.as_ref().map_or(Revision::NEWEST, |part| part.revision);
        let frame = server_request::answer_frame(&request, answer, roots, task.as_deref(), to);
        // A dead link reports its own end.
        let _ = self.link.send(OutgoingFrame::new(None, frame));
        for number in calls {
            if !self.is_client_asked(number) {
                self.extend(number, now);
            }
        }
    }

    /// Handles the server's cancellation of its own request: notifies the client, so that it stops
    /// asking its user. Ignores unknown requests.
    pub(super) fn on_question_cancelled(&mut self, notification: &Notification, now: Instant) {
        #[derive(Deserialize)]
        struct CancelledParams {
            reason: Option<String>,
        }
        let id = notification.member(notification.params.request_id.as_ref());
        let Some(id) = id.and_then(|raw| RequestId::try_new(raw).ok()) else {
            return;
        };
        let mut cancelled = self.questions.extract_if(|question, open| {
            *question == id && matches!(open, OpenQuestion::FromServer { .. })
        });
        let Some((_, OpenQuestion::FromServer { calls, .. })) = cancelled.next() else {
            return;
        };
        drop(cancelled);
        let params: Option<CancelledParams> = notification.params_as().ok();
        let reason = params.and_then(|params| params.reason);
        for number in calls {
            if let Some(call) = self.calls.get_mut(&number) {
                call.reply.cancel_question(CancelledQuestion {
                    id: id.clone(),
                    reason: reason.clone(),
                });
            }
            if !self.is_client_asked(number) {
                self.extend(number, now);
            }
        }
    }

    /// Whether the client is being asked something that a call waits for.
    pub(super) fn is_client_asked(&self, number: u64) -> bool {
        let mut open = self.questions.values();
        open.any(|question| question.concerns(number))
    }
}
