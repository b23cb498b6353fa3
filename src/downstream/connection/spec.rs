//! One entry of a server's pool of connections: what every incarnation of it is built from.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use actix::{Message, Recipient};
use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;

use crate::bridge::headers::ParamHeaders;
use crate::catalog::ServerPart;
use crate::downstream::call_request::{CallMessage, Question};
use crate::downstream::connection::crash_report::CrashSink;
use crate::downstream::connection_key::ConnectionKey;
use crate::downstream::era::{KnownEra, ServerEra};
use crate::downstream::in_flight::client_tasks::ClientTasks;
use crate::downstream::resilience::admission::ConnectionLoad;
use crate::downstream::resilience::breakers::Breakers;
use crate::downstream::settings::ServerSettings;
use crate::downstream::starting::{StartProgress, StartQueue};
use crate::downstream::subscription_registry::SubscriptionRegistry;
use crate::id::{CallNumbers, ServerName};
use crate::protocol::{Era, LogLevel, Notification};
use crate::supervision::{Arbiters, Random};
use crate::telemetry::{Counters, LogRing};
use crate::transport::{Connector, Recorder};

/// The spec of a connection; the same for every incarnation.
pub(crate) struct ConnectionSpec {
    pub(crate) server: ServerName,
    /// Replaced by a reload that needs no new connection.
    pub(crate) settings: Arc<ArcSwap<ServerSettings>>,
    pub(crate) key: ConnectionKey,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) arbiters: Arbiters,
    /// Index of the arbiter that the connection lives on.
    pub(crate) home: usize,
    pub(crate) numbers: CallNumbers,
    pub(crate) load: Arc<ConnectionLoad>,
    pub(crate) breakers: Arc<Breakers>,
    /// Tasks that clients follow themselves.
    pub(crate) client_tasks: ClientTasks,
    pub(crate) subscription_registry: Arc<SubscriptionRegistry>,
    pub(crate) listener: ServerEventListener,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) era: Arc<ServerEra>,
    pub(crate) starts: StartQueue,
    pub(crate) progress: StartProgress,
    /// Arguments that a sessionless server over HTTP wants in headers, by the tool's name.
    pub(crate) param_headers: ArcSwap<HashMap<String, ParamHeaders>>,
    pub(crate) counters: Counters,
    /// Lines that the server writes beside its messages.
    pub(crate) log: LogRing,
    /// The last messages of the incarnation that lives.
    pub(crate) recorder: ArcSwap<Recorder>,
    pub(crate) crashes: CrashSink,
    /// The items that the server offered last: they hold until an incarnation has listed something
    /// else.
    pub(crate) last_part: ArcSwapOption<ServerPart>,
    /// Whether the server was listed once.
    pub(crate) listed: watch::Sender<bool>,
}

impl ConnectionSpec {
    pub(crate) fn server(&self) -> &ServerName {
        &self.server
    }

    pub(crate) fn settings(&self) -> Arc<ServerSettings> {
        self.settings.load_full()
    }

    /// The era in which the first question is asked.
    pub(crate) async fn look_up_era(&self) -> KnownEra {
        // That transport ended with the older era.
        if self.connector.transport() == "sse" {
            return KnownEra::Configured(Era::Legacy);
        }
        self.era.look_up().await
    }

    /// Forgets what an earlier incarnation recorded.
    pub(crate) fn begin_recording(&self) {
        let recorder = Recorder::new(self.settings.load().recorder);
        self.recorder.store(Arc::new(recorder));
    }
}

/// The senders of a ready connection, by arbiter: a call takes the nearest. Cheap to clone.
#[derive(Clone)]
pub struct CallSenders(Arc<CallSenderTable>);

struct CallSenderTable {
    by_arbiter: Vec<Recipient<CallMessage>>,
    owner: Recipient<ConnectionCommand>,
}

impl CallSenders {
    pub(crate) fn new(
        by_arbiter: Vec<Recipient<CallMessage>>,
        owner: Recipient<ConnectionCommand>,
    ) -> Self {
        Self(Arc::new(CallSenderTable { by_arbiter, owner }))
    }

    /// Sends to the way in that is nearest to the arbiter of this index.
    pub fn send(&self, arbiter: usize, message: CallMessage) {
        let ways = &self.0.by_arbiter;
        if let Some(recipient) = ways.get(arbiter).or(ways.first()) {
            recipient.do_send(message);
        }
    }

    pub fn command(&self, command: ConnectionCommand) {
        self.0.owner.do_send(command);
    }
}

/// A change of subscriptions or log levels, for the connection to pass on.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub enum ConnectionCommand {
    Level(LogLevel),
    /// The level that one sessionless request asks for: a server that is asked once for all its
    /// callers says more from now on, never less.
    LevelAtLeast(LogLevel),
    Subscribe(String),
    Unsubscribe(String),
    /// Somebody wants to hear of another task.
    Tasks,
    /// Look again whether the lists changed.
    Refresh,
    RootsChanged,
    /// Is the server still there?
    Check,
    /// The settings are different now.
    Retune,
    /// The server's process is killed, if it has one.
    Kill,
}

/// Where goes what servers say outside of calls; never waits.
pub type ServerEventListener = Arc<dyn Fn(RoutedServerEvent) + Send + Sync>;

/// An event of a server that belongs to no call.
#[derive(Clone)]
pub struct RoutedServerEvent {
    pub server: ServerName,
    pub key: ConnectionKey,
    pub news: ServerEvent,
}

#[derive(Clone)]
pub enum ServerEvent {
    /// The server was listed; the part may be equal to the one before.
    Listed(Arc<ServerPart>),
    ResourceUpdated(Notification),
    Log(Notification),
    /// The state of a task of a sessionless server.
    Task(Notification),
    /// A question to the session that the connection belongs to, outside of any call.
    Question(SharedQuestion),
    /// This connection was lost; another one is on its way.
    Away,
    /// This connection, which was not everybody's, is closed.
    Closed,
    /// Another notification that clients may understand.
    Other(Notification),
}

/// A question that one of those who hold it may take.
#[derive(Clone)]
pub struct SharedQuestion(Arc<Mutex<Option<Question>>>);

impl SharedQuestion {
    pub(crate) fn new(question: Question) -> Self {
        Self(Arc::new(Mutex::new(Some(question))))
    }

    /// `None` if somebody else took it.
    pub fn take(&self) -> Option<Question> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
