//! Questions of the server to the clients of calls, until they are answered.

use std::collections::HashMap;
use std::sync::Arc;

use actix::Recipient;
use serde::Deserialize;

use crate::downstream::call_request::{CancelledQuestion, ClientAnswer, Question, Reply, TaskMode};
use crate::downstream::caller::Caller;
use crate::downstream::in_flight::task_request::detach_from_task;
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
#[derive(Debug)]
pub(super) enum LinkUsers {
    Nobody,
    /// One session.
    One(Arc<Caller>),
    /// Clients without a session.
    Sessionless,
    /// Several sessions, or sessions and clients without one.
    Several,
}

impl LinkUsers {
    pub(super) fn add(&mut self, caller: &Arc<Caller>) {
        *self = match self {
            Self::Nobody if caller.session.is_some() => Self::One(caller.clone()),
            Self::One(first) if first.is_same_client(caller) => return,
            Self::Nobody | Self::Sessionless if caller.session.is_none() => Self::Sessionless,
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

    /// Asks the client of a call.
    pub(super) fn ask(&mut self, call: u64, tasks: TaskMode, reply: &mut Reply, request: Request) {
        let id = request.id.clone();
        let (request, task) = detach_from_task(request, tasks);
        reply.ask(Question::new(request, self.asker.clone()));
        let calls = vec![call];
        let pending = PendingQuestion::FromServer { calls, task };
        self.by_id.insert(id, pending);
    }

    /// Asks the client of several calls over one of them, because any of them may wait for the
    /// answer.
    pub(super) fn ask_for_any(&mut self, calls: Vec<u64>, reply: &mut Reply, request: Request) {
        let task = None;
        let pending = PendingQuestion::FromServer { calls, task };
        self.by_id.insert(request.id.clone(), pending);
        reply.ask(Question::unattributed(request, self.asker.clone()));
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

    /// Takes a question that the server cancelled, with the calls that waited for the answer; `None`
    /// if it is unknown.
    pub(super) fn cancel(
        &mut self,
        notification: &Notification,
    ) -> Option<(CancelledQuestion, Vec<u64>)> {
        #[derive(Deserialize)]
        struct CancelledParams {
            reason: Option<String>,
        }
        let id = notification.member(notification.params.request_id.as_ref())?;
        let id = RequestId::try_new(id).ok()?;
        let calls = match self.by_id.get_mut(&id)? {
            PendingQuestion::FromServer { calls, .. } => std::mem::take(calls),
            PendingQuestion::Input { .. } => return None,
        };
        self.by_id.remove(&id);
        let params: Option<CancelledParams> = notification.params_as().ok();
        let reason = params.and_then(|params| params.reason);
        Some((CancelledQuestion { id, reason }, calls))
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
    }
}
