//! The calls under way on one link: sent, answered, timed out, taken back, lost.
//!
//! Used by the connection itself and by its lanes on other arbiters; whatever belongs to no call
//! goes back to the owner as [`Unhandled`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::Recipient;
use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;

use super::deadlines::Deadlines;
use super::exchange::{Answered, CallMessage, Cancel, Deadline, Exchange, Question, Reply, lost};
use super::reverse;
use crate::id::ServerName;
use crate::protocol::{
    Envelope, ErrorKind, Failure, Method, Notification, Request, RequestId, Response, notification,
    splice,
};
use crate::transport::{Ending, Link, LinkError, LinkEvent, SendError};

/// Calls in flight over one entry of a server's pool, and at the server in all.
#[derive(Debug)]
pub(crate) struct Load {
    server: Arc<AtomicUsize>,
    /// The limit of the server; a reload may change it.
    calls_max: Arc<AtomicUsize>,
    entry: AtomicUsize,
}

impl Load {
    pub(crate) fn new(server: Arc<AtomicUsize>, calls_max: Arc<AtomicUsize>) -> Self {
        Self {
            server,
            calls_max,
            entry: AtomicUsize::new(0),
        }
    }

    pub(crate) fn of_entry(&self) -> usize {
        self.entry.load(Ordering::Relaxed)
    }
}

/// Lets calls in up to the server's limit.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    load: Arc<Load>,
}

/// One place taken in an [`Admission`]; given back when dropped.
struct Place(Arc<Load>);

impl Admission {
    pub(crate) fn new(load: Arc<Load>) -> Self {
        Self { load }
    }

    fn max(&self) -> usize {
        self.load.calls_max.load(Ordering::Relaxed)
    }

    fn enter(&self) -> Option<Place> {
        let before = self.load.server.fetch_add(1, Ordering::Relaxed);
        self.load.entry.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.load.clone());
        (before < self.max()).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.server.fetch_sub(1, Ordering::Relaxed);
        self.0.entry.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What came over the link and belongs to no call of a client.
pub(crate) enum Unhandled {
    Response(Response),
    Notification(Notification),
    Request(Request),
    /// A request of the connection's own failed in transport.
    Failed {
        number: u64,
        error: LinkError,
    },
    SessionGone,
    Closed(Ending),
}

pub(crate) struct Calls {
    server: ServerName,
    link: Box<dyn Link>,
    admission: Admission,
    asker: Recipient<Answered>,
    pending: HashMap<u64, Pending>,
    deadlines: Deadlines,
    /// Questions under way, each with the calls whose deadline waits for its answer.
    asked: HashMap<RequestId, Vec<u64>>,
    /// Refused by the server because our session was gone; sent again after a new handshake.
    refused: Vec<u64>,
    /// There is no session until a new handshake is done: calls wait with the refused ones.
    is_held: bool,
}

struct Pending {
    /// Kept so that it can be sent again if the server refuses it unseen.
    frame: Bytes,
    deadline: Deadline,
    reply: Reply,
    resent: bool,
    _place: Place,
}

impl Calls {
    pub(crate) fn new(
        server: ServerName,
        link: Box<dyn Link>,
        admission: Admission,
        asker: Recipient<Answered>,
    ) -> Self {
        Self {
            server,
            link,
            admission,
            asker,
            pending: HashMap::new(),
            deadlines: Deadlines::default(),
            asked: HashMap::new(),
            refused: Vec::new(),
            is_held: false,
        }
    }

    pub(crate) fn link(&self) -> &dyn Link {
        self.link.as_ref()
    }

    pub(crate) fn into_link(self) -> Box<dyn Link> {
        self.link
    }

    /// The earliest deadline of a call.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Takes what a session sends: a call, or that it is taken back.
    pub(crate) fn on_message(&mut self, message: CallMessage, now: Instant) {
        match message {
            CallMessage::Start(exchange) => self.start(*exchange, now),
            CallMessage::Cancel(cancel) => self.cancel(&cancel),
        }
    }

    /// Sends a client's call, or answers at once why it cannot be sent.
    fn start(&mut self, exchange: Exchange, now: Instant) {
        let Exchange {
            number,
            caller: _,
            request,
            mut edits,
            deadline,
            mut reply,
        } = exchange;
        let Some(place) = self.admission.enter() else {
            let message = format!(
                "server `{}` has {} calls in flight, its limit (`calls_per_server`); try again later",
                self.server,
                self.admission.max()
            );
            let failure = Failure::new(ErrorKind::Overloaded, message).retry_after_ms(100);
            return reply.answer(Err(failure.server(self.server.as_str())));
        };
        edits.push(request.edit_id(&RequestId::from(number)));
        edits.extend(request.edit_progress_token(number));
        let frame = splice(request.frame.as_bytes(), &mut edits);
        if self.is_held {
            self.refused.push(number);
        } else if let Err(error) = self.link.send(Some(number), frame.clone()) {
            return reply.answer(Err(self.not_sent(error)));
        } else {
            reply.sent();
        }
        self.deadlines.set(number, deadline.from(now));
        let pending = Pending {
            frame,
            deadline,
            reply,
            resent: false,
            _place: place,
        };
        self.pending.insert(number, pending);
    }

    /// Sorts what came over the link; what belongs to a client's call is delivered.
    pub(crate) fn on_event(&mut self, event: LinkEvent, now: Instant) -> Option<Unhandled> {
        match event {
            LinkEvent::Received {
                envelope: Envelope::Response(response),
                ..
            } => self.on_response(response),
            LinkEvent::Received {
                call,
                envelope: Envelope::Notification(notification),
            } => self.on_notification(call, notification, now),
            LinkEvent::Received {
                call,
                envelope: Envelope::Request(request),
            } => self.on_request(call, request),
            LinkEvent::Failed { call, error } => {
                let Some(pending) = self.take(call) else {
                    return Some(Unhandled::Failed {
                        number: call,
                        error,
                    });
                };
                let failure = self.link_failure(&error);
                pending.reply.answer(Err(failure));
                // A refused connection concerns more than this call: the owner looks after it.
                matches!(error, LinkError::NotSent(_)).then_some(Unhandled::Failed {
                    number: call,
                    error,
                })
            }
            LinkEvent::SessionGone { call } => {
                self.on_session_gone(call);
                Some(Unhandled::SessionGone)
            }
            LinkEvent::Closed(ending) => Some(Unhandled::Closed(ending)),
        }
    }

    fn on_response(&mut self, response: Response) -> Option<Unhandled> {
        let number = response.id.as_ref().and_then(RequestId::as_number);
        match number.and_then(|number| self.take(number)) {
            Some(pending) => {
                pending.reply.answer(Ok(response));
                None
            }
            None => Some(Unhandled::Response(response)),
        }
    }

    fn on_notification(
        &mut self,
        call: Option<u64>,
        notification: Notification,
        now: Instant,
    ) -> Option<Unhandled> {
        let call = match notification.method {
            Method::Progress => progress_of(&notification),
            Method::LogMessage => call,
            _ => return Some(Unhandled::Notification(notification)),
        };
        let Some((number, pending)) = call.and_then(|n| self.pending.get(&n).map(|p| (n, p)))
        else {
            // Progress of a call that has ended is late news; a log line may be of interest.
            let late = notification.method == Method::Progress;
            return (!late).then_some(Unhandled::Notification(notification));
        };
        if notification.method == Method::Progress && !is_asked(&self.asked, number) {
            self.deadlines.set(number, pending.deadline.from(now));
        }
        pending.reply.notify(notification);
        None
    }

    fn on_request(&mut self, call: Option<u64>, request: Request) -> Option<Unhandled> {
        let asks_client = reverse::asks_client(&request.method);
        let call = call.filter(|_| asks_client);
        let Some((number, pending)) = call.and_then(|n| self.pending.get(&n).map(|p| (n, p)))
        else {
            return Some(Unhandled::Request(request));
        };
        self.deadlines.set(number, pending.deadline.latest);
        self.asked.insert(request.id.clone(), vec![number]);
        pending
            .reply
            .ask(Question::new(request, self.asker.clone()));
        None
    }

    /// Asks the client of the calls under way, on a link that cannot tell whose question it is
    /// but serves one client only: any of them may wait for the answer. Gives the request back
    /// when there is none.
    pub(crate) fn ask_any(&mut self, request: Request) -> Option<Request> {
        let Some((_, newest)) = self.pending.iter().max_by_key(|(number, _)| **number) else {
            return Some(request);
        };
        for (number, pending) in &self.pending {
            self.deadlines.set(*number, pending.deadline.latest);
        }
        let waiting = self.pending.keys().copied().collect();
        self.asked.insert(request.id.clone(), waiting);
        newest
            .reply
            .ask(Question::of_any_call(request, self.asker.clone()));
        None
    }

    /// Writes a client's answer to the server; the deadlines that waited for it run again.
    pub(crate) fn on_answered(&mut self, answered: Answered, roots: &[String], now: Instant) {
        let Answered { request, answer } = answered;
        let frame = reverse::answer_frame(&request, answer, roots);
        // The server is gone if this fails, which its calls notice by themselves.
        let _ = self.link.send(None, frame);
        let waited = self.asked.remove(&request.id).unwrap_or_default();
        for number in waited {
            if let Some(pending) = self.pending.get(&number)
                && !is_asked(&self.asked, number)
            {
                self.deadlines.set(number, pending.deadline.from(now));
            }
        }
    }

    /// From now on calls wait for a new handshake.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }

    fn on_session_gone(&mut self, call: Option<u64>) {
        self.hold();
        let Some(number) = call else { return };
        let again = self.pending.get_mut(&number).is_some_and(|pending| {
            let first = !pending.resent;
            pending.resent = true;
            first
        });
        if again {
            self.refused.push(number);
        } else if let Some(pending) = self.take(number) {
            pending
                .reply
                .answer(Err(lost(&self.server, "it forgot our session twice")));
        }
    }

    /// A new handshake is done: what the server refused unseen is sent once more.
    pub(crate) fn resend(&mut self) {
        self.is_held = false;
        for number in std::mem::take(&mut self.refused) {
            let Some(pending) = self.pending.get_mut(&number) else {
                continue;
            };
            pending.reply.sent();
            if let Err(error) = self.link.send(Some(number), pending.frame.clone())
                && let Some(pending) = self.take(number)
            {
                pending.reply.answer(Err(self.not_sent(error)));
            }
        }
    }

    /// The client does not want the answer any more: the server is told, nobody waits.
    fn cancel(&mut self, cancel: &Cancel) {
        let Some(pending) = self.take(cancel.number) else {
            return;
        };
        self.tell_cancelled(
            cancel.number,
            cancel.reason.as_deref().unwrap_or("client cancelled"),
        );
        let failure = Failure::new(ErrorKind::Cancelled, "the client cancelled this call");
        pending.reply.answer(Err(failure));
    }

    /// Answers the calls whose deadline has passed and takes them back from the server
    /// (S-LIFE-23).
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(number) = self.deadlines.pop_due(now) {
            let Some(pending) = self.take(number) else {
                continue;
            };
            self.tell_cancelled(number, "timed out");
            let message = format!(
                "server `{}` did not answer in time (idle limit {}, in all {}); the call was taken back",
                self.server,
                humantime::format_duration(pending.deadline.idle),
                "`request_timeout_max`"
            );
            let failure = Failure::new(ErrorKind::Timeout, message).server(self.server.as_str());
            pending.reply.answer(Err(failure));
        }
    }

    /// The link is dead: every caller learns it now, with the reason.
    pub(crate) fn fail_all(&mut self, why: &str) {
        self.deadlines = Deadlines::default();
        for (_, pending) in self.pending.drain() {
            pending.reply.answer(Err(lost(&self.server, why)));
        }
    }

    fn take(&mut self, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&number)?;
        self.deadlines.remove(number);
        Some(pending)
    }

    fn tell_cancelled(&self, number: u64, reason: &str) {
        let params = serde_json::json!({ "requestId": number, "reason": reason });
        // If it cannot be told, the server has other worries than this call.
        let _ = self
            .link
            .send(None, notification(&Method::Cancelled, Some(&params)));
        self.link.forget(number);
    }

    fn not_sent(&self, error: SendError) -> Failure {
        let kind = match error {
            SendError::Full => ErrorKind::Overloaded,
            SendError::Closed => ErrorKind::ServerUnavailable,
        };
        let message = format!("server `{}` did not take the call: {error}", self.server);
        Failure::new(kind, message)
            .server(self.server.as_str())
            .retry_after_ms(100)
    }

    fn link_failure(&self, error: &LinkError) -> Failure {
        match error {
            LinkError::NotSent(_) => {
                let message = format!("server `{}` cannot be reached: {error}", self.server);
                Failure::new(ErrorKind::ServerUnavailable, message).server(self.server.as_str())
            }
            LinkError::Lost(why) => lost(&self.server, why),
            LinkError::Status { .. } | LinkError::TooLarge { .. } | LinkError::Protocol(_) => {
                let message = format!("server `{}`: {error}", self.server);
                Failure::new(ErrorKind::ServerProtocol, message).server(self.server.as_str())
            }
        }
    }
}

/// Whether a call waits for the answer to a question.
fn is_asked(asked: &HashMap<RequestId, Vec<u64>>, call: u64) -> bool {
    asked.values().any(|calls| calls.contains(&call))
}

/// The call that a progress notification is about: our tokens are call numbers.
fn progress_of(notification: &Notification) -> Option<u64> {
    #[derive(Deserialize)]
    struct Token(u64);
    let raw = notification.member(notification.params.progress_token.as_ref())?;
    serde_json::from_slice::<Token>(&raw)
        .ok()
        .map(|token| token.0)
}
