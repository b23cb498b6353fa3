//! Limits the notifications of one server's calls that wait for the callers' threads.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::downstream::settings::ServerSettings;
use crate::memory::{ByteBudget, ByteShare};
use crate::protocol::{Method, Notification};
use crate::telemetry::{Counter, Counters};

/// Overhead of a message besides its frame, in bytes.
const OVERHEAD: usize = 512;

/// The byte budget of one server, over all its connections. Notifications over the budget are
/// dropped and counted (S-PROG-03, S-LOG-07); answers and questions do not count.
pub(crate) struct NotificationBudget {
    settings: Arc<ArcSwap<ServerSettings>>,
    counters: Counters,
    bytes: ByteBudget,
}

impl NotificationBudget {
    pub(crate) fn new(settings: Arc<ArcSwap<ServerSettings>>, counters: Counters) -> Self {
        Self {
            settings,
            counters,
            bytes: ByteBudget::default(),
        }
    }

    /// Reserves a notification's bytes until it is taken; `None` if it exceeds the budget.
    pub(crate) fn admit(&self, notification: &Notification) -> Option<ByteShare> {
        let settings = self.settings.load();
        // A client waits for these few notifications.
        let max = match notification.method {
            Method::ElicitationComplete => usize::MAX,
            _ => settings.limits.undelivered_max,
        };
        let size = notification.frame.as_bytes().len() + OVERHEAD;
        match self.bytes.take(size, max) {
            Ok(share) => Some(share),
            Err(exhausted) => {
                self.counters.add(Counter::CallNotificationsLost);
                if exhausted.is_first {
                    let (server, limit_bytes) = (settings.name.as_str(), max);
                    log::warn!(server, limit_bytes; "progress and log notifications dropped: over `limits.undelivered_per_server`");
                }
                None
            }
        }
    }
}
