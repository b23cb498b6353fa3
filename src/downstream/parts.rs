//! The parts that connections have in common.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::downstream::crash::CrashSink;
use crate::downstream::era::ServerEra;
use crate::downstream::isolation::Isolation;
use crate::downstream::list_changes::ListChanges;
use crate::downstream::notification_budget::NotificationBudget;
use crate::downstream::pool::retiring::RetiringServers;
use crate::downstream::resilience::admission::AdmissionGate;
use crate::downstream::resilience::breakers::Breakers;
use crate::downstream::server_event::ServerEventListener;
use crate::downstream::settings::ServerSettings;
use crate::downstream::starting::StartQueue;
use crate::downstream::subscription_registry::SubscriptionRegistry;
use crate::id::{CallNumbers, CredentialContext};
use crate::masking::LiveSecrets;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::supervision::{Arbiters, Random};
use crate::telemetry::{Counters, EventFeed, LogRing};
use crate::transport::Connector;

/// Makes the connector of a server with these credentials: a seam, through which tests inject one in memory.
pub type MakeConnector =
    Arc<dyn Fn(&ServerSettings, &LogRing, &CredentialContext) -> Arc<dyn Connector> + Send + Sync>;

/// The parts that all connections of all servers share.
#[derive(Clone)]
pub struct PoolParts {
    pub arbiters: Arbiters,
    pub numbers: CallNumbers,
    pub subscription_registry: Arc<SubscriptionRegistry>,
    pub list_changes: ListChanges,
    pub listener: ServerEventListener,
    /// Where it is kept which era a server speaks, and whether its clients share connections.
    pub store: Arc<dyn Store>,
    pub random: Arc<dyn Random>,
    /// How many programs start at once.
    pub starts: StartQueue,
    pub make_connector: MakeConnector,
    pub counters: Counters,
    pub metrics: Metrics,
    pub crashes: CrashSink,
    /// Masked in all that operators read of servers.
    pub secrets: LiveSecrets,
    /// Gets the states of servers as events.
    pub events: EventFeed,
}

/// The parts that all connections of a server share.
#[derive(Clone)]
pub(crate) struct ServerParts {
    /// Replaced by a reload that needs no new connection.
    pub(crate) settings: Arc<ArcSwap<ServerSettings>>,
    pub(crate) connector: Arc<dyn Connector>,
    /// Its calls in flight, and those that wait.
    pub(crate) gate: Arc<AdmissionGate>,
    pub(crate) breakers: Arc<Breakers>,
    pub(crate) notification_budget: Arc<NotificationBudget>,
    pub(crate) era: Arc<ServerEra>,
    pub(crate) isolation: Arc<Isolation>,
    pub(crate) log: LogRing,
    /// Servers that are on their way out; those of the same name come first.
    pub(crate) retiring: RetiringServers,
}
