//! The state of every request handler: the front, behind a gate that opens once the gateway is
//! built.

use arc_swap::ArcSwap;
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::http::body::BytesInFlight;
use super::http::guard::origin_is_allowed;
use super::legacy_sse::sse_channel::SseChannels;
use super::settings::FrontSettings;
use crate::sessions::Sessions;
use crate::telemetry::Counters;

/// The state that request handlers share.
pub struct Front {
    pub(super) settings: ArcSwap<FrontSettings>,
    pub(super) sessions: Sessions,
    pub(super) counters: Counters,
    pub(super) bytes: BytesInFlight,
    /// Cancelled when the gateway stops.
    pub(super) draining: CancellationToken,
    /// Cancelled with `draining`, and earlier when the socket is handed over to another process:
    /// then requests are still answered, and streams end.
    pub(super) closing: CancellationToken,
    /// Open channels of HTTP+SSE.
    pub(super) channels: SseChannels,
    /// Requests and event streams that are not answered to their end.
    pub(super) in_flight: TaskTracker,
}

/// The front, once the gateway is built.
#[derive(Default)]
pub(super) struct FrontGate {
    pub(super) front: SetOnce<Front>,
}

impl FrontGate {
    /// Waits for the front: clients may connect a moment before it is there.
    pub(super) async fn front(&self) -> &Front {
        self.front.wait().await
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
    pub fn new(settings: FrontSettings, sessions: Sessions, counters: Counters) -> Self {
        Self {
            settings: ArcSwap::from_pointee(settings),
            sessions,
            counters,
            bytes: BytesInFlight::default(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            channels: SseChannels::default(),
            in_flight: TaskTracker::new(),
        }
    }

    /// Cancelled when the gateway stops, or hands its socket over.
    pub fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Whether streams are refused.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }
}
