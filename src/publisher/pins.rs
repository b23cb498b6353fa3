//! The pins of all servers, and their place in the store.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Mutex;

use crate::catalog::PinnedDefinitions;
use crate::id::ServerName;
use crate::masking::{LiveSecrets, MASK};
use crate::protocol::RawJson;
use crate::store::{Store, StoreError, WallClock};
use crate::telemetry::{EventFeed, LogRecords};

/// Where the pins of all servers are in the store.
const PINS: &str = "pins/";

/// Servers that are not configured now whose pins are kept all the same.
const ABSENT_SERVERS_MAX: usize = 1000;

/// Handles to the same pins. The default ones are kept nowhere.
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
    /// Not kept if a server writes them into its texts.
    secrets: LiveSecrets,
    /// One write after the other, so that the last one has the newest pins.
    writing: Mutex<()>,
}

impl Pins {
    /// The stored pins, including the pins of servers that are not `configured` now: a server that is
    /// added again, by hand or by a source, is compared with its former definitions. Their changes are events
    /// of `log`.
    ///
    /// # Errors
    ///
    /// Fails when the store cannot be used.
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
                log::error!(server = name; "its pins cannot be read, and are made anew");
            }
        }
        let is_configured = |server: &ServerName| configured(server.as_str());
        for server in pinned.drop_oldest(ABSENT_SERVERS_MAX, is_configured) {
            log::info!(server = server.as_str(); "dropped its pins: it was away for the longest time");
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

    /// Changes the pins; called by one at a time. `change` is given the time in milliseconds since
    /// 1970, and says whether it changed anything.
    pub(super) fn change(&self, change: impl FnOnce(&mut PinnedDefinitions, u64) -> bool) -> bool {
        let now = self.0.kept.as_ref().map_or(0, |kept| (kept.now)());
        let mut pinned = PinnedDefinitions::clone(&self.pinned());
        let is_changed = change(&mut pinned, now);
        if is_changed {
            self.0.pinned.store(Arc::new(pinned));
        }
        is_changed
    }

    /// Writes the pins of a server as they are.
    ///
    /// # Errors
    ///
    /// Fails when the store cannot be used.
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

    /// The same for somebody who does not wait for it.
    pub(super) fn keep_soon(&self, server: &ServerName) {
        if self.0.kept.is_none() {
            return;
        }
        let (pins, server) = (self.clone(), server.clone());
        actix_rt::spawn(async move {
            if let Err(error) = pins.keep(&server).await {
                log::error!(server = server.as_str(), error:%; "its pins could not be kept");
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
        // Neither is configured for a while, and then both are again.
        assert_eq!(load(&["b"]).await.unwrap().pinned(), pins.pinned());
        assert_eq!(load(&[]).await.unwrap().pinned(), pins.pinned());
        let mut pinned = PinnedDefinitions::clone(&pins.pinned());
        let dropped = pinned.drop_oldest(0, |name| *name == server("b"));
        assert_eq!(dropped, [server("a")]);
        assert_eq!(pinned.servers().collect::<Vec<_>>(), [&server("b")]);
    }
}
