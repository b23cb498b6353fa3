//! What every request handler has: the front, behind a gate that opens once the gateway is built.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body::BytesInFlight;
use super::guard::origin_is_allowed;
use super::legacy_sse::SseChannels;
use super::settings::FrontSettings;
use crate::auth::Authenticate;
use crate::sessions::Sessions;
use crate::telemetry::Counters;

/// How the gateway is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether lists can be answered.
    pub listed: bool,
    pub uptime_seconds: u64,
    pub servers: Vec<ServerHealth>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerHealth {
    pub name: String,
    /// A phase of supervision, `disabled` or `misconfigured`.
    pub state: String,
}

/// Asked for each health request.
pub type HealthSource = Arc<dyn Fn() -> Health + Send + Sync>;

/// What every request handler has.
pub struct Front {
    pub(super) settings: ArcSwap<FrontSettings>,
    pub(super) sessions: Sessions,
    pub(super) authenticate: Arc<dyn Authenticate>,
    pub(super) health: HealthSource,
    pub(super) counters: Counters,
    pub(super) bytes: BytesInFlight,
    /// Cancelled when the gateway stops.
    pub(super) draining: CancellationToken,
    /// Cancelled with that, and when another process takes the connections from now on: then
    /// requests are still answered, and what would last ends.
    pub(super) closing: CancellationToken,
    /// Open channels of HTTP+SSE.
    pub(super) channels: SseChannels,
    /// Requests and event streams that are not answered to their end.
    pub(super) in_flight: TaskTracker,
}

/// What every worker has: the front, once the gateway is built.
#[derive(Default)]
pub(super) struct FrontGate {
    pub(super) front: OnceLock<Front>,
    pub(super) opened: Notify,
}

impl FrontGate {
    /// Waits for the front: clients may connect a moment before it is there.
    pub(super) async fn front(&self) -> &Front {
        loop {
            if let Some(front) = self.front.get() {
                return front;
            }
            let opened = self.opened.notified();
            if self.front.get().is_none() {
                opened.await;
            }
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.front.get().is_some_and(Front::is_closing)
    }

    pub(super) fn allows_origin(&self, origin: &str) -> bool {
        let front = self.front.get();
        front.is_some_and(|front| origin_is_allowed(&front.settings.load().allowed_origins, origin))
    }
}

/// Index of the worker that handles a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerIndex(pub(super) usize);

impl Front {
    pub fn new(
        settings: FrontSettings,
        sessions: Sessions,
        authenticate: Arc<dyn Authenticate>,
        health: HealthSource,
        counters: Counters,
    ) -> Self {
        Self {
            settings: ArcSwap::from_pointee(settings),
            sessions,
            authenticate,
            health,
            counters,
            bytes: BytesInFlight::default(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            channels: SseChannels::default(),
            in_flight: TaskTracker::new(),
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Whether no stream should begin: another process would keep it for longer.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }
}
