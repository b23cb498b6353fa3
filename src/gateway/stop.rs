//! Shuts a gateway down in order, with a deadline for each step.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::service::{self, ServiceState};
use super::{Gateway, key_uses};

/// Maximum time for the store to finish pending writes.
const STORE_FLUSH: Duration = Duration::from_secs(2);

/// Maximum time to export the final metrics, and the final spans.
const COLLECTOR_FLUSH: Duration = Duration::from_secs(2);

impl Gateway {
    /// Shuts down within `shutdown_grace`: new requests are refused, streams end, calls are
    /// drained, and then sessions, connections and threads stop.
    pub async fn stop(self) {
        service::notify(ServiceState::Stopping);
        self.config_task.abort();
        let cluster = self.state.cluster.as_ref().filter(|it| it.has_joined());
        if let Some(cluster) = cluster {
            cluster.begin_leaving().await;
        }
        let grace = *self.grace.borrow();
        let deadline = Instant::now() + grace;
        let within = humantime::format_duration(grace);
        log::info!("shutting down; calls in flight have up to {within}");
        if self.shares_socket {
            self.server.hand_over().await;
        } else {
            self.server.drain();
        }
        self.state.sessions.end_general_streams();
        self.state.log.events().close();
        // The remaining time is for servers and threads.
        if timeout(grace * 7 / 10, self.server.drained())
            .await
            .is_err()
        {
            log::warn!("cancelling calls that did not finish in time");
        }
        self.server.drain();
        self.state.sessions.drain();
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
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
        // Must be last: sessions and connections run on its threads.
        self.server.stop(grace / 10).await;
        if let Err(error) = self.state.arbiters.stop(grace / 10).await {
            log::warn!(error:%; "some threads did not stop");
        }
        self.state.store.stop().await;
    }
}
