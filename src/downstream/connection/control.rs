//! The state that all parts of a connection share: the specification, the stage of the connection,
//! and the gateway's own requests to the server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use crate::catalog::ItemKind;
use crate::downstream::call_sender::SenderCommand;
use crate::downstream::connection::listen_filter::without_subscription;
use crate::downstream::connection::own_requests::{OwnRequest, OwnRequests};
use crate::downstream::connection::spec::{CallSenders, ConnectionSpec};
use crate::downstream::connection::state::ConnectionState;
use crate::downstream::era::modern;
use crate::downstream::server_event::ServerEvent;
use crate::memory::TimerTable;
use crate::metrics::{ErrorType, MethodLabel};
use crate::protocol::{Method, Notification, cancelled, notification, request};
use crate::supervision::{Settings, SupervisorLink};
use crate::telemetry::{Cause, Reason};
use crate::transport::{OutgoingFrame, SendError};

use super::measurement::Measurement;

/// Extra time before the supervisor ends a start that the connection itself did not end.
const SUPERVISOR_LATER: Duration = Duration::from_secs(5);

/// Largest change of the time for a start that the supervisor is not told.
const START_SLACK: Duration = Duration::from_secs(1);

/// Something that a connection does at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Due {
    /// Leaves the start queue.
    LeaveQueue,
    /// Checks whether the server has started to read.
    LookWhetherRead,
    /// Pings the server if it was silent.
    PingIfSilent,
    /// Pings the server, which could not be pinged or is out of service.
    PingAgain,
    /// Opens a new session.
    Renew,
    RefreshAll,
    /// Fetches the lists that were reported as changed.
    RefreshStale,
    /// Fetches a list whose time to live has passed.
    Expire(ItemKind),
    /// Fetches a list again that could not be fetched.
    RetryList(ItemKind),
    /// Opens the change stream again.
    ReopenStream,
    /// Sends the configured probe.
    Probe,
}

pub(super) struct Control {
    pub(super) spec: Arc<ConnectionSpec>,
    pub(super) birth: SupervisorLink<CallSenders>,
    pub(super) state: ConnectionState,
    pub(super) own: OwnRequests,
    pub(super) measurement: Measurement,
    pub(super) began: Instant,
    pub(super) due: TimerTable<Due>,
    /// When the supervisor ends the start, as it was last told.
    start_ends: Option<Instant>,
    /// Whether the incarnation has ended, so that its actor stops.
    pub(super) has_ended: bool,
    /// When the server's write queue became full.
    unread_since: Option<Instant>,
}

impl Control {
    pub(super) fn new(spec: Arc<ConnectionSpec>, birth: SupervisorLink<CallSenders>) -> Self {
        Self {
            spec,
            birth,
            state: ConnectionState::Opening,
            own: OwnRequests::default(),
            measurement: Measurement::default(),
            began: Instant::now(),
            due: TimerTable::default(),
            start_ends: None,
            has_ended: false,
            unread_since: None,
        }
    }

    pub(super) fn is_modern(&self) -> bool {
        self.state.is_modern()
    }

    /// Whether this is one client's session.
    pub(super) fn is_own_session(&self) -> bool {
        let link = self.state.link();
        link.is_some_and(|link| link.is_own_session.get())
    }

    /// Lets the supervisor end the start only `SUPERVISOR_LATER` after this time from now, because
    /// the connection itself ends it in time. A change that is small compared to that is not sent,
    /// because each message wakes the supervisor's thread.
    pub(super) fn still_starting(&mut self, within: Duration) {
        let within = within
            .saturating_add(SUPERVISOR_LATER)
            .min(Settings::DURATION_MAX);
        let ends = Instant::now() + within;
        let is_told = |told: Instant| told + START_SLACK > ends && ends + START_SLACK > told;
        if !self.start_ends.is_some_and(is_told) {
            self.start_ends = Some(ends);
            self.birth.still_starting(within);
        }
    }

    /// Sends one of the gateway's own requests, and returns its number. A link that does not accept
    /// it counts as dead.
    pub(super) fn ask_server(
        &mut self,
        method: &Method,
        params: &Value,
        own: OwnRequest,
    ) -> Option<u64> {
        let link = self.state.link()?;
        let number = self.spec.of_all.numbers.next();
        let settings = self.spec.settings();
        let within = match own {
            OwnRequest::Ping | OwnRequest::Probe => settings.limits.ping_timeout,
            OwnRequest::Health => {
                let probe = settings.limits.probe.as_ref();
                probe.map_or(settings.limits.ping_timeout, |probe| probe.timeout)
            }
            OwnRequest::Initialize
            | OwnRequest::Discover
            | OwnRequest::Listen
            | OwnRequest::Page(_)
            | OwnRequest::ConnectionCommand { .. } => settings.supervision.connect_timeout,
        };
        let outgoing = if matches!(own, OwnRequest::Discover) || self.is_modern() {
            modern::own(number, method, params)
        } else {
            OutgoingFrame::new(Some(number), request(number, method, params))
        };
        let outgoing = OutgoingFrame {
            is_own: true,
            ..outgoing
        };
        match link.send(outgoing) {
            Ok(()) => {
                self.unread_since = None;
                let is_opening = matches!(own, OwnRequest::Initialize | OwnRequest::Discover);
                let method = MethodLabel::of(method);
                self.own.add(number, (own, method), Instant::now(), within);
                if is_opening && self.state.era_probe().is_some() {
                    // The opening has its own deadlines.
                    self.own.keep(number);
                }
                Some(number)
            }
            Err(SendError::Full) if matches!(own, OwnRequest::Ping) => {
                self.unread();
                None
            }
            Err(error) => {
                self.fail(format!("`{method}` was not sent: {error}"));
                None
            }
        }
    }

    /// Handles a full write queue, into which a ping does not fit: fails the connection if the
    /// queue stays full for the ping timeout.
    fn unread(&mut self) {
        let within = self.spec.settings().limits.ping_timeout;
        let now = Instant::now();
        match self.unread_since {
            Some(since) if since + within <= now => {
                let reason = Reason::from("server does not read: its write queue is full");
                self.fail(reason.because(Cause::Unresponsive));
            }
            Some(_) => {}
            None => {
                self.unread_since = Some(now);
                self.due.set(Due::PingAgain, now + within);
            }
        }
    }

    /// Sends a notification or a response, if the link is open.
    pub(super) fn write(&self, frame: Bytes) {
        if let Some(link) = self.state.link() {
            link.write(frame);
        }
    }

    pub(super) fn notify_server(&self, method: &Method) {
        self.write(notification(method, None::<&()>));
    }

    /// Removes one of our own requests that ended, and records its duration.
    pub(super) fn take_own(
        &mut self,
        number: u64,
        error: impl FnOnce() -> Option<ErrorType>,
    ) -> Option<OwnRequest> {
        if let Some((method, sent)) = self.own.begun(number) {
            let revision = self.state.revision();
            (self.measurement).own_request_ended(&self.spec, revision, method, error, sent);
        }
        self.own.take(number)
    }

    /// Cancels one of our own requests: by ending its stream if it has one (C-CANC-02), otherwise
    /// with a message (C-STDIO-06).
    pub(super) fn take_back(&self, number: u64) {
        self.forget(number);
        if !self.spec.of_server.connector.knows_call_of_requests() {
            self.write(cancelled(&number, Some("replaced")));
        }
    }

    pub(super) fn forget(&self, number: u64) {
        if let Some(link) = self.state.link() {
            link.forget(number);
        }
    }

    /// When something has to be done next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let of_opening = self.state.opening_deadline();
        let all = [self.own.next_deadline(), self.due.next(), of_opening];
        all.into_iter().flatten().min()
    }

    /// Sets the time of something, unless it is already due at some time.
    pub(super) fn set_once(&mut self, due: Due, at: Instant) {
        if self.due.get(&due).is_none() {
            self.due.set(due, at);
        }
    }

    pub(super) fn tell_senders(&self, command: impl Fn() -> SenderCommand) {
        if let Some(senders) = self.state.senders() {
            senders.tell(command);
        }
    }

    pub(super) fn send_event(&self, event: ServerEvent) {
        self.spec.send_event(self.spec.key.owner.clone(), event);
    }

    /// The event that a notification means for clients.
    pub(super) fn event_of(&self, notification: Notification) -> Option<ServerEvent> {
        let is_modern = self.is_modern();
        let notification = match is_modern {
            true => without_subscription(notification),
            false => notification,
        };
        match notification.method {
            // A client with a connection of its own is notified even if the lists are unchanged.
            Method::ToolsListChanged
            | Method::PromptsListChanged
            | Method::ResourcesListChanged
                if self.spec.key.session().is_none() =>
            {
                None
            }
            Method::ResourcesUpdated => Some(ServerEvent::ResourceUpdated(notification)),
            // Belongs to a request, but the line does not say which one.
            Method::LogMessage if is_modern => None,
            Method::LogMessage => Some(ServerEvent::Log(notification)),
            Method::Cancelled | Method::Progress => None,
            Method::Tasks => Some(ServerEvent::Task {
                declaration: self.spec.of_server.declaration,
                notification,
            }),
            // Belongs to a task that is no longer followed here.
            Method::TaskStatus => None,
            // A client of the other era would not understand it.
            Method::Other(_) if is_modern => None,
            _ => Some(ServerEvent::Other(notification)),
        }
    }
}
