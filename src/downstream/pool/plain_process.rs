//! The process of a program for clients without capabilities, while the one that clients share was
//! declared capabilities. It first shows whether the program lists differently to such clients, and
//! stays if they need it (B-SHARE-01).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use crate::catalog::ServerPart;
use crate::downstream::connection::spec::{CallSenders, ConnectionSpec, FirstLists};
use crate::downstream::connection_key::ConnectionKey;
use crate::downstream::pool::Downstreams;
use crate::downstream::pool::closing::close;
use crate::downstream::pool::own_connections::REST_MIN;
use crate::downstream::pool::server::Server;
use crate::downstream::separation::{Compared, Comparison};
use crate::downstream::server_event::{RoutedServerEvent, ServerEvent, ServerEventListener};
use crate::downstream::settings::ServerSettings;
use crate::downstream::subscription_registry::SubscriptionRegistry;
use crate::supervision::{ChildPhase, ChildRef};

/// Maximum number of programs whose lists are compared at the same time: each starts a process.
const COMPARISONS_MAX: usize = 2;

impl Downstreams {
    /// Finds out, once per version of a program, whether its lists depend on capabilities, as soon
    /// as its shared process has listed. Ends with the connection manager.
    pub(super) async fn compare_lists(self, due: Arc<Notify>) {
        let places = Arc::new(Semaphore::new(COMPARISONS_MAX));
        loop {
            tokio::select! {
                () = due.notified() => {}
                () = self.manager.stopped() => return,
            }
            for server in self.servers.load().values() {
                if server.parts.separation.take_comparison() {
                    actix_rt::spawn(self.clone().compare(server.clone(), places.clone()));
                }
            }
        }
    }

    async fn compare(self, server: Arc<Server>, places: Arc<Semaphore>) {
        // The semaphore is never closed.
        let _place = places.acquire().await;
        let separation = &server.parts.separation;
        let shared = server.spec.first_lists.load_full();
        let compared = match &shared {
            Some(shared) => self.compared(&server, &shared.part).await,
            // The shared process is starting again, and its lists are compared then.
            None => None,
        };
        let is_failed = compared.is_none_or(|it| it == Compared::Failed);
        separation.end_comparison(shared.as_deref().map(|it| &it.part).zip(compared));
        let is_needless = || is_failed || !separation.is_plain_apart();
        let plain = server.own.take_plain(Duration::ZERO, is_needless);
        close(&self.listener, &server, plain);
        if separation.is_plain_apart()
            && let Some((part, lists)) = plain_lists(&server)
        {
            (self.listener)(RoutedServerEvent {
                server: server.name().clone(),
                key: ConnectionKey::plain(),
                event: ServerEvent::Listed(part, lists.read_at),
            });
        }
    }

    /// Compares the lists of the shared process with the lists of the plain process; `None`
    /// if the server is being stopped.
    async fn compared(&self, server: &Arc<Server>, shared: &ServerPart) -> Option<Compared> {
        let key = ConnectionKey::plain();
        let (name, arbiter, of_nobody) = (server.name().clone(), server.spec.home, None);
        let opening = self.open(name, key.clone(), arbiter, of_nobody);
        let child = opening.await.ok()?;
        let spec = server.own.spec(&key)?;
        let is_listed = has_listed(&server.settings(), &spec, &child).await;
        if server.is_halted() || child.phase() == ChildPhase::Stopped {
            return None;
        }
        // A list that failed is known only from the shared process.
        let is_whole = is_listed && spec.session.trouble().is_none();
        let plain = spec.first_lists.load_full().filter(|_| is_whole);
        Some(match plain {
            Some(plain) if plain.part.offers_the_same(shared) => Compared::Equal,
            Some(_) => Compared::Different,
            None => Compared::Failed,
        })
    }
}

/// Waits until a connection that was just begun has listed. `false` if it fails first, or does not
/// list within its time to start and connect.
pub(super) async fn has_listed(
    settings: &ServerSettings,
    spec: &ConnectionSpec,
    child: &ChildRef<CallSenders>,
) -> bool {
    let mut listed = spec.listed.subscribe();
    let mut changes = child.subscribe();
    let failed = changes.wait_for(|snapshot| {
        let phase = snapshot.status.phase();
        !matches!(
            phase,
            ChildPhase::Idle | ChildPhase::Waiting | ChildPhase::Starting | ChildPhase::Up
        )
    });
    let within = settings.limits.start_timeout + settings.supervision.connect_timeout;
    let is_listed = timeout(within, async {
        tokio::select! {
            _ = failed => false,
            listed = listed.wait_for(|listed| *listed) => listed.is_ok(),
        }
    });
    is_listed.await.unwrap_or_default()
}

/// The lists of the process for clients without capabilities, if it has listed.
fn plain_lists(server: &Server) -> Option<(Arc<ServerPart>, Arc<FirstLists>)> {
    let spec = server.own.spec(&ConnectionKey::plain())?;
    let first = spec.first_lists.load_full()?;
    Some((spec.last_part.load_full()?, first))
}

/// Whether the shared process can serve clients without capabilities, because it was declared
/// nothing and has listed.
fn shares_plain(server: &Server) -> bool {
    server.shared.phase() == ChildPhase::Up
        && !server.parts.separation.declares_all()
        && server.spec.first_lists.load().is_some()
}

/// Closes the process for clients without capabilities once they use the shared one again. Restarts
/// a shared process that has the roots of a client without a session, and so serves no client.
pub(super) fn settle_processes(
    listener: &ServerEventListener,
    registry: &SubscriptionRegistry,
    server: &Arc<Server>,
) {
    let separation = &server.parts.separation;
    separation.request_comparison();
    if separation.is_of_sessionless() && !server.is_halted() {
        let used = server.clone();
        match server.shared.phase() {
            ChildPhase::Up => server.shared.idle_if(move || !used.has_calls()),
            ChildPhase::Idle => server.shared.wake(),
            _ => {}
        }
    }
    let key = ConnectionKey::plain();
    // Calls and subscriptions of a client belong to one process.
    if separation.is_plain_apart()
        && shares_plain(server)
        && !server.has_subscriptions(registry, &key)
    {
        separation.rejoin_plain();
    }
    if server.own.any(|own| *own == key) {
        let is_needless = || {
            !separation.is_plain_apart()
                && separation.comparison() == Comparison::Settled
                && !server.has_subscriptions(registry, &key)
        };
        let plain = server.own.take_plain(REST_MIN, is_needless);
        close(listener, server, plain);
    }
}
