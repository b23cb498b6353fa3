//! Measures how long messages wait for their actor. actix does not expose mailboxes, so each scrape
//! sends a probe to every thread that runs actors.

use std::collections::BTreeMap;
use std::time::Duration;

use super::family::Labels;
use crate::supervision::{Arbiters, probe_delays};

/// Maximum wait for a probe, and the reported value for slower threads.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Mailbox delay of each thread, in seconds. Blocks the calling thread.
pub(super) fn mailbox_waits(arbiters: &Arbiters) -> BTreeMap<Labels, f64> {
    let threads = (0..arbiters.count().get()).map(|index| arbiters.at(index).arbiter);
    let delays = probe_delays(threads, WAIT_MAX).into_iter().enumerate();
    let waits = delays.map(|(thread, delay)| {
        let wait = delay.unwrap_or(WAIT_MAX);
        (vec![("thread", thread.to_string())], wait.as_secs_f64())
    });
    waits.collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_is_busy_lets_messages_wait() {
        actix_rt::System::new().block_on(async {
            let arbiters = Arbiters::start(NonZeroUsize::new(2).unwrap()).unwrap();
            let (release, released) = mpsc::channel::<()>();
            arbiters
                .at(1)
                .arbiter
                .spawn_fn(move || assert!(released.recv().is_err()));
            let waits: Vec<_> = mailbox_waits(&arbiters).into_values().collect();
            assert!(waits[0] < waits[1], "{waits:?}");
            assert_eq!(waits[1], WAIT_MAX.as_secs_f64());
            drop(release);
            arbiters.stop(Duration::from_secs(60)).await.unwrap();
        });
    }
}
