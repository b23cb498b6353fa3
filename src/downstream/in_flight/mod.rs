//! The calls in flight on one link: sent, answered, timed out, cancelled or lost.
//!
//! A connection and each of its worker channels own one [`CallsInFlight`], and pass it the messages
//! of callers and the events of the link. Events that belong to no call are returned to the owner
//! as [`UnhandledEvent`].
//!
//! - `abandoned`: cancelled calls that the server may still be working on
//! - `call`: one call, and its state on the wire
//! - `rewrite`: converts the client's bytes for the server: id, name, `_meta`, headers
//! - `responses`: the server's answers to callers
//! - `queue`: calls that wait for a busy server
//! - `session_refusals`: calls whose session the server refused
//! - `endings`: calls that are cancelled, time out or lose the link
//! - `questions`: requests of the server that belong to a call, and the clients' answers
//! - `repeat`, `input_round`: resends a call with the input or the headers that the server requires
//! - `followed_task`, `task_request`: a call that its server continues as a task
//! - `unowned_lines`: log lines that name no call
//! - `client_tasks`, `client_task_events`: tasks that clients follow themselves
//!
//! It does not know sessions, the catalog or supervision: a call is a number, a caller and bytes.

mod abandoned;
mod call;
mod client_task_events;
pub(crate) mod client_tasks;
mod endings;
mod followed_task;
mod input_round;
mod questions;
mod queue;
mod repeat;
mod responses;
mod rewrite;
mod session_refusals;
mod task_request;
pub(crate) mod unowned_lines;

use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler, Recipient};
use serde::Deserialize;
use tokio::time::Instant;

use crate::downstream::call_request::{CallMessage, CallRequest, ClientAnswer, TaskMode};
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::list_changes::changed_kinds;
use crate::downstream::resilience::admission::{Admission, CallPermit, QueueTurn};
use crate::id::{CallNumbers, QuickMap};
use crate::memory::TimerTable;
use crate::protocol::{Envelope, Era, Method, Notification, Request, RequestId, Response};
use crate::transport::{
    Link, LinkEnd, LinkError, LinkEvent, OutgoingFrame, SendError, SignInPlace,
};

use abandoned::AbandonedRequests;
use call::{InFlightCall, RepeatableRequest, WireState};
use endings::not_sent;
use questions::{LinkUsers, OpenQuestion};
use rewrite::DeclarationCache;
use unowned_lines::RecentClient;

/// An event of the link that belongs to no client's call.
pub(crate) enum UnhandledEvent {
    Response(Response),
    Notification(Notification),
    /// `of_ended_call`: it arrived on the stream of an ended call, so it belongs to no other call.
    Request {
        request: Request,
        of_ended_call: bool,
    },
    /// One of the connection's own requests failed in transport.
    Failed {
        number: u64,
        error: LinkError,
    },
    /// The server refused the session: for the connection's own request if `number` is set,
    /// otherwise for a call, which waits until it is known whether the session exists.
    SessionRefused {
        number: Option<u64>,
        error: LinkError,
    },
    SignIn(SignInPlace),
    Closed(LinkEnd),
    /// A subscription at a sessionless server, served by the connection's event stream.
    Subscription(Box<CallRequest>),
    /// A call's headers were refused: the call waits until the tools are listed again.
    HeadersRefused,
    /// The server no longer speaks the revision that it negotiated.
    RevisionRefused,
}

/// The calls in flight on one link, by number. Messages on the link carry a request id, which
/// differs from the number once a call was resent.
pub(crate) struct CallsInFlight {
    spec: Arc<ConnectionSpec>,
    link: Box<dyn Link>,
    /// Receives the clients' answers to questions.
    asker: Recipient<ClientAnswer>,
    /// Whether the server is sessionless, so that every request describes its client.
    is_modern: bool,
    /// Whether the server lost the session, so that calls wait for a new handshake.
    awaits_handshake: bool,
    /// The clients whose calls were sent over the link so far.
    users: LinkUsers,
    recent: RecentClient,
    /// Limits the calls in flight, and holds the queued ones.
    admission: Admission,
    calls: QuickMap<u64, InFlightCall>,
    /// The numbers of repeated calls, by their current id on the wire.
    renumbered: QuickMap<u64, u64>,
    abandoned: AbandonedRequests,
    /// Deadlines and other due times: by number for a call, by wire id for an abandoned request.
    deadlines: TimerTable<u64>,
    /// Questions to clients that belong to a call.
    questions: HashMap<RequestId, OpenQuestion>,
    declared: DeclarationCache,
    /// Calls with notifications for their callers.
    holding: Vec<u64>,
    /// Whether a call ended in a way that raises doubt about the server.
    is_suspicious: bool,
}

impl CallsInFlight {
    /// Creates the table for a link that the actor `owner` owns.
    pub(crate) fn new<A>(spec: &Arc<ConnectionSpec>, link: Box<dyn Link>, owner: &Addr<A>) -> Self
    where
        A: Actor<Context = Context<A>> + Handler<ClientAnswer> + Handler<QueueTurn>,
    {
        Self {
            spec: spec.clone(),
            link,
            asker: owner.clone().recipient(),
            is_modern: false,
            awaits_handshake: false,
            users: LinkUsers::Nobody,
            recent: RecentClient::default(),
            admission: Admission::new(spec.load.clone(), owner.clone().recipient()),
            calls: QuickMap::default(),
            renumbered: QuickMap::default(),
            abandoned: AbandonedRequests::default(),
            deadlines: TimerTable::default(),
            questions: HashMap::new(),
            declared: DeclarationCache::default(),
            holding: Vec::new(),
            is_suspicious: false,
        }
    }

    /// Marks the server as sessionless.
    pub(crate) fn set_modern(&mut self) {
        self.is_modern = true;
    }

    pub(crate) fn link(&self) -> &dyn Link {
        self.link.as_ref()
    }

    pub(crate) fn into_link(self) -> Box<dyn Link> {
        self.link
    }

    /// When [`Self::expire`] must next be called.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Handles a caller's message: a new call, or a change to one.
    pub(crate) fn on_message(
        &mut self,
        message: CallMessage,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        match message {
            CallMessage::Start(request) => {
                let subscribes = matches!(
                    request.request.method,
                    Method::ResourcesSubscribe | Method::ResourcesUnsubscribe
                );
                if self.is_modern && subscribes {
                    return Some(UnhandledEvent::Subscription(request));
                }
                self.start(*request, now);
            }
            CallMessage::CancelCall(cancel) => self.cancel(&cancel, now),
            CallMessage::CheckTask(number) => self.check_task(number, now),
        }
        None
    }

    /// Sends a client's call. Its wire id is its number, unless the client's own id can be used.
    fn send(&mut self, request: CallRequest, permit: CallPermit, now: Instant) {
        let CallRequest {
            number,
            caller,
            request,
            edits,
            headers,
            forwarded,
            tasks,
            deadline,
            lease,
            mut reply,
        } = request;
        let traceparent = forwarded.as_ref().and_then(|said| said.traceparent());
        let mut wire_id = number;
        let (mut outgoing, repeatable) = if self.is_modern {
            let repeatable = RepeatableRequest {
                request,
                edits,
                headers,
                rounds: 0,
                elicitation_ids: Vec::new(),
                headers_renewed: false,
            };
            let outgoing = rewrite::modern(
                &self.spec,
                &self.declared,
                &caller,
                &repeatable,
                number,
                None,
                traceparent,
            );
            (outgoing, Some(Box::new(repeatable)))
        } else {
            wire_id = self.id_of_client(&request, tasks).unwrap_or(number);
            let outgoing = rewrite::legacy(&request, edits, &caller, wire_id, traceparent);
            (outgoing, None)
        };
        outgoing.forwarded = forwarded;
        let state = if self.awaits_handshake {
            WireState::AwaitsHandshake
        } else if let Err(error) = self.link.send(outgoing.clone()) {
            self.is_suspicious |= error == SendError::Full;
            return reply.answer(Err(not_sent(&self.spec.server, error)));
        } else {
            reply.sent(now);
            WireState::Sent
        };
        self.users.add(caller.session);
        let expires = deadline.from(now);
        self.deadlines.set(number, expires);
        let call = InFlightCall {
            number,
            wire_id,
            outgoing,
            state,
            repeatable,
            task: None,
            caller,
            task_mode: tasks,
            deadline,
            expires,
            reply,
            is_resent: false,
            _permit: permit,
            lease,
        };
        let renumbered = (wire_id != number).then_some((wire_id, number));
        self.renumbered.extend(renumbered);
        self.calls.insert(number, call);
    }

    /// The client's own id for a request, if it can be used at the server, whose tools can read it:
    /// in a session of this client alone, where no other request in flight has that id. Calls with
    /// a task use their number, by which tasks are found.
    fn id_of_client(&self, request: &Request, tasks: TaskMode) -> Option<u64> {
        let is_own = self.spec.key.session().is_some() && tasks == TaskMode::NotRequested;
        let id = request
            .id
            .as_number()
            .filter(|id| *id < CallNumbers::FIRST)?;
        let is_taken = self.by_wire_id(id).is_some() || self.abandoned.has(id);
        (is_own && !is_taken).then_some(id)
    }

    /// Whether a call ended since the last check in a way that raises doubt about the server.
    pub(crate) fn take_suspicion(&mut self) -> bool {
        std::mem::take(&mut self.is_suspicious)
    }

    /// Routes an event of the link. Events of a client's call are delivered; notifications are
    /// batched until [`Self::flush`] or the next other message.
    pub(crate) fn on_event(&mut self, event: LinkEvent, now: Instant) -> Option<UnhandledEvent> {
        match event {
            LinkEvent::Received { call, envelope } => match envelope {
                Envelope::Response(response) => self.on_response(response, now),
                Envelope::Notification(notification) => {
                    self.on_notification(call, notification, now)
                }
                Envelope::Request(request) => self.on_request(call, request),
            },
            LinkEvent::Failed { call, error } => {
                // A refused connection affects more than this call: the owner checks the server.
                let concerns_owner = matches!(error, LinkError::NotSent(_));
                if let Some(number) = self.by_wire_id(call) {
                    self.on_failed(number, &error, now);
                    if !concerns_owner {
                        return None;
                    }
                }
                let number = call;
                Some(UnhandledEvent::Failed { number, error })
            }
            LinkEvent::SessionGone { call, refusal } => self.on_session_refused(call, refusal, now),
            LinkEvent::SignIn(place) => Some(UnhandledEvent::SignIn(place)),
            LinkEvent::Closed(ending) => Some(UnhandledEvent::Closed(ending)),
        }
    }

    fn on_notification(
        &mut self,
        wire_id: Option<u64>,
        notification: Notification,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        let number = match notification.method {
            Method::Progress => progress_token(&notification).and_then(|token| {
                let is_number = self.calls.contains_key(&token);
                is_number
                    .then_some(token)
                    .or_else(|| self.by_wire_id(token))
            }),
            Method::TaskStatus if self.on_task_status(&notification, now) => return None,
            Method::TaskStatus => {
                self.send_task_status(notification, now);
                return None;
            }
            Method::LogMessage => match wire_id {
                Some(wire_id) => self.by_wire_id(wire_id),
                None if self.is_modern => self.sole_logging_call(),
                None => self.sole_call(),
            },
            Method::Cancelled => {
                self.on_question_cancelled(&notification, now);
                return None;
            }
            Method::Other(_) => self.extension_call(wire_id),
            _ => {
                self.note_list_change(&notification.method);
                return Some(UnhandledEvent::Notification(notification));
            }
        };
        let is_progress = notification.method == Method::Progress;
        let Some(call) = number.and_then(|number| self.calls.get_mut(&number)) else {
            // Progress after the answer is dropped, unless the call continues as a task. A log
            // line is still of interest.
            if is_progress {
                self.send_task_progress(&notification, now);
                return None;
            }
            return Some(UnhandledEvent::Notification(notification));
        };
        if let Some(task) = call.task.as_mut().filter(|_| is_progress) {
            task.server_reports_progress = true;
        }
        let number = call.number;
        let budget = &self.spec.of_server.notification_budget;
        if call.reply.hold(notification, budget) {
            self.holding.push(number);
        }
        if is_progress {
            self.extend(number, now);
        }
        None
    }

    /// Records that a list has changed, so that it is read before clients see it again. This must
    /// happen before the following answer is delivered, on any thread.
    fn note_list_change(&self, method: &Method) {
        let kinds = changed_kinds(method);
        if !kinds.is_empty() {
            let changes = &self.spec.of_all.list_changes;
            changes.announce(&self.spec.server, &self.spec.key, kinds);
        }
    }

    /// Sends callers the notifications held while events were processed.
    pub(crate) fn flush(&mut self) {
        for number in self.holding.drain(..) {
            if let Some(call) = self.calls.get_mut(&number) {
                call.reply.flush();
            }
        }
    }

    /// The call that a log line belongs to if the transport does not tell: the only one that
    /// requested log lines.
    fn sole_logging_call(&self) -> Option<u64> {
        let mut logging = self
            .calls
            .values()
            .filter(|it| it.caller.level_of_calls().is_some());
        let call = logging.next()?;
        logging.next().is_none().then_some(call.number)
    }

    /// The call that an extension's notification belongs to. Across eras, the client would not
    /// understand it.
    fn extension_call(&self, wire_id: Option<u64>) -> Option<u64> {
        let number = match wire_id {
            Some(wire_id) => self.by_wire_id(wire_id),
            None => self.sole_call().filter(|_| self.spec.key.is_leased()),
        };
        let call = self.calls.get(&number?)?;
        let is_modern = call.caller.revision.era() == Era::Modern;
        (is_modern == self.is_modern).then_some(call.number)
    }

    /// The newest call of the only client with calls in flight, for a line that only one client can
    /// receive. With several links, the connection searches all of them instead.
    fn sole_call(&self) -> Option<u64> {
        let knows_call = self.spec.of_server.connector.knows_call_of_requests();
        let is_for_one = !knows_call && self.spec.keeps_logs();
        let is_candidate = self.spec.key.is_leased() || is_for_one;
        self.call_of_sole_client().filter(|_| is_candidate)
    }

    /// The call whose last request has this id.
    fn by_wire_id(&self, wire_id: u64) -> Option<u64> {
        match self.calls.get(&wire_id) {
            Some(call) => (call.wire_id == wire_id).then_some(wire_id),
            None => self.renumbered.get(&wire_id).copied(),
        }
    }

    /// Restarts a call's deadlines because something arrived for it; while its client is asked,
    /// only the maximum applies.
    fn extend(&mut self, number: u64, now: Instant) {
        let is_asked = self.is_client_asked(number);
        if let Some(call) = self.calls.get_mut(&number) {
            call.expires = if is_asked {
                call.deadline.latest
            } else {
                call.deadline.from(now)
            };
            self.deadlines.set(number, call.due());
        }
    }

    /// Records that another request was written for a call, under a new wire id.
    fn set_request(&mut self, number: u64, wire_id: u64, outgoing: OutgoingFrame) {
        if let Some(call) = self.calls.get_mut(&number) {
            self.renumbered.remove(&call.wire_id);
            self.renumbered.insert(wire_id, number);
            call.wire_id = wire_id;
            call.outgoing = outgoing;
        }
    }

    /// Removes a call from the tables.
    fn take(&mut self, number: u64) -> Option<InFlightCall> {
        let call = self.calls.remove(&number)?;
        self.deadlines.remove(&number);
        if call.wire_id != number {
            self.renumbered.remove(&call.wire_id);
        }
        self.call_ended(&call.caller);
        Some(call)
    }
}

/// The call of a progress notification, by the gateway's token.
fn progress_token(notification: &Notification) -> Option<u64> {
    #[derive(Deserialize)]
    struct Token(u64);
    let raw = notification.member(notification.params.progress_token.as_ref())?;
    let token = serde_json::from_slice::<Token>(&raw).ok()?;
    Some(token.0)
}
