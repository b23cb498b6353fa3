//! The state of this replica and its view of the others; asks whether another replica is gone.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::engine::{Engine, EngineError, Members};
use super::ids::{IdKeys, ReplicaNumber, ReplicaRef};
use super::membership::{Judgement, MemberTable, Verdict, judge, judge_answer};
use super::mint::ReplicaMint;
use super::probe::ping;
use super::pulse::Pulse;
use super::raw_key::HopTls;
use super::sealing::Sealer;
use super::secret::{ClusterSecret, Purpose};

/// How many replicas are remembered as gone or asked about at once. Beyond that, some are asked
/// about again.
const QUESTIONS_MAX: usize = 64;

/// Whether this replica can serve: each worker ran a task, and its own hop listener answered.
pub type Health = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// The parts from which a replica is built.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    pub secret: ClusterSecret,
    /// Where other replicas connect.
    pub listen: SocketAddr,
    /// Host and port for other replicas; `None` if the engine sees this replica's address.
    pub advertise: Option<String>,
    /// Name for operators.
    pub name: String,
    pub member_ttl: Duration,
    pub version: String,
    /// Identifies the data directory.
    pub instance: Uuid,
    /// The number of this data directory's former process.
    pub former_number: Option<ReplicaNumber>,
}

/// Why a replica cannot begin to join.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("TLS between replicas cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("cannot start the cluster's thread: {0}")]
    Thread(#[from] io::Error),
}

/// State that the handles, the beats and the probes of a replica share.
pub(super) struct Replica {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) engine_address: String,
    pub(super) spec: ClusterSpec,
    /// Proves to the engine that a later process has the same data directory.
    pub(super) instance: Mutex<String>,
    /// This replica, whose incarnation changes when it could not beat for too long.
    pub(super) own: Arc<RwLock<ReplicaRef>>,
    pub(super) mint: Arc<ReplicaMint>,
    pub(super) ids: Arc<IdKeys>,
    pub(super) sealer: Arc<Sealer>,
    pub(super) tls: HopTls,
    pub(super) table: RwLock<MemberTable>,
    pub(super) pulse: Pulse,
    pub(super) health: Mutex<Option<Health>>,
    pub(super) sessions: AtomicU64,
    pub(super) joined: watch::Sender<bool>,
    pub(super) came_back: watch::Sender<u64>,
    /// Why the engine did not answer the last beat, and since when.
    pub(super) away: Mutex<Option<(Instant, String)>>,
    pub(super) is_leaving: AtomicBool,
    pub(super) has_left: AtomicBool,
    /// Asks for a beat now.
    pub(super) wake: Notify,
    runtime: Handle,
    /// The open questions whether a replica is gone, and the questions that were answered with yes, so
    /// that a thousand sessions of one replica cost one question.
    questions: Mutex<HashMap<ReplicaRef, Shared<BoxFuture<'static, Verdict>>>>,
}

impl Replica {
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        engine_address: String,
        (spec, tls): (ClusterSpec, HopTls),
        runtime: Handle,
    ) -> Self {
        let (first, second) = spec.secret.mac_keys(Purpose::Ids);
        let ids = Arc::new(IdKeys::new(first, second));
        let (instance, _) = spec.secret.mac_keys(Purpose::Instance);
        let instance = ring::hmac::sign(&instance, spec.instance.as_bytes());
        let instance = instance.as_ref().iter().take(16);
        let own = Arc::default();
        let mint = ReplicaMint {
            keys: Arc::clone(&ids),
            own: Arc::clone(&own),
        };
        Self {
            engine,
            engine_address,
            instance: Mutex::new(instance.map(|byte| format!("{byte:02x}")).collect()),
            own,
            mint: Arc::new(mint),
            ids,
            sealer: Arc::new(Sealer::new(&spec.secret)),
            tls,
            table: RwLock::default(),
            pulse: Pulse::new(spec.member_ttl),
            health: Mutex::default(),
            sessions: AtomicU64::new(0),
            joined: watch::Sender::new(false),
            came_back: watch::Sender::new(0),
            away: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            wake: Notify::new(),
            runtime,
            questions: Mutex::default(),
            spec,
        }
    }

    /// The replica that answers at an address within 1 s.
    pub(super) async fn ping(&self, address: &str) -> Option<ReplicaRef> {
        ping(address, Arc::clone(&self.tls.client)).await
    }

    /// Judges another replica by both conditions. All who ask at the same time share one question.
    pub(super) async fn is_gone(self: &Arc<Self>, who: ReplicaRef) -> Verdict {
        let question = {
            let mut questions = self.questions.lock();
            if questions.len() >= QUESTIONS_MAX {
                questions.clear();
            }
            questions
                .entry(who)
                .or_insert_with(|| self.ask(who))
                .clone()
        };
        question.await
    }

    fn ask(self: &Arc<Self>, who: ReplicaRef) -> Shared<BoxFuture<'static, Verdict>> {
        let replica = Arc::clone(self);
        let asked = self.runtime.spawn(async move {
            let verdict = replica.investigate(who).await.unwrap_or(Verdict::Unknown);
            if verdict != Verdict::Gone {
                replica.questions.lock().remove(&who);
            }
            verdict
        });
        let answer = async { asked.await.unwrap_or(Verdict::Unknown) };
        answer.boxed().shared()
    }

    async fn investigate(&self, who: ReplicaRef) -> Result<Verdict, EngineError> {
        let members = self.engine.members().await?;
        let judgement = {
            let table = self.table.read();
            let known = table.rows.get(&who.number).map(|known| &**known);
            let is_settled = table.is_settled(Instant::now(), self.spec.member_ttl);
            judge(who, members.living(who.number), known, is_settled)
        };
        Ok(match judgement {
            Judgement::Decided(verdict) => verdict,
            Judgement::Ask(address) => judge_answer(who, self.ping(&address).await),
        })
    }

    /// Takes over what a beat showed, and forgets that replicas were gone which beat again under the
    /// same incarnation.
    pub(super) fn learn(&self, members: &Members, now: Instant) {
        let mut table = self.table.write();
        table.learn(members, now);
        let is_living = |who: &ReplicaRef| {
            let known = table.rows.get(&who.number);
            known.is_some_and(|known| known.is_living && known.replica() == *who)
        };
        self.questions.lock().retain(|who, _| !is_living(who));
    }
}
