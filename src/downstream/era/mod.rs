//! Detects the era of the protocol that a server speaks, and remembers it for a while (B-ERA-01).
//!
//! - `verdict`: the era that an answer proves
//! - `modern`: messages of the sessionless era

pub(crate) mod modern;
pub(crate) mod verdict;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::downstream::settings::{EraChoice, ServerSettings};
use crate::protocol::{Era, RawJson};
use crate::store::Store;

/// Prefix of the verdicts in the store.
const ERAS: &str = "era/";

/// Known facts about the era of one server. Shared by all its connections.
pub(crate) struct ServerEra {
    settings: Arc<ArcSwap<ServerSettings>>,
    store: Arc<dyn Store>,
    /// Whether each connection is a process, which keeps the era of its first message.
    starts_process: bool,
    known: Mutex<EraMemory>,
    /// Live connections in the known era, which keep it from expiring.
    living: AtomicUsize,
}

#[derive(Debug, Default)]
struct EraMemory {
    era: Option<Era>,
    until: Option<Instant>,
    /// Whether the remembered era proved wrong; the store is then ignored.
    is_doubted: bool,
    /// Whether a process exited after it was asked for its era.
    ended_when_asked: bool,
    /// Whether a server of the newer era also speaks the older one, if that was tried.
    speaks_older: Option<bool>,
    /// Whether the server answered the last HTTP handshake with a session id.
    has_sessions: Option<bool>,
    /// Era to try next: `server/discover` was temporarily refused, as by servers that do not know
    /// it, or a process exited over `initialize`.
    guess: Option<Era>,
}

/// Known facts about the era of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EraFacts {
    /// The era that the server answered in, or the configured one.
    pub(crate) era: Option<Era>,
    /// Whether a server of the newer era also has a handshake, if that was tried.
    pub(crate) speaks_older: Option<bool>,
    /// Whether the server answers an HTTP handshake with a session id, if there was one.
    pub(crate) has_sessions: Option<bool>,
}

/// Counts a live connection until it is dropped.
#[derive(Debug)]
pub(crate) struct LiveConnection(Arc<ServerEra>);

impl Drop for LiveConnection {
    fn drop(&mut self) {
        self.0.living.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Knowledge of a server's era before it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownEra {
    /// The only era that the gateway uses with the server.
    Configured(Era),
    /// Detected earlier, or probable: the first question is of this era.
    Remembered(Era),
    /// The other era's question was temporarily refused or ended the process, so this one is tried.
    Guessed(Era),
    Unknown,
}

#[derive(Serialize, Deserialize)]
struct StoredEra {
    /// [`ServerSettings::identity`]: a verdict on a different server does not count.
    identity: String,
    era: Era,
    #[serde(default)]
    speaks_older: Option<bool>,
    #[serde(default)]
    has_sessions: Option<bool>,
}

impl fmt::Debug for ServerEra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerEra")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl ServerEra {
    pub(crate) fn new(
        settings: Arc<ArcSwap<ServerSettings>>,
        store: Arc<dyn Store>,
        starts_process: bool,
    ) -> Self {
        Self {
            settings,
            store,
            starts_process,
            known: Mutex::default(),
            living: AtomicUsize::new(0),
        }
    }

    /// The detected or configured era.
    pub(crate) fn current(&self) -> Option<Era> {
        configured(self.settings.load().era).or(self.known.lock().era)
    }

    /// Known facts about the server, for the choice of a connection.
    pub(crate) fn facts(&self) -> EraFacts {
        let configured = configured(self.settings.load().era);
        let known = self.known.lock();
        EraFacts {
            era: configured.or(known.era),
            speaks_older: known.speaks_older,
            has_sessions: known.has_sessions,
        }
    }

    /// Looks up the era with which a connection starts; reads the store only once.
    pub(crate) async fn look_up(&self) -> KnownEra {
        if let Some(era) = configured(self.settings.load().era) {
            return KnownEra::Configured(era);
        }
        self.load().await;
        if let Some(era) = self.usable() {
            KnownEra::Remembered(era)
        } else if self.known.lock().ended_when_asked {
            KnownEra::Remembered(Era::Legacy)
        } else {
            let guess = self.known.lock().guess;
            guess.map_or(KnownEra::Unknown, KnownEra::Guessed)
        }
    }

    /// Reads the remembered era, so that a connection can be chosen for a server that was never
    /// started.
    pub(crate) async fn load(&self) {
        if self.usable().is_some() || self.known.lock().is_doubted {
            return;
        }
        if let Some((kept, left)) = self.recall().await {
            self.found(kept.era, (kept.speaks_older, kept.has_sessions), left);
        }
    }

    /// Records that the server answered in this era; the store is updated in the background.
    pub(crate) fn remember(&self, era: Era) {
        // A program was asked for a handshake first.
        let speaks_older = (self.starts_process && era == Era::Modern).then_some(false);
        if self.usable() != Some(era) {
            self.keep(era, (speaks_older, None));
        }
    }

    /// Whether a server of the newer era also speaks the older one, if that was tried.
    pub(crate) fn speaks_older(&self) -> Option<bool> {
        self.known.lock().speaks_older
    }

    /// Records the outcome of an older-era connection to a server of the newer era (B-ERA-02).
    pub(crate) fn tried_older(&self, speaks_older: bool) {
        let speaks_older = Some(speaks_older);
        let (era, known, has_sessions) = {
            let known = self.known.lock();
            (known.era, known.speaks_older, known.has_sessions)
        };
        if era == Some(Era::Modern) && known != speaks_older {
            self.keep(Era::Modern, (speaks_older, has_sessions));
        }
    }

    /// Records whether an HTTP handshake returned a session id.
    pub(crate) fn saw_handshake(&self, has_sessions: bool) {
        let has_sessions = Some(has_sessions);
        let (era, speaks_older) = {
            let mut known = self.known.lock();
            if known.has_sessions == has_sessions {
                return;
            }
            known.has_sessions = has_sessions;
            (known.era, known.speaks_older)
        };
        // A presumed era is not stored.
        if let Some(era) = era.filter(|era| self.usable() == Some(*era)) {
            self.keep(era, (speaks_older, has_sessions));
        }
    }

    /// Stores the era, whether the server also has a handshake, and whether that opens a session.
    fn keep(&self, era: Era, (speaks_older, has_sessions): (Option<bool>, Option<bool>)) {
        let settings = self.settings.load();
        if settings.era != EraChoice::Auto {
            return;
        }
        let remembered = settings.limits.era_remembered;
        self.found(era, (speaks_older, has_sessions), remembered);
        let kept = StoredEra {
            identity: settings.identity(),
            era,
            speaks_older,
            has_sessions,
        };
        let value = RawJson::from_value(&kept).as_bytes().clone();
        let (store, server) = (self.store.clone(), settings.name.clone());
        actix_rt::spawn(async move {
            let key = format!("{ERAS}{server}");
            if let Err(error) = store.put(&key, value, Some(remembered)).await {
                log::warn!(server = server.as_str(), error:%; "could not persist the server's era");
            }
        });
    }

    /// Uses this era for the current connection only, because the server may know another one; the
    /// next connection asks again.
    pub(crate) fn presume(&self, era: Era) {
        if self.usable().is_none() {
            let mut known = self.known.lock();
            known.era = Some(era);
            known.guess = None;
        }
    }

    /// Discards a verdict that failed in use; the next connection asks again.
    pub(crate) fn forget(&self) {
        self.known.lock().forget();
    }

    /// Records that the first question was temporarily refused. The next connection sends the other
    /// one, so that each attempt costs one request and a server of either era is detected.
    pub(crate) fn refused_for_now(&self, asked: Era) {
        self.known.lock().guess = (asked == Era::Modern).then_some(Era::Legacy);
    }

    /// Records that a process exited after `initialize`; the next one is first asked for the newer
    /// era.
    pub(crate) fn ended_over_handshake(&self) {
        self.known.lock().guess = Some(Era::Modern);
    }

    /// Records that a process exited after `server/discover`; the next one first gets a handshake.
    pub(crate) fn ended_when_asked(&self) {
        self.known.lock().ended_when_asked = true;
    }

    /// Keeps the verdict from expiring while the connection is live.
    pub(crate) fn live(self: &Arc<Self>) -> LiveConnection {
        self.living.fetch_add(1, Ordering::SeqCst);
        LiveConnection(self.clone())
    }

    async fn recall(&self) -> Option<(StoredEra, Duration)> {
        let settings = self.settings.load_full();
        let key = format!("{ERAS}{}", settings.name);
        let entries = self.store.scan(&key).await.ok()?;
        let entry = entries.into_iter().find(|entry| entry.key == key)?;
        let kept: StoredEra = serde_json::from_slice(&entry.value).ok()?;
        let same = kept.identity == settings.identity();
        // An earlier version asked programs for the newer era first.
        let is_tried = kept.era == Era::Legacy || kept.speaks_older == Some(false);
        let counts = same && (is_tried || !self.starts_process);
        counts.then_some((kept, entry.expires_in?))
    }

    fn found(
        &self,
        era: Era,
        (speaks_older, has_sessions): (Option<bool>, Option<bool>),
        remembered: Duration,
    ) {
        *self.known.lock() = EraMemory {
            speaks_older,
            has_sessions,
            ..EraMemory::found(era, Instant::now() + remembered)
        };
    }

    fn usable(&self) -> Option<Era> {
        let is_in_use = self.living.load(Ordering::SeqCst) > 0;
        self.known.lock().usable(Instant::now(), is_in_use)
    }
}

impl EraMemory {
    fn found(era: Era, until: Instant) -> Self {
        Self {
            era: Some(era),
            until: Some(until),
            ..Self::default()
        }
    }

    fn forget(&mut self) {
        self.until = None;
        self.is_doubted = true;
        self.ended_when_asked = false;
        self.speaks_older = None;
        self.has_sessions = None;
        self.guess = None;
    }

    fn usable(&self, now: Instant, is_in_use: bool) -> Option<Era> {
        let holds = self.until.is_some_and(|until| is_in_use || until > now);
        self.era.filter(|_| holds)
    }
}

fn configured(choice: EraChoice) -> Option<Era> {
    match choice {
        EraChoice::Auto => None,
        EraChoice::Legacy => Some(Era::Legacy),
        EraChoice::Modern => Some(Era::Modern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_expires_but_not_beside_a_living_connection() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(EraMemory::default().usable(start, true), None);
        let mut known = EraMemory::found(Era::Modern, after(10));
        assert_eq!(known.usable(after(9), false), Some(Era::Modern));
        assert_eq!(known.usable(after(11), true), Some(Era::Modern));
        assert_eq!(known.usable(after(11), false), None);
        known.forget();
        assert_eq!(
            (known.usable(start, true), known.era),
            (None, Some(Era::Modern))
        );
    }
}
