//! The health of the gateway, for monitoring.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::admin::{GatewayState, Health, HealthSource, ServerHealth};
use crate::cluster::Cluster;
use crate::downstream::ServerStatusView;

pub(super) fn health_source(state: Arc<GatewayState>, closing: CancellationToken) -> HealthSource {
    Arc::new(move || {
        let servers = state.server_statuses();
        Health {
            listed: state.catalog.is_listed(),
            closing: closing.is_cancelled()
                || state.cluster.as_ref().is_some_and(Cluster::is_leaving),
            store: state.store.summary(),
            joining: state.cluster.as_ref().is_some_and(|it| !it.has_joined()),
            engine_failure: state.cluster.as_ref().and_then(Cluster::engine_failure),
            history_fails: state.history.failure().is_some(),
            uptime_seconds: state.started.elapsed().as_secs(),
            servers: servers
                .into_iter()
                .map(|server| ServerHealth {
                    reason: server
                        .connection
                        .as_ref()
                        .and_then(ServerStatusView::failing),
                    state: server.state,
                })
                .collect(),
        }
    })
}
