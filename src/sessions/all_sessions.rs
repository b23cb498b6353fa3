//! All client sessions: opens, finds, lists and ends them.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::auth::{Policy, RateLimits, Requester};
use crate::calls::{
    AnswerDecorator, CallContext, CallWorkers, KeptResults, ListWait, ParkedCalls, Quota,
    QuotaExceeded, QuotaLimit, QuotaShare, Sealing, SealingKeys, SessionSettings,
};
use crate::cluster::Mint;
use crate::downstream::Downstreams;
use crate::history::{CallEnding, History};
use crate::id::{CallNumbers, Holder, Peer, Principal, SessionId, SessionOwner, ViewId};
use crate::memory::{self, ByteGauge, PassedMemory};
use crate::metrics::Metrics;
use crate::protocol::{ErrorKind, Failure, Request, Revision, result_frame};
use crate::publisher::CatalogView;
use crate::sessions::handshake::{initialize_result, server_info, sessionless_initialize_result};
use crate::sessions::listen_stream::ListenStreams;
use crate::sessions::message::SessionCommand;
use crate::sessions::moves::Moves;
use crate::sessions::replicas::Replicas;
use crate::sessions::session::Session;
use crate::sessions::session_record::SessionRecord;
use crate::sessions::session_registry::{SessionAddr, SessionLookup, SessionRegistry};
use crate::sessions::tree_resource::{TreeResource, TreeSource};
use crate::sessions::{SessionContext, seconds};
use crate::store::Store;
use crate::supervision::{Arbiters, ExitReason, Random, spawn_temporary};
use crate::telemetry::{Counter, Counters, Denial};
use crate::traces::Traces;

/// How often the gateway checks for idle sessions.
const TICK: Duration = Duration::from_secs(1);

/// How long to wait for an unused session to end when its slot is needed.
const UNUSED_END_MAX: Duration = Duration::from_secs(1);

/// The parts from which sessions are built.
pub struct SessionsSpec {
    pub settings: SessionSettings,
    pub arbiters: Arbiters,
    pub downstreams: Downstreams,
    pub catalog: CatalogView,
    pub store: Arc<dyn Store>,
    /// The replicas of which this gateway is one; `None` for a single gateway.
    pub replicas: Option<Replicas>,
    /// The policy in force; `None` allows everything.
    pub policy: Option<Box<dyn Policy>>,
    pub numbers: CallNumbers,
    pub random: Arc<dyn Random>,
    /// Mints session ids, which must not be guessable.
    pub mint: Arc<dyn Mint>,
    /// Returns the current time in milliseconds since 1970.
    pub clock: fn() -> u64,
    /// Keys for states and task ids that travel through sessionless clients.
    pub sealing: Arc<SealingKeys>,
    pub counters: Counters,
    pub history: History,
    pub metrics: Metrics,
    pub traces: Traces,
}

/// All client sessions. Cheap to clone; can be used from any thread.
#[derive(Clone)]
pub struct Sessions(Arc<SessionContext>);

/// A session that a client's request names.
#[derive(Debug)]
pub struct FoundSession {
    pub address: SessionAddr,
    pub revision: Revision,
}

impl Sessions {
    /// Starts the check for idle sessions on the calling arbiter.
    pub fn start(spec: SessionsSpec) -> Self {
        let count = spec.arbiters.count().get();
        let calls = CallContext {
            settings: ArcSwap::from_pointee(spec.settings),
            sealing: Sealing::new(spec.sealing, spec.downstreams.clone()),
            downstreams: spec.downstreams,
            catalog: spec.catalog,
            policy: ArcSwapOption::from_pointee(spec.policy),
            rate_limits: RateLimits::default(),
            in_flight: Quota::default(),
            numbers: spec.numbers,
            counters: spec.counters,
            history: spec.history,
            metrics: spec.metrics,
            traces: spec.traces,
            answer_decorator: AnswerDecorator::new(&server_info(Revision::NEWEST)),
            parked: ParkedCalls::default(),
            kept_results: KeptResults::default(),
            mint: spec.mint,
        };
        let sessions = Self(Arc::new(SessionContext {
            calls: Arc::new(calls),
            store: spec.store,
            replicas: spec.replicas.map(Box::new),
            registry: SessionRegistry::new(count),
            workers: CallWorkers::new(count),
            listeners: ListenStreams::default(),
            kept_events: ByteGauge::default(),
            tree: TreeResource::default(),
            random: spec.random,
            clock: spec.clock,
            arbiters: spec.arbiters,
            rebuilding: Mutex::default(),
        }));
        let weak = Arc::downgrade(&sessions.0);
        actix_rt::spawn(async move {
            let mut ticks = tokio::time::interval(TICK);
            let mut passed = PassedMemory::default();
            loop {
                ticks.tick().await;
                let Some(context) = weak.upgrade() else {
                    return;
                };
                let sessions = Self(context);
                sessions.end_idle();
                if let Some(moves) = sessions.moves() {
                    moves.tick();
                }
                if passed.is_due() {
                    actix_rt::task::spawn_blocking(memory::trim_heap);
                }
            }
        });
        sessions
    }

    pub(crate) fn registry(&self) -> &SessionRegistry {
        &self.0.registry
    }

    pub(crate) fn context(&self) -> &Arc<SessionContext> {
        &self.0
    }

    /// The sessions that move between replicas; `None` for a single gateway.
    pub fn moves(&self) -> Option<Moves<'_>> {
        let replicas = self.0.replicas.as_deref();
        replicas.map(|replicas| Moves::new(&self.0, replicas))
    }

    /// Returns the size of the events kept for clients that resume, in bytes.
    pub fn event_bytes(&self) -> usize {
        self.0.kept_events.all()
    }

    pub fn len(&self) -> usize {
        self.0.registry.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an unguessable id for a channel to a client.
    pub fn mint(&self) -> SessionId {
        SessionId::new(self.0.calls.mint.mint())
    }

    /// Returns whether this view exists.
    pub fn has_view(&self, view: &ViewId) -> bool {
        self.0.calls.catalog.has_view(view)
    }

    /// Returns the view of all servers, and every configured view.
    pub fn views(&self) -> impl Iterator<Item = ViewId> {
        let views = self.0.calls.catalog.views().into_iter();
        views.map(|(view, _)| view)
    }

    /// Returns the counter that numbers client exchanges.
    pub fn numbers(&self) -> &CallNumbers {
        &self.0.calls.numbers
    }

    /// Replaces the limits, the policy (`None` allows everything), and the source of the resource
    /// with the gateway's state (`None` disables it). Stream limits apply to streams that are
    /// opened afterwards.
    pub fn configure(
        &self,
        settings: SessionSettings,
        policy: Option<Box<dyn Policy>>,
        tree: Option<TreeSource>,
    ) {
        self.0.calls.settings.store(Arc::new(settings));
        self.0.calls.policy.store(policy.map(Arc::new));
        self.0.tree.configure(tree);
    }

    /// Waits until the server of a single-server view was listed, because the answer to
    /// `initialize` contains its identity. Bounded like the wait for a first list.
    pub async fn first_listing(&self, request: &Request, requester: &Requester, arbiter: usize) {
        let is_of_one = matches!(requester.owner.view, ViewId::Server(_));
        let record = is_of_one.then(|| record_of(request, requester.clone()));
        if let Some(Ok(record)) = record {
            let caller = Arc::new(record.caller(self.mint()));
            if let Some(wait) = ListWait::of(&self.0.calls, request, &caller, arbiter) {
                // Boxed, because it is rare and larger than the other futures.
                Box::pin(wait.end()).await;
            }
        }
    }

    /// Opens a session with this new id for a client that sent `initialize`, and returns the
    /// answer. The record is stored before the answer is returned. The session lives on the arbiter
    /// with the index `arbiter`.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads: invalid parameters, no free slot, or a store
    /// failure.
    pub async fn open(
        &self,
        id: SessionId,
        request: &Request,
        requester: Requester,
        peer: Peer,
        arbiter: usize,
    ) -> Result<(Revision, Bytes), Failure> {
        let mut record = record_of(request, requester)?;
        let call_telemetry = self
            .0
            .calls
            .observe(request, record.revision, arbiter, None);
        record.peer = peer;
        let opened = self.try_open(id, request, record, arbiter).await;
        if let Some(call_telemetry) = call_telemetry {
            match &opened {
                Ok((_, answer)) => call_telemetry.end(CallEnding::Done, answer.len()),
                Err(failure) => call_telemetry.end(CallEnding::Failed(failure), 0),
            };
        }
        opened
    }

    async fn try_open(
        &self,
        id: SessionId,
        request: &Request,
        mut record: SessionRecord,
        arbiter: usize,
    ) -> Result<(Revision, Bytes), Failure> {
        let context = &self.0;
        record.opened_at = Some((context.clock)());
        let settings = context.calls.settings.load_full();
        let place = self
            .place_for(record.holder(), &settings.sessions(&record.holder()))
            .await?;
        if context.open_record(id, record.to_bytes()).await.is_err() {
            context.calls.counters.add(Counter::SessionsRefused);
            let message = "the session cannot be kept: the gateway's state cannot be written now (its log says why); try again later";
            return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000));
        }
        let (revision, owner) = (record.revision, record.owner());
        let catalog = context.calls.catalog.of(&record.caller(id));
        let result = initialize_result(revision, &catalog);
        let answer = result_frame(&request.id, result);
        let address = self.spawn(id, record, arbiter, false);
        let idle = seconds(settings.idle_timeout);
        let registry = &context.registry;
        registry.insert(place, (id, owner), address, revision, idle);
        context.calls.counters.add(Counter::SessionsOpened);
        log::debug!(session:% = id, revision = revision.as_str(); "session opened");
        Ok((revision, answer))
    }

    /// Takes a slot for a new session. Unused sessions are ended before a client is refused; if
    /// this client has used its share, only its own unused sessions are ended.
    async fn place_for(&self, holder: Holder, limit: &QuotaLimit) -> Result<QuotaShare, Failure> {
        let (registry, counters) = (&self.0.registry, &self.0.calls.counters);
        loop {
            let why = match registry.reserve(holder.clone(), limit) {
                Ok(place) => return Ok(place),
                Err(why) => why,
            };
            let of = (why != QuotaExceeded::Full).then_some(&holder);
            let Some(unused) = registry.take_unused(of) else {
                counters.add(Counter::SessionsRefused);
                return Err(limit.failure(why));
            };
            let (done, ended) = oneshot::channel();
            unused.do_send(SessionCommand::EndIfUnused(done));
            // On a timeout, the session was used after all, or its thread or the store is busy. The
            // loop tries the next one.
            let _ = timeout(UNUSED_END_MAX, ended).await;
        }
    }

    /// Returns the answer to `initialize` for a client that gets no session.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads if the parameters are invalid.
    pub fn answer_initialize(
        &self,
        request: &Request,
        requester: Requester,
    ) -> Result<(Revision, Bytes), Failure> {
        let record = record_of(request, requester)?;
        let catalog = self.0.calls.catalog.of(&record.caller(self.mint()));
        let result = sessionless_initialize_result(record.revision, &catalog);
        Ok((record.revision, result_frame(&request.id, &result)))
    }

    /// Finds a session of this owner, and rebuilds it from its record if its actor died. Returns
    /// `None` if the session never existed, has ended, or belongs to another owner.
    ///
    /// # Errors
    ///
    /// Fails if the record cannot be read, in which case the session might still exist, or while
    /// the record is being deleted.
    pub async fn find(
        &self,
        id: SessionId,
        owner: &SessionOwner,
    ) -> Result<Option<FoundSession>, Failure> {
        let context = &self.0;
        match context.registry.find(id, owner) {
            SessionLookup::Live(address, revision) => Ok(Some(FoundSession { address, revision })),
            SessionLookup::Unknown => {
                self.note_stranger(id, owner);
                Ok(None)
            }
            SessionLookup::Ending => Err(is_ending()),
            // Boxed, because it is rare and much larger than the other futures.
            SessionLookup::Dormant => Box::pin(self.rebuild(id, None)).await,
        }
    }

    /// Gives a session that was opened without credentials to the first client that uses it with
    /// credentials, and moves it to this arbiter. Returns `None` for any other session.
    ///
    /// # Errors
    ///
    /// Fails as [`Sessions::find`] does.
    pub async fn adopt(
        &self,
        id: SessionId,
        owner: &SessionOwner,
        arbiter: usize,
    ) -> Result<Option<FoundSession>, Failure> {
        if owner.principal == Principal::Anonymous || !self.0.registry.adopt(id, owner) {
            return Ok(None);
        }
        self.rebuild(id, Some(arbiter)).await
    }

    /// Records a denial if the named session belongs to another owner.
    fn note_stranger(&self, id: SessionId, stranger: &SessionOwner) {
        if stranger.principal != Principal::Anonymous && self.is_owned(id) {
            Denial {
                code: ErrorKind::SessionNotFound.as_str(),
                action: &format!("session {id}"),
                principal: stranger.principal.as_str(),
                from: None,
                reason: "the session belongs to another principal",
            }
            .record(&self.0.calls.counters);
        }
    }

    /// Returns whether the session belongs to an identified client.
    pub fn is_owned(&self, id: SessionId) -> bool {
        self.0.registry.is_owned(id)
    }

    /// Closes the session's own connections until its client returns. Does nothing if the session
    /// now belongs to another owner.
    pub fn client_left(&self, id: SessionId, owner: &SessionOwner) {
        let owned_by = self.0.registry.owner(id);
        if owned_by.is_none_or(|(known, _)| known == *owner) {
            self.0.calls.downstreams.close_own(id);
        }
    }

    /// Ends a session of this owner and deletes its record. Returns false if the session does not
    /// exist or belongs to another owner.
    pub async fn end(&self, id: SessionId, owner: &SessionOwner) -> bool {
        let registry = &self.0.registry;
        let found = registry.find(id, owner);
        if matches!(found, SessionLookup::Unknown) {
            self.note_stranger(id, owner);
        }
        self.end_found(id, found).await
    }

    /// Ends a session for an operator, regardless of its owner.
    pub(super) async fn end_any(&self, id: SessionId) -> bool {
        let found = self.0.registry.find_any(id);
        self.end_found(id, found).await
    }

    async fn end_found(&self, id: SessionId, found: SessionLookup) -> bool {
        let context = &self.0;
        if matches!(found, SessionLookup::Unknown) {
            return false;
        }
        context.calls.counters.add(Counter::SessionsDeleted);
        let (done, deleted) = oneshot::channel();
        match found {
            // The actor deletes the record itself, so that none of its earlier writes comes
            // afterwards.
            SessionLookup::Live(address, _) => address.do_send(SessionCommand::Delete(done)),
            SessionLookup::Dormant | SessionLookup::Ending | SessionLookup::Unknown => {
                context.forget(id, Some(done));
            }
        }
        if deleted.await.is_err() {
            // The actor died before it received the message.
            let (done, deleted) = oneshot::channel();
            context.forget(id, Some(done));
            let _ = deleted.await;
        }
        true
    }

    pub(super) fn spawn(
        &self,
        id: SessionId,
        record: SessionRecord,
        arbiter: usize,
        rebuilt: bool,
    ) -> SessionAddr {
        let site = self.0.arbiters.at(arbiter);
        let (context, index) = (self.0.clone(), site.index);
        let watcher = self.0.clone();
        let child = spawn_temporary(
            &site.arbiter,
            move |_, _| {
                let session = Session::new(id, context, record, index);
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

    /// Ends sessions that were unused for `idle_timeout`, and renews the records of the others.
    fn end_idle(&self) {
        let idle = seconds(self.0.calls.settings.load().idle_timeout);
        for due in self.0.registry.due(idle) {
            match due.address {
                Some(address) if due.is_idle => address.do_send(SessionCommand::EndIfIdle),
                Some(address) => address.do_send(SessionCommand::SaveRecord),
                None if due.is_idle => {
                    self.0.calls.counters.add(Counter::SessionsExpired);
                    self.0.forget(due.id, None);
                }
                None => {}
            }
        }
    }
}

/// Returns the failure for a session that has ended while its record still exists.
pub(super) fn is_ending() -> Failure {
    let message = "the session is ending; try again later, or start a new one";
    Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
}

fn record_of(request: &Request, requester: Requester) -> Result<SessionRecord, Failure> {
    let mut record =
        SessionRecord::from_initialize(request, requester.owner).map_err(|reason| {
            let message = format!("`params` of `initialize`: {reason}");
            Failure::new(ErrorKind::InvalidParams, message)
        })?;
    record.scopes = requester.scopes;
    Ok(record)
}
