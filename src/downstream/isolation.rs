//! Whether each client of a server needs a connection of its own: the server asked a question that
//! could not be attributed to one of the clients that shared a connection (B-SHARE-01).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::downstream::settings::{ServerSettings, Sharing};
use crate::store::Store;

/// Where it is kept which servers are isolated.
const ISOLATED: &str = "isolated/";

/// The isolation of one server. Shared by all its connections.
pub(crate) struct Isolation {
    settings: Arc<ArcSwap<ServerSettings>>,
    store: Arc<dyn Store>,
    is_needed: AtomicBool,
}

impl Isolation {
    pub(crate) fn new(settings: Arc<ArcSwap<ServerSettings>>, store: Arc<dyn Store>) -> Self {
        Self {
            settings,
            store,
            is_needed: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed)
    }

    /// Reads what was remembered.
    pub(crate) async fn load(&self) {
        let settings = self.settings.load_full();
        if is_remembered(&*self.store, &settings).await {
            self.is_needed.store(true, Ordering::Relaxed);
        }
    }

    /// A question on a shared connection concerns one client only, and it is not known which. From
    /// now on each client has a connection of its own; nothing waits for the store.
    pub(crate) fn require(&self, method: &str) {
        let settings = self.settings.load();
        if settings.sharing == Sharing::Shared || self.is_needed.swap(true, Ordering::Relaxed) {
            return;
        }
        log::info!(server = settings.name.as_str(), method;
            "asks on a connection that clients share: from now on each client that can be asked has its own");
        let (store, key) = (self.store.clone(), key_of(&settings));
        let (value, remembered) = (identity(&settings), settings.limits.era_remembered);
        actix_rt::spawn(async move {
            if let Err(error) = store.put(&key, value, Some(remembered)).await {
                log::warn!(error:%; "that a server needs a connection for each client could not be kept");
            }
        });
    }
}

/// Whether the store says that each client of a server needs a connection of its own. A server of
/// the same name that was another one does not count.
pub async fn is_remembered(store: &dyn Store, settings: &ServerSettings) -> bool {
    let value = store.get(&key_of(settings)).await;
    value.is_ok_and(|value| value == Some(identity(settings)))
}

fn key_of(settings: &ServerSettings) -> String {
    format!("{ISOLATED}{}", settings.name)
}

fn identity(settings: &ServerSettings) -> Bytes {
    Bytes::from(settings.identity())
}
