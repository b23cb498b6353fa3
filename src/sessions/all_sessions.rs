//! All client sessions: opened, found, rebuilt, ended.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::auth::Policy;
use crate::calls::Sealing;
use crate::calls::SessionSettings;
use crate::calls::{AnswerDecorator, CallContext, CallWorkers, ParkedCalls};
use crate::downstream::{Downstreams, ServerSettings, SubscriptionKey};
use crate::id::{CallNumbers, Principal, SessionId};
use crate::memory;
use crate::protocol::{ErrorKind, Failure, Request, Revision};
use crate::publisher::CatalogView;
use crate::sessions::SessionContext;
use crate::sessions::handshake::{InitializeResults, server_info, sessionless_initialize_result};
use crate::sessions::idle_wheel::IdleWheel;
use crate::sessions::listen_stream::ListenStreams;
use crate::sessions::memory_reclaim::MemoryReclaim;
use crate::sessions::message::{DeleteSession, EndSession, SaveRecord};
use crate::sessions::session::Session;
use crate::sessions::session_record::{RECORDS, SessionRecord, record_key};
use crate::sessions::session_registry::{SessionAddr, SessionLookup, SessionRegistry};
use crate::sessions::tree_resource::{TreeResource, TreeSource};
use crate::store::{Store, StoreError, StoredEntry};
use crate::supervision::{Arbiters, ExitReason, Random, spawn_temporary};
use crate::telemetry::{Counter, Counters};

/// How often idle sessions are looked for.
const TICK: Duration = Duration::from_secs(1);

/// The parts that sessions are built with.
pub struct SessionsSpec {
    pub settings: SessionSettings,
    pub arbiters: Arbiters,
    pub downstreams: Downstreams,
    pub catalog: CatalogView,
    pub store: Arc<dyn Store>,
    pub policy: Arc<dyn Policy>,
    pub numbers: CallNumbers,
    pub random: Arc<dyn Random>,
    /// Mints session ids; they must not be guessable.
    pub mint: fn() -> Uuid,
    /// For what travels through clients without a session.
    pub sealing: Sealing,
    pub counters: Counters,
}

/// All sessions. Cheap to clone; may be used from any thread.
#[derive(Clone)]
pub struct Sessions(Arc<SessionsInner>);

struct SessionsInner {
    parts: Arc<SessionContext>,
    arbiters: Arbiters,
    /// One for each arbiter, so that opening sessions on different ones does not contend.
    wheels: Box<[Mutex<IdleWheel>]>,
    initialize_results: InitializeResults,
    /// A session has one actor, however many requests find it without one.
    rebuilding: Mutex<()>,
}

/// A session that a client named.
#[derive(Debug)]
pub struct FoundSession {
    pub address: SessionAddr,
    pub revision: Revision,
}

impl Sessions {
    /// Starts looking after idle sessions on the calling arbiter.
    pub fn start(spec: SessionsSpec) -> Self {
        let count = spec.arbiters.count();
        let calls = CallContext {
            settings: ArcSwap::from_pointee(spec.settings),
            downstreams: spec.downstreams,
            catalog: spec.catalog,
            policy: spec.policy,
            numbers: spec.numbers,
            counters: spec.counters,
            sealing: spec.sealing,
            answer_decorator: AnswerDecorator::new(&server_info(Revision::NEWEST)),
            parked: ParkedCalls::default(),
            mint: spec.mint,
        };
        let parts = SessionContext {
            calls: Arc::new(calls),
            store: spec.store,
            registry: SessionRegistry::new(count.get()),
            workers: CallWorkers::new(count.get()),
            listeners: ListenStreams::default(),
            tree: TreeResource::default(),
            random: spec.random,
        };
        let sessions = Self(Arc::new(SessionsInner {
            parts: Arc::new(parts),
            arbiters: spec.arbiters,
            wheels: wheels(count),
            initialize_results: InitializeResults::default(),
            rebuilding: Mutex::default(),
        }));
        let weak = Arc::downgrade(&sessions.0);
        actix_rt::spawn(async move {
            let mut ticks = tokio::time::interval(TICK);
            let mut reclaim = MemoryReclaim::default();
            loop {
                ticks.tick().await;
                let Some(shared) = weak.upgrade() else { return };
                let sessions = Self(shared);
                sessions.end_idle();
                if reclaim.is_due(sessions.len()) {
                    actix_rt::task::spawn_blocking(memory::trim_heap);
                }
            }
        });
        sessions
    }

    pub(crate) fn parts(&self) -> &Arc<SessionContext> {
        &self.0.parts
    }

    pub fn len(&self) -> usize {
        self.0.parts.registry.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An id that cannot be guessed, for a channel to a client.
    pub fn mint(&self) -> SessionId {
        SessionId::new((self.0.parts.calls.mint)())
    }

    /// Numbers for the exchanges of clients.
    pub fn numbers(&self) -> &CallNumbers {
        &self.0.parts.calls.numbers
    }

    /// Replaces the limits; those of streams hold for streams that are opened from now on.
    pub fn configure(&self, settings: SessionSettings) {
        self.0.parts.calls.settings.store(Arc::new(settings));
    }

    /// From now on clients can read the state of the gateway, or cannot any more.
    pub fn offer_tree(&self, source: Option<TreeSource>) {
        self.0.parts.tree.offer(source);
    }

    /// Opens a session of this fresh id for a client that sent `initialize`, and answers it. The record is in the
    /// store before the answer exists. `arbiter` is the index of the one that it is to live on.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read: bad parameters, or no place.
    pub async fn open(
        &self,
        id: SessionId,
        request: &Request,
        principal: Principal,
        arbiter: usize,
    ) -> Result<(Revision, Bytes), Failure> {
        let record = record_of(request, principal)?;
        let parts = &self.0.parts;
        let settings = parts.calls.settings.load_full();
        let Some(place) = parts.registry.reserve(settings.sessions_max) else {
            parts.calls.counters.add(Counter::SessionsRefused);
            let message = format!(
                "there are {} sessions, the limit (`sessions.max`); try again later",
                settings.sessions_max
            );
            return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000));
        };
        let (key, value) = (record_key(id), record.to_bytes());
        if let Err(error) = parts.store.put(&key, value, Some(parts.record_ttl())).await {
            log::warn!(session:% = id, error:%; "record of a new session could not be written");
        }
        let revision = record.revision;
        let answer =
            self.0
                .initialize_results
                .answer(request, revision, parts.calls.catalog.snapshot());
        let address = self.spawn(id, record, arbiter, false);
        parts.registry.insert(place, id, address, revision);
        self.schedule(
            id,
            parts
                .registry
                .now()
                .saturating_add(seconds(settings.idle_timeout)),
        );
        parts.calls.counters.add(Counter::SessionsOpened);
        log::debug!(session:% = id, revision = revision.as_str(); "session opened");
        Ok((revision, answer))
    }

    /// Answers `initialize` of a client that gets no session.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read: bad parameters.
    pub fn answer_initialize(
        &self,
        request: &Request,
        principal: Principal,
    ) -> Result<(Revision, Bytes), Failure> {
        let record = record_of(request, principal)?;
        let catalog = self.0.parts.calls.catalog.snapshot();
        let result = sessionless_initialize_result(record.revision, &catalog);
        let id = request.id.as_str();
        let answer = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#,
            result.as_str()
        );
        Ok((record.revision, Bytes::from(answer)))
    }

    /// Finds a session; one whose actor died is rebuilt from its record. `None` when it never
    /// existed, expired or was ended.
    ///
    /// # Errors
    ///
    /// Fails when its record cannot be read now: the session may well go on.
    pub async fn find(&self, id: SessionId) -> Result<Option<FoundSession>, Failure> {
        let parts = &self.0.parts;
        match parts.registry.find(id) {
            SessionLookup::Live(address, revision) => Ok(Some(FoundSession { address, revision })),
            SessionLookup::Unknown => Ok(None),
            // Rare, and much larger than the rest.
            SessionLookup::Dormant => Box::pin(self.rebuild(id)).await,
        }
    }

    async fn rebuild(&self, id: SessionId) -> Result<Option<FoundSession>, Failure> {
        let parts = &self.0.parts;
        let record = match parts.store.get(&record_key(id)).await {
            Ok(record) => record.and_then(|bytes| SessionRecord::from_bytes(&bytes)),
            Err(error) => {
                log::warn!(session:% = id, error:%; "record of a session could not be read");
                let message = "the session cannot be read from the store now; try again later";
                return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000));
            }
        };
        let Some(record) = record else {
            parts.forget(id, None);
            return Ok(None);
        };
        let _one_at_a_time = self.0.rebuilding.lock();
        // Somebody else may have rebuilt or ended it meanwhile.
        match parts.registry.find(id) {
            SessionLookup::Live(address, revision) => {
                return Ok(Some(FoundSession { address, revision }));
            }
            SessionLookup::Unknown => return Ok(None),
            SessionLookup::Dormant => {}
        }
        let revision = record.revision;
        let address = self.spawn(id, record, self.0.arbiters.index(id.placement_hash()), true);
        if !parts.registry.revive(id, address.clone()) {
            return Ok(None);
        }
        parts.calls.counters.add(Counter::SessionsRebuilt);
        log::debug!(session:% = id; "session is rebuilt from its record");
        Ok(Some(FoundSession { address, revision }))
    }

    /// Makes the sessions of the process before this one known; each has an actor again when its
    /// client asks for something. What they want of servers is asked for as soon as these are up,
    /// since a client that only listens does not ask first. Called before the first request.
    ///
    /// # Errors
    ///
    /// Fails when the store cannot be read.
    pub async fn restore(&self, servers: &[Arc<ServerSettings>]) -> Result<(), StoreError> {
        let parts = &self.0.parts;
        for entry in parts.store.scan(RECORDS).await? {
            if !self.restore_one(&entry, servers) {
                log::warn!("a session's record cannot be read; it is dropped");
                parts.store.delete(&entry.key).await?;
            }
        }
        if !self.is_empty() {
            log::info!(sessions = self.len(); "sessions go on");
        }
        Ok(())
    }

    fn restore_one(&self, entry: &StoredEntry, servers: &[Arc<ServerSettings>]) -> bool {
        let parts = &self.0.parts;
        let id = entry.key.strip_prefix(RECORDS).and_then(SessionId::parse);
        let record = SessionRecord::from_bytes(&entry.value);
        let (Some(id), Some(record)) = (id, record) else {
            return false;
        };
        // When the session was seen last is not in the record, only that it was not later than
        // `idle_timeout` after the record was written: until its end the client may count on it.
        let idle = seconds(parts.calls.settings.load().idle_timeout);
        let left = entry.expires_in.map_or(idle, seconds).min(idle);
        let expires = parts.registry.now().saturating_add(left);
        let last_seen = expires.saturating_sub(idle);
        parts
            .registry
            .insert_dormant(id, record.revision, last_seen);
        self.schedule(id, expires);
        let subscription_registry = parts.calls.downstreams.subscription_registry();
        if let Some(level) = record.level {
            subscription_registry.set_level(id, level);
        }
        for subscription in &record.subscriptions {
            let mut servers = servers.iter();
            if let Some(server) = servers.find(|server| server.name == subscription.server) {
                let key = server.connection_key_for(&record.caller(id));
                let watched = SubscriptionKey::new(&server.name, &key, &subscription.native);
                subscription_registry.watch(watched, id);
            }
        }
        true
    }

    /// Ends a session for good; from now on it does not exist, and neither does its record. False
    /// when it never did.
    pub async fn end(&self, id: SessionId) -> bool {
        let parts = &self.0.parts;
        let found = parts.registry.find(id);
        if matches!(found, SessionLookup::Unknown) {
            return false;
        }
        parts.registry.remove(id);
        parts.calls.counters.add(Counter::SessionsDeleted);
        let (done, deleted) = oneshot::channel();
        match found {
            // Its last write must not come after the end.
            SessionLookup::Live(address, _) => address.do_send(DeleteSession { done }),
            SessionLookup::Dormant | SessionLookup::Unknown => parts.forget(id, Some(done)),
        }
        if deleted.await.is_err() {
            // Its actor died before it received the message.
            let (done, deleted) = oneshot::channel();
            parts.forget(id, Some(done));
            let _ = deleted.await;
        }
        true
    }

    fn spawn(
        &self,
        id: SessionId,
        record: SessionRecord,
        arbiter: usize,
        rebuilt: bool,
    ) -> SessionAddr {
        let site = self.0.arbiters.at(arbiter);
        let (parts, index) = (self.0.parts.clone(), site.index);
        let watcher = self.0.parts.clone();
        let child = spawn_temporary(
            &site.arbiter,
            move |_, _| {
                let session = Session::new(id, parts, record, index);
                if rebuilt { session.rebuilt() } else { session }
            },
            move |why| {
                if !matches!(why, ExitReason::Normal) {
                    log::error!(session:% = id, why:%; "session died; its next request rebuilds it");
                    watcher.registry.set_dormant(id);
                }
            },
        );
        Arc::new(child.addr)
    }

    fn schedule(&self, id: SessionId, at_second: u32) {
        let index = self.0.arbiters.index(id.placement_hash()) % self.0.wheels.len();
        let mut wheel = self.0.wheels[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        wheel.schedule(id, at_second);
    }

    /// Ends the sessions that nobody used for `idle_timeout`; each is looked at only when it may
    /// be due.
    fn end_idle(&self) {
        let parts = &self.0.parts;
        let now = parts.registry.now();
        let idle = seconds(parts.calls.settings.load().idle_timeout);
        for wheel in &self.0.wheels {
            let due = wheel
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .due(now);
            for id in due {
                let Some(last_seen) = parts.registry.last_seen(id) else {
                    continue;
                };
                let expires = last_seen.saturating_add(idle);
                let address = parts.registry.address(id);
                if expires > now {
                    if let Some(address) = address {
                        address.do_send(SaveRecord);
                    }
                    self.schedule(id, expires);
                    continue;
                }
                match address {
                    Some(address) => {
                        address.do_send(EndSession::Idle);
                        // One that is in use stays and is looked at again.
                        self.schedule(id, now.saturating_add(idle.max(1)));
                    }
                    None => {
                        parts.calls.counters.add(Counter::SessionsExpired);
                        parts.forget(id, None);
                    }
                }
            }
        }
    }
}

fn wheels(count: NonZeroUsize) -> Box<[Mutex<IdleWheel>]> {
    (0..count.get())
        .map(|_| Mutex::new(IdleWheel::default()))
        .collect()
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs().max(1)).unwrap_or(u32::MAX)
}

fn record_of(request: &Request, principal: Principal) -> Result<SessionRecord, Failure> {
    SessionRecord::from_initialize(request, principal).map_err(|reason| {
        let message = format!("`params` of `initialize`: {reason}");
        Failure::new(ErrorKind::InvalidParams, message)
    })
}
