//! Stores the last items of each server, so that a fresh process can respond before any server is
//! up.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::catalog::{IngestLimits, ServerPart};
use crate::downstream::ServerSettings;
use crate::id::ServerName;
use crate::masking::{LiveSecrets, MASK};
use crate::protocol::RawJson;
use crate::store::{Store, StoreError, WallClock};

/// Key prefix of the stored parts.
const PARTS: &str = "catalog/";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredPart<'a> {
    /// When the server was listed, in milliseconds since 1970.
    listed_at: u64,
    /// [`ServerSettings::identity`]: a part stored for a different server with this name is not
    /// shown.
    identity: String,
    #[serde(borrow)]
    part: &'a RawValue,
}

fn to_bytes(
    part: &ServerPart,
    (identity, listed_at): (&str, u64),
    secrets: &LiveSecrets,
) -> Option<Bytes> {
    let stored = part.to_stored();
    let masked = secrets.replaced(stored.as_str(), MASK);
    let kept = StoredPart {
        listed_at,
        identity: identity.to_owned(),
        part: serde_json::from_str(masked.as_deref().unwrap_or(stored.as_str())).ok()?,
    };
    serde_json::to_vec(&kept).ok().map(Bytes::from)
}

/// The part, and when it was listed.
fn from_bytes(bytes: &[u8], server: &ServerSettings) -> Option<(ServerPart, u64)> {
    let kept: StoredPart<'_> = serde_json::from_slice(bytes).ok()?;
    if kept.identity != server.identity() {
        return None;
    }
    let text = Bytes::copy_from_slice(kept.part.get().as_bytes());
    let limits = IngestLimits {
        items: server.limits.list_items_max,
        ..Default::default()
    };
    let part = ServerPart::from_stored(&RawJson::try_new(text).ok()?, &limits)?;
    (*part.server() == server.name).then_some((part, kept.listed_at))
}

/// The parts of these servers as last listed by the previous process, each with its time in
/// milliseconds since 1970. Parts of servers that are no longer `configured` are removed.
///
/// # Errors
///
/// Fails if the store cannot be used.
pub async fn load_parts(
    store: &dyn Store,
    servers: &[Arc<ServerSettings>],
    configured: impl Fn(&str) -> bool,
) -> Result<Vec<(Arc<ServerPart>, u64)>, StoreError> {
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
        parts.extend(part.map(|(part, listed_at)| (Arc::new(part), listed_at)));
    }
    Ok(parts)
}

/// Stores what servers offer.
pub struct PartStore {
    store: Arc<dyn Store>,
    now: WallClock,
    /// Secrets that are masked if a server writes them into its lists.
    secrets: LiveSecrets,
    identities: BTreeMap<ServerName, String>,
    /// Servers that this process has listed: their parts are newer than the stored ones.
    listed: HashSet<ServerName>,
}

impl PartStore {
    pub fn new(store: Arc<dyn Store>, now: WallClock) -> Self {
        Self {
            store,
            now,
            secrets: LiveSecrets::default(),
            identities: BTreeMap::new(),
            listed: HashSet::new(),
        }
    }

    /// Sets the secrets to mask.
    #[must_use]
    pub fn without(self, secrets: LiveSecrets) -> Self {
        Self { secrets, ..self }
    }

    /// Current time in milliseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        (self.now)()
    }

    /// Sets the identities of the configured servers.
    pub(crate) fn configure(&mut self, identities: BTreeMap<ServerName, String>) {
        // The part of a changed server was stored under its old identity, so it must be stored
        // again.
        let is_same = |name: &ServerName| identities.get(name) == self.identities.get(name);
        self.listed
            .retain(|name| identities.contains_key(name) && is_same(name));
        self.identities = identities;
    }

    /// Stores the list of a server, read at `listed_at` in milliseconds since 1970, in the
    /// background.
    pub(crate) fn keep(&mut self, part: &Arc<ServerPart>, changed: bool, listed_at: u64) {
        let server = part.server();
        let first = self.listed.insert(server.clone());
        let Some(identity) = self.identities.get(server) else {
            return;
        };
        if !changed && !first {
            return;
        }
        let (store, key) = (self.store.clone(), format!("{PARTS}{server}"));
        let (part, identity) = (part.clone(), identity.clone());
        let secrets = self.secrets.clone();
        actix_rt::spawn(async move {
            let Some(value) = to_bytes(&part, (&identity, listed_at), &secrets) else {
                return;
            };
            if let Err(error) = store.put(&key, value, None).await {
                log::warn!(server = part.server().as_str(), error:%; "server lists could not be stored");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::catalog::{ItemKind, NameSettings};
    use crate::downstream::{EraChoice, ServerLimits, Sharing, StartMode, TransportSettings};
    use crate::store::MemoryStore;
    use crate::supervision::Settings;
    use crate::transport::StdioSettings;

    fn server(name: &str, command: &str, secret: &str) -> Arc<ServerSettings> {
        let secret = || SecretString::from(secret.to_owned());
        Arc::new(ServerSettings {
            name: ServerName::try_new(name).unwrap(),
            transport: TransportSettings::Stdio(StdioSettings {
                command: command.to_owned(),
                args: vec![secret()],
                env: BTreeMap::from([("TOKEN".to_owned(), secret())]),
                inherit_env: Default::default(),
                cwd: None,
                line_max: 1,
                write_queue_max: 1,
                stop_grace: Default::default(),
                limits: Default::default(),
                sandbox: Default::default(),
            }),
            supervision: Settings::default(),
            era: EraChoice::Auto,
            start: StartMode::Eager,
            sharing: Sharing::Auto,
            credentials: Default::default(),
            roots: Vec::new(),
            names: NameSettings::default(),
            resilience: Default::default(),
            faults: None,
            dependencies: Default::default(),
            rollout: None,
            recorder: Default::default(),
            limits: ServerLimits::default(),
        })
    }

    #[test]
    fn a_token_in_a_description_is_not_kept() {
        let secrets = LiveSecrets::of(["canary-token"]);
        let tool = r#"{"name":"t","description":"a canary-token","inputSchema":{"type":"object"}}"#;
        let tool = RawJson::try_new(Bytes::from_static(tool.as_bytes())).unwrap();
        let part = ServerPart::new(ServerName::try_new("a").unwrap());
        let tools = std::slice::from_ref(&tool);
        let part = part.with_list(ItemKind::Tools, tools, &IngestLimits::default());
        let bytes = to_bytes(&part, ("a", 7), &secrets).unwrap();
        let kept = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(!kept.contains("canary") && kept.contains("a ***"), "{kept}");
    }

    #[tokio::test]
    async fn parts_are_restored_only_for_the_same_server() {
        let store = MemoryStore::default();
        let [same, other, gone] = ["same", "other", "gone"].map(|name| server(name, "c", "s"));
        let tool = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
        let tool = RawJson::try_new(Bytes::from_static(tool.as_bytes())).unwrap();
        let mut written = Vec::new();
        for server in [&same, &other, &gone] {
            let part = ServerPart::new(server.name.clone());
            let tools = std::slice::from_ref(&tool);
            let part = part.with_list(ItemKind::Tools, tools, &IngestLimits::default());
            let identity = server.identity();
            let bytes = to_bytes(&part, (&identity, 7), &LiveSecrets::default()).unwrap();
            let key = format!("{PARTS}{}", server.name);
            store.put(&key, bytes, None).await.unwrap();
            written.push(part);
        }
        // A server with a changed secret is still the same server; a server with a changed command
        // is not.
        let servers = [server("same", "c", "new"), server("other", "d", "s")];
        let parts = load_parts(&store, &servers, |name| name != "gone").await;
        let parts = parts.unwrap();
        assert_eq!(parts.len(), 1);
        assert_eq!((&*parts[0].0, parts[0].1), (&written[0], 7));
        let left = store.scan(PARTS).await.unwrap();
        assert_eq!(left.len(), 2);
    }

    #[tokio::test]
    async fn the_part_of_a_changed_server_is_stored_again() {
        let store = Arc::new(MemoryStore::default());
        let (server, changed) = (server("s", "c", "x"), server("s", "d", "x"));
        let part = Arc::new(ServerPart::new(server.name.clone()));
        let mut part_store = PartStore::new(store.clone(), || 7);
        tokio::task::LocalSet::new()
            .run_until(async {
                for settings in [&server, &changed] {
                    let identities = [(settings.name.clone(), settings.identity())];
                    part_store.configure(identities.into());
                    // The server lists the same items as before.
                    part_store.keep(&part, false, 7);
                    tokio::task::yield_now().await;
                }
            })
            .await;
        let found = load_parts(&*store, &[changed], |_| true).await.unwrap();
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn unreadable_parts_are_skipped() {
        let server = server("s", "c", "x");
        let identity = server.identity();
        for bad in [
            "",
            "null",
            "{}",
            &format!(r#"{{"listedAt":1,"identity":"{identity}","part":3}}"#),
        ] {
            assert!(from_bytes(bad.as_bytes(), &server).is_none(), "{bad}");
        }
    }
}
