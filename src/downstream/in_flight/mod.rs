//! The calls in flight on one link: sent, answered, timed out, cancelled, lost.
//!
//! A connection and each of its worker channels own one [`Calls`], and hand it the messages of
//! callers and the events of the link. Whatever belongs to no call goes back to the owner as
//! [`UnhandledEvent`].
//!
//! - `rewrite`: the client's bytes to the server's bytes: id, name, `_meta`, headers
//! - `turns`: calls that wait for their turn at a busy server
//! - `questions`: requests of the server that belong to a call, and their answers
//! - `rounds`, `input_round`: a call repeated with the input that the server asked for
//! - `followed_task`, `bridged_task`, `task_request`: a call whose server continues it as a task
//! - `client_tasks`, `client_task_events`: tasks that clients follow themselves
//! - `failures`: the errors that callers read when the link fails
//!
//! It knows no sessions, no catalog and no supervision: a call is a number, a caller and bytes.

mod bridged_task;
mod client_task_events;
pub(crate) mod client_tasks;
mod failures;
mod followed_task;
mod input_round;
mod questions;
mod rewrite;
mod rounds;
mod task_request;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;

use actix::Recipient;
use serde::Deserialize;
use tokio::time::Instant;

use crate::downstream::call_request::{
    CallMessage, CallRequest, CancelCall, ClientAnswer, Deadline, Reply, TaskMode, lost,
};
use crate::downstream::caller::Caller;
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::deadlines::Deadlines;
use crate::downstream::resilience::admission::{AbandonedCall, Admission, CallPermit};
use crate::id::QuickMap;
use crate::protocol::{
    Envelope, ErrorKind, Failure, Method, Notification, Request, RequestId, Response, notification,
};
use crate::transport::{Link, LinkEnd, LinkError, LinkEvent, OutgoingFrame};

use failures::{link_failure, not_sent};
use followed_task::FollowedTask;
use questions::is_awaiting_answer;
use rewrite::DeclarationCache;
use rounds::RoundTripState;

/// What came over the link and belongs to no call of a client.
pub(crate) enum UnhandledEvent {
    Response(Response),
    Notification(Notification),
    /// `of_ended_call`: it came on the stream of a call that is over, so it is of no other.
    Request {
        request: Request,
        of_ended_call: bool,
    },
    /// A request of the connection's own failed in transport.
    Failed {
        number: u64,
        error: LinkError,
    },
    SessionGone,
    Closed(LinkEnd),
    /// What a sessionless server reports is the business of the connection's own stream.
    Subscription(Box<CallRequest>),
    /// A call's headers were refused: it waits until the tools were listed anew.
    HeadersRefused,
    /// The server does not speak the revision that it spoke before.
    RevisionRefused,
}

/// Calls taken back that are remembered; with more, the server is never trusted to be done.
const ABANDONED_MAX: usize = 1000;

pub(crate) struct Calls {
    spec: Arc<ConnectionSpec>,
    link: Box<dyn Link>,
    admission: Admission,
    /// Every call says of itself what it is.
    is_modern: bool,
    asker: Recipient<ClientAnswer>,
    pending: QuickMap<u64, InFlightCall>,
    /// Taken back, and not answered since.
    abandoned: QuickMap<u64, AbandonedCall>,
    deadlines: Deadlines,
    /// Questions under way, each with the calls whose deadline waits for its answer.
    asked: HashMap<RequestId, Vec<u64>>,
    /// The tasks that questions under way belong to, by their server's ids.
    related: HashMap<RequestId, String>,
    /// Refused by the server because our session was gone; sent again after a new handshake.
    refused: Vec<u64>,
    /// Where a call is that was repeated under another number.
    renumbered: QuickMap<u64, u64>,
    /// Questions of ours that a call waits for, by the number that it is pending under.
    inputs: HashMap<RequestId, u64>,
    /// Calls that are repeated after a while.
    resend_at: Deadlines,
    /// Calls that wait for the tools to be listed anew.
    waiting_for_headers: Vec<u64>,
    /// There is no session until a new handshake is done: calls wait with the refused ones.
    awaits_handshake: bool,
    declared: DeclarationCache,
}

struct InFlightCall {
    /// What its caller knows it by.
    call: u64,
    /// Kept so that it can be sent again if the server refuses it unseen.
    outgoing: OutgoingFrame,
    /// What it takes to ask a sessionless server once more.
    again: Option<Box<RoundTripState>>,
    caller: Arc<Caller>,
    tasks: TaskMode,
    /// The task that its server goes on in.
    following: Option<Box<FollowedTask>>,
    deadline: Deadline,
    reply: Reply,
    resent: bool,
    _permit: CallPermit,
}

impl Calls {
    pub(crate) fn new(
        spec: &Arc<ConnectionSpec>,
        link: Box<dyn Link>,
        asker: Recipient<ClientAnswer>,
        told: Recipient<CallMessage>,
    ) -> Self {
        Self {
            spec: spec.clone(),
            link,
            admission: Admission::new(spec.load.clone(), told),
            is_modern: false,
            asker,
            pending: QuickMap::default(),
            abandoned: QuickMap::default(),
            deadlines: Deadlines::default(),
            asked: HashMap::new(),
            related: HashMap::new(),
            refused: Vec::new(),
            renumbered: QuickMap::default(),
            inputs: HashMap::new(),
            resend_at: Deadlines::default(),
            waiting_for_headers: Vec::new(),
            awaits_handshake: false,
            declared: DeclarationCache::default(),
        }
    }

    /// The server is sessionless.
    pub(crate) fn set_modern(&mut self) {
        self.is_modern = true;
    }

    pub(crate) fn link(&self) -> &dyn Link {
        self.link.as_ref()
    }

    pub(crate) fn into_link(self) -> Box<dyn Link> {
        self.link
    }

    /// The earliest deadline of a call.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let next = [self.deadlines.next(), self.resend_at.next()];
        next.into_iter().flatten().min()
    }

    /// Takes what a session sends: a call, or that it is taken back.
    pub(crate) fn on_message(
        &mut self,
        message: CallMessage,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        match message {
            CallMessage::Start(exchange) => {
                let subscribes = matches!(
                    exchange.request.method,
                    Method::ResourcesSubscribe | Method::ResourcesUnsubscribe
                );
                if self.is_modern && subscribes {
                    return Some(UnhandledEvent::Subscription(exchange));
                }
                self.start(*exchange, now);
            }
            CallMessage::CancelCall(cancel) => self.cancel(&cancel),
            CallMessage::QueueTurn(turn) => self.on_turn(turn, now),
            CallMessage::CheckTask(call) => self.check_task(call, now),
        }
        None
    }

    /// Sends a client's call.
    fn send(&mut self, exchange: CallRequest, permit: CallPermit, now: Instant) {
        let CallRequest {
            number,
            caller,
            request,
            edits,
            tasks,
            deadline,
            mut reply,
        } = exchange;
        let (outgoing, again) = if self.is_modern {
            let again = RoundTripState::new(caller.clone(), request, edits);
            (self.compose(&again, number, None), Some(Box::new(again)))
        } else {
            (rewrite::legacy(&request, edits, &caller, number), None)
        };
        if self.awaits_handshake {
            self.refused.push(number);
        } else if let Err(error) = self.link.send(outgoing.clone()) {
            return reply.answer(Err(not_sent(&self.spec.server, error)));
        } else {
            reply.sent();
        }
        self.deadlines.set(number, deadline.from(now));
        let pending = InFlightCall {
            call: number,
            outgoing,
            again,
            caller,
            tasks,
            following: None,
            deadline,
            reply,
            resent: false,
            _permit: permit,
        };
        self.pending.insert(number, pending);
    }

    /// Sorts what came over the link; what belongs to a client's call is delivered.
    pub(crate) fn on_event(&mut self, event: LinkEvent, now: Instant) -> Option<UnhandledEvent> {
        match event {
            LinkEvent::Received {
                envelope: Envelope::Response(response),
                ..
            } => self.on_response(response, now),
            LinkEvent::Received {
                call,
                envelope: Envelope::Notification(notification),
            } => self.on_notification(call, notification, now),
            LinkEvent::Received {
                call,
                envelope: Envelope::Request(request),
            } => self.on_request(call, request),
            LinkEvent::Failed { call, error } => {
                if !self.is_pending(call) {
                    return Some(UnhandledEvent::Failed {
                        number: call,
                        error,
                    });
                }
                self.on_failed(call, &error, now);
                // A refused connection concerns more than this call: the owner looks after it.
                matches!(error, LinkError::NotSent(_)).then_some(UnhandledEvent::Failed {
                    number: call,
                    error,
                })
            }
            LinkEvent::SessionGone { call } => {
                self.on_session_gone(call);
                Some(UnhandledEvent::SessionGone)
            }
            LinkEvent::Closed(ending) => Some(UnhandledEvent::Closed(ending)),
        }
    }

    fn on_response(&mut self, response: Response, now: Instant) -> Option<UnhandledEvent> {
        let number = response.id.as_ref().and_then(RequestId::as_number);
        let is_pending = |number: &u64| self.pending.contains_key(number);
        let Some(number) = number.filter(is_pending) else {
            // Too late for whoever asked, but now the server is done with it.
            let abandoned = number.and_then(|number| self.abandoned.remove(&number));
            if abandoned.is_some() {
                self.cancel_late_task(&response);
            }
            return Some(UnhandledEvent::Response(response));
        };
        let response = self.on_task_response(number, response, now)?;
        if self.is_modern {
            return self.on_modern_response(number, response, now);
        }
        if let Some(pending) = self.take(number) {
            if pending.tasks == TaskMode::FollowedByClient {
                self.record_task(&pending, &response, now);
            }
            pending.reply.answer(Ok(response));
        }
        None
    }

    fn on_notification(
        &mut self,
        call: Option<u64>,
        notification: Notification,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        let call = match notification.method {
            Method::Progress => progress_of(&notification).map(|number| self.current(number)),
            Method::TaskStatus if self.on_task_status(&notification, now) => return None,
            Method::TaskStatus => {
                self.tell_status(notification, now);
                return None;
            }
            Method::LogMessage if self.is_modern => call.or_else(|| self.sole_logging_call()),
            Method::LogMessage => call.or_else(|| self.sole_leased_call()),
            _ => return Some(UnhandledEvent::Notification(notification)),
        };
        let Some((number, pending)) = call.and_then(|n| self.pending.get_mut(&n).map(|p| (n, p)))
        else {
            // Progress of a call that has ended is late news, unless it went on in a task; a log
            // line may be of interest.
            if notification.method == Method::Progress {
                self.tell_progress(&notification, now);
                return None;
            }
            return Some(UnhandledEvent::Notification(notification));
        };
        if notification.method == Method::Progress {
            let until = pending.deadline.from(now);
            if let Some(following) = &mut pending.following {
                following.on_progress(until);
            }
            if !is_awaiting_answer(&self.asked, pending.call) {
                self.deadlines.set(number, until);
            }
        }
        pending.reply.notify(notification);
        None
    }

    /// From now on calls wait for a new handshake.
    pub(crate) fn hold(&mut self) {
        self.awaits_handshake = true;
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
                .answer(Err(lost(&self.spec.server, "it forgot our session twice")));
        }
    }

    /// A new handshake is done: what the server refused unseen is sent once more.
    pub(crate) fn resend(&mut self) {
        self.awaits_handshake = false;
        for number in std::mem::take(&mut self.refused) {
            let Some(pending) = self.pending.get_mut(&number) else {
                continue;
            };
            pending.reply.sent();
            if let Err(error) = self.link.send(pending.outgoing.clone())
                && let Some(pending) = self.take(number)
            {
                let failure = not_sent(&self.spec.server, error);
                pending.reply.answer(Err(failure));
            }
        }
    }

    /// The client does not want the answer any more: the server is told, nobody waits.
    fn cancel(&mut self, cancel: &CancelCall) {
        if self.cancel_queued(cancel.number) {
            return;
        }
        let number = self.current(cancel.number);
        let Some(pending) = self.take(number) else {
            return;
        };
        let reason = cancel.reason.as_deref().unwrap_or("client cancelled");
        self.tell_cancelled(number, &pending, reason);
        let failure = Failure::new(ErrorKind::Cancelled, "the client cancelled this call");
        pending.reply.answer(Err(failure));
    }

    /// Answers the calls whose deadline has passed and takes them back from the server
    /// (S-LIFE-23).
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(number) = self.resend_at.pop_due(now) {
            self.repeat(number, now);
        }
        while let Some(number) = self.deadlines.pop_due(now) {
            if self.expire_queued(number) {
                continue;
            }
            let Some(pending) = self.take(number) else {
                continue;
            };
            self.tell_cancelled(number, &pending, "timed out");
            if let Some(failure) = self.task_timed_out(&pending) {
                pending.reply.answer(Err(failure));
                continue;
            }
            let message = format!(
                "server `{}` did not answer in time (idle limit {}, in all {}); the call was taken back",
                self.spec.server,
                humantime::format_duration(pending.deadline.idle),
                "`request_timeout_max`"
            );
            let failure =
                Failure::new(ErrorKind::Timeout, message).server(self.spec.server.as_str());
            pending.reply.answer(Err(failure));
        }
    }

    /// The link is dead: every caller learns it now, with the reason.
    pub(crate) fn fail_all(&mut self, why: &str) {
        self.deadlines = Deadlines::default();
        self.resend_at = Deadlines::default();
        self.renumbered.clear();
        self.inputs.clear();
        self.related.clear();
        // Dropped unanswered, these say that they were not sent.
        drop(self.admission.take_all());
        for (_, pending) in self.pending.drain() {
            pending.reply.answer(Err(lost(&self.spec.server, why)));
        }
    }

    fn is_pending(&self, number: u64) -> bool {
        self.pending.contains_key(&number)
    }

    /// The number that a call is pending under, by the one that its caller knows it by.
    fn current(&self, call: u64) -> u64 {
        self.renumbered.get(&call).copied().unwrap_or(call)
    }

    fn on_failed(&mut self, number: u64, error: &LinkError, now: Instant) {
        if self.is_followed(number) {
            return self.ask_later(number, now);
        }
        if let Some(pending) = self.take(number) {
            let server = &self.spec.server;
            let failure = link_failure(server, error);
            let failure = match &pending.again {
                Some(again) => again.failed(server, failure),
                None => failure,
            };
            pending.reply.answer(Err(failure));
        }
    }

    fn take(&mut self, number: u64) -> Option<InFlightCall> {
        let pending = self.pending.remove(&number)?;
        self.deadlines.remove(number);
        if pending.again.is_some() || pending.following.is_some() {
            self.renumbered.remove(&pending.call);
            self.resend_at.remove(number);
            self.inputs.retain(|_, waiting| *waiting != number);
        }
        Some(pending)
    }

    fn tell_cancelled(&mut self, number: u64, pending: &InFlightCall, reason: &str) {
        if let Some(following) = &pending.following {
            self.link.forget(number);
            return self.cancel_task(following.task_id(), &pending.caller);
        }
        // Nothing of it waits at a sessionless server between two rounds.
        if pending
            .again
            .as_ref()
            .is_some_and(|again| again.is_between_rounds())
        {
            return;
        }
        if self.abandoned.len() < ABANDONED_MAX {
            self.abandoned.insert(number, self.admission.abandon());
        }
        // Its task is cancelled as soon as it is known (S-CANC-04).
        if matches!(
            pending.tasks,
            TaskMode::FollowedByGateway | TaskMode::Bridged
        ) {
            return;
        }
        // The end of its stream says it (C-CANC-02).
        if self.is_modern && self.spec.connector.knows_call_of_requests() {
            return self.link.forget(number);
        }
        let params = serde_json::json!({ "requestId": number, "reason": reason });
        // If it cannot be told, the server has other worries than this call.
        let _ = self.link.send(OutgoingFrame::new(
            None,
            notification(&Method::Cancelled, Some(&params)),
        ));
        self.link.forget(number);
    }
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
