//! Shuts a gateway down in order, with a deadline for each step.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::service::{self, ServiceState};
use super::{Gateway, key_uses};
use crate::sessions::{Moves, Replicas};

/// Maximum time for the store to finish pending writes.
const STORE_FLUSH: Duration = Duration::from_secs(2);

/// Maximum time to export the final metrics, and the final spans.
const COLLECTOR_FLUSH: Duration = Duration::from_secs(2);

/// How often busy sessions are looked at again.
const RELEASE_EVERY: Duration = Duration::from_millis(200);

/// Tells balancers and other replicas that this replica leaves. Everything is still served.
async fn give_notice(replicas: &Replicas) {
    replicas.cluster().begin_leaving().await;
    sleep(replicas.settings().leave_notice).await;
}

/// Gives up sessions as soon as they are quiet. Busy ones are served until then.
async fn release_sessions(moves: &Moves<'_>, until: Instant) {
    loop {
        let left = moves.release_quiet().await;
        if left == 0 || Instant::now() >= until {
            log::info!(left; "released the sessions of this replica");
            return;
        }
        sleep(RELEASE_EVERY).await;
    }
}

impl Gateway {
    /// Shuts down within `shutdown_grace`: new requests are refused, streams end, calls are
    /// drained, and then sessions, connections and threads stop.
    pub async fn stop(self) {
        service::notify(ServiceState::Stopping);
        self.config_task.abort();
        let grace = *self.grace.borrow();
        let within = humantime::format_duration(grace);
        log::info!("shutting down; calls in flight have up to {within}");
        let moves = self.state.sessions.moves();
        let moves = moves.filter(|it| it.replicas.cluster().has_joined());
        if let Some(moves) = &moves {
            give_notice(moves.replicas).await;
        }
        let (begun, deadline) = (Instant::now(), Instant::now() + grace);
        if let Some(moves) = &moves {
            release_sessions(moves, begun + grace * 7 / 10).await;
        }
        if self.shares_socket || moves.is_some() {
            self.server.hand_over(!self.shares_socket).await;
        } else {
            self.server.drain();
        }
        self.state.sessions.end_general_streams();
        self.state.log.events().close();
        // The remaining time is for servers and threads.
        let until = begun + grace * 7 / 10;
        if timeout_at(until, self.server.drained()).await.is_err() {
            log::warn!("cancelling calls that did not finish in time");
        }
        self.server.drain();
        self.state.sessions.drain();
        if let Some(moves) = &moves {
            moves.release_all().await;
            moves.replicas.cluster().leave().await;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if timeout(left, self.state.downstreams.stop_all())
            .await
            .is_err()
        {
            log::warn!("killing servers that did not stop in time");
        }
        self.spawner.stop().await;
        if let Some(metrics) = &self.metrics {
            metrics.stop().await;
        }
        if let Some(export) = &self.metrics_export {
            export.stop(COLLECTOR_FLUSH).await;
        }
        if self.lease.number().is_some() {
            key_uses::write(&self.state, self.operator.data_dir.clone()).await;
        }
        let writer = self.crashes;
        let _ = timeout(STORE_FLUSH, spawn_blocking(move || writer.stop())).await;
        let history = self.state.history.clone();
        let _ = timeout(STORE_FLUSH, spawn_blocking(move || history.stop())).await;
        // Writes the session records of the last steps.
        self.state.store.flush().await;
        self.state.traces.stop(COLLECTOR_FLUSH).await;
        // Must be last: sessions and connections run on its threads.
        self.server.stop(grace / 10).await;
        if let Err(error) = self.state.arbiters.stop(grace / 10).await {
            log::warn!(error:%; "some threads did not stop");
        }
        self.state.store.stop().await;
    }
}
