//! The calls in flight on one link: sent, answered, timed out, cancelled or lost.
//!
//! Each sender of a connection owns one [`CallsInFlight`], and passes it the messages of callers and
//! the events of the link. Events that belong to no call become [`UnhandledEvent`]s, for the
//! connection.
//!
//! - `call`: one call, and its state on the wire
//! - `repeat`, `input_round`: resends a call with the input or the headers that the server requires
//! - `followed_task`, `task_request`: a call that its server continues as a task
//! - `call_table`: the calls by number, by id on the wire and by due time
//! - `server_link`: the link, and how its server has to be addressed
//! - `rewrite`: converts the client's bytes for the server: id, name, `_meta`, headers
//! - `pending_questions`: questions of the server that belong to a call
//! - `responses`: the server's answers to callers, calls whose session the server refused, and the
//!   clients' answers to questions
//! - `endings`: calls that are cancelled, time out or lose the link
//! - `abandoned`: cancelled calls that the server may still be working on
//! - `unhandled_event`: events that belong to no call
//! - `unowned_messages`: requests and log lines that name no call
//! - `client_tasks`, `client_task_events`: tasks that clients follow themselves
//!
//! It does not know sessions, the catalog or supervision: a call is a number, a caller and bytes.

mod abandoned;
mod call;
mod call_table;
mod client_task_events;
pub(crate) mod client_tasks;
mod endings;
mod followed_task;
mod input_round;
mod pending_questions;
mod repeat;
mod responses;
mod rewrite;
mod server_link;
mod task_request;
mod unhandled_event;
pub(crate) mod unowned_messages;

use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler};
use serde::Deserialize;
use tokio::time::Instant;

use crate::downstream::call_request::{CallMessage, CallRequest, ClientAnswer};
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::list_changes::changed_kinds;
use crate::downstream::resilience::admission::{
    Admission, AdmissionOutcome, CallPermit, QueueTurn,
};
use crate::downstream::server_request::asks_client;
use crate::downstream::shared_link::SharedLink;
use crate::protocol::{Envelope, Era, Method, Notification, Request};
use crate::transport::{LinkError, LinkEvent, SendError};

use abandoned::AbandonedRequests;
use call::{CallAnswer, InFlightCall, WireState};
use call_table::CallTable;
use endings::not_sent;
use pending_questions::LinkUsers;
use server_link::ServerLink;
use task_request::{id_of, related_id};
use unowned_messages::{RecentClient, UnownedLine, UnownedMessage};

pub(crate) use unhandled_event::UnhandledEvent;

/// The calls in flight on one link.
pub(crate) struct CallsInFlight {
    server: ServerLink,
    calls: CallTable,
    /// Limits the calls in flight, and holds the queued ones.
    admission: Admission,
    abandoned: AbandonedRequests,
    /// The clients whose calls were sent over the link so far.
    users: LinkUsers,
    recent: RecentClient,
    /// Calls with notifications for their callers.
    holding: Vec<u64>,
    /// Events for the connection, in order.
    unhandled: Vec<UnhandledEvent>,
}

impl CallsInFlight {
    /// Creates the table for a link whose calls the actor `owner` sends.
    pub(crate) fn new<A>(spec: &Arc<ConnectionSpec>, link: Rc<SharedLink>, owner: &Addr<A>) -> Self
    where
        A: Actor<Context = Context<A>> + Handler<ClientAnswer> + Handler<QueueTurn>,
    {
        Self {
            server: ServerLink::new(spec.clone(), link, owner.clone().recipient()),
            calls: CallTable::default(),
            admission: Admission::new(spec.load.clone(), owner.clone().recipient()),
            abandoned: AbandonedRequests::default(),
            users: LinkUsers::Nobody,
            recent: RecentClient::default(),
            holding: Vec::new(),
            unhandled: Vec::new(),
        }
    }

    /// When [`Self::expire`] must next be called.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.calls.deadlines.next()
    }

    /// Handles a caller's message: a new call, or a change to one.
    pub(crate) fn on_message(&mut self, message: CallMessage, now: Instant) {
        if self.server.link.is_own_session.get() {
            self.server.spec.called.set();
        }
        match message {
            CallMessage::Start(request) => {
                let subscribes = matches!(
                    request.request.method,
                    Method::ResourcesSubscribe | Method::ResourcesUnsubscribe
                );
                if self.server.is_modern() && subscribes {
                    return self.unhandled.push(UnhandledEvent::Subscription(request));
                }
                self.start(*request, now);
            }
            CallMessage::CancelCall(cancel) => self.cancel(&cancel, now),
            CallMessage::CheckTask(number) => {
                self.advance(number, |call, server| call.check_task(server, now));
            }
            // Extensions differ between the eras.
            CallMessage::Notify(frame) if !self.server.is_modern() => self.server.link.write(frame),
            CallMessage::Notify(_) => {}
        }
    }

    /// Sends a client's call, queues it, or refuses it at once.
    fn start(&mut self, request: CallRequest, now: Instant) {
        let number = request.number;
        match self.admission.enter(request, now) {
            AdmissionOutcome::Now(request, permit) => self.send(request, permit, now),
            AdmissionOutcome::Waits(until) => self.calls.deadlines.set(number, until),
            AdmissionOutcome::Full(request) => self.shed(request),
        }
    }

    pub(crate) fn on_turn(&mut self, turn: QueueTurn, now: Instant) {
        // The call was cancelled meanwhile, so the permit goes to the next one.
        let Some(request) = self.take_queued(turn.number) else {
            return;
        };
        match turn.permit {
            Some(permit) => self.send(request, permit, now),
            None => self.shed(request),
        }
    }

    fn take_queued(&mut self, number: u64) -> Option<CallRequest> {
        let request = self.admission.take(number)?;
        self.calls.deadlines.remove(&number);
        Some(request)
    }

    /// Refuses a call, because the queue is full or the call was queued too long.
    fn shed(&self, request: CallRequest) {
        let failure = self.admission.overloaded(self.server.name());
        request.reply.answer(Err(failure));
    }

    fn send(&mut self, request: CallRequest, permit: CallPermit, now: Instant) {
        let is_taken = |id| self.calls.by_wire_id(id).is_some() || self.abandoned.has(id);
        let mut call = InFlightCall::new(request, permit, &self.server, is_taken, now);
        if let Err(error) = call.send_first(&self.server, now) {
            if error == SendError::Full {
                self.unhandled.push(UnhandledEvent::Suspicion);
            }
            return call.reply.answer(Err(not_sent(self.server.name(), error)));
        }
        self.users.add(&call.caller);
        self.calls.insert(call);
    }

    /// Takes a call a step further, and answers it if the step ends it.
    fn advance(
        &mut self,
        number: u64,
        step: impl FnOnce(&mut InFlightCall, &mut ServerLink) -> Option<CallAnswer>,
    ) {
        let server = &mut self.server;
        let answer = self.calls.update(number, |call| step(call, server));
        if let Some(answer) = answer.flatten() {
            self.finish(number, answer);
        }
    }

    /// Removes a call from the tables.
    fn take(&mut self, number: u64) -> Option<InFlightCall> {
        let call = self.calls.remove(number)?;
        if !self.server.is_modern() {
            self.recent.add(&call.caller, Instant::now());
        }
        Some(call)
    }

    /// Takes what happened since the last time and belongs to no client's call, in order.
    pub(crate) fn take_unhandled(&mut self) -> Vec<UnhandledEvent> {
        std::mem::take(&mut self.unhandled)
    }

    /// Routes an event of the link. Events of a client's call are delivered; notifications are
    /// batched until [`Self::flush`] or the next other message.
    pub(crate) fn on_event(&mut self, event: LinkEvent, now: Instant) {
        self.note(&event, now);
        match event {
            LinkEvent::Received { call, envelope } => match envelope {
                Envelope::Response(response) => self.on_response(response, now),
                Envelope::Notification(notification) => {
                    self.on_notification(call, notification, now);
                }
                Envelope::Request(request) => self.on_request(call, request),
            },
            LinkEvent::Failed { call, error } => {
                let number = self.calls.by_wire_id(call);
                if let Some(number) = number {
                    self.on_failed(number, &error, now);
                }
                // A refused connection affects more than this call: the server is checked.
                if number.is_none() || matches!(error, LinkError::NotSent(_)) {
                    let failed = UnhandledEvent::Failed {
                        number: call,
                        error,
                    };
                    self.unhandled.push(failed);
                }
            }
            LinkEvent::SessionGone { call, refusal } => self.on_session_refused(call, refusal, now),
            LinkEvent::SignIn(place) => self.unhandled.push(UnhandledEvent::SignIn(place)),
            LinkEvent::Closed(ending) => self.unhandled.push(UnhandledEvent::Closed(ending)),
        }
    }

    /// Notes what an event reveals about the server.
    fn note(&mut self, event: &LinkEvent, now: Instant) {
        let link = &self.server.link;
        if let LinkEvent::Received { .. } = event {
            link.last_received.set(now);
            match link.awaits_handshake.get() {
                true => self.unhandled.push(UnhandledEvent::Heard),
                false => self.server.spec.session.answered(),
            }
        }
        if event.is_of_large_answer() {
            link.last_large.set(Some(now));
        }
    }

    fn on_notification(&mut self, wire_id: Option<u64>, notification: Notification, now: Instant) {
        let number = match notification.method {
            Method::Progress => progress_token(&notification).and_then(|token| {
                let is_number = self.calls.get(token).is_some();
                is_number
                    .then_some(token)
                    .or_else(|| self.calls.by_wire_id(token))
            }),
            Method::TaskStatus => {
                return self.on_task_status(notification, now);
            }
            Method::LogMessage => match wire_id {
                Some(wire_id) => self.calls.by_wire_id(wire_id),
                None if self.server.is_modern() => self.calls.sole_logging_call(),
                None => self.sole_call(),
            },
            Method::Cancelled => {
                return self.on_question_cancelled(&notification, now);
            }
            Method::Other(_) => self.extension_call(wire_id),
            _ => {
                self.note_list_change(&notification.method);
                return (self.unhandled).push(UnhandledEvent::Notification(notification));
            }
        };
        let is_progress = notification.method == Method::Progress;
        let is_for_all = wire_id.is_none() && self.is_for_all(&notification);
        let Some(call) = number.and_then(|number| self.calls.get_mut(number)) else {
            // Progress after the answer is dropped, unless the call continues as a task. A log
            // line is still of interest.
            if is_progress {
                let tasks = &self.server.spec.client_tasks;
                return tasks.send_progress(notification, self.server.budget(), now);
            }
            let is_line = notification.method == Method::LogMessage;
            if is_line && !self.server.is_modern() && self.server.spec.keeps_logs() {
                let line = UnownedLine::new(notification, &self.server.spec);
                return self.find_owner(UnownedMessage::Line(line));
            }
            return (self.unhandled).push(UnhandledEvent::Notification(notification));
        };
        if let Some(task) = call.task.as_mut().filter(|_| is_progress) {
            task.server_reports_progress = true;
        }
        let number = call.number;
        if is_for_all {
            let line = UnhandledEvent::Notification(notification.clone());
            self.unhandled.push(line);
        }
        if call.reply.hold(notification, self.server.budget()) {
            self.holding.push(number);
        }
        if is_progress {
            self.extend(number, now);
        }
    }

    /// Whether a message that names no call is a log line which all clients receive.
    fn is_for_all(&self, notification: &Notification) -> bool {
        let is_line = notification.method == Method::LogMessage && !self.server.is_modern();
        is_line && self.server.spec.shares_logs()
    }

    /// Handles a status notification of the server: it concerns a call's task, or one that a client
    /// follows itself.
    fn on_task_status(&mut self, notification: Notification, now: Instant) {
        let state = notification.frame.member("params");
        let id = state.as_ref().and_then(id_of);
        let number = id.and_then(|id| self.calls.by_task(&id));
        if let (Some(number), Some(state)) = (number, state) {
            return self.advance(number, |call, server| {
                call.on_task_status(&state, server, now)
            });
        }
        let tasks = &self.server.spec.client_tasks;
        tasks.send_status(notification, self.server.budget(), now);
    }

    /// Records that a list has changed, so that it is read before clients see it again. This must
    /// happen before the following answer is delivered, on any thread.
    fn note_list_change(&self, method: &Method) {
        let kinds = changed_kinds(method);
        if !kinds.is_empty() {
            let spec = &self.server.spec;
            let changes = &spec.of_all.list_changes;
            changes.announce(&spec.server, &spec.key, kinds);
        }
    }

    fn on_request(&mut self, wire_id: Option<u64>, request: Request) {
        // Outer `Option`: whether the server names a call. Inner: whether that call is in flight.
        let named = match wire_id {
            Some(wire_id) => Some(self.calls.by_wire_id(wire_id)),
            None => self.of_task(&request).map(Some),
        };
        let named = named.filter(|_| asks_client(&request.method));
        let Some(number) = named.flatten() else {
            return self.route_request(request, named.is_some());
        };
        let questions = &mut self.server.questions;
        self.calls.update(number, |call| {
            call.expires = call.deadline.latest;
            questions.ask(call.number, call.task_mode, &mut call.reply, request);
        });
    }

    /// The call whose task a question belongs to, if the transport does not tell (S-TASK-L-08).
    fn of_task(&self, request: &Request) -> Option<u64> {
        if self.server.is_modern() || self.calls.iter().all(|call| call.task.is_none()) {
            return None;
        }
        self.calls.by_task(&related_id(request)?)
    }

    /// Resends the calls that waited for the tools to be listed again.
    pub(crate) fn on_headers_listed(&mut self, now: Instant) {
        let waits = |call: &InFlightCall| matches!(call.state, WireState::AwaitsHeaders);
        for number in self.calls.numbers(waits) {
            self.advance(number, |call, server| call.repeat(server, now));
        }
    }

    /// Sends callers the notifications held while events were processed.
    pub(crate) fn flush(&mut self) {
        for number in self.holding.drain(..) {
            if let Some(call) = self.calls.get_mut(number) {
                call.reply.flush();
            }
        }
    }

    /// Delivers a message that can concern a call of any sender of the connection.
    pub(super) fn find_owner(&mut self, message: UnownedMessage) {
        let elsewhere = self.take_unowned(message).map(UnhandledEvent::Unowned);
        self.unhandled.extend(elsewhere);
    }

    /// The call that an extension's notification belongs to. Across eras, the client would not
    /// understand it.
    fn extension_call(&self, wire_id: Option<u64>) -> Option<u64> {
        let number = match wire_id {
            Some(wire_id) => self.calls.by_wire_id(wire_id),
            None => (self.sole_call()).filter(|_| self.server.spec.key.is_leased()),
        };
        let call = self.calls.get(number?)?;
        let is_modern = call.caller.revision.era() == Era::Modern;
        (is_modern == self.server.is_modern()).then_some(call.number)
    }

    /// The newest call of the only client with calls in flight, for a line that only one client can
    /// receive. With several links, the connection searches all of them instead.
    fn sole_call(&self) -> Option<u64> {
        let spec = &self.server.spec;
        let number = self.calls.newest_of_sole_client()?;
        let call = self.calls.get(number)?;
        // A line that all sessions receive reaches a client without a session only over its call.
        let is_alone = spec.keeps_logs() || call.caller.session.is_none();
        let is_for_one = is_alone && !self.server.knows_call_of_requests();
        (spec.key.is_leased() || is_for_one).then_some(number)
    }

    fn extend(&mut self, number: u64, now: Instant) {
        let server = &self.server;
        self.calls.update(number, |call| call.extend(server, now));
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
