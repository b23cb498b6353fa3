//! Builds servers and starts supervised connections, for the connection manager.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use actix::{AsyncContext as _, Context};
use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{Notify, watch};

use crate::catalog::ServerPart;
use crate::downstream::connection::Connection;
use crate::downstream::connection::spec::{CallSenders, CalledLists, ConnectionSpec, OwnSession};
use crate::downstream::connection_key::ConnectionKey;
use crate::downstream::era::ServerEra;
use crate::downstream::notification_budget::NotificationBudget;
use crate::downstream::parts::{PoolParts, ServerParts};
use crate::downstream::pool::Servers;
use crate::downstream::pool::canary::ServerRollout;
use crate::downstream::pool::dependencies::DependentServers;
use crate::downstream::pool::idle_sessions::IdleSession;
use crate::downstream::pool::own_connections::OwnConnections;
use crate::downstream::pool::phase_events::publish_phases;
use crate::downstream::pool::retiring::RetiringServers;
use crate::downstream::pool::server::Server;
use crate::downstream::pool::usage::Usage;
use crate::downstream::resilience::admission::{AdmissionGate, ConnectionLoad};
use crate::downstream::resilience::breakers::Breakers;
use crate::downstream::separation::Separation;
use crate::downstream::session_status::SessionStatus;
use crate::downstream::settings::{ServerSettings, StartMode};
use crate::id::{CredentialContext, SessionId};
use crate::supervision::{ChildRef, ChildSpec, Start, Supervisor};
use crate::telemetry::{LogRing, LogRingSettings};
use crate::transport::Recorder;

/// The parts that servers and their connections are built from.
#[derive(Clone)]
pub(super) struct ServerBuilder {
    pub(super) servers: Arc<ArcSwap<Servers>>,
    /// Asks for a look at the servers with dependencies; returns whether it will happen.
    pub(super) ask_to_look: Arc<dyn Fn() -> bool + Send + Sync>,
    pub(super) retiring: RetiringServers,
    pub(super) dependencies: DependentServers,
    pub(super) parts: PoolParts,
    /// Notified when the lists of a server have to be compared.
    pub(super) comparison_due: Arc<Notify>,
}

impl ServerBuilder {
    /// Builds a server and starts its shared connection.
    pub(super) fn start_server(
        &self,
        settings: ServerSettings,
        known: Option<Arc<ServerPart>>,
    ) -> Arc<Server> {
        let lines_max = settings.limits.log_lines;
        let kept = LogRingSettings {
            lines_max,
            ..Default::default()
        };
        let log = LogRing::new(kept, self.parts.secrets.clone());
        let connector = (self.parts.make_connector)(&settings, &log, &CredentialContext::Shared);
        let queue = settings.resilience.queue;
        let gate = Arc::new(AdmissionGate::new(settings.limits.calls_max, queue));
        let is_lazy = settings.start == StartMode::Lazy;
        let breakers = Arc::new(Breakers::new(
            settings.name.clone(),
            settings.resilience.breaker,
            log.clone(),
            self.parts.counters.clone(),
        ));
        let spread = settings.name.as_str().bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let declaration = settings.declaration();
        let settings = Arc::new(ArcSwap::from_pointee(settings));
        let store = &self.parts.store;
        let starts_process = connector.starts_process();
        let era = ServerEra::new(settings.clone(), store.clone(), starts_process);
        let era = Arc::new(era);
        let due = self.comparison_due.clone();
        let separation = Separation::new(settings.clone(), store.clone(), log.clone(), due);
        let separation = Arc::new(separation);
        let notification_budget =
            NotificationBudget::new(settings.clone(), self.parts.counters.clone());
        let parts = ServerParts {
            settings,
            declaration,
            connector,
            gate,
            breakers,
            notification_budget: Arc::new(notification_budget),
            era: era.clone(),
            separation: separation.clone(),
            log,
            retiring: self.retiring.clone(),
            dependencies: self.dependencies.clone(),
        };
        let (shared, spec) =
            self.supervise(&parts, ConnectionKey::shared(), spread, known, None, None);
        actix_rt::spawn(async move { tokio::join!(era.load(), separation.load()) });
        let server = Arc::new(Server {
            parts,
            shared,
            spec,
            usage: Arc::new(Usage::new(is_lazy)),
            own: OwnConnections::new(),
            halted: AtomicBool::new(false),
            retries: Default::default(),
            rollout: ServerRollout::default(),
        });
        let checked = Arc::downgrade(&server);
        server.parts.breakers.when_opened(move || {
            if let Some(server) = checked.upgrade() {
                server.check();
            }
        });
        server
    }

    /// Starts a permanent child for a connection; `spread` selects its arbiter. Until the server
    /// answers, its lists are taken from `known`.
    pub(super) fn supervise(
        &self,
        of_server: &ServerParts,
        key: ConnectionKey,
        spread: u64,
        known: Option<Arc<ServerPart>>,
        opener: Option<SessionId>,
        idle: Option<IdleSession>,
    ) -> (ChildRef<CallSenders>, Arc<ConnectionSpec>) {
        let settings = of_server.settings.load();
        let server = &settings.name;
        let mut of_server = of_server.clone();
        if key.credentials != CredentialContext::Shared {
            of_server.connector =
                (self.parts.make_connector)(&settings, &of_server.log, &key.credentials);
        }
        let is_known = known.is_some() && key.is_shared();
        let is_listed = is_known || idle.as_ref().is_some_and(|idle| idle.is_listed);
        let child = key.child_name(server);
        let arbiters = &self.parts.arbiters;
        let load = Arc::new(ConnectionLoad::new(of_server.gate.clone()));
        let spec = Arc::new(ConnectionSpec {
            server: server.clone(),
            of_server,
            of_all: self.parts.clone(),
            key,
            opener,
            home: arbiters.index(spread),
            load,
            client_tasks: Default::default(),
            progress: Default::default(),
            recorder: ArcSwap::from_pointee(Recorder::new(settings.recorder)),
            param_headers: ArcSwap::default(),
            session: SessionStatus::default(),
            called: CalledLists::new(idle.as_ref().map_or(0, |idle| idle.called)),
            own_session: OwnSession::new(idle.map(|it| (it.session, it.negotiated))),
            last_part: ArcSwapOption::new(known),
            first_lists: ArcSwapOption::default(),
            listed: watch::Sender::new(is_listed),
        });
        let of_child = spec.clone();
        let start = Start::new(move |ctx, birth| {
            Connection::new(of_child.clone(), birth, Context::address(ctx))
        });
        let mut child = ChildSpec::new(child, arbiters, start);
        child.settings = settings.supervision.clone();
        child.key = spread;
        // A lazy server whose items are known need not be started to be listed.
        child.lazy = settings.start == StartMode::Lazy && is_known;
        child.blocked = spec.key.is_shared() && settings.dependencies.is_dependent();
        // Only the session's own thread uses its connection.
        let child = match spec.is_own_session() {
            true => Supervisor::supervise_beside_child(child),
            false => Supervisor::supervise(child),
        };
        (child, spec)
    }

    /// Reports the phases of a server that takes its place among the servers.
    pub(super) fn announce(&self, server: &Server) {
        let name = server.name().clone();
        let (servers, of_up) = (self.servers.clone(), name.clone());
        let on_up = move || {
            if let Some(server) = servers.load().get(&of_up) {
                server.own.retry();
            }
        };
        let (dependencies, ask, of_change) = (
            self.dependencies.clone(),
            self.ask_to_look.clone(),
            name.clone(),
        );
        let on_change = move || dependencies.changed(&of_change, &*ask);
        let (events, phases) = (self.parts.events.clone(), server.shared.subscribe());
        actix_rt::spawn(publish_phases(events, name, phases, (on_up, on_change)));
    }
}
