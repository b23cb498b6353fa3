//! Questions of the server to the clients of calls, until they are answered.

use std::collections::HashMap;

use actix::Recipient;
use serde::Deserialize;

use crate::downstream::call_request::{CancelledQuestion, ClientAnswer, Question, Reply};
use crate::downstream::in_flight::call::InFlightCall;
use crate::downstream::in_flight::call_table::CallTable;
use crate::downstream::in_flight::task_request::detach_from_task;
use crate::id::SessionId;
use crate::protocol::{Notification, Request, RequestId};

/// A question to a client, and the calls that wait for its answer.
pub(super) enum PendingQuestion {
    /// The server asked, for one of these calls and for the task with this id.
    FromServer {
        calls: Vec<u64>,
        task: Option<String>,
    },
    /// Input that a sessionless server requires for this call; the answer is sent with the repeated
    /// call.
    Input { call: u64 },
}

pub(super) struct PendingQuestions {
    /// Receives the clients' answers.
    asker: Recipient<ClientAnswer>,
    by_id: HashMap<RequestId, PendingQuestion>,
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

impl PendingQuestions {
    pub(super) fn new(asker: Recipient<ClientAnswer>) -> Self {
        let by_id = HashMap::new();
        Self { asker, by_id }
    }

    /// A question that no call waits for.
    pub(super) fn unrelated(&self, request: Request) -> Question {
        Question::new(request, self.asker.clone())
    }

    /// Asks the client of a call, whose deadline pauses until the answer.
    pub(super) fn ask(&mut self, call: &mut InFlightCall, request: Request) {
        call.expires = call.deadline.latest;
        let id = request.id.clone();
        let (request, task) = detach_from_task(request, call.task_mode);
        call.reply.ask(Question::new(request, self.asker.clone()));
        let calls = vec![call.number];
        let pending = PendingQuestion::FromServer { calls, task };
        self.by_id.insert(id, pending);
    }

    /// Asks the client of the calls in flight, on a link that cannot attribute questions but serves
    /// only one client, because any of its calls may wait for the answer. Returns the request if no
    /// call is in flight.
    pub(super) fn ask_any(&mut self, calls: &mut CallTable, request: Request) -> Option<Request> {
        let Some(newest) = calls.newest().map(|call| call.number) else {
            return Some(request);
        };
        let id = request.id.clone();
        if let Some(newest) = calls.get_mut(newest) {
            let question = Question::unattributed(request, self.asker.clone());
            newest.reply.ask(question);
        }
        let waiting = calls.numbers(|_| true);
        for number in &waiting {
            calls.update(*number, |call| call.expires = call.deadline.latest);
        }
        let pending = PendingQuestion::FromServer {
            calls: waiting,
            task: None,
        };
        self.by_id.insert(id, pending);
        None
    }

    /// Asks the client for input that a call's next request needs.
    pub(super) fn ask_for_input(&mut self, call: u64, reply: &mut Reply, request: Request) {
        let pending = PendingQuestion::Input { call };
        self.by_id.insert(request.id.clone(), pending);
        reply.ask(Question::new(request, self.asker.clone()));
    }

    pub(super) fn take(&mut self, id: &RequestId) -> Option<PendingQuestion> {
        self.by_id.remove(id)
    }

    /// Whether the client is being asked something that a call waits for.
    pub(super) fn concern(&self, number: u64) -> bool {
        self.by_id.values().any(|pending| match pending {
            PendingQuestion::FromServer { calls, .. } => calls.contains(&number),
            PendingQuestion::Input { call } => *call == number,
        })
    }

    /// Handles the server's cancellation of its own request: notifies the client, so that it stops
    /// asking its user. Returns the calls that waited for the answer; an unknown request concerns
    /// none.
    pub(super) fn cancel(
        &mut self,
        calls: &mut CallTable,
        notification: &Notification,
    ) -> Vec<u64> {
        #[derive(Deserialize)]
        struct CancelledParams {
            reason: Option<String>,
        }
        let id = notification.member(notification.params.request_id.as_ref());
        let Some(id) = id.and_then(|raw| RequestId::try_new(raw).ok()) else {
            return Vec::new();
        };
        let waiting = match self.by_id.get_mut(&id) {
            Some(PendingQuestion::FromServer { calls, .. }) => std::mem::take(calls),
            Some(PendingQuestion::Input { .. }) | None => return Vec::new(),
        };
        self.by_id.remove(&id);
        let params: Option<CancelledParams> = notification.params_as().ok();
        let reason = params.and_then(|params| params.reason);
        for number in &waiting {
            if let Some(call) = calls.get_mut(*number) {
                call.reply.cancel_question(CancelledQuestion {
                    id: id.clone(),
                    reason: reason.clone(),
                });
            }
        }
        waiting
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
    }
}
