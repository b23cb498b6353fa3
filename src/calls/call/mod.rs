//! One call of a client: sends and retries it, and delivers the server's questions and answer.
//!
//! A call is owned by the [`CallTable`](crate::calls::call_table::CallTable) of one actor, which
//! receives the server's answers under the call's number. A client without a session is connected
//! only while one of its requests waits. If it disconnects before the answer, the call is cancelled
//! (S-CANC-01). While it collects answers to the server's questions, the call is parked.

mod hosted_task;
mod parking;
mod reply_target;
mod response;
mod rounds;
mod sent_call;
mod state;
mod task;

use std::sync::Arc;

use actix::Recipient;
use bytestring::ByteString;
use tokio::time::Instant;

use crate::bridge::headers::ClientHeaders;
use crate::bridge::seal::Digest;
use crate::calls::alarms::{Alarm, Alarms};
use crate::calls::call_context::CallContext;
use crate::calls::call_route::{CallRoute, ConnectionAccess, find_route};
use crate::calls::call_target::CallTarget;
use crate::calls::call_telemetry::CallTelemetry;
use crate::calls::client_reply::ClientRequest;
use crate::calls::consent;
use crate::calls::event_log::EventLog;
use crate::calls::progress::Progress;
use crate::calls::quota::QuotaShare;
use crate::calls::request_trace::{Destination, unrecorded};
use crate::calls::retry::RetryState;
use crate::calls::worker_inbox::{ClientAction, WorkerInbox};
use crate::downstream::{
    CallEvent, CallMessage, CallRequest, CallSenders, Caller, ConnectionCommand, Delivery, TaskMode,
};
use crate::id::{Peer, ServerName};
use crate::memory::HeldRoom;
use crate::protocol::{
    Era, ErrorKind, Failure, LogLevel, Method, Notification, Request, RequestId, Response, Revision,
};
use crate::telemetry::{Counter, LogScope};
use rounds::ClientRounds;
use sent_call::SentCall;
use state::{CallState, OutgoingCall};

pub(crate) use reply_target::ReplyTarget;
pub(crate) use response::failed_by_bug;
pub(crate) use state::ConnectionOpening;

pub(crate) struct Call {
    /// The call's number in its table.
    pub(crate) number: u64,
    context: Arc<CallContext>,
    pub(crate) caller: Arc<Caller>,
    /// Index of the arbiter on which the call was made.
    arbiter: usize,
    /// The actor that receives the server's answers.
    reply_to: Arc<Recipient<Delivery>>,
    /// The id of the request that the client waits for, or waited for last.
    pub(crate) id: RequestId,
    pub(crate) method: Method,
    pub(crate) target: CallTarget,
    /// The revision of the connection over which the call was last sent.
    server_revision: Option<Revision>,
    declaration: Option<Digest>,
    /// The public name or URI that the client asks for.
    pub(crate) item: ByteString,
    pub(crate) progress: Progress,
    pub(crate) client: ReplyTarget,
    state: CallState,
    /// The state for sending the call again; `None` if a retry is not allowed.
    retry: Option<Box<RetryState>>,
    alarms: Alarms,
    /// Present if the client has no session.
    rounds: Option<Box<ClientRounds>>,
    /// The telemetry of the request that the client waits for.
    call_telemetry: Option<Box<CallTelemetry>>,
    /// The reserved memory of a large answer.
    room: Option<HeldRoom>,
    /// The slot among the client's calls in flight; `None` if these calls are not limited.
    _place: Option<QuotaShare>,
}

/// The parts of a new call.
pub(crate) struct NewCall {
    pub(crate) request: ClientRequest,
    pub(crate) context: Arc<CallContext>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) arbiter: usize,
    pub(crate) target: CallTarget,
    pub(crate) reply_to: Arc<Recipient<Delivery>>,
    /// The slot among the client's calls in flight; `None` if these calls are not limited.
    pub(crate) place: Option<QuotaShare>,
    /// For a client without a session: its worker, its peer, and its number of rounds.
    pub(crate) sessionless: Option<(Arc<WorkerInbox>, Peer, u8)>,
}

/// The actor that owns calls, reduced to what calls use.
pub(crate) trait CallOwner {
    /// The streams that the client can resume; `None` for clients without a session.
    fn event_log(&mut self) -> Option<&mut EventLog>;

    /// Called when the server is done with the call; `None` if the call will be sent again.
    fn on_call_returned(&mut self, call: &Call, answer: Option<&Result<Response, Failure>>);

    /// Called when a result mentions a URI of this server, which the client may read next.
    fn on_named(&mut self, server: &ServerName, uri: &str);
}

impl Call {
    /// Creates a call, and returns it with the request to dispatch.
    pub(crate) fn new(mut new_call: NewCall) -> (Box<Self>, Request) {
        let request = &new_call.request.request;
        let item = request.item().map(|item| request.frame.share(item));
        let item = item.unwrap_or_default();
        let server = &new_call.target.server;
        let call_telemetry = new_call.request.take_call_telemetry(server, &item);
        let ClientRequest {
            request,
            number,
            accepts_stream,
            reply,
            forwarded,
            ..
        } = new_call.request;
        let target = CallTarget {
            forwarded,
            ..new_call.target
        };
        let rounds = new_call.sessionless;
        let rounds = rounds.map(|client| Box::new(ClientRounds::new(client, &request, number)));
        let call = Self {
            number,
            context: new_call.context,
            _place: new_call.place,
            arbiter: new_call.arbiter,
            reply_to: new_call.reply_to,
            id: request.id.clone(),
            method: request.method.clone(),
            target,
            server_revision: None,
            declaration: None,
            item,
            progress: Progress::of(&request, new_call.caller.revision)
                .of_view(&new_call.caller.view),
            caller: new_call.caller,
            client: ReplyTarget::Reply {
                reply,
                accepts_stream,
            },
            state: CallState::NotSent,
            retry: None,
            alarms: Alarms::default(),
            rounds,
            call_telemetry,
            room: None,
        };
        (Box::new(call), request)
    }

    /// Links log records to the request that the client waits for, until the scope is dropped.
    pub(crate) fn log_scope(&self) -> Option<LogScope> {
        CallTelemetry::log_scope(self.call_telemetry.as_deref())
    }

    pub(crate) const fn is_done(&self) -> bool {
        matches!(self.state, CallState::Done)
    }

    pub(crate) const fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    pub(crate) fn server_revision(&self) -> Option<Revision> {
        self.server_revision
    }

    /// The connection to open, taken once.
    pub(crate) fn take_opening(&mut self) -> Option<ConnectionOpening> {
        self.state.take_opening()
    }

    /// Sends the call for the first time.
    pub(crate) fn dispatch(&mut self, request: Request, owner: &mut impl CallOwner) {
        let downstreams = &self.context.downstreams;
        match find_route(downstreams, &self.target, &self.caller, self.arbiter, None) {
            Ok(route) => {
                if route.may_retry {
                    // An answer of the client is valid for only one request of the server, so a
                    // call that may have run with such an answer is not sent again.
                    let is_unasked = self.round() == 0;
                    let retry = RetryState::new(&request, &self.target, route.deadline, is_unasked);
                    self.retry = Some(Box::new(retry));
                }
                self.send_by(route, request, self.number);
            }
            Err(failure) => self.on_answer(Err(failure), owner),
        }
    }

    fn send_by(&mut self, route: CallRoute, request: Request, sent_as: u64) {
        let outgoing = OutgoingCall {
            request,
            sent_as,
            deadline: route.deadline,
            permit: route.permit,
        };
        match route.access {
            ConnectionAccess::Open(senders) => self.send(outgoing, senders),
            ConnectionAccess::Opening(opening) => {
                self.state = CallState::opening(Some(outgoing), opening);
            }
        }
    }

    pub(crate) fn on_connection_opened(
        &mut self,
        senders: Result<CallSenders, Failure>,
        owner: &mut impl CallOwner,
    ) {
        match (self.replace_state(CallState::NotSent), senders) {
            (CallState::Opening(opening), Ok(senders)) => {
                if let Some(outgoing) = opening.outgoing {
                    self.send(outgoing, senders);
                }
            }
            (CallState::Opening(_), Err(failure)) => self.on_answer(Err(failure), owner),
            (other, _) => self.state = other,
        }
    }

    /// Schedules a retry of the failed call if it is allowed. Returns whether it is; in that case
    /// the client is not answered yet.
    fn schedule_retry(&mut self, failure: &Failure, owner: &mut impl CallOwner) -> bool {
        let retry = self.retry.as_mut();
        let Some(delay) = retry.and_then(|retry| retry.next_delay(failure, &self.context)) else {
            return false;
        };
        if let Some(trace) = self.call_telemetry.as_mut().and_then(|it| it.trace()) {
            trace.retried(failure.exact_kind().as_str());
        }
        self.state = CallState::NotSent;
        owner.on_call_returned(self, None);
        self.alarms.set(Alarm::Retry, delay);
        true
    }

    fn resend(&mut self, owner: &mut impl CallOwner) {
        let Some(retry) = &self.retry else { return };
        let (downstreams, before) = (&self.context.downstreams, Some(retry.deadline));
        let (target, caller) = (&retry.target, &self.caller);
        match find_route(downstreams, target, caller, self.arbiter, before) {
            Ok(route) => {
                let request = retry.request.clone();
                self.target = retry.target.clone();
                // The server sees each attempt as a separate request.
                let sent_as = self.context.numbers.next();
                self.send_by(route, request, sent_as);
            }
            Err(failure) => self.on_answer(Err(failure), owner),
        }
    }

    /// Returns whether the call did not run because its user's sign-in has expired, and in that
    /// case asks the user to sign in again.
    fn turns_to_user(&mut self, failure: &Failure, owner: &mut impl CallOwner) -> bool {
        if failure.kind != ErrorKind::ServerUnavailable {
            return false;
        }
        let (downstreams, server) = (&self.context.downstreams, &self.target.server);
        let Some(asking) = consent::asking(downstreams, server, &self.caller) else {
            return false;
        };
        owner.on_call_returned(self, None);
        self.state = CallState::opening(None, asking);
        true
    }

    /// Number of rounds in which the client was asked for input.
    fn round(&self) -> u8 {
        let rounds = self.rounds.as_ref();
        rounds.map_or(0, |rounds| rounds.questions.round)
    }

    fn replace_state(&mut self, state: CallState) -> CallState {
        std::mem::replace(&mut self.state, state)
    }

    fn send(&mut self, outgoing: OutgoingCall, senders: CallSenders) {
        if let Some(level) = self.caller.level.filter(|_| self.rounds.is_some()) {
            senders.command(ConnectionCommand::LevelAtLeast(level));
        }
        let (server, reply_to) = (self.target.server.clone(), self.reply_to.clone());
        let (sent_as, mut permit) = (outgoing.sent_as, outgoing.permit);
        self.server_revision = Some(senders.revision());
        self.declaration = Some(senders.declaration());
        let forwarded = self.forwarded_headers(&senders, &outgoing.request);
        let canary = permit.take_canary();
        let mut request = CallRequest {
            number: sent_as,
            caller: self.caller.clone(),
            request: outgoing.request,
            edits: std::mem::take(&mut self.target.edits),
            headers: std::mem::take(&mut self.target.headers),
            forwarded,
            tasks: self.target.tasks,
            deadline: outgoing.deadline,
            lease: permit.take_lease(),
            reply: permit.reply(self.number, server, reply_to),
        };
        let tool = self.target.tool.as_ref();
        let shadow = (canary.zip(tool))
            .and_then(|(canary, tool)| canary.copy(&mut request, tool.native.clone()));
        senders.send(self.arbiter, CallMessage::Start(Box::new(request)));
        if let Some(shadow) = shadow {
            shadow.send(self.arbiter);
        }
        self.state = CallState::Sent(SentCall {
            senders,
            sent_as,
            _permit: permit,
        });
    }

    /// Returns the client's headers for the server, including the call's span if it is traced.
    fn forwarded_headers(
        &mut self,
        senders: &CallSenders,
        request: &Request,
    ) -> Option<Arc<ClientHeaders>> {
        let forwarded = self.target.forwarded.take();
        let destination = Destination {
            transport: senders.transport(),
            revision: senders.revision(),
        };
        let call_telemetry = self.call_telemetry.as_mut();
        let traceparent =
            call_telemetry.and_then(|call_telemetry| call_telemetry.attempt(&destination));
        let is_on = self.context.traces.is_on();
        let said = forwarded.as_deref().filter(|_| is_on);
        let traceparent = traceparent.or_else(|| unrecorded(request, said?));
        match traceparent {
            Some(context) => Some(ClientHeaders::traced(forwarded.as_deref(), context)),
            None => forwarded,
        }
    }

    pub(crate) fn on_delivery(&mut self, delivery: Delivery, owner: &mut impl CallOwner) {
        if let CallEvent::Answer(answer) = &delivery.what {
            self.observe_answer(answer, delivery.sent);
        }
        match delivery.what {
            CallEvent::Answer(Err(failure)) if self.turns_to_user(&failure, owner) => {}
            CallEvent::Answer(Err(failure)) if self.schedule_retry(&failure, owner) => {}
            CallEvent::Answer(answer) => self.on_answer(answer, owner),
            CallEvent::Notifications(notifications) => {
                for notification in &notifications {
                    match self.target.tasks {
                        TaskMode::Bridged => self.on_bridged_notification(notification, owner),
                        _ => self.on_notification(notification, owner),
                    }
                }
            }
            CallEvent::Question(question) if matches!(self.state, CallState::Task(_)) => {
                self.on_task_question(question);
            }
            CallEvent::Question(question) => self.on_question(question),
            CallEvent::TaskCreated => self.retry = None,
            // A client that answers in rounds reads its questions only in the answer.
            CallEvent::QuestionCancelled(_) => {}
        }
    }

    /// Forwards progress, log lines and extension notifications of the call on the call's stream.
    fn on_notification(&mut self, notification: &Notification, owner: &mut impl CallOwner) {
        let frame = match notification.method {
            Method::Progress => self.progress.frame(notification),
            Method::Other(_) => Some(notification.frame.as_bytes().clone()),
            _ => {
                let wanted = self.wants_log_line(LogLevel::of(notification));
                wanted.then(|| notification.frame.as_bytes().clone())
            }
        };
        let Some(frame) = frame else { return };
        self.upgrade(owner);
        self.client.notify(self.number, frame, owner);
    }

    /// Returns whether the client receives a log line of this level. A session that set no level
    /// receives every line; a client without a session receives only the levels that it asks for
    /// (S-LOG-03).
    fn wants_log_line(&self, level: Option<LogLevel>) -> bool {
        match self.caller.level.zip(level) {
            Some((threshold, level)) => level >= threshold,
            None => self.rounds.is_none(),
        }
    }

    /// Upgrades the pending reply to a stream if the client accepts one. Returns whether the call
    /// now has a stream.
    pub(crate) fn upgrade(&mut self, owner: &mut impl CallOwner) -> bool {
        let priming = self.caller.revision.has_priming_event();
        let queue_max = || self.context.settings.load().stream_queue();
        self.client
            .upgrade(self.number, &self.id, priming, queue_max, owner)
    }

    /// Cancels the call on behalf of the client, and notifies a server that has received it.
    pub(crate) fn take_back(&mut self, reason: Option<String>, owner: &mut impl CallOwner) {
        if let Some(sent) = self.state.sent() {
            return sent.cancel(self.arbiter, reason);
        }
        let failure = Failure::new(ErrorKind::Cancelled, "the client cancelled this call");
        self.on_answer(Err(failure), owner);
    }

    /// Notifies the server that the call was cancelled.
    pub(crate) fn cancel(&self, reason: &str) {
        if let Some(sent) = self.state.sent() {
            sent.cancel(self.arbiter, Some(reason.to_owned()));
        }
    }

    /// Cancels the call at the server and ends it without an answer to the client.
    fn cancel_and_end(&mut self, reason: &str) {
        self.context.counters.add(Counter::CallsCancelled);
        self.cancel(reason);
        self.state = CallState::Done;
    }

    /// Ends the call in any state after the gateway panicked in it.
    pub(crate) fn on_panic(&mut self, owner: &mut impl CallOwner) {
        self.cancel("the gateway has failed");
        self.state = CallState::Done;
        let failure = failed_by_bug();
        let answer = Err(failure.clone());
        owner.on_call_returned(self, Some(&answer));
        self.answer_failure(&failure, owner);
    }

    /// Handles an action of a client without a session.
    pub(crate) fn on_client(&mut self, action: ClientAction, owner: &mut impl CallOwner) {
        let last_request = self.rounds.as_ref().map(|rounds| rounds.request_number);
        match action {
            ClientAction::Resume { request, round } => self.resume(request, round, owner),
            ClientAction::Task(request) => self.on_task_request(request),
            ClientAction::Upgrade(request) if last_request == Some(request) => {
                self.upgrade(owner);
            }
            ClientAction::Close(request)
                if last_request == Some(request) && !matches!(self.client, ReplyTarget::Away) =>
            {
                self.cancel_and_end("the client closed its request");
            }
            // These concern a request that was already answered.
            ClientAction::Upgrade(_) | ClientAction::Close(_) => {}
        }
    }

    /// Handles all alarms that are due.
    pub(crate) fn on_timer(&mut self, now: Instant, owner: &mut impl CallOwner) {
        while let Some(alarm) = self.alarms.take_due(now) {
            match alarm {
                Alarm::QuestionsGathered => self.ask(owner),
                Alarm::ClientAbsent => self.on_client_absent(),
                Alarm::Retry => self.resend(owner),
                Alarm::TaskExpired => self.forget_task(),
                Alarm::TaskQuiet => self.answer_waiting_requests(),
            }
        }
    }

    fn is_modern(&self) -> bool {
        self.caller.revision.era() == Era::Modern
    }
}
