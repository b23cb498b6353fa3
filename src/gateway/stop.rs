//! The stop of a gateway, in order, each step with its own deadline.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::{Gateway, key_uses};

/// Time to finish what the store was asked for before the end.
const STORE_FLUSH: Duration = Duration::from_secs(2);

/// How long the collector may take for the last metrics, and for the last spans.
const COLLECTOR_FLUSH: Duration = Duration::from_secs(2);

impl Gateway {
    /// Stops in order, within `shutdown_grace`: no new requests, streams end, calls are drained,
    /// sessions, connections, threads.
    pub async fn stop(self) {
        let grace = self.config.shutdown_grace;
        let deadline = Instant::now() + grace;
        let within = humantime::format_duration(grace);
        log::info!("stops; calls in flight may take up to {within}");
        if self.shares_socket {
            self.server.hand_over().await;
        } else {
            self.server.drain();
        }
        self.state.sessions.end_general_streams();
        self.state.log.events().close();
        // The rest is for servers and threads.
        if timeout(grace * 7 / 10, self.server.drained())
            .await
            .is_err()
        {
            log::warn!("calls that did not end in time are cancelled");
        }
        self.server.drain();
        self.state.sessions.drain();
        let left = deadline.saturating_duration_since(Instant::now());
        if timeout(left, self.state.downstreams.stop_all())
            .await
            .is_err()
        {
            log::warn!("servers that did not stop in time are killed");
        }
        self.spawner.stop().await;
        if let Some(metrics) = &self.metrics {
            metrics.stop().await;
        }
        if let Some(export) = &self.metrics_export {
            export.stop(COLLECTOR_FLUSH).await;
        }
        if self.lease.number().is_some() {
            key_uses::write(&self.state, self.config.data_dir.clone()).await;
        }
        let writer = self.crashes;
        let _ = timeout(STORE_FLUSH, spawn_blocking(move || writer.stop())).await;
        let history = self.state.history.clone();
        let _ = timeout(STORE_FLUSH, spawn_blocking(move || history.stop())).await;
        // Records of sessions that were just written.
        self.store.flush().await;
        self.state.traces.stop(COLLECTOR_FLUSH).await;
        // The last: sessions and connections lived on its threads.
        self.server.stop(grace / 10).await;
        if let Err(error) = self.arbiters.stop(grace / 10).await {
            log::warn!(error:%; "not every thread ended");
        }
        self.store.stop().await;
    }
}
