//! What servers offered last, kept in the store, so that a fresh process answers before any of
//! them is up.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::catalog::{IngestLimits, ServerPart};
use crate::downstream::ServerSettings;
use crate::id::ServerName;
use crate::protocol::RawJson;
use crate::store::{Store, StoreError, WallClock};

/// Where the parts of all servers are in the store.
const PARTS: &str = "catalog/";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept<'a> {
    /// When the server was listed, in milliseconds since 1970.
    listed_at: u64,
    /// [`ServerSettings::identity`]: a part of what was once another server is not shown.
    identity: String,
    #[serde(borrow)]
    part: &'a RawValue,
}

fn to_bytes(part: &ServerPart, identity: &str, listed_at: u64) -> Option<Bytes> {
    let stored = part.to_stored();
    let kept = Kept {
        listed_at,
        identity: identity.to_owned(),
        part: serde_json::from_str(stored.as_str()).ok()?,
    };
    serde_json::to_vec(&kept).ok().map(Bytes::from)
}

fn from_bytes(bytes: &[u8], server: &ServerSettings) -> Option<ServerPart> {
    let kept: Kept<'_> = serde_json::from_slice(bytes).ok()?;
    if kept.identity != server.identity() {
        return None;
    }
    let text = Bytes::copy_from_slice(kept.part.get().as_bytes());
    let limits = IngestLimits {
        items: server.limits.list_items_max,
        ..Default::default()
    };
    let part = ServerPart::from_stored(&RawJson::try_new(text).ok()?, &limits)?;
    (*part.server() == server.name).then_some(part)
}

/// The parts of these servers, as the process before this one listed them last. Parts of servers
/// that are not `configured` any more are removed.
///
/// # Errors
///
/// Fails when the store cannot be used.
pub async fn load_parts(
    store: &dyn Store,
    servers: &[Arc<ServerSettings>],
    configured: impl Fn(&str) -> bool,
) -> Result<Vec<Arc<ServerPart>>, StoreError> {
    let mut parts = Vec::new();
    for entry in store.scan(PARTS).await? {
        let name = entry.key.strip_prefix(PARTS).unwrap_or_default();
        if !configured(name) {
            store.delete(&entry.key).await?;
            continue;
        }
        let mut servers = servers.iter();
        let server = servers.find(|server| server.name.as_str() == name);
        let part = server.and_then(|server| from_bytes(&entry.value, server));
        parts.extend(part.map(Arc::new));
    }
    Ok(parts)
}

/// Keeps what servers offer.
pub struct PartKeeper {
    store: Arc<dyn Store>,
    now: WallClock,
    identities: BTreeMap<ServerName, String>,
    /// Servers that this process has listed: their parts are younger than those it found.
    listed: HashSet<ServerName>,
}

impl PartKeeper {
    pub fn new(store: Arc<dyn Store>, now: WallClock) -> Self {
        Self {
            store,
            now,
            identities: BTreeMap::new(),
            listed: HashSet::new(),
        }
    }

    /// The servers that there are from now on.
    pub(crate) fn configure(&mut self, identities: BTreeMap<ServerName, String>) {
        self.listed.retain(|name| identities.contains_key(name));
        self.identities = identities;
    }

    /// A server was listed; nothing waits for the store.
    pub(crate) fn keep(&mut self, part: &Arc<ServerPart>, changed: bool) {
        let server = part.server();
        let first = self.listed.insert(server.clone());
        let Some(identity) = self.identities.get(server) else {
            return;
        };
        if !changed && !first {
            return;
        }
        let (store, key) = (self.store.clone(), format!("{PARTS}{server}"));
        let (part, identity, listed_at) = (part.clone(), identity.clone(), (self.now)());
        actix_rt::spawn(async move {
            let Some(value) = to_bytes(&part, &identity, listed_at) else {
                return;
            };
            if let Err(error) = store.put(&key, value, None).await {
                log::warn!(server = part.server().as_str(), error:%; "lists could not be kept");
            }
        });
    }
}
