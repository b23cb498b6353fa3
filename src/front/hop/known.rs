//! Caches of a replica about sessions of other replicas, and the limit of held requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::unavailable;
use crate::cluster::{Cluster, ReplicaRef};
use crate::front::intake::RequestFailure;
use crate::id::{QuickCache, SessionId, quick_cache};

/// Maximum number of sessions whose owner is remembered.
const OWNERS_MAX: usize = 100_000;

/// Maximum number of sessions that are remembered as missing.
const MISSING_MAX: usize = 10_000;

/// How long a missing session is not looked for again.
const MISSING_FOR: Duration = Duration::from_secs(5);

/// Maximum number of requests that wait for a decision about their session.
const HELD_MAX: usize = 10_000;

/// The knowledge of one replica; it is never needed for correctness.
pub(in crate::front) struct KnownSessions {
    owners: Mutex<QuickCache<SessionId, ReplicaRef>>,
    missing: Mutex<QuickCache<SessionId, Instant>>,
    held: AtomicUsize,
}

impl Default for KnownSessions {
    fn default() -> Self {
        Self {
            owners: Mutex::new(quick_cache(OWNERS_MAX)),
            missing: Mutex::new(quick_cache(MISSING_MAX)),
            held: AtomicUsize::default(),
        }
    }
}

impl KnownSessions {
    pub(super) fn owner(&self, id: SessionId) -> Option<ReplicaRef> {
        self.owners.lock().get(&id).copied()
    }

    pub(super) fn set_owner(&self, id: SessionId, owner: ReplicaRef) {
        let mut owners = self.owners.lock();
        if owners.get(&id) != Some(&owner) {
            owners.insert(id, owner);
        }
    }

    pub(super) fn forget_owner(&self, id: SessionId) {
        self.owners.lock().remove(&id);
    }

    pub(super) fn set_missing(&self, id: SessionId) {
        self.missing.lock().insert(id, Instant::now());
    }

    pub(super) fn is_missing(&self, id: SessionId) -> bool {
        let missing = self.missing.lock();
        (missing.get(&id)).is_some_and(|since| since.elapsed() < MISSING_FOR)
    }

    /// Counts a request that waits; `None` if too many do.
    pub(super) fn hold(&self) -> Option<HeldRequest<'_>> {
        let held = HeldRequest(self);
        let before = self.held.fetch_add(1, Ordering::Relaxed);
        (before < HELD_MAX).then_some(held)
    }
}

/// The place of a request that waits, released when dropped.
pub(super) struct HeldRequest<'k>(&'k KnownSessions);

impl Drop for HeldRequest<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a held request waits before it looks again.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How much longer than `member_ttl` a request is held.
const HOLD_MORE: Duration = Duration::from_secs(2);

/// How long one request is held.
pub(super) struct Patience<'k> {
    known: &'k KnownSessions,
    held: Option<HeldRequest<'k>>,
    deadline: Instant,
}

impl<'k> Patience<'k> {
    pub(super) fn new(known: &'k KnownSessions, cluster: &Cluster) -> Self {
        Self {
            known,
            held: None,
            deadline: Instant::now() + cluster.member_ttl() + HOLD_MORE,
        }
    }

    /// Waits a moment.
    ///
    /// # Errors
    ///
    /// Fails if the request was held for too long, or too many are held.
    pub(super) async fn wait(&mut self) -> Result<(), RequestFailure> {
        if self.held.is_none() {
            self.held = self.known.hold();
        }
        if self.held.is_none() || Instant::now() >= self.deadline {
            return Err(unavailable("the replica that owns it does not answer"));
        }
        sleep(LOOK_EVERY).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;
    use uuid::Uuid;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn missing_sessions_are_looked_for_again_later() {
        let known = KnownSessions::default();
        let id = SessionId::new(Uuid::from_u128(1));
        assert!(!known.is_missing(id));
        known.set_missing(id);
        advance(Duration::from_secs(4)).await;
        assert!(known.is_missing(id));
        advance(Duration::from_secs(1)).await;
        assert!(!known.is_missing(id));
    }

    #[test]
    fn held_requests_are_limited() {
        let known = KnownSessions::default();
        let held: Vec<_> = (0..HELD_MAX).filter_map(|_| known.hold()).collect();
        assert_eq!(held.len(), HELD_MAX);
        assert!(known.hold().is_none());
        drop(held);
        assert!(known.hold().is_some());
    }
}
