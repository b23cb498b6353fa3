//! This replica's handle to its cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::beats;
use super::engine::{Engine, EngineSpec, MemberRecord, RedisEngine};
use super::ids::{Birthplace, ReplicaNumber, ReplicaRef};
use super::membership::{Member, Verdict, beside};
use super::mint::Mint;
use super::raw_key::HopTls;
use super::records::Records;
use super::replica::{ClusterError, ClusterSpec, Health, Replica};
use super::secret::Purpose;
use super::status::{ClusterStatus, EngineStatus, ReplicaState, ReplicaStatus};
use crate::telemetry::millis;

/// How often the thread looks whether its replica still exists.
const THREAD_CHECK: Duration = Duration::from_secs(1);

/// How often a request that another replica serves looks whether that replica is gone.
const GONE_CHECK: Duration = Duration::from_secs(1);

/// A replica's handle to its cluster. Clones are the same replica.
#[derive(Clone)]
pub struct Cluster(Arc<Replica>);

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.me())
    }
}

impl Cluster {
    /// Begins to join. One thread runs the beats and the connections to the engine, so that they do
    /// not wait for a busy worker. It ends after this replica has left.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot start, or TLS cannot be set up.
    pub fn start(
        engine: EngineSpec,
        prefix: &str,
        spec: ClusterSpec,
    ) -> Result<Self, ClusterError> {
        let tls = HopTls::new(&spec.secret)?;
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build()?;
        let (handle, shown) = (runtime.handle().clone(), engine.to_string());
        let engine = Arc::new(RedisEngine::open(engine, prefix, &handle));
        let cluster = Self::over(engine, shown, (spec, tls), handle);
        let replica = Arc::downgrade(&cluster.0);
        let thread = std::thread::Builder::new().name("cluster".to_owned());
        thread.spawn(move || {
            runtime.block_on(async {
                while replica.strong_count() > 0 {
                    sleep(THREAD_CHECK).await;
                }
            });
        })?;
        Ok(cluster)
    }

    /// Begins to join, over an engine that exists: its beats run on this runtime.
    pub(super) fn over(
        engine: Arc<dyn Engine>,
        engine_address: String,
        spec: (ClusterSpec, HopTls),
        runtime: Handle,
    ) -> Self {
        let replica = Replica::new(engine, engine_address, spec, runtime.clone());
        let replica = Arc::new(replica);
        runtime.spawn(beats::supervise(Arc::clone(&replica)));
        Self(replica)
    }

    /// Waits until this replica has joined, for as long as the engine is away.
    pub async fn joined(&self) {
        // The sender lives in `self`.
        let _ = self.0.joined.subscribe().wait_for(|joined| *joined).await;
    }

    pub fn has_joined(&self) -> bool {
        *self.0.joined.borrow()
    }

    /// This replica. Its incarnation changes when it could not beat for a `member_ttl`: sessions of
    /// the former incarnation must be claimed before they are served.
    pub fn me(&self) -> ReplicaRef {
        *self.0.own.read()
    }

    /// Mints ids that name this replica.
    pub fn mint(&self) -> Arc<dyn Mint> {
        Arc::clone(&self.0.mint) as _
    }

    /// Which replica minted an id. No I/O.
    pub fn birthplace(&self, id: Uuid) -> Birthplace {
        match self.0.ids.number(id) {
            None => Birthplace::Foreign,
            Some(number) if number == self.0.mint.number() => Birthplace::Here,
            Some(number) => Birthplace::Replica(number),
        }
    }

    /// The keys with which every replica seals and opens the ids of tasks. The first one seals.
    pub fn task_keys(&self) -> Vec<[u8; 32]> {
        self.keys([Purpose::Tasks])
    }

    /// The keys of states that are sealed in a period, with which the first one seals. The others
    /// open the states of replicas whose clocks or secrets are about to change, or have changed.
    pub fn state_keys(&self, period: u64) -> Vec<[u8; 32]> {
        let near = [period, period.wrapping_sub(1), period.wrapping_add(1)];
        self.keys(near.map(Purpose::States))
    }

    fn keys(&self, purposes: impl IntoIterator<Item = Purpose>) -> Vec<[u8; 32]> {
        let keys = purposes.into_iter().flat_map(|purpose| {
            let (first, second) = self.0.spec.secret.keys(purpose);
            std::iter::once(first).chain(second)
        });
        keys.collect()
    }

    /// A replica as the last beat showed it. No I/O.
    pub fn member(&self, number: ReplicaNumber) -> Option<Arc<Member>> {
        self.0.table.read().rows.get(&number).cloned()
    }

    /// Whether the copies of this replica's sessions can be served: it beats, or it is awake and
    /// answers its peers. A process that slept must hear from the engine first: see
    /// [`Self::confirmed`].
    pub fn is_confirmed(&self) -> bool {
        self.0.pulse.is_confirmed(Instant::now())
    }

    /// Waits until [`Self::is_confirmed`], at most for one request to the engine and its queue;
    /// returns whether it is.
    pub async fn confirmed(&self) -> bool {
        const WAIT_MAX: Duration = Duration::from_secs(1);
        let mut beats = self.0.pulse.beats.subscribe();
        self.0.wake.notify_one();
        let wait = async {
            while !self.is_confirmed() {
                // The sender lives in `self`.
                let _ = beats.changed().await;
            }
        };
        timeout(WAIT_MAX, wait).await.is_ok()
    }

    /// Whether the engine has kept its state for so long that all replicas have written again what
    /// it lost before: two `member_ttl`.
    pub fn is_engine_settled(&self) -> bool {
        let table = self.0.table.read();
        table.is_settled(Instant::now(), self.0.spec.member_ttl * 2)
    }

    /// Changes when the engine came back from an outage or can have lost writes: owners save all
    /// their sessions again and repeat their last ends.
    pub fn came_back(&self) -> watch::Receiver<u64> {
        self.0.came_back.subscribe()
    }

    /// For those who accept hops.
    pub fn hop_server_tls(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.0.tls.server)
    }

    /// For those who forward requests.
    pub fn hop_client_tls(&self) -> Arc<rustls::ClientConfig> {
        Arc::clone(&self.0.tls.client)
    }

    pub fn listen(&self) -> SocketAddr {
        self.0.spec.listen
    }

    pub fn member_ttl(&self) -> Duration {
        self.0.spec.member_ttl
    }

    /// The body of the answer to `GET /ping` on the hop listener.
    pub fn ping_answer(&self) -> String {
        self.me().to_string()
    }

    /// The replica that answers at an address within 1 s.
    pub async fn ping(&self, address: &str) -> Option<ReplicaRef> {
        self.0.ping(address).await
    }

    pub fn records(&self) -> Records {
        Records {
            engine: Arc::clone(&self.0.engine),
            sealer: Arc::clone(&self.0.sealer),
            own: Arc::clone(&self.0.own),
        }
    }

    /// Beats only while this answers `true`.
    pub fn set_health(&self, health: Health) {
        *self.0.health.lock() = Some(health);
    }

    /// States how many sessions this replica has, for the status of all replicas.
    pub fn set_sessions(&self, sessions: u64) {
        self.0.sessions.store(sessions, Ordering::Relaxed);
    }

    /// Whether a replica is gone for certain: it left, another incarnation replaced it, or its beat
    /// expired *and* it does not answer within 1 s. All who ask at the same time share one question.
    pub async fn is_gone(&self, who: ReplicaRef) -> Verdict {
        let me = self.me();
        if who.number == me.number {
            return beside(who, me);
        }
        self.0.is_gone(who).await
    }

    /// Completes when a replica is gone for certain. It is only asked once its beat has expired.
    pub async fn until_gone(&self, who: ReplicaRef) {
        loop {
            sleep(GONE_CHECK).await;
            let member = self.member(who.number);
            let is_living = member.is_some_and(|it| it.is_living && it.replica() == who);
            if !is_living && self.is_gone(who).await == Verdict::Gone {
                return;
            }
        }
    }

    /// Whether this replica leaves, so that it takes over no session.
    pub fn is_leaving(&self) -> bool {
        self.0.is_leaving.load(Ordering::Relaxed)
    }

    /// Tells the other replicas that this one is leaving.
    pub async fn begin_leaving(&self) {
        self.0.is_leaving.store(true, Ordering::Relaxed);
        if !self.beats_now().await {
            log::warn!("could not tell the other replicas that this one is leaving");
        }
    }

    /// Beats, and returns whether the engine answered within 1 s. All replicas that joined before
    /// are known then.
    pub async fn beats_now(&self) -> bool {
        let mut beats = self.0.pulse.beats.subscribe();
        let beat = async {
            // A beat that has begun finishes first, and can have read the members before this call.
            for _ in 0..2 {
                self.0.wake.notify_one();
                // The sender lives in `self`.
                let _ = beats.changed().await;
            }
        };
        timeout(Duration::from_secs(1), beat).await.is_ok()
    }

    /// Leaves. Sessions that were not released can be taken over at once.
    pub async fn leave(&self) {
        self.0.has_left.store(true, Ordering::Relaxed);
        self.0.wake.notify_one();
        if let Err(error) = self.0.engine.leave(self.me()).await {
            log::warn!(error:% = error; "could not leave the cluster in order");
        }
    }

    /// Why the engine did not answer the last beat.
    pub fn engine_failure(&self) -> Option<String> {
        let away = self.0.away.lock();
        away.as_ref().map(|(_, why)| why.clone())
    }

    /// All replicas and the engine, as the last beat showed them. No I/O.
    pub fn status(&self) -> ClusterStatus {
        let (now, me) = (Instant::now(), self.me());
        let away = self.0.away.lock().clone();
        let engine = EngineStatus {
            address: self.0.engine_address.clone(),
            is_up: away.is_none(),
            away_ms: away.as_ref().map(|(since, _)| millis(now - *since)),
            error: away.map(|(_, why)| why),
            failures: self.0.engine.failures(),
        };
        let table = self.0.table.read();
        let shown = |record: &MemberRecord, state, seen: Option<Instant>| ReplicaStatus {
            name: record.name.clone(),
            number: record.number.0,
            address: record.address.clone(),
            state,
            version: record.version.clone(),
            sessions: record.sessions,
            last_beat_ms: seen.map(|seen| millis(now - seen)),
            is_self: record.replica() == me,
        };
        let mut replicas = Vec::new();
        for member in table.rows.values() {
            let state = match () {
                () if !member.is_living => ReplicaState::Expired,
                () if member.is_leaving() => ReplicaState::Leaving,
                () => ReplicaState::Alive,
            };
            replicas.push(shown(&member.record, state, member.seen));
        }
        if !self.has_joined() {
            let own = beats::own_record(&self.0, me, &self.listen().to_string());
            replicas.push(shown(&own, ReplicaState::Joining, None));
        }
        ClusterStatus { engine, replicas }
    }
}
