//! Measures how long messages wait for their actor. actix does not expose mailboxes, so each scrape
//! sends a probe to every thread that runs actors.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use tokio::time::Instant;

use super::family::Labels;
use crate::supervision::Arbiters;

/// Maximum wait for a probe, and the reported value for slower threads.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Mailbox delay of each thread, in seconds. Blocks the calling thread.
pub(super) fn mailbox_waits(arbiters: &Arbiters) -> BTreeMap<Labels, f64> {
    let sent = Instant::now();
    let mut waits = vec![WAIT_MAX; arbiters.count().get()];
    let (probe, arrived) = mpsc::channel();
    for thread in 0..waits.len() {
        let probe = probe.clone();
        let arrive = move || {
            // Fails when the receiver has stopped waiting.
            let _ = probe.send((thread, sent.elapsed()));
        };
        arbiters.at(thread).arbiter.spawn_fn(arrive);
    }
    drop(probe);
    let left = || WAIT_MAX.saturating_sub(sent.elapsed());
    while let Ok((thread, wait)) = arrived.recv_timeout(left()) {
        waits[thread] = wait;
    }
    let waits = waits.iter().enumerate();
    let waits =
        waits.map(|(thread, wait)| (vec![("thread", thread.to_string())], wait.as_secs_f64()));
    waits.collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

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
