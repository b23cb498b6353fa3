//! Whether threads still run what they are given. A thread that a child blocks cannot be ended from
//! inside the process, so an outer supervisor has to know of it.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use actix_rt::ArbiterHandle;
use tokio::time::Instant;

/// Threads that must not be blocked, by name. Clones refer to the same threads.
#[derive(Clone, Debug)]
pub struct Pulse(Arc<[(String, ArbiterHandle)]>);

impl Pulse {
    pub fn of(threads: impl IntoIterator<Item = (String, ArbiterHandle)>) -> Self {
        Self(threads.into_iter().collect())
    }

    /// Names of the threads that did not run a probe within this time. Blocks the calling thread,
    /// which must not be one of them.
    pub fn blocked(&self, within: Duration) -> Vec<String> {
        let delays = probe_delays(self.0.iter().map(|(_, thread)| thread.clone()), within);
        let threads = self.0.iter().zip(delays);
        let blocked = threads.filter(|(_, delay)| delay.is_none());
        blocked.map(|((name, _), _)| name.clone()).collect()
    }
}

/// How long each thread took to run a probe that all were given at once; `None` for those that did
/// not within this time. Blocks the calling thread.
pub fn probe_delays(
    threads: impl IntoIterator<Item = ArbiterHandle>,
    within: Duration,
) -> Vec<Option<Duration>> {
    let sent = Instant::now();
    let (probe, arrived) = mpsc::channel();
    let mut delays = Vec::new();
    for (index, thread) in threads.into_iter().enumerate() {
        let probe = probe.clone();
        delays.push(None);
        thread.spawn_fn(move || {
            // Fails when the receiver has stopped waiting.
            let _ = probe.send((index, sent.elapsed()));
        });
    }
    drop(probe);
    let left = || within.saturating_sub(sent.elapsed());
    while let Ok((index, delay)) = arrived.recv_timeout(left()) {
        delays[index] = Some(delay);
    }
    delays
}

#[cfg(test)]
mod tests {
    use actix_rt::{Arbiter, System};

    use super::*;

    #[test]
    fn a_blocked_thread_is_named_until_it_is_free_again() {
        let system = System::new();
        let threads = system.block_on(async { ["a", "b"].map(|name| (name, Arbiter::new())) });
        let pulse = Pulse::of(
            threads
                .iter()
                .map(|(name, it)| ((*name).to_owned(), it.handle())),
        );
        let long = Duration::from_secs(60);
        assert!(pulse.blocked(long).is_empty());
        let (release, released) = mpsc::channel::<()>();
        let block = move || assert!(released.recv().is_err());
        threads[1].1.spawn_fn(block);
        assert_eq!(pulse.blocked(Duration::from_millis(50)), ["b"]);
        drop(release);
        assert!(pulse.blocked(long).is_empty());
        for (_, thread) in threads {
            thread.stop();
            thread.join().unwrap();
        }
        // A thread that ended answers nothing.
        assert_eq!(pulse.blocked(long), ["a", "b"]);
    }
}
