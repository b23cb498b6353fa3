//! The registry of all session ids and their actors. An id that is not registered does not exist,
//! and is answered with 404 without reading the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use actix::Addr;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::time::Instant;

use crate::auth::SessionCredentials;
use crate::calls::{Quota, QuotaExceeded, QuotaLimit, QuotaShare};
use crate::id::{Holder, Principal, QuickMap, SessionId, SessionOwner};
use crate::protocol::Revision;
use crate::sessions::message::SessionCommand;
use crate::sessions::session::Session;
use crate::sessions::session_record::SessionRecord;
use crate::sessions::unused_sessions::UnusedSessions;

pub(crate) struct SessionRegistry {
    shards: Box<[RwLock<Shard>]>,
    places: Quota,
    unused: UnusedSessions,
    started: Instant,
}

/// Shared, because actix allocates for each clone of an address.
pub(crate) type SessionAddr = Arc<Addr<Session>>;

type Shard = QuickMap<SessionId, SessionSlot>;

struct SessionSlot {
    /// `None` while dormant; the next request rebuilds the session from its record.
    address: Option<SessionAddr>,
    revision: Revision,
    /// The owner of the session. To all others the session is unknown.
    owner: SessionOwner,
    /// The owner's credentials, for requests without credentials.
    credentials: Option<Arc<SessionCredentials>>,
    /// Whether the session was opened without credentials. Other clients can know its id, so the
    /// session never remembers credentials.
    is_adopted: bool,
    /// The second of the last use, as counted by [`SessionRegistry::now`].
    last_seen: AtomicU32,
    /// The second of the next idle check.
    look_at: AtomicU32,
    /// The second in which the session was opened; `None` once it was used.
    unused_since: Option<u32>,
    /// Whether the session has ended while its record might still exist.
    is_ending: bool,
    place: QuotaShare,
}

/// The second in which the registry is created.
const ORIGIN: u32 = 1 << 30;

/// A session whose idle check is due.
pub(crate) struct DueSession {
    pub(crate) id: SessionId,
    pub(crate) address: Option<SessionAddr>,
    /// Whether the session was unused for `idle_timeout`.
    pub(crate) is_idle: bool,
}

#[derive(Debug)]
pub(crate) enum SessionLookup {
    Live(SessionAddr, Revision),
    /// The session has no actor; its record is in the store.
    Dormant,
    /// The session has ended, and its record is being deleted.
    Ending,
    Unknown,
}

impl SessionRegistry {
    /// Creates a registry with one shard per arbiter, so that sessions of different arbiters do not
    /// contend for a lock.
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards.max(1)).map(|_| RwLock::default()).collect(),
            places: Quota::default(),
            unused: UnusedSessions::default(),
            started: Instant::now(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Takes a slot for a new session of this client.
    ///
    /// # Errors
    ///
    /// Returns the reason why no slot is available.
    pub(crate) fn reserve(
        &self,
        holder: Holder,
        limit: &QuotaLimit,
    ) -> Result<QuotaShare, QuotaExceeded> {
        self.places.take(holder, limit)
    }

    /// Returns the oldest unused session of one client or of all. Each session is returned only
    /// once.
    pub(crate) fn take_unused(&self, of: Option<&Holder>) -> Option<SessionAddr> {
        let id = self.unused.oldest(of, self.now())?;
        self.set_used(id);
        self.address(id)
    }

    /// Records the first use of a session.
    pub(crate) fn set_used(&self, id: SessionId) {
        if let Some(slot) = self.write(id).get_mut(&id) {
            self.forget_unused(id, slot);
        }
    }

    fn forget_unused(&self, id: SessionId, slot: &mut SessionSlot) {
        if let Some(opened) = slot.unused_since.take() {
            self.unused.remove(slot.place.holder(), opened, id);
        }
    }

    /// Registers a session in its reserved slot.
    pub(crate) fn insert(
        &self,
        place: QuotaShare,
        (id, owner): (SessionId, SessionOwner),
        address: SessionAddr,
        revision: Revision,
        idle: u32,
    ) {
        let now = self.now();
        self.unused.add(place.holder(), now, id);
        let slot = SessionSlot {
            address: Some(address),
            revision,
            owner,
            credentials: None,
            is_adopted: false,
            last_seen: AtomicU32::new(now),
            look_at: AtomicU32::new(now.saturating_add(idle)),
            unused_since: Some(now),
            is_ending: false,
            place,
        };
        self.write(id).insert(id, slot);
    }

    /// Registers a session of the previous process, which would expire in `left` of `idle` seconds.
    /// Ignores the limit, which applies only to new sessions.
    pub(crate) fn insert_dormant(
        &self,
        id: SessionId,
        record: &SessionRecord,
        left: u32,
        idle: u32,
    ) {
        let expires = self.now().saturating_add(left);
        let slot = SessionSlot {
            address: None,
            revision: record.revision,
            owner: record.owner(),
            credentials: None,
            is_adopted: record.is_adopted,
            last_seen: AtomicU32::new(expires.saturating_sub(idle)),
            look_at: AtomicU32::new(expires),
            unused_since: None,
            is_ending: false,
            place: self.places.restore(record.holder()),
        };
        self.write(id).insert(id, slot);
    }

    /// Sets the new actor of a dormant session. Returns false if the session has ended.
    pub(crate) fn revive(&self, id: SessionId, address: SessionAddr) -> bool {
        let mut shard = self.write(id);
        let slot = shard.get_mut(&id).filter(|slot| !slot.is_ending);
        slot.map(|slot| slot.address = Some(address)).is_some()
    }

    /// Marks a session as ended. Until it is removed, it can neither be used nor reported as
    /// unknown.
    pub(crate) fn set_ending(&self, id: SessionId) {
        if let Some(slot) = self.write(id).get_mut(&id) {
            slot.address = None;
            slot.is_ending = true;
            self.forget_unused(id, slot);
        }
    }

    /// Returns whether a session is registered, without recording a use.
    pub(crate) fn has(&self, id: SessionId) -> bool {
        self.read(id).contains_key(&id)
    }

    /// Finds a session of this owner and records its use. The sessions of others are unknown.
    pub(crate) fn find(&self, id: SessionId, owner: &SessionOwner) -> SessionLookup {
        self.find_if(id, |slot| slot.owner == *owner)
    }

    /// Gives a session that was opened without credentials to the first client that uses it with
    /// credentials. Returns false if the session has an owner. The current actor ends with
    /// everything that was started without credentials, and requests that have already found it
    /// reach no other actor.
    pub(crate) fn adopt(&self, id: SessionId, owner: &SessionOwner) -> bool {
        let mut shard = self.write(id);
        let Some(slot) = shard.get_mut(&id).filter(|slot| !slot.is_ending) else {
            return false;
        };
        let is_free = slot.owner.principal == Principal::Anonymous && slot.owner.view == owner.view;
        if is_free {
            self.forget_unused(id, slot);
            let holder = Holder::Principal(owner.principal.clone());
            slot.place = self.places.restore(holder);
            slot.owner = owner.clone();
            slot.is_adopted = true;
            if let Some(before) = slot.address.take() {
                before.do_send(SessionCommand::HandOver);
            }
        }
        is_free
    }

    /// Returns the owner of a session, and whether it was opened without credentials.
    pub(crate) fn owner(&self, id: SessionId) -> Option<(SessionOwner, bool)> {
        let shard = self.read(id);
        let slot = shard.get(&id)?;
        Some((slot.owner.clone(), slot.is_adopted))
    }

    /// Returns whether the session belongs to an identified client.
    pub(crate) fn is_owned(&self, id: SessionId) -> bool {
        let shard = self.read(id);
        let slot = shard.get(&id);
        slot.is_some_and(|slot| slot.owner.principal != Principal::Anonymous)
    }

    /// Returns the credentials that a session remembers for its client (`auth.remember`).
    pub(crate) fn credentials(&self, id: SessionId) -> Option<Arc<SessionCredentials>> {
        self.read(id).get(&id)?.credentials.clone()
    }

    /// Replaces the credentials that a session remembers, if they belong to its owner.
    pub(crate) fn remember(&self, id: SessionId, credentials: Arc<SessionCredentials>) {
        let mut shard = self.write(id);
        let slot = shard.get_mut(&id).filter(|slot| !slot.is_ending);
        let slot = slot.filter(|slot| !slot.is_adopted);
        if let Some(slot) = slot.filter(|it| it.owner.principal == *credentials.principal()) {
            slot.credentials = Some(credentials);
        }
    }

    /// Makes a session forget credentials that are no longer valid.
    pub(crate) fn forget_credentials(&self, id: SessionId, old: &Arc<SessionCredentials>) {
        if let Some(slot) = self.write(id).get_mut(&id) {
            slot.credentials.take_if(|known| Arc::ptr_eq(known, old));
        }
    }

    /// Makes all sessions forget their credentials.
    pub(crate) fn forget_all_credentials(&self) {
        for shard in &self.shards {
            for slot in shard.write().values_mut() {
                slot.credentials = None;
            }
        }
    }

    /// Finds a session regardless of its owner, and records its use.
    pub(crate) fn find_any(&self, id: SessionId) -> SessionLookup {
        self.find_if(id, |_| true)
    }

    fn find_if(&self, id: SessionId, is_allowed: impl Fn(&SessionSlot) -> bool) -> SessionLookup {
        let shard = self.read(id);
        let Some(slot) = shard.get(&id).filter(|slot| is_allowed(slot)) else {
            return SessionLookup::Unknown;
        };
        if slot.is_ending {
            return SessionLookup::Ending;
        }
        slot.last_seen.store(self.now(), Ordering::Relaxed);
        match &slot.address {
            Some(address) if address.connected() => {
                SessionLookup::Live(address.clone(), slot.revision)
            }
            _ => SessionLookup::Dormant,
        }
    }

    /// Returns the ids of all sessions that have not ended.
    pub(crate) fn ids(&self) -> Vec<SessionId> {
        let shards = self.shards.iter().map(read);
        let ids = |shard: RwLockReadGuard<'_, Shard>| -> Vec<_> {
            let slots = shard.iter().filter(|(_, slot)| !slot.is_ending);
            slots.map(|(id, _)| *id).collect()
        };
        shards.flat_map(ids).collect()
    }

    /// Returns the seconds since a session was last used.
    pub(crate) fn idle_seconds(&self, id: SessionId) -> Option<u64> {
        let last_seen = self.read(id).get(&id)?.last_seen.load(Ordering::Relaxed);
        Some(u64::from(self.now().saturating_sub(last_seen)))
    }

    /// Returns the address of a live session without recording a use.
    pub(crate) fn address(&self, id: SessionId) -> Option<SessionAddr> {
        self.read(id).get(&id)?.address.clone()
    }

    /// Marks a session as dormant after its actor died, unless it already has a new actor.
    pub(crate) fn set_dormant(&self, id: SessionId) {
        if let Some(slot) = self.write(id).get_mut(&id) {
            slot.address.take_if(|address| !address.connected());
        }
    }

    pub(crate) fn remove(&self, id: SessionId) {
        let mut shard = self.write(id);
        if let Some(mut slot) = shard.remove(&id) {
            self.forget_unused(id, &mut slot);
            // Frees memory after many sessions have ended.
            if shard.capacity() > 4 * shard.len().max(64) {
                let room = 2 * shard.len();
                shard.shrink_to(room);
            }
        }
    }

    /// Returns the addresses of all live sessions.
    pub(crate) fn addresses(&self) -> Vec<SessionAddr> {
        let shards = self.shards.iter().map(read);
        let live = |shard: RwLockReadGuard<'_, Shard>| -> Vec<_> {
            let slots = shard.values();
            slots.filter_map(|slot| slot.address.clone()).collect()
        };
        shards.flat_map(live).collect()
    }

    /// Returns the sessions whose idle check is due, each once per `idle` seconds. Scanning all
    /// sessions is cheaper than a timer for each.
    pub(crate) fn due(&self, idle: u32) -> Vec<DueSession> {
        let now = self.now();
        let mut due = Vec::new();
        for shard in &self.shards {
            for (id, slot) in read(shard).iter() {
                if slot.is_ending || slot.look_at.load(Ordering::Relaxed) > now {
                    continue;
                }
                let expires = (slot.last_seen.load(Ordering::Relaxed)).saturating_add(idle);
                let is_idle = expires <= now;
                let next = if is_idle {
                    // An idle session that turns out to be in use is checked again later.
                    now.saturating_add(idle.max(1))
                } else {
                    expires
                };
                slot.look_at.store(next, Ordering::Relaxed);
                due.push(DueSession {
                    id: *id,
                    address: slot.address.clone(),
                    is_idle,
                });
            }
        }
        due
    }

    /// Returns the current second. The count starts well above 0, because restored sessions were
    /// last used before the registry was created.
    fn now(&self) -> u32 {
        let elapsed = u32::try_from(self.started.elapsed().as_secs());
        ORIGIN.saturating_add(elapsed.unwrap_or(u32::MAX))
    }

    fn read(&self, id: SessionId) -> RwLockReadGuard<'_, Shard> {
        read(self.shard(id))
    }

    fn write(&self, id: SessionId) -> RwLockWriteGuard<'_, Shard> {
        self.shard(id).write()
    }

    fn shard(&self, id: SessionId) -> &RwLock<Shard> {
        let index = id.placement_hash() % self.shards.len() as u64;
        &self.shards[usize::try_from(index).unwrap_or(0)]
    }
}

fn read(shard: &RwLock<Shard>) -> RwLockReadGuard<'_, Shard> {
    shard.read()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;
    use uuid::Uuid;

    use super::*;
    use crate::protocol::Envelope;

    #[tokio::test(start_paused = true)]
    async fn sessions_come_due_once_and_in_time() {
        let registry = SessionRegistry::new(2);
        let [a, b] = [1, 2].map(|n| SessionId::new(Uuid::from_u128(n)));
        let initialize = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
        let Ok(Envelope::Request(initialize)) = Envelope::parse(initialize[..].into()) else {
            panic!("it is no request");
        };
        let record = SessionRecord::from_initialize(&initialize, SessionOwner::default()).unwrap();
        registry.insert_dormant(a, &record, 10, 20);
        registry.insert_dormant(b, &record, 12, 20);
        let due = || -> Vec<_> {
            let due = registry.due(20).into_iter();
            due.map(|due| (due.id, due.is_idle)).collect()
        };
        let after = |seconds| advance(Duration::from_secs(seconds));
        after(9).await;
        assert_eq!(due(), []);
        after(2).await;
        assert_eq!(due(), [(a, true)]);
        assert!(matches!(registry.find_any(b), SessionLookup::Dormant));
        after(1).await;
        assert_eq!(due(), [(b, false)]);
        after(18).await;
        assert_eq!(due(), []);
        registry.remove(a);
        after(70).await;
        assert_eq!(due(), [(b, true)]);
    }
}
