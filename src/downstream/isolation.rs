//! Whether each client of a server needs a connection of its own: the server asked a question that
//! could not be attributed to one of the clients that shared a connection (B-SHARE-01).

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

/// Where it is kept which servers are isolated.
const ISOLATED: &str = "isolated/";

/// How long it is kept.
const REMEMBERED: Duration = Duration::from_secs(30 * 24 * 3600);

/// The isolation of one server. Shared by all its connections.
pub(crate) struct Isolation {
    settings: Arc<ArcSwap<ServerSettings>>,
    store: Arc<dyn Store>,
    is_needed: AtomicBool,
    /// Sessions that keep the connection which they shared until then, so that what the process
    /// knows of them is not lost.
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

    /// Reads what was remembered.
    pub(crate) async fn load(&self) {
        let settings = self.settings.load_full();
        let value = self.store.get(&key_of(&settings)).await;
        if value.is_ok_and(|value| value == Some(identity(&settings))) {
            self.is_needed.store(true, Ordering::Relaxed);
        }
    }

    /// A question on a shared connection concerns one client only, and it is not known which. From
    /// now on each client has a connection of its own; nothing waits for the store.
    pub(crate) fn require(&self, method: &Method) {
        let settings = self.settings.load();
        if self.is_needed.swap(true, Ordering::Relaxed) {
            return;
        }
        log::info!(server = settings.name.as_str(), method:%;
            "asks on a connection that clients share: from now on each client that can be asked has its own");
        let (store, key) = (self.store.clone(), key_of(&settings));
        let value = identity(&settings);
        actix_rt::spawn(async move {
            if let Err(error) = store.put(&key, value, Some(REMEMBERED)).await {
                log::warn!(error:%; "that a server needs a connection for each client could not be kept");
            }
        });
    }

    /// The connection of this audience is this session's from now on, unless it is another's.
    pub(crate) fn claim(&self, audience: &Audience, session: SessionId) {
        self.claims
            .lock()
            .entry(audience.clone())
            .or_insert(session);
    }

    /// Whose the connection of this audience is, if it is one session's.
    pub(crate) fn claimant(&self, audience: &Audience) -> Option<SessionId> {
        if !self.is_needed() {
            return None;
        }
        self.claims.lock().get(audience).copied()
    }

    /// A session has left.
    pub(crate) fn release(&self, session: SessionId) {
        if self.is_needed() {
            self.claims
                .lock()
                .retain(|_, claimant| *claimant != session);
        }
    }
}

/// Those of the servers of which the store says that each client needs a connection of its own. A
/// server of the same name that was another one does not count.
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
