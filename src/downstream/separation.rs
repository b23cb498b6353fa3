//! Remembers which servers cannot serve all clients with one process or connection, and why
//! (B-SHARE-01).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{OnceCell, watch};
use uuid::Uuid;

use crate::downstream::connection_key::ConnectionOwner;
use crate::downstream::settings::ServerSettings;
use crate::id::{ServerName, SessionId};
use crate::protocol::{DeclaredCapabilities, RawJson};
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
                "it lists differently for clients with other capabilities, so clients share it only with equal capabilities"
            }
            Self::AsksUndeclared => {
                "it sent a request during a call of a client that cannot answer it, so clients share it only with equal capabilities"
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

/// What is known about one server. Shared by all its connections.
pub(crate) struct Separation {
    settings: Arc<ArcSwap<ServerSettings>>,
    store: Arc<dyn Store>,
    log: LogRing,
    loaded: OnceCell<()>,
    reasons: AtomicU8,
    /// The version of the server that listed the same with and without capabilities.
    lists_equally: Mutex<Option<String>>,
    /// Whether the shared process was declared what any client can answer.
    declares_all: AtomicBool,
    /// Whether the lists of the shared process are still to be compared.
    is_comparison_due: AtomicBool,
    is_comparing: watch::Sender<bool>,
    /// Sessions that keep the connection which they shared before, because its process has state
    /// for them.
    claims: Mutex<HashMap<ConnectionOwner, SessionId>>,
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
    ) -> Self {
        Self {
            settings,
            store,
            log,
            loaded: OnceCell::new(),
            reasons: AtomicU8::new(0),
            lists_equally: Mutex::default(),
            declares_all: AtomicBool::new(false),
            is_comparison_due: AtomicBool::new(false),
            is_comparing: watch::Sender::new(false),
            claims: Mutex::default(),
        }
    }

    pub(crate) fn reasons(&self) -> SeparationReasons {
        SeparationReasons(self.reasons.load(Ordering::Relaxed))
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

    /// Records why clients cannot share as before; the store is updated in the background.
    pub(crate) fn require(&self, reason: SeparationReason) {
        let before = self.reasons.fetch_or(reason.bit(), Ordering::Relaxed);
        if SeparationReasons(before).has(reason) {
            return;
        }
        let (server, why) = (self.settings.load().name.clone(), reason.as_str());
        log::info!(server = server.as_str(), why; "server needs further processes or connections");
        self.log.push(LogSource::Gateway, why);
        self.keep();
    }

    /// Records that this version of the server lists the same with and without capabilities.
    pub(crate) fn lists_equally(&self, version: &str) {
        *self.lists_equally.lock() = Some(version.to_owned());
        self.keep();
    }

    pub(crate) fn is_comparison_due(&self) -> bool {
        self.is_comparison_due.load(Ordering::Relaxed)
    }

    /// Takes on the comparison; returns whether it was due.
    pub(crate) fn take_comparison(&self) -> bool {
        let was_due = self.is_comparison_due.swap(false, Ordering::Relaxed);
        if was_due {
            self.is_comparing.send_replace(true);
        }
        was_due
    }

    /// Records that the comparison ended, whatever it showed.
    pub(crate) fn end_comparison(&self) {
        self.is_comparing.send_replace(false);
    }

    pub(crate) fn is_comparing(&self) -> bool {
        *self.is_comparing.borrow()
    }

    /// Completes when no comparison runs.
    pub(crate) async fn compared(&self) {
        let mut comparing = self.is_comparing.subscribe();
        // This fails only without a sender, and `self` holds one.
        drop(comparing.wait_for(|is_comparing| !is_comparing).await);
    }

    /// Leaves the comparison to the next client.
    pub(crate) fn put_comparison_off(&self) {
        self.is_comparison_due.store(true, Ordering::Relaxed);
    }

    /// Whether it is known how the lists of this version depend on capabilities.
    pub(crate) fn is_compared(&self, version: &str) -> bool {
        self.reasons().by_capabilities() || self.lists_equally.lock().as_deref() == Some(version)
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
        self.is_comparison_due
            .store(declares_all, Ordering::Relaxed);
        self.claims.lock().remove(&ConnectionOwner::Shared);
    }

    /// Whether the shared process must be replaced: it was declared capabilities
    /// that its clients do not have, or has the roots of a client without a session.
    pub(crate) fn is_outdated(&self) -> bool {
        let is_too_able = self.reasons().by_capabilities();
        let claimant = self.claimant(&ConnectionOwner::Shared);
        self.declares_all() && claimant.map_or(is_too_able, |it| it == SESSIONLESS)
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
        self.claims.lock().get(owner).copied()
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

/// What the store remembers about servers. An entry of a different server with the same name does
/// not count.
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

fn read(value: &[u8], settings: &ServerSettings) -> Option<StoredSeparation> {
    let stored: StoredSeparation = serde_json::from_slice(value).ok()?;
    (stored.identity == settings.identity()).then_some(stored)
}

fn key_of(settings: &ServerSettings) -> String {
    format!("{SEPARATION}{}", settings.name)
}
