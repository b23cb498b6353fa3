//! All live session ids and where their actors are. Only ids in here exist: any other is
//! answered with 404 without a look at the store.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use actix::Addr;
use tokio::time::Instant;

use crate::id::{QuickMap, SessionId};
use crate::protocol::Revision;
use crate::sessions::session::Session;

pub(crate) struct SessionRegistry {
    shards: Box<[Shard]>,
    count: AtomicUsize,
    started: Instant,
}

/// Shared, since actix allocates for each clone of an address.
pub(crate) type SessionAddr = Arc<Addr<Session>>;

type Shard = RwLock<QuickMap<SessionId, SessionSlot>>;

struct SessionSlot {
    /// `None` while dormant; the next request rebuilds the session from its record.
    address: Option<SessionAddr>,
    revision: Revision,
    /// Second, as [`SessionRegistry::now`] counts.
    last_seen: AtomicU32,
}

/// The second in which the registry is made.
const ORIGIN: u32 = 1 << 30;

/// A place for a new session, given back if it is not filled.
#[derive(Debug)]
pub(crate) struct SessionPermit<'a>(Option<&'a AtomicUsize>);

impl Drop for SessionPermit<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
pub(crate) enum SessionLookup {
    Live(SessionAddr, Revision),
    /// It has no actor; its record is in the store.
    Dormant,
    Unknown,
}

impl SessionRegistry {
    /// One shard for each arbiter: sessions of one arbiter do not wait for those of another.
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards.max(1)).map(|_| Shard::default()).collect(),
            count: AtomicUsize::new(0),
            started: Instant::now(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes a place for a new session; `None` when there are `max` already.
    pub(crate) fn reserve(&self, max: usize) -> Option<SessionPermit<'_>> {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if before >= max {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        (before < max).then_some(SessionPermit(Some(&self.count)))
    }

    /// Puts a session in the place that was reserved for it.
    pub(crate) fn insert(
        &self,
        mut place: SessionPermit<'_>,
        id: SessionId,
        address: SessionAddr,
        revision: Revision,
    ) {
        place.0 = None;
        let last_seen = AtomicU32::new(self.now());
        let slot = SessionSlot {
            address: Some(address),
            revision,
            last_seen,
        };
        self.write(id, |shard| {
            shard.insert(id, slot);
        });
    }

    /// Puts in a session of the process before this one. The limit of sessions is for new ones.
    pub(crate) fn insert_dormant(&self, id: SessionId, revision: Revision, last_seen: u32) {
        let slot = SessionSlot {
            address: None,
            revision,
            last_seen: AtomicU32::new(last_seen),
        };
        self.write(id, |shard| {
            if shard.insert(id, slot).is_none() {
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// A dormant session has an actor again; false when it was ended meanwhile.
    pub(crate) fn revive(&self, id: SessionId, address: SessionAddr) -> bool {
        let mut exists = false;
        self.write(id, |shard| {
            if let Some(slot) = shard.get_mut(&id) {
                slot.address = Some(address);
                exists = true;
            }
        });
        exists
    }

    /// Finds a session and notes that it is in use.
    pub(crate) fn find(&self, id: SessionId) -> SessionLookup {
        let shard = self
            .shard(id)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = shard.get(&id) else {
            return SessionLookup::Unknown;
        };
        slot.last_seen.store(self.now(), Ordering::Relaxed);
        match &slot.address {
            Some(address) if address.connected() => {
                SessionLookup::Live(address.clone(), slot.revision)
            }
            _ => SessionLookup::Dormant,
        }
    }

    /// The address of a live session, without noting any use.
    pub(crate) fn address(&self, id: SessionId) -> Option<SessionAddr> {
        let shard = self
            .shard(id)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        shard.get(&id)?.address.clone()
    }

    /// The session's actor died without ending the session. It may have been replaced already.
    pub(crate) fn set_dormant(&self, id: SessionId) {
        self.write(id, |shard| {
            if let Some(slot) = shard.get_mut(&id) {
                slot.address.take_if(|address| !address.connected());
            }
        });
    }

    pub(crate) fn remove(&self, id: SessionId) {
        self.write(id, |shard| {
            if shard.remove(&id).is_some() {
                self.count.fetch_sub(1, Ordering::Relaxed);
                // When many sessions have ended, their memory is given back.
                if shard.capacity() > 4 * shard.len().max(64) {
                    shard.shrink_to(2 * shard.len());
                }
            }
        });
    }

    /// Every live session.
    pub(crate) fn addresses(&self) -> Vec<(SessionId, SessionAddr)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            let live = shard
                .iter()
                .filter_map(|(id, slot)| Some((*id, slot.address.clone()?)));
            all.extend(live);
        }
        all
    }

    /// When the session was used last; `None` when it has ended.
    pub(crate) fn last_seen(&self, id: SessionId) -> Option<u32> {
        let shard = self
            .shard(id)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        shard
            .get(&id)
            .map(|slot| slot.last_seen.load(Ordering::Relaxed))
    }

    /// Seconds; they begin far enough above 0 for sessions that were seen before the registry
    /// was made.
    pub(crate) fn now(&self) -> u32 {
        let elapsed = u32::try_from(self.started.elapsed().as_secs());
        ORIGIN.saturating_add(elapsed.unwrap_or(u32::MAX))
    }

    fn write(&self, id: SessionId, change: impl FnOnce(&mut QuickMap<SessionId, SessionSlot>)) {
        change(
            &mut self
                .shard(id)
                .write()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    fn shard(&self, id: SessionId) -> &Shard {
        let index = id.placement_hash() % self.shards.len() as u64;
        &self.shards[usize::try_from(index).unwrap_or(0)]
    }
}
