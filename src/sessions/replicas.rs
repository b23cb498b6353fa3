//! The records of sessions in a cluster: which copies this replica holds, with the term of each, and
//! how they are written to the engine. A single gateway has none of this.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::cluster::{
    ClaimError, Cluster, EngineError, Holder, OwnCopy, ReplicaRef, SaveError, StoredRecord, Term,
};
use crate::id::{QuickMap, SessionId};
use crate::sessions::session_record::{SessionRecord, Subscription};

/// The sessions of one replica. Beside the registry, whose slots do not grow for it.
pub struct Replicas {
    cluster: Cluster,
    settings: ReplicaSettings,
    came_back: Mutex<watch::Receiver<u64>>,
    /// The sessions that this replica owns: it, with the incarnation that took the session, and the
    /// term.
    copies: RwLock<QuickMap<SessionId, Holder>>,
    /// Sessions that are being taken over or released.
    moving: Mutex<HashSet<SessionId>>,
}

/// The settings of a replica that concern sessions.
#[derive(Clone, Debug)]
pub struct ReplicaSettings {
    /// Whether sessions are refused while the engine is away (`cluster.require_engine`).
    pub requires_engine: bool,
    /// How long a replica that leaves serves everything, but is not ready (`cluster.leave_notice`).
    pub leave_notice: Duration,
}

/// A session that is being taken over or released, until this value is dropped.
pub(super) struct Moving<'r> {
    replicas: &'r Replicas,
    id: SessionId,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.replicas.moving.lock().remove(&self.id);
    }
}

impl Replicas {
    pub fn new(cluster: Cluster, settings: ReplicaSettings) -> Self {
        Self {
            came_back: Mutex::new(cluster.came_back()),
            cluster,
            settings,
            copies: RwLock::default(),
            moving: Mutex::default(),
        }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Returns whether the engine came back since the last call.
    pub(super) fn engine_came_back(&self) -> bool {
        let mut came_back = self.came_back.lock();
        let has_changed = came_back.has_changed().unwrap_or(false);
        came_back.mark_unchanged();
        has_changed
    }

    pub fn settings(&self) -> &ReplicaSettings {
        &self.settings
    }

    /// Returns whether no other replica can have taken this session, which is registered here.
    pub(super) fn is_confirmed(&self, id: SessionId) -> bool {
        let me = self.cluster.me();
        self.cluster.is_confirmed() && self.copy(id).is_some_and(|(owner, _)| owner == me)
    }

    /// The state of a session that is not registered.
    pub(super) fn unregistered(&self, id: SessionId) -> OwnCopy {
        match self.moving.lock().contains(&id) {
            true => OwnCopy::Moving,
            false => OwnCopy::None,
        }
    }

    /// Marks a session as moving; `None` if it is already.
    pub(super) fn start_moving(&self, id: SessionId) -> Option<Moving<'_>> {
        let is_new = self.moving.lock().insert(id);
        is_new.then_some(Moving { replicas: self, id })
    }

    pub(super) fn copy(&self, id: SessionId) -> Option<Holder> {
        self.copies.read().get(&id).copied()
    }

    pub(super) fn set_copy(&self, id: SessionId, holder: Holder) {
        self.copies.write().insert(id, holder);
    }

    pub(super) fn forget(&self, id: SessionId) {
        self.copies.write().remove(&id);
    }

    /// Reads the record of any session.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away.
    pub async fn read(&self, id: SessionId) -> Result<Option<StoredRecord>, EngineError> {
        self.cluster.records().read(id.uuid()).await
    }

    /// Reads the record of a session that this replica owns; `None` if it was taken over or has
    /// ended.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away.
    pub(super) async fn read_own(
        &self,
        id: SessionId,
    ) -> Result<Option<SessionRecord>, EngineError> {
        let stored = self.read(id).await?;
        let own = self.copy(id);
        let stored = stored.filter(|stored| own.is_some_and(|(_, term)| term == stored.term));
        Ok(stored.and_then(|stored| parsed(&stored)))
    }

    /// Writes the record of a new session. If the engine is away, the session exists only here
    /// until its record is written again.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away and the configuration requires it.
    pub(super) async fn open(
        &self,
        id: SessionId,
        record: Bytes,
        ttl: Duration,
    ) -> Result<(), SaveError> {
        let holder = (self.cluster.me(), Term(1));
        let records = self.cluster.records();
        if let Err(error) = records.save(id.uuid(), holder, record, &[], ttl).await {
            if self.settings.requires_engine {
                return Err(error);
            }
            log::warn!(session:% = id, error:%; "session exists only at this replica until the engine is back");
        }
        self.set_copy(id, holder);
        Ok(())
    }

    /// Writes the record of a session with its subscriptions.
    ///
    /// # Errors
    ///
    /// [`SaveError::Stale`] if the session was taken over.
    pub(super) async fn save(
        &self,
        id: SessionId,
        record: Bytes,
        subscriptions: &[Subscription],
        ttl: Duration,
    ) -> Result<(), SaveError> {
        // The session has ended in the meantime.
        let Some(holder) = self.copy(id) else {
            return Ok(());
        };
        let field = |it: &Subscription| (it.public.clone(), it.to_bytes());
        let fields: Vec<_> = subscriptions.iter().map(field).collect();
        let records = self.cluster.records();
        records.save(id.uuid(), holder, record, &fields, ttl).await
    }

    /// Writes or deletes a subscription.
    ///
    /// # Errors
    ///
    /// [`SaveError::Stale`] if the session was taken over.
    pub(super) async fn save_subscription(
        &self,
        id: SessionId,
        public: &str,
        value: Option<Bytes>,
    ) -> Result<(), SaveError> {
        let Some(holder) = self.copy(id) else {
            return Ok(());
        };
        let records = self.cluster.records();
        records.save_field(id.uuid(), holder, public, value).await
    }

    /// Deletes the record of a session that ended.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away; the record then expires.
    pub(super) async fn end(&self, id: SessionId) -> Result<(), SaveError> {
        let Some(holder) = self.copy(id) else {
            return Ok(());
        };
        let ended = self.cluster.records().end(id.uuid(), holder).await;
        self.forget(id);
        match ended {
            // Its owner decides when it ends.
            Err(SaveError::Stale) => Ok(()),
            ended => ended,
        }
    }

    /// Makes this replica the holder of a session. `expected` owned it and is gone, or is an earlier
    /// incarnation of this replica. The caller has marked the session as moving.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Taken`] if another replica was faster.
    pub(super) async fn claim(
        &self,
        id: SessionId,
        expected: Option<ReplicaRef>,
        term: Term,
    ) -> Result<(), ClaimError> {
        let me = self.cluster.me();
        let records = self.cluster.records();
        let term = records.claim(id.uuid(), expected, term).await?;
        self.set_copy(id, (me, term));
        Ok(())
    }

    /// Gives up a session that the engine says this replica owns, but which it does not hold. A
    /// replica that leaves does not take it over.
    pub async fn release_unheld(&self, id: SessionId, stored: &StoredRecord) {
        if let Some(owner) = stored.owner
            && owner.number == self.cluster.me().number
        {
            let release = [(id.uuid(), (owner, stored.term))];
            if let Err(error) = self.cluster.records().release(&release).await {
                log::warn!(session:% = id, error:%; "could not release a session");
            }
        }
    }

    /// Gives up sessions, whose copies have ended, so that any replica can claim them.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away; the sessions then move when this replica is gone.
    pub(super) async fn release(&self, ids: &[SessionId]) -> Result<(), EngineError> {
        let copies = ids
            .iter()
            .filter_map(|id| Some((id.uuid(), self.copy(*id)?)));
        let copies: Vec<_> = copies.collect();
        let released = self.cluster.records().release(&copies).await;
        for id in ids {
            self.forget(*id);
        }
        released
    }
}

/// Reads a record of the engine; `None` if another release wrote it in an incompatible format.
pub(super) fn parsed(stored: &StoredRecord) -> Option<SessionRecord> {
    let mut record = SessionRecord::from_bytes(&stored.record)?;
    let values = stored.fields.iter();
    let subscriptions = values.filter_map(|(_, value)| serde_json::from_slice(value).ok());
    record.subscriptions = subscriptions.collect();
    Some(record)
}
