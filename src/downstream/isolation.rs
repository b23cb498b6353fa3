//! Remembers servers whose clients each need their own connection, because the server asked a
//! question that could not be attributed to one of the clients sharing a connection (B-SHARE-01).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::downstream::connection_key::Audience;
use crate::downstream::settings::ServerSettings;
use crate::id::{ServerName, SessionId};
use crate::protocol::Method;
use crate::store::Store;

/// Prefix of isolated servers in the store.
const ISOLATED: &str = "isolated/";

/// How long a server's isolation is remembered.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// The isolation of one server. Shared by all its connections.
pub(crate) struct Isolation {
    settings: Arc<ArcSwap<ServerSettings>>,
    store: Arc<dyn Store>,
    is_needed: AtomicBool,
    /// Sessions that keep the connection which they shared before, because its process has state
    /// for them.
    claims: Mutex<HashMap<Audience, SessionId>>,
}

impl Isolation {
    pub(crate) fn new(settings: Arc<ArcSwap<ServerSettings>>, store: Arc<dyn Store>) -> Self {
        Self {
            settings,
            store,
            is_needed: AtomicBool::new(false),
            claims: Mutex::default(),
        }
    }

    pub(crate) fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed)
    }

    /// Reads the remembered isolation.
    pub(crate) async fn load(&self) {
        let settings = self.settings.load_full();
        let value = self.store.get(&key_of(&settings)).await;
        if value.is_ok_and(|value| value == Some(identity(&settings))) {
            self.is_needed.store(true, Ordering::Relaxed);
        }
    }

    /// Isolates the server, because a question on a shared connection is for one client and it is
    /// unknown for which. From now on, each client has its own connection; the store is updated in
    /// the background.
    pub(crate) fn require(&self, method: &Method) {
        let settings = self.settings.load();
        if self.is_needed.swap(true, Ordering::Relaxed) {
            return;
        }
        log::info!(server = settings.name.as_str(), method:%;
            "server sent a question over a shared connection; from now on each client that can be asked gets its own connection");
        let (store, key) = (self.store.clone(), key_of(&settings));
        let value = identity(&settings);
        actix_rt::spawn(async move {
            if let Err(error) = store.put(&key, value, Some(REMEMBERED)).await {
                log::warn!(error:%; "could not persist that the server needs per-client connections");
            }
        });
    }

    /// Assigns the audience's connection to this session, unless another session has it.
    pub(crate) fn claim(&self, audience: &Audience, session: SessionId) {
        self.claims
            .lock()
            .entry(audience.clone())
            .or_insert(session);
    }

    /// The session that has this audience's connection.
    pub(crate) fn claimant(&self, audience: &Audience) -> Option<SessionId> {
        if !self.is_needed() {
            return None;
        }
        self.claims.lock().get(audience).copied()
    }

    /// Releases the connections of a session that ended.
    pub(crate) fn release(&self, session: SessionId) {
        if self.is_needed() {
            self.claims
                .lock()
                .retain(|_, claimant| *claimant != session);
        }
    }
}

/// The servers that the store lists as isolated. An entry of a different server with the same name
/// does not count.
pub async fn isolated_servers<'a>(
    store: &dyn Store,
    servers: &'a [Arc<ServerSettings>],
) -> HashSet<&'a ServerName> {
    let entries = store.scan(ISOLATED).await.unwrap_or_default();
    let kept: HashMap<String, Bytes> = entries
        .into_iter()
        .map(|entry| (entry.key, entry.value))
        .collect();
    let isolated = servers
        .iter()
        .filter(|server| kept.get(&key_of(server)) == Some(&identity(server)));
    isolated.map(|server| &server.name).collect()
}

fn key_of(settings: &ServerSettings) -> String {
    format!("{ISOLATED}{}", settings.name)
}

fn identity(settings: &ServerSettings) -> Bytes {
    Bytes::from(settings.identity())
}
