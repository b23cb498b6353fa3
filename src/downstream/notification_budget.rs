//! How much of what one server says in its calls may be on its way to the threads of their callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use crate::downstream::settings::ServerSettings;
use crate::memory::{KeptBytes, KeptShare};
use crate::protocol::{Method, Notification};
use crate::telemetry::{Counter, Counters};

/// Overhead of a message besides its frame, in bytes.
const OVERHEAD: usize = 512;

/// The bytes of one server, over all its connections. What does not fit is left out and counted
/// (S-PROG-03, S-LOG-07); answers and questions are no part of it.
pub(crate) struct NotificationBudget {
    settings: Arc<ArcSwap<ServerSettings>>,
    counters: Counters,
    bytes: KeptBytes,
    is_dropping: AtomicBool,
}

impl NotificationBudget {
    pub(crate) fn new(settings: Arc<ArcSwap<ServerSettings>>, counters: Counters) -> Self {
        Self {
            settings,
            counters,
            bytes: KeptBytes::default(),
            is_dropping: AtomicBool::new(false),
        }
    }

    /// Gives a notification its place until it is taken; `None` when there is none.
    pub(crate) fn admit(&self, notification: &Notification) -> Option<KeptShare> {
        let settings = self.settings.load();
        // A client waits for this one, of which there are few.
        let max = match notification.method {
            Method::ElicitationComplete => usize::MAX,
            _ => settings.limits.undelivered_max,
        };
        let size = notification.frame.as_bytes().len() + OVERHEAD;
        let share = self.bytes.try_keep(size, max);
        let is_full = share.is_none();
        if is_full {
            self.counters.add(Counter::CallNotificationsLost);
        }
        if is_full && !self.is_dropping.swap(true, Ordering::Relaxed) {
            let (server, limit_bytes) = (settings.name.as_str(), max);
            log::warn!(server, limit_bytes; "it says more of its calls than can be passed on: some progress and log lines are lost (`limits.undelivered_per_server`)");
        } else if share
            .as_ref()
            .is_some_and(|share| share.all() == share.own())
        {
            // Everything that waited was taken.
            self.is_dropping.store(false, Ordering::Relaxed);
        }
        share
    }
}
