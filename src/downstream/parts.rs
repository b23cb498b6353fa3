//! Parts that connections share: across all servers, and within one server.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::bridge::seal::Digest;
use crate::downstream::crash::CrashSink;
use crate::downstream::era::ServerEra;
use crate::downstream::list_changes::ListChanges;
use crate::downstream::notification_budget::NotificationBudget;
use crate::downstream::pool::dependencies::DependentServers;
use crate::downstream::pool::retiring::RetiringServers;
use crate::downstream::resilience::admission::AdmissionGate;
use crate::downstream::resilience::breakers::Breakers;
use crate::downstream::separation::Separation;
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

/// Creates the connector of a server with these credentials; tests inject an in-memory connector
/// here.
pub type MakeConnector =
    Arc<dyn Fn(&ServerSettings, &LogRing, &CredentialContext) -> Arc<dyn Connector> + Send + Sync>;

/// Parts shared by all connections of all servers.
#[derive(Clone)]
pub struct PoolParts {
    pub arbiters: Arbiters,
    pub numbers: CallNumbers,
    pub subscription_registry: Arc<SubscriptionRegistry>,
    pub list_changes: ListChanges,
    pub listener: ServerEventListener,
    /// Remembers each server's era, and whether its clients need separate connections.
    pub store: Arc<dyn Store>,
    pub random: Arc<dyn Random>,
    /// Limits how many programs start at once.
    pub starts: StartQueue,
    pub make_connector: MakeConnector,
    pub counters: Counters,
    pub metrics: Metrics,
    pub crashes: CrashSink,
    /// Masked in everything that operators see of servers.
    pub secrets: LiveSecrets,
    /// Receives the state changes of servers as events.
    pub events: EventFeed,
}

/// Parts shared by all connections of one server.
#[derive(Clone)]
pub(crate) struct ServerParts {
    /// Replaced by a reload that needs no new connection.
    pub(crate) settings: Arc<ArcSwap<ServerSettings>>,
    /// Digest of the declaration, which a reload of these settings cannot change.
    pub(crate) declaration: Digest,
    pub(crate) connector: Arc<dyn Connector>,
    /// Limits the server's calls in flight, and queues the others.
    pub(crate) gate: Arc<AdmissionGate>,
    pub(crate) breakers: Arc<Breakers>,
    pub(crate) notification_budget: Arc<NotificationBudget>,
    pub(crate) era: Arc<ServerEra>,
    pub(crate) separation: Arc<Separation>,
    pub(crate) log: LogRing,
    /// Servers that are being closed; a server waits until its predecessor of the same name has
    /// ended.
    pub(crate) retiring: RetiringServers,
    /// Servers that wait for each other.
    pub(crate) dependencies: DependentServers,
}
