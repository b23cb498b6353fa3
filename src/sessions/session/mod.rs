//! The actor of one client session: receives the client's messages, owns its calls, and selects the
//! stream for each outgoing message.
//!
//! The actor is temporary: all state that must outlive it is in its [`SessionRecord`].

mod calls;
mod ending;
mod own_sessions;
mod questions;
mod requests;
mod streams;
mod tasks;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, Context, Handler, Recipient};
use bytes::Bytes;
use tokio::time::Instant;

use crate::auth::GrantedScopes;
use crate::calls::{CallTable, ClientReply, ClientRequest, EventLog, HasCalls};
use crate::catalog::{Changes, Snapshot};
use crate::downstream::{
    CallEvent, CallMessage, CallNotification, CallSenders, Caller, ConnectionCommand,
    ConnectionKey, Delivery, Server,
};
use crate::id::SessionId;
use crate::memory::note_passed;
use crate::metrics::{Measure, Network, Series};
use crate::protocol::{Envelope, Method, Notification};
use crate::publisher::SessionEvent;
use crate::sessions::SessionContext;
use crate::sessions::linked_uris::LinkedUris;
use crate::sessions::message::{FromClient, OpenStream, SessionCommand, UpgradeToStream};
use crate::sessions::session::own_sessions::Opening;
use crate::sessions::session_activity::SessionActivity;
use crate::sessions::session_record::SessionRecord;
use crate::telemetry::Counter;
use ending::{SessionEnding, release};
use questions::SentQuestions;
use tasks::SessionTasks;

pub struct Session {
    id: SessionId,
    context: Arc<SessionContext>,
    record: SessionRecord,
    /// The caller of the session's calls, built from the record.
    caller: Arc<Caller>,
    /// The recipient of answers to the session's calls; created with the first call.
    reply_to: Option<Arc<Recipient<Delivery>>>,
    /// Index of the arbiter on which the actor lives.
    arbiter: usize,
    built_at: Instant,
    calls: CallTable,
    /// Number of requests that wait for lists.
    waiting: usize,
    questions: SentQuestions,
    /// Created with the first stream, because most sessions are idle and have none.
    event_log: Option<Box<EventLog>>,
    /// Whether a timer to drop ended streams is running.
    is_drop_planned: bool,
    /// Whether the client has sent `initialized`, or a request, which implies it.
    is_initialized: bool,
    /// Whether the client has sent a request or opened a stream.
    is_used: bool,
    /// Whether a stream was open since the last idle check.
    had_stream: bool,
    /// The session's own catalog; `None` if it uses the shared one.
    view: Option<Arc<Snapshot>>,
    /// Events that arrived while no general stream was open.
    missed: MissedEvents,
    followed: SessionTasks,
    /// Created with the first result that mentions an ambiguous URI.
    linked: Option<Box<LinkedUris>>,
}

/// Approximate memory of a session, which is freed when the session ends.
const SESSION_BYTES: usize = 8 * 1024;

/// The changes that a client missed. A set instead of a queue: repeated changes count once.
#[derive(Default)]
struct MissedEvents {
    lists: Changes,
    uris: BTreeSet<String>,
    /// Notifications of completed URL elicitations.
    completions: Vec<Bytes>,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        context: Arc<SessionContext>,
        record: SessionRecord,
        arbiter: usize,
    ) -> Self {
        let caller = Arc::new(record.caller(id));
        let view = context.calls.catalog.own(&caller);
        Self {
            id,
            context,
            record,
            caller,
            reply_to: None,
            arbiter,
            built_at: Instant::now(),
            calls: CallTable::default(),
            waiting: 0,
            questions: SentQuestions::default(),
            event_log: None,
            is_drop_planned: false,
            is_initialized: false,
            is_used: false,
            had_stream: false,
            view,
            missed: MissedEvents::default(),
            followed: SessionTasks::default(),
            linked: None,
        }
    }

    /// Applies the scopes of the latest request.
    fn use_scopes(&mut self, scopes: GrantedScopes) {
        if self.record.scopes != scopes {
            self.record.scopes = scopes;
            self.caller = Arc::new(self.record.caller(self.id));
            // A policy can show other items for other scopes.
            self.update_view();
            self.judge_subscriptions();
            self.send_missed();
        }
    }

    fn catalog(&self) -> Arc<Snapshot> {
        self.view
            .clone()
            .unwrap_or_else(|| self.context.calls.catalog.snapshot())
    }

    fn on_notification(&mut self, notification: &Notification, ctx: &mut Context<Self>) {
        match notification.method {
            Method::Cancelled => self.on_cancelled(notification, ctx),
            Method::RootsListChanged => self.on_roots_changed(),
            Method::Initialized => self.on_initialized(),
            Method::Other(_) => self.forward_to_extension(notification),
            Method::Progress if self.catalog().has_one_server() => {
                self.forward_to_extension(notification);
            }
            // Clients do not send these.
            _ => {}
        }
    }

    /// Notifies servers that the roots changed: servers with a connection of this session, which
    /// can know its roots already, and servers that asked for roots during one of its calls.
    fn on_roots_changed(&self) {
        for server in self.context.calls.downstreams.all().values() {
            let key = server.connection_key_for(&self.caller);
            let concerns =
                server.is_own(&key, self.id) || self.questions.asked_for_roots(server.name());
            if concerns && let Some(Ok(up)) = server.find(&key).map(|child| child.current()) {
                up.value.command(ConnectionCommand::RootsChanged);
            }
        }
    }

    /// Allows messages to the client other than answers and log lines (S-LIFE-04).
    fn on_initialized(&mut self) {
        if !self.is_initialized {
            self.is_initialized = true;
            self.send_missed();
        }
    }

    /// Marks the session as used, so that it is not ended to free its slot.
    fn set_used(&mut self) {
        if !std::mem::replace(&mut self.is_used, true) {
            self.context.registry.set_used(self.id);
        }
    }

    /// Forwards an extension notification to the server that declares the extension. Only
    /// connections of this session are used, because on a shared one the server could not tell
    /// which client sent it. A view of one server is that server, whose calls share a connection
    /// in the same way.
    fn forward_to_extension(&self, notification: &Notification) {
        let catalog = self.catalog();
        let owner = catalog.extension_owner(notification.method.as_str());
        let calls = &self.context.calls;
        let owner = owner.filter(|server| calls.may_notify(server, notification, &self.caller));
        let notify = |senders: &CallSenders| {
            let frame = notification.frame.as_bytes().clone();
            senders.send(self.arbiter, CallMessage::Notify(frame));
        };
        let connection = |server: &Server, key: &ConnectionKey| {
            let is_usable = catalog.has_one_server() || server.is_own(key, self.id);
            is_usable && owner == Some(server.name())
        };
        self.tell_connections(connection, notify);
    }

    /// Sends a command to this session's own connections. Shared connections receive commands that
    /// combine all sessions.
    pub(super) fn command_own_connections(&self, command: &ConnectionCommand) {
        let is_own = |server: &Server, key: &ConnectionKey| server.is_own(key, self.id);
        self.tell_connections(is_own, |senders| senders.command(command.clone()));
    }

    /// Tells the connections that serve this client and that `concerns` selects.
    fn tell_connections(
        &self,
        concerns: impl Fn(&Server, &ConnectionKey) -> bool,
        tell: impl Fn(&CallSenders),
    ) {
        for server in self.context.calls.downstreams.all().values() {
            let key = server.connection_key_for(&self.caller);
            if concerns(server, &key)
                && let Some(up) = server.find(&key).and_then(|child| child.current().ok())
            {
                tell(&up.value);
            }
        }
    }

    /// Finishes the rebuild of a session from its record. All lists count as changed, because
    /// changes in the meantime are unknown.
    pub(crate) fn rebuilt(mut self) -> Self {
        self.is_initialized = true;
        self.is_used = true;
        self.missed.lists = self.context.calls.catalog.changes_since_start();
        self.reopen_own_connections();
        // The record may expire soon.
        self.save();
        self
    }

    /// Reopens the session's own connections that have subscriptions, because updates arrive only
    /// while they are open.
    fn reopen_own_connections(&self) {
        for subscription in &self.record.subscriptions {
            let Some(server) = self.context.calls.downstreams.get(&subscription.server) else {
                continue;
            };
            let key = server.connection_key_for(&self.caller);
            if server.find(&key).is_some() {
                continue;
            }
            let (downstreams, arbiter) = (self.context.calls.downstreams.clone(), self.arbiter);
            let (name, opener) = (subscription.server.clone(), Some(self.id));
            actix_rt::spawn(async move { downstreams.open(name, key, arbiter, opener).await });
        }
    }

    /// Returns whether the client is using the session right now.
    fn is_in_use(&self) -> bool {
        !self.calls.is_empty()
            || self
                .event_log
                .as_ref()
                .is_some_and(|streams| streams.has_any_reader())
    }

    fn end(&mut self, why: SessionEnding, ctx: &mut Context<Self>) {
        for call in self.calls.iter() {
            call.cancel("the client's session ended");
        }
        if let Some(failure) = why.failure_of_calls() {
            let numbers: Vec<u64> = self.calls.iter().map(|call| call.number).collect();
            for number in numbers {
                let failure = failure.clone();
                self.with_call(number, ctx, |call, session| {
                    call.on_answer(Err(failure), session);
                });
            }
        }
        self.calls = CallTable::default();
        self.questions.clear();
        self.event_log = None;
        if let SessionEnding::ForGood(done) = why {
            self.count_end();
            self.context.forget(self.id, done);
        }
        ctx.stop();
    }

    /// Returns whether the session has neither a call nor a question.
    fn is_quiet(&self) -> bool {
        self.calls.is_empty() && self.waiting == 0 && self.questions.len() == 0
    }

    /// Counts the session's total duration, including earlier processes.
    fn count_end(&self) {
        let metrics = &self.context.calls.metrics;
        let opened_at = self.record.opened_at;
        if let (Some(shard), Some(opened_at)) = (metrics.shard(self.arbiter), opened_at) {
            let millis = (self.context.clock)().saturating_sub(opened_at);
            let series = Series {
                revision: Some(self.record.revision),
                network: Some(Network::OF_CLIENTS),
                ..Series::of(Measure::ServerSession)
            };
            shard.add(series, Duration::from_millis(millis));
        }
    }

    /// Saves the record without its subscriptions, in the background.
    fn save(&self) {
        let (context, id) = (self.context.clone(), self.id);
        let record = self.record.to_bytes();
        let subscriptions = match context.replicas {
            Some(_) => self.record.subscriptions.clone(),
            None => Vec::new(),
        };
        actix_rt::spawn(async move { context.write_record(id, record, &subscriptions).await });
    }
}

impl Actor for Session {
    type Context = Context<Self>;
}

impl Drop for Session {
    fn drop(&mut self) {
        note_passed(SESSION_BYTES);
    }
}

impl Handler<FromClient> for Session {
    type Result = ();

    fn handle(&mut self, message: FromClient, ctx: &mut Self::Context) {
        let FromClient {
            envelope,
            number,
            accepts_stream,
            forwarded,
            scopes,
            reply,
        } = message;
        match envelope {
            Envelope::Request(request) => {
                self.use_scopes(scopes);
                let revision = self.record.revision;
                let calls = &self.context.calls;
                let request = ClientRequest {
                    call_telemetry: calls.observe(
                        &request,
                        revision,
                        self.arbiter,
                        forwarded.as_ref(),
                    ),
                    request,
                    number,
                    accepts_stream,
                    reply,
                    forwarded,
                };
                self.on_request(request, ctx);
            }
            Envelope::Notification(notification) => {
                let opening = Opening::for_notification(self, &notification);
                self.when_open(opening, ctx, move |session, ctx| {
                    session.on_notification(&notification, ctx);
                });
                // Sending the 202 fails only if the client has disconnected.
                let _ = reply.send(ClientReply::Accepted);
            }
            Envelope::Response(response) => {
                self.questions.answer(response);
                let _ = reply.send(ClientReply::Accepted);
            }
        }
    }
}

impl Handler<Delivery> for Session {
    type Result = ();

    fn handle(&mut self, mut delivery: Delivery, ctx: &mut Self::Context) {
        let number = delivery.number;
        if let CallEvent::Notifications(notifications) = &mut delivery.what {
            let is_about_task = |it: &mut CallNotification| self.is_about_task(number, it);
            let of_tasks: Vec<_> = notifications.extract_if(.., is_about_task).collect();
            for notification in of_tasks {
                self.on_task_notification(number, &notification);
            }
        }
        match delivery.what {
            CallEvent::Question(question) => self.on_question(number, question, ctx),
            CallEvent::QuestionCancelled(cancelled) => {
                self.on_question_cancelled(number, cancelled)
            }
            what => {
                let delivery = Delivery { what, ..delivery };
                self.with_call(number, ctx, |call, session| {
                    call.on_delivery(delivery, session)
                });
            }
        }
        self.plan_drop(ctx);
    }
}

impl Handler<UpgradeToStream> for Session {
    type Result = ();

    fn handle(&mut self, upgrade: UpgradeToStream, ctx: &mut Self::Context) {
        self.upgrade(upgrade.number, ctx);
    }
}

impl Handler<OpenStream> for Session {
    type Result = ();

    fn handle(&mut self, open: OpenStream, ctx: &mut Self::Context) {
        self.open_stream(open);
        self.plan_drop(ctx);
    }
}

impl Handler<SessionEvent> for Session {
    type Result = ();

    fn handle(&mut self, event: SessionEvent, _: &mut Self::Context) {
        self.on_session_event(event);
    }
}

impl Handler<SessionCommand> for Session {
    type Result = ();

    fn handle(&mut self, command: SessionCommand, ctx: &mut Self::Context) {
        match command {
            SessionCommand::SaveRecord => self.save(),
            SessionCommand::HandOver => self.end(SessionEnding::HandedOver, ctx),
            SessionCommand::UseKeyScopes(auth) => {
                if let Some(scopes) = auth.scopes_of_key(&self.record.principal) {
                    self.use_scopes(scopes);
                }
            }
            SessionCommand::EndGeneralStream => {
                if let Some(streams) = &mut self.event_log {
                    streams.detach_general_reader();
                }
            }
            SessionCommand::Describe(reply) => {
                let readers = self.event_log.as_ref().map_or(0, |log| log.readers());
                let now = SessionActivity::new(readers, self.built_at, self.calls.iter());
                // The operator's request can have timed out.
                let _ = reply.send(now);
            }
            SessionCommand::Release(done) => release(self, done, ctx),
            SessionCommand::Leave => self.end(SessionEnding::Moved, ctx),
            SessionCommand::Drain => self.end(SessionEnding::GatewayStops, ctx),
            SessionCommand::Delete(done) => self.end(SessionEnding::ForGood(Some(done)), ctx),
            SessionCommand::EndIfUnused(done) if !self.is_used => {
                self.context.calls.counters.add(Counter::SessionsUnused);
                self.end(SessionEnding::ForGood(Some(done)), ctx);
            }
            SessionCommand::EndIfUnused(_) => {}
            SessionCommand::EndIfIdle => {
                let in_use = self.is_in_use();
                // The time at which a client closed its stream is unknown, so the idle time is
                // counted from now.
                if in_use || std::mem::take(&mut self.had_stream) {
                    self.had_stream = in_use;
                    let _ = self.context.registry.find_any(self.id);
                    return self.save();
                }
                self.context.calls.counters.add(Counter::SessionsExpired);
                self.end(SessionEnding::ForGood(None), ctx);
            }
        }
    }
}
