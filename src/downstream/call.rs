//! A call on its way to a server, and the way back.

use std::time::Duration;

use actix::{Message, Recipient};
use tokio::time::Instant;

use crate::id::ServerName;
use crate::protocol::{Edit, ErrorKind, Failure, Notification, Request, Response};

/// A request of a client, to be sent to one server.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Call {
    /// See [`crate::id::CallNumbers`].
    pub number: u64,
    /// As the client wrote it.
    pub request: Request,
    /// What must read differently for the server: its native name or URI.
    pub edits: Vec<Edit>,
    pub deadline: Deadline,
    pub reply: Reply,
}

/// How long a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Without progress for this long, the call fails.
    pub idle: Duration,
    /// Whatever its progress, it fails now.
    pub latest: Instant,
}

impl Deadline {
    /// When the call fails if nothing is heard from `now` on.
    pub fn from(&self, now: Instant) -> Instant {
        self.latest.min(now + self.idle)
    }
}

/// The client took its call back, or nobody waits for it any more.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct Cancel {
    pub number: u64,
    pub reason: Option<String>,
}

/// What a connection tells the session that made a call.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Delivery {
    pub number: u64,
    pub what: Delivered,
}

pub enum Delivered {
    /// The one answer; nothing follows it.
    Answer(Result<Response, Failure>),
    /// Progress or a log line of this call.
    Notification(Notification),
    /// The server asks the client something while the call runs.
    Question(Question),
}

/// A request of a server to the client (sampling, elicitation, roots), and the way back to the
/// connection. Dropped unanswered, it tells the server that there is no answer.
pub struct Question {
    pub request: Request,
    /// The transport could not tell which of the client's calls to this server it belongs to.
    pub of_any_call: bool,
    asker: Option<Recipient<Answered>>,
}

/// The answer of a client to a question of a server.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Answered {
    /// The question, with the id that the server gave it.
    pub request: Request,
    pub answer: Result<Response, Failure>,
}

impl Question {
    pub fn new(request: Request, asker: Recipient<Answered>) -> Self {
        Self {
            request,
            of_any_call: false,
            asker: Some(asker),
        }
    }

    pub fn of_any_call(request: Request, asker: Recipient<Answered>) -> Self {
        let mut question = Self::new(request, asker);
        question.of_any_call = true;
        question
    }

    pub fn answer(mut self, answer: Result<Response, Failure>) {
        self.answer_once(answer);
    }

    fn answer_once(&mut self, answer: Result<Response, Failure>) {
        if let Some(asker) = self.asker.take() {
            asker.do_send(Answered {
                request: self.request.clone(),
                answer,
            });
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.answer_once(Err(Failure::new(
            ErrorKind::SessionNotFound,
            "the client that this question was for is gone",
        )));
    }
}

/// The way back to the caller. Exactly one answer goes through it: dropped without one, it
/// answers that the call was lost.
pub struct Reply {
    number: u64,
    server: ServerName,
    caller: Option<Recipient<Delivery>>,
}

impl Reply {
    pub fn new(number: u64, server: ServerName, caller: Recipient<Delivery>) -> Self {
        Self {
            number,
            server,
            caller: Some(caller),
        }
    }

    pub fn answer(mut self, answer: Result<Response, Failure>) {
        self.answer_once(answer);
    }

    pub fn notify(&self, notification: Notification) {
        self.deliver(Delivered::Notification(notification));
    }

    pub fn ask(&self, question: Question) {
        self.deliver(Delivered::Question(question));
    }

    fn deliver(&self, what: Delivered) {
        if let Some(caller) = &self.caller {
            caller.do_send(Delivery {
                number: self.number,
                what,
            });
        }
    }

    fn answer_once(&mut self, answer: Result<Response, Failure>) {
        if let Some(caller) = self.caller.take() {
            caller.do_send(Delivery {
                number: self.number,
                what: Delivered::Answer(answer),
            });
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.caller.is_some() {
            let failure = lost(&self.server, "its connection ended");
            self.answer_once(Err(failure));
        }
    }
}

/// What a caller reads when its call was under way and the answer will not come.
pub(crate) fn lost(server: &ServerName, why: &str) -> Failure {
    let message = format!(
        "server `{server}` was lost before it answered: {why}; the call may have run, so it is not repeated"
    );
    Failure::new(ErrorKind::ServerLost, message).server(server.as_str())
}
