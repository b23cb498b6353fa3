//! The pins of all servers, and their storage.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use crate::catalog::PinnedDefinitions;
use crate::id::ServerName;
use crate::masking::{LiveSecrets, MASK};
use crate::protocol::RawJson;
use crate::store::{Store, StoreError, WallClock};
use crate::telemetry::{EventFeed, LogRecords};

/// Key prefix of the stored pins.
const PINS: &str = "pins/";

/// Maximum number of servers that are no longer configured but keep their pins.
const ABSENT_SERVERS_MAX: usize = 1000;

/// Handles to the same pins. The default pins are not stored.
#[derive(Clone, Default)]
pub struct Pins(Arc<SharedPins>);

#[derive(Default)]
struct SharedPins {
    pinned: ArcSwap<PinnedDefinitions>,
    events: EventFeed,
    kept: Option<KeptPins>,
}

struct KeptPins {
    store: Arc<dyn Store>,
    now: WallClock,
    /// Secrets that are masked if a server writes them into its texts.
    secrets: LiveSecrets,
    /// Serializes writes, so that the last one has the newest pins.
    writing: Mutex<()>,
}

impl Pins {
    /// The stored pins, including pins of servers that are not `configured` now: a server that is
    /// added again, manually or by a source, is compared with its former definitions. Changes are
    /// recorded as events of `log`.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be used.
    pub async fn load(
        store: Arc<dyn Store>,
        now: WallClock,
        log: &LogRecords,
        configured: impl Fn(&str) -> bool,
    ) -> Result<Self, StoreError> {
        let mut pinned = PinnedDefinitions::default();
        for entry in store.scan(PINS).await? {
            let name = entry.key.strip_prefix(PINS).unwrap_or_default();
            let text = RawJson::try_new(entry.value).ok();
            let server = ServerName::try_new(name).ok();
            let restored = server.zip(text);
            let restored = restored.and_then(|(server, text)| pinned.restore(server, &text));
            if restored.is_none() {
                log::error!(server = name; "stored pins cannot be read; creating new ones");
            }
        }
        let is_configured = |server: &ServerName| configured(server.as_str());
        for server in pinned.drop_oldest(ABSENT_SERVERS_MAX, is_configured) {
            log::info!(server = server.as_str(); "dropped pins of the longest-absent server");
            store.delete(&format!("{PINS}{server}")).await?;
        }
        let writing = Mutex::default();
        Ok(Self(Arc::new(SharedPins {
            pinned: ArcSwap::from_pointee(pinned),
            events: log.events(),
            kept: Some(KeptPins {
                store,
                now,
                secrets: log.secrets().clone(),
                writing,
            }),
        })))
    }

    pub(super) fn pinned(&self) -> Arc<PinnedDefinitions> {
        self.0.pinned.load_full()
    }

    pub(super) fn events(&self) -> &EventFeed {
        &self.0.events
    }

    /// Changes the pins; calls must not overlap. `change` receives the time in milliseconds since
    /// 1970, and returns whether it changed anything.
    pub(super) fn change(&self, change: impl FnOnce(&mut PinnedDefinitions, u64) -> bool) -> bool {
        let now = self.0.kept.as_ref().map_or(0, |kept| (kept.now)());
        let mut pinned = PinnedDefinitions::clone(&self.pinned());
        let is_changed = change(&mut pinned, now);
        if is_changed {
            self.0.pinned.store(Arc::new(pinned));
        }
        is_changed
    }

    /// Stores the current pins of a server.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be used.
    pub(super) async fn keep(&self, server: &ServerName) -> Result<(), StoreError> {
        let Some(kept) = &self.0.kept else {
            return Ok(());
        };
        let _alone = kept.writing.lock().await;
        let text = self
            .pinned()
            .to_stored(server, |text| kept.secrets.replaced(text, MASK));
        let key = format!("{PINS}{server}");
        kept.store.put(&key, text.as_bytes().clone(), None).await
    }

    /// Like [`Self::keep`], without waiting for the store.
    pub(super) fn keep_soon(&self, server: &ServerName) {
        if self.0.kept.is_none() {
            return;
        }
        let (pins, server) = (self.clone(), server.clone());
        actix_rt::spawn(async move {
            if let Err(error) = pins.keep(&server).await {
                log::error!(server = server.as_str(), error:%; "pins could not be stored");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{IngestLimits, ItemKind, ServerPart};
    use crate::store::MemoryStore;

    fn server(name: &str) -> ServerName {
        ServerName::try_new(name).unwrap()
    }

    #[tokio::test]
    async fn pins_outlive_the_absence_of_their_server() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let log = LogRecords::default();
        let load = |configured: &'static [&str]| {
            let is_configured = move |name: &str| configured.contains(&name);
            Pins::load(store.clone(), || 7, &log, is_configured)
        };
        let pins = load(&[]).await.unwrap();
        let tool = RawJson::from_value(
            &serde_json::json!({"name": "t", "inputSchema": {"type": "object"}}),
        );
        for name in ["a", "b"] {
            let part = ServerPart::new(server(name));
            let part = part.with_list(
                ItemKind::Tools,
                std::slice::from_ref(&tool),
                &IngestLimits::default(),
            );
            assert!(pins.change(|pinned, now| {
                assert_eq!(now, 7);
                pinned.pin_first_use(&part, true, now)
            }));
            pins.keep(&server(name)).await.unwrap();
        }
        store.put("pins/c", "nonsense".into(), None).await.unwrap();
        let read = load(&["a", "b", "c"]).await.unwrap();
        assert_eq!(read.pinned(), pins.pinned());
        // Neither server is configured for a while, and then both are again.
        assert_eq!(load(&["b"]).await.unwrap().pinned(), pins.pinned());
        assert_eq!(load(&[]).await.unwrap().pinned(), pins.pinned());
        let mut pinned = PinnedDefinitions::clone(&pins.pinned());
        let dropped = pinned.drop_oldest(0, |name| *name == server("b"));
        assert_eq!(dropped, [server("a")]);
        assert_eq!(pinned.servers().collect::<Vec<_>>(), [&server("b")]);
    }
}
