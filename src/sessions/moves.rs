//! Sessions that move between the replicas of a cluster: taken over from a replica that is gone,
//! confirmed after an absence, lost to another replica, and released at the end.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::cluster::{ClaimError, EngineError, OwnCopy, SaveError, StoredRecord, Term};
use crate::id::SessionId;
use crate::sessions::SessionContext;
use crate::sessions::message::SessionCommand;
use crate::sessions::replicas::{Replicas, parsed};
use crate::sessions::session_registry::SessionLookup;
use crate::store::StoreError;
use crate::telemetry::Counter;

/// How long a busy session may take to become quiet before it is looked at again.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// How many records are written again at once, and the pause after them: 2,000 per second.
const SAVED_AT_ONCE: usize = 100;
const SAVE_PAUSE: Duration = Duration::from_millis(50);

/// Maximum number of sessions that are released at once.
const RELEASED_AT_ONCE: usize = 1000;

/// The sessions of a replica that move.
pub struct Moves<'s> {
    context: &'s SessionContext,
    pub replicas: &'s Replicas,
}

impl<'s> Moves<'s> {
    pub(super) fn new(context: &'s SessionContext, replicas: &'s Replicas) -> Self {
        Self { context, replicas }
    }

    /// Takes over a session whose owner is gone, or which has none. Its actor starts with the
    /// client's request. Returns false if another replica or request was faster.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away.
    pub async fn claim(&self, id: SessionId, stored: &StoredRecord) -> Result<bool, EngineError> {
        let Some(_moving) = self.replicas.start_moving(id) else {
            return Ok(false);
        };
        if self.context.registry.has(id) {
            return Ok(true);
        }
        let Some(record) = parsed(stored) else {
            log::warn!(session:% = id; "another release wrote the record of this session; it cannot be taken over");
            return Ok(false);
        };
        match self.replicas.claim(id, stored.owner, stored.term).await {
            Ok(()) => {}
            Err(ClaimError::Engine(error)) => return Err(error),
            Err(ClaimError::Taken { .. } | ClaimError::Missing) => return Ok(false),
        }
        let downstreams = &self.context.calls.downstreams;
        self.context
            .register_dormant(id, &record, None, |name, caller| {
                Some(downstreams.get(name)?.connection_key_for(caller))
            });
        self.context.calls.counters.add(Counter::SessionsTaken);
        log::info!(session:% = id, former:? = stored.owner; "session taken over");
        Ok(true)
    }

    /// Claims this replica's copy of a session again, because the replica was away: once the engine
    /// has answered it, and if its incarnation has changed. A copy that was taken over ends; then it
    /// returns false, and also if another request claims it.
    ///
    /// # Errors
    ///
    /// Fails if the engine is away.
    pub async fn confirm(&self, id: SessionId) -> Result<bool, EngineError> {
        let (replicas, cluster) = (self.replicas, self.replicas.cluster());
        let Some(_moving) = replicas.start_moving(id) else {
            return Ok(false);
        };
        if !cluster.confirmed().await {
            return Err(EngineError::Timeout);
        }
        if replicas.is_confirmed(id) {
            return Ok(true);
        }
        let Some((owner, term)) = replicas.copy(id) else {
            self.context.lose(id);
            return Ok(false);
        };
        match replicas.claim(id, Some(owner), term).await {
            Ok(()) => Ok(true),
            // The engine lost the record. A replica that took the session over writes a higher term.
            Err(ClaimError::Missing) if !cluster.is_engine_settled() => {
                replicas.set_copy(id, (cluster.me(), Term(term.0 + 1)));
                if let Some(address) = self.context.registry.address(id) {
                    address.do_send(SessionCommand::SaveRecord);
                }
                Ok(true)
            }
            Err(ClaimError::Engine(error)) => Err(error),
            Err(ClaimError::Taken { .. } | ClaimError::Missing) => {
                self.context.lose(id);
                Ok(false)
            }
        }
    }

    /// Gives up the sessions that are quiet, and those that become so soon, so that other replicas
    /// can take them over. Returns the number of the remaining ones.
    pub async fn release_quiet(&self) -> usize {
        let registry = &self.context.registry;
        let ends = registry.ids().into_iter().map(|id| async move {
            let moving = self.replicas.start_moving(id)?;
            self.end_if_quiet(id).await.then_some((id, moving))
        });
        let ends: FuturesUnordered<_> = ends.collect();
        let mut ended = ends.ready_chunks(RELEASED_AT_ONCE);
        while let Some(released) = ended.next().await {
            let released: Vec<_> = released.into_iter().flatten().collect();
            let ids: Vec<SessionId> = released.iter().map(|(id, _)| *id).collect();
            if !ids.is_empty()
                && let Err(error) = self.replicas.release(&ids).await
            {
                log::warn!(error:%; "could not release sessions; they move when this replica has left");
            }
        }
        registry.len()
    }

    /// Gives up all sessions. Their actors have been told to end.
    pub async fn release_all(&self) {
        let ids = self.context.registry.ids();
        for id in &ids {
            self.context.unregister(*id);
        }
        if let Err(error) = self.replicas.release(&ids).await {
            log::warn!(error:%; "could not release sessions; they move when this replica is gone");
        }
    }

    async fn end_if_quiet(&self, id: SessionId) -> bool {
        let context = self.context;
        if let SessionLookup::Live(address, _) = context.registry.find_any(id) {
            let (reply, answer) = oneshot::channel();
            address.do_send(SessionCommand::Release(reply));
            let ended = timeout(RELEASE_WITHIN, answer).await;
            // It can also have become quiet at the last moment.
            return matches!(ended, Ok(Ok(()))) || !context.registry.has(id);
        }
        // A session that is ending stays registered until its record is deleted.
        if matches!(context.registry.find_any(id), SessionLookup::Dormant) {
            context.unregister(id);
            return true;
        }
        false
    }

    /// Reports the number of sessions to the cluster, and writes all records again if the engine
    /// can have lost them. Called once per second.
    pub(super) fn tick(&self) {
        let cluster = self.replicas.cluster();
        cluster.set_sessions(self.context.registry.len() as u64);
        if self.replicas.engine_came_back() {
            let addresses = self.context.registry.addresses();
            actix_rt::spawn(self.context.calls.sealing.clone().mark_again());
            actix_rt::spawn(async move {
                for batch in addresses.chunks(SAVED_AT_ONCE) {
                    for session in batch {
                        session.do_send(SessionCommand::SaveRecord);
                    }
                    sleep(SAVE_PAUSE).await;
                }
            });
        }
    }
}

impl SessionContext {
    /// Returns whether this replica holds a session, and whether it may serve it at once.
    pub(crate) fn own_copy(&self, id: SessionId) -> OwnCopy {
        let Some(replicas) = &self.replicas else {
            return OwnCopy::Confirmed;
        };
        match self.registry.has(id) {
            false => replicas.unregistered(id),
            true if replicas.is_confirmed(id) => OwnCopy::Confirmed,
            true => OwnCopy::Unconfirmed,
        }
    }

    /// Ends this replica's copy of a session that another replica owns.
    pub(super) fn lose(&self, id: SessionId) {
        if let Some(address) = self.registry.address(id) {
            address.do_send(SessionCommand::Leave);
        }
        log::info!(session:% = id; "session was taken over by another replica");
        self.unregister(id);
        if let Some(replicas) = &self.replicas {
            replicas.forget(id);
        }
    }

    /// Removes what this replica keeps for a session, but not its record.
    pub(super) fn unregister(&self, id: SessionId) {
        self.registry.remove(id);
        self.calls.downstreams.forget(id);
        self.calls.kept_results.forget(id);
    }

    /// Returns the outcome of a write to the engine as one of the store. A session that was taken
    /// over ends here.
    pub(super) fn noted(
        &self,
        id: SessionId,
        saved: Result<(), SaveError>,
    ) -> Result<(), StoreError> {
        match saved {
            Ok(()) => Ok(()),
            Err(SaveError::Stale) => {
                self.lose(id);
                Ok(())
            }
            Err(error) => Err(StoreError::Unavailable(error.to_string())),
        }
    }
}
