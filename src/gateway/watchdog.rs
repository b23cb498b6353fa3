//! The service manager's watchdog (`WATCHDOG_USEC`): the manager restarts a gateway that stops
//! reporting.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use actix_rt::{Arbiter, ArbiterHandle};
use sd_notify::NotifyState;

use crate::admin::THREAD_BLOCKED_AFTER;
use crate::supervision::Pulse;

/// The threads without which the gateway does not serve: these workers, and the calling thread, which
/// supervises.
pub(super) fn pulse(workers: &[ArbiterHandle]) -> Pulse {
    let workers = workers.iter().enumerate();
    let workers = workers.map(|(index, thread)| (format!("worker {index}"), thread.clone()));
    let supervising = ("supervising thread".to_owned(), Arbiter::current());
    Pulse::of(workers.chain([supervising]))
}

/// Reports from a thread of its own while every thread responds. Dropping it ends the reports.
pub(super) struct Watchdog {
    _running: SyncSender<()>,
}

impl Watchdog {
    /// Returns `None` if the manager does not ask for reports.
    ///
    /// # Errors
    ///
    /// Returns the system's error if no thread can be started.
    pub(super) fn start(pulse: Pulse) -> io::Result<Option<Self>> {
        let Some(period) = sd_notify::watchdog_enabled() else {
            return Ok(None);
        };
        let (running, ended) = sync_channel(1);
        let thread = std::thread::Builder::new().name("watchdog".to_owned());
        // Two reports may be lost before the manager loses its patience.
        thread.spawn(move || report(&pulse, &ended, period / 3))?;
        Ok(Some(Self { _running: running }))
    }
}

fn report(pulse: &Pulse, ended: &Receiver<()>, every: Duration) {
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let blocked = pulse.blocked(THREAD_BLOCKED_AFTER);
        if !blocked.is_empty() {
            log::error!(threads = blocked.join(", "); "threads are blocked; the service manager restarts the gateway unless they recover");
            continue;
        }
        if let Err(error) = sd_notify::notify(&[NotifyState::Watchdog]) {
            log::warn!(error:%; "could not report to the service manager's watchdog");
        }
    }
}
