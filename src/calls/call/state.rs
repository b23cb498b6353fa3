//! The progress of a call to its server and back.

use futures_util::future::LocalBoxFuture;

use super::hosted_task::HostedTask;
use super::sent_call::SentCall;
use crate::calls::call_route::CallPermit;
use crate::downstream::{CallSenders, Deadline};
use crate::protocol::{Failure, Request, Response};

pub(super) enum CallState {
    /// Not sent yet, or between two attempts.
    NotSent,
    /// Waiting for a connection to open.
    Opening(Box<OpeningCall>),
    Sent(SentCall),
    /// Running as a task of the server. The client follows the task with further requests.
    Task(Box<HostedTask>),
    /// Answered while the client was away; the answer is kept until the client returns.
    Answered(Box<Result<Response, Failure>>),
    Done,
}

/// A call whose connection is being opened.
pub(super) struct OpeningCall {
    /// The call to send; `None` if it will not be sent because its user has to sign in.
    pub(super) outgoing: Option<OutgoingCall>,
    /// The opening to run; `None` once the table has started it.
    pub(super) opening: Option<ConnectionOpening>,
}

/// A call that is sent as soon as its connection is open.
pub(super) struct OutgoingCall {
    pub(super) request: Request,
    pub(super) sent_as: u64,
    pub(super) deadline: Deadline,
    pub(super) permit: CallPermit,
}

/// Completes with the connection for a call, or with the reason why none could be opened.
pub(crate) type ConnectionOpening = LocalBoxFuture<'static, Result<CallSenders, Failure>>;

impl CallState {
    pub(super) fn opening(outgoing: Option<OutgoingCall>, opening: ConnectionOpening) -> Self {
        let opening = Some(opening);
        Self::Opening(Box::new(OpeningCall { outgoing, opening }))
    }

    /// The connection to open, taken once.
    pub(super) fn take_opening(&mut self) -> Option<ConnectionOpening> {
        match self {
            Self::Opening(opening) => opening.opening.take(),
            _ => None,
        }
    }

    pub(super) fn sent(&self) -> Option<&SentCall> {
        match self {
            Self::Sent(sent) => Some(sent),
            Self::Task(task) => task.sent(),
            _ => None,
        }
    }

    pub(super) fn task(&mut self) -> Option<&mut HostedTask> {
        match self {
            Self::Task(task) => Some(task),
            _ => None,
        }
    }
}
