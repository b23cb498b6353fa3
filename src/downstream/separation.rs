//! Remembers which servers cannot serve all clients with one process or connection, and why
//! (B-SHARE-01).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Notify, OnceCell, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::catalog::ServerPart;
use crate::downstream::connection_key::ConnectionOwner;
use crate::downstream::settings::ServerSettings;
use crate::id::{ServerName, SessionId};
use crate::protocol::{DeclaredCapabilities, Era, RawJson};
use crate::store::Store;
use crate::telemetry::{LogRing, LogSource};

/// Prefix of the servers in the store.
const SEPARATION: &str = "separation/";

/// How long it is remembered what a server needs.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// Claims a connection for a client without a session: no later request can come from it.
const SESSIONLESS: SessionId = SessionId::new(Uuid::nil());

/// Why a server needs more than one process for its clients.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeparationReason {
    /// It lists other items to clients with other capabilities.
    ListsDiffer,
    /// It sent a request during a call of a client that cannot be asked.
    AsksUndeclared,
    /// It sent a request that could not be attributed to one client.
    Unattributed,
    /// It asked for roots, which apply to a whole process.
    Roots,
}

impl SeparationReason {
    const ALL: [Self; 4] = [
        Self::ListsDiffer,
        Self::AsksUndeclared,
        Self::Unattributed,
        Self::Roots,
    ];

    /// The reason and its consequence, for operators.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ListsDiffer => {
                "it lists differently for clients with other capabilities, so clients share a process only with equal capabilities"
            }
            Self::AsksUndeclared => {
                "it sent a request during a call of a client that cannot answer it, so clients share a process only with equal capabilities"
            }
            Self::Unattributed => {
                "it sent a request that could not be attributed to a call, so each client that can be asked has its own"
            }
            Self::Roots => {
                "it asks for roots, which apply to all its calls, so each client with roots has its own"
            }
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeparationReasons(u8);

impl SeparationReasons {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn with(self, reason: SeparationReason) -> Self {
        Self(self.0 | reason.bit())
    }

    pub(crate) const fn has(self, reason: SeparationReason) -> bool {
        self.0 & reason.bit() != 0
    }

    pub fn iter(self) -> impl Iterator<Item = SeparationReason> {
        let all = SeparationReason::ALL.into_iter();
        all.filter(move |reason| self.has(*reason))
    }

    /// Whether only clients with equal capabilities can share a process.
    pub(crate) fn by_capabilities(self) -> bool {
        self.has(SeparationReason::ListsDiffer)
            || self.has(SeparationReason::AsksUndeclared)
            || self.has(SeparationReason::Unattributed)
    }

    /// Whether each client that declares these capabilities needs its own process.
    pub(crate) fn by_client(self, profile: &DeclaredCapabilities) -> bool {
        self.has(SeparationReason::Unattributed) && profile.can_be_asked()
            || self.has(SeparationReason::Roots) && profile.has_roots()
    }
}

impl FromIterator<SeparationReason> for SeparationReasons {
    fn from_iter<I: IntoIterator<Item = SeparationReason>>(reasons: I) -> Self {
        reasons.into_iter().fold(Self::default(), Self::with)
    }
}

/// Whether a program's lists with and without capabilities are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// No comparison is due: its outcome is known, or there is nothing to compare.
    Settled,
    /// A comparison is due; the shared process listed its items at this time.
    Due(Instant),
    /// A comparison runs; the shared process listed its items at this time.
    Running(Instant),
}

/// The outcome of a comparison of lists with and without capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Equal,
    Different,
    /// There is no second process that lists.
    Failed,
}

/// How one server separates its clients. Shared by all its connections.
pub(crate) struct Separation {
    settings: Arc<ArcSwap<ServerSettings>>,
    store: Arc<dyn Store>,
    log: LogRing,
    /// Notified when the lists of any server have to be compared.
    comparison_due: Arc<Notify>,
    loaded: OnceCell<()>,
    reasons: AtomicU8,
    /// The version of the server that listed the same with and without capabilities.
    lists_equally: Mutex<Option<String>>,
    /// The version that could not be compared; this gateway process does not try it again.
    not_comparable: Mutex<Option<String>>,
    /// Whether the shared process was declared what any client can answer.
    declares_all: AtomicBool,
    /// Whether clients without capabilities have a process of their own.
    is_plain_apart: AtomicBool,
    comparison: watch::Sender<Comparison>,
    /// Sessions that keep the connection which they shared before, because its process has state
    /// for them.
    claims: Mutex<HashMap<ConnectionOwner, SessionId>>,
    /// The session that kept the previous shared process, until the next one has listed: other
    /// clients are still served elsewhere.
    former_claimant: Mutex<Option<SessionId>>,
}

#[derive(Serialize, Deserialize)]
struct StoredSeparation {
    /// [`ServerSettings::identity`]: an entry about a different server does not count.
    identity: String,
    reasons: Vec<SeparationReason>,
    #[serde(default)]
    lists_equally: Option<String>,
}

impl Separation {
    pub(crate) fn new(
        settings: Arc<ArcSwap<ServerSettings>>,
        store: Arc<dyn Store>,
        log: LogRing,
        comparison_due: Arc<Notify>,
    ) -> Self {
        Self {
            settings,
            store,
            log,
            comparison_due,
            loaded: OnceCell::new(),
            reasons: AtomicU8::new(0),
            lists_equally: Mutex::default(),
            not_comparable: Mutex::default(),
            declares_all: AtomicBool::new(false),
            is_plain_apart: AtomicBool::new(false),
            comparison: watch::Sender::new(Comparison::Settled),
            claims: Mutex::default(),
            former_claimant: Mutex::default(),
        }
    }

    pub(crate) fn reasons(&self) -> SeparationReasons {
        SeparationReasons(self.reasons.load(Ordering::Acquire))
    }

    /// Reads what is remembered, once.
    pub(crate) async fn load(&self) {
        let load = async {
            let settings = self.settings.load_full();
            let value = self.store.get(&key_of(&settings)).await.ok().flatten();
            if let Some(stored) = value.and_then(|value| read(&value, &settings)) {
                let reasons: SeparationReasons = stored.reasons.into_iter().collect();
                self.reasons.fetch_or(reasons.0, Ordering::Relaxed);
                let mut lists_equally = self.lists_equally.lock();
                *lists_equally = lists_equally.take().or(stored.lists_equally);
            }
        };
        self.loaded.get_or_init(|| load).await;
    }

    /// Records why clients cannot share as before; the store is updated in the background. The
    /// shared process goes on, with the clients that declare everything that it was declared.
    pub(crate) fn require(&self, reason: SeparationReason) {
        if SeparationReasons::NONE.with(reason).by_capabilities() && self.declares_all() {
            self.is_plain_apart.store(true, Ordering::Release);
        }
        let before = self.reasons.fetch_or(reason.bit(), Ordering::AcqRel);
        if SeparationReasons(before).has(reason) {
            return;
        }
        let (server, why) = (self.settings.load().name.clone(), reason.as_str());
        log::info!(server = server.as_str(), why; "server needs further processes or connections");
        self.log.push(LogSource::Gateway, why);
        self.keep();
    }

    /// Whether clients without capabilities have a process of their own, because the shared one was
    /// declared capabilities.
    pub(crate) fn is_plain_apart(&self) -> bool {
        self.is_plain_apart.load(Ordering::Acquire)
    }

    /// Lets clients without capabilities use the shared process again, which is declared nothing.
    pub(crate) fn rejoin_plain(&self) {
        self.is_plain_apart.store(false, Ordering::Release);
    }

    pub(crate) fn comparison(&self) -> Comparison {
        *self.comparison.borrow()
    }

    /// Since when it is being found out whether clients without capabilities see the shared lists.
    pub(crate) fn comparing_since(&self) -> Option<Instant> {
        match self.comparison() {
            Comparison::Settled => None,
            Comparison::Due(since) | Comparison::Running(since) => Some(since),
        }
    }

    /// Requests the comparison again if it is due: when the shared process listed, the server may
    /// not have been in use yet.
    pub(crate) fn request_comparison(&self) {
        if matches!(self.comparison(), Comparison::Due(_)) {
            self.comparison_due.notify_one();
        }
    }

    /// Takes on the comparison; returns whether it was due.
    pub(crate) fn take_comparison(&self) -> bool {
        self.comparison.send_if_modified(|comparison| {
            let Comparison::Due(since) = *comparison else {
                return false;
            };
            *comparison = Comparison::Running(since);
            true
        })
    }

    /// Ends the comparison, and records what it showed of this version.
    pub(crate) fn end_comparison(&self, compared: Option<(&Arc<ServerPart>, Compared)>) {
        if let Some((part, compared)) = compared {
            self.on_compared(version_of(part), compared);
        }
        self.comparison.send_replace(Comparison::Settled);
    }

    fn on_compared(&self, version: &str, compared: Compared) {
        let version = Some(version.to_owned());
        match compared {
            Compared::Equal => {
                *self.lists_equally.lock() = version;
                self.keep();
            }
            Compared::Different => self.require(SeparationReason::ListsDiffer),
            Compared::Failed => {
                *self.not_comparable.lock() = version;
                let (server, why) = (
                    self.settings.load().name.clone(),
                    "no second process could be started to compare lists",
                );
                log::info!(server = server.as_str(); "{why}; all clients see the shared list");
                self.log.push(LogSource::Gateway, why);
            }
        }
    }

    /// Completes when [`Self::comparing_since`] is `None`.
    pub(crate) async fn settled(&self) {
        let mut comparison = self.comparison.subscribe();
        // This fails only without a sender, and `self` holds one.
        drop(comparison.wait_for(|it| *it == Comparison::Settled).await);
    }

    /// Whether it needs no comparison how the lists of this version depend on capabilities.
    fn is_settled(&self, version: &str) -> bool {
        let is_of = |known: &Mutex<Option<String>>| known.lock().as_deref() == Some(version);
        self.reasons().by_capabilities()
            || is_of(&self.lists_equally)
            || is_of(&self.not_comparable)
    }

    fn keep(&self) {
        let settings = self.settings.load_full();
        let kept = StoredSeparation {
            identity: settings.identity(),
            reasons: self.reasons().iter().collect(),
            lists_equally: self.lists_equally.lock().clone(),
        };
        let value = RawJson::from_value(&kept).as_bytes().clone();
        let (store, key) = (self.store.clone(), key_of(&settings));
        actix_rt::spawn(async move {
            if let Err(error) = store.put(&key, value, Some(REMEMBERED)).await {
                log::warn!(error:%; "could not persist which processes the server needs");
            }
        });
    }

    /// Records that the shared process starts, which decides what it is declared. No client has state
    /// in it.
    pub(crate) fn shared_opens(&self) {
        let declares_all = !self.reasons().by_capabilities();
        self.declares_all.store(declares_all, Ordering::Relaxed);
        if let Some(former) = self.claims.lock().remove(&ConnectionOwner::Shared) {
            *self.former_claimant.lock() = Some(former);
        }
    }

    /// Records that the shared process first listed its items, all of them if `is_whole`. They are
    /// compared with those that the program lists without capabilities, unless that is known.
    pub(crate) fn shared_listed(&self, part: &ServerPart, is_whole: bool) {
        self.former_claimant.lock().take();
        let is_due = is_whole
            && self.declares_all()
            && part.revision.era() == Era::Legacy
            && !self.is_settled(version_of(part))
            && self.comparison() == Comparison::Settled;
        if is_due {
            let due = Comparison::Due(Instant::now());
            self.comparison.send_replace(due);
            self.comparison_due.notify_one();
        }
    }

    /// Whether the shared process was declared what any client can answer.
    pub(crate) fn declares_all(&self) -> bool {
        self.declares_all.load(Ordering::Relaxed)
    }

    /// Assigns a shared connection to this session, or to the call of a client without one, unless
    /// another session has it.
    pub(crate) fn claim(&self, owner: ConnectionOwner, session: Option<SessionId>) {
        let session = session.unwrap_or(SESSIONLESS);
        self.claims.lock().entry(owner).or_insert(session);
    }

    /// The session that has this connection.
    pub(crate) fn claimant(&self, owner: &ConnectionOwner) -> Option<SessionId> {
        if self.reasons() == SeparationReasons::NONE {
            return None;
        }
        let claimant = self.claims.lock().get(owner).copied();
        let former = || *self.former_claimant.lock();
        claimant.or_else(|| former().filter(|_| *owner == ConnectionOwner::Shared))
    }

    /// Whether the shared process has the roots of a client without a session, and so serves no
    /// other client.
    pub(crate) fn is_of_sessionless(&self) -> bool {
        self.claimant(&ConnectionOwner::Shared) == Some(SESSIONLESS)
    }

    /// Releases the connections of a session that ended. The shared one is released when its process
    /// was replaced.
    pub(crate) fn release(&self, session: SessionId) {
        if self.reasons() != SeparationReasons::NONE {
            self.claims.lock().retain(|owner, claimant| {
                *claimant != session || *owner == ConnectionOwner::Shared
            });
        }
    }
}

/// The servers that the store remembers as separated. An entry of a different server with the same
/// name does not count.
pub async fn separated_servers<'a>(
    store: &dyn Store,
    servers: &'a [Arc<ServerSettings>],
) -> HashMap<&'a ServerName, SeparationReasons> {
    let entries = store.scan(SEPARATION).await.unwrap_or_default();
    let entries = entries.into_iter().map(|entry| (entry.key, entry.value));
    let kept: HashMap<String, _> = entries.collect();
    let separated = servers.iter().filter_map(|server| {
        let stored = read(kept.get(&key_of(server))?, server)?;
        Some((&server.name, stored.reasons.into_iter().collect()))
    });
    separated.collect()
}

fn version_of(part: &ServerPart) -> &str {
    let version = part.info.get("version").and_then(Value::as_str);
    version.unwrap_or_default()
}

fn read(value: &[u8], settings: &ServerSettings) -> Option<StoredSeparation> {
    let stored: StoredSeparation = serde_json::from_slice(value).ok()?;
    (stored.identity == settings.identity()).then_some(stored)
}

fn key_of(settings: &ServerSettings) -> String {
    format!("{SEPARATION}{}", settings.name)
}
