//! How long servers of each kind took until they were first listed, kept in the store to predict
//! the next start of the same kind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::store::{Store, StoreError};
use crate::telemetry::millis;

/// Key prefix of the stored times.
const START_TIMES: &str = "start-times/";

/// Maximum number of stored kinds.
const KINDS_MAX: usize = 32;

/// Number of recent starts stored for each kind.
const STARTS_MAX: usize = 8;

/// Maximum duration of a recorded start. A longer one usually waited for a person, so it predicts
/// nothing.
const START_MAX: Duration = Duration::from_secs(120);

/// Start durations in milliseconds, by kind, the oldest first.
#[derive(Clone)]
pub struct StartTimes {
    store: Arc<dyn Store>,
    by_kind: BTreeMap<String, Vec<u64>>,
}

impl StartTimes {
    /// Reads the times that a previous process stored.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be used.
    pub async fn load(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let entries = store.scan(START_TIMES).await?.into_iter().take(KINDS_MAX);
        let by_kind = entries.filter_map(|entry| {
            let kind = entry.key.strip_prefix(START_TIMES)?.to_owned();
            Some((kind, serde_json::from_slice(&entry.value).ok()?))
        });
        let by_kind = by_kind.collect();
        Ok(Self { store, by_kind })
    }

    /// Returns the expected start duration of a kind: the longest recorded one plus half, because
    /// starts vary.
    pub(super) fn expected(&self, kind: &str) -> Option<Duration> {
        let longest = *self.by_kind.get(kind)?.iter().max()?;
        let longest = Duration::from_millis(longest).min(START_MAX);
        Some(longest + longest / 2)
    }

    /// Records the first listing of a server of this kind; stored in the background.
    pub(super) fn record(&mut self, kind: &str, took: Duration) {
        let is_kept = self.by_kind.contains_key(kind) || self.by_kind.len() < KINDS_MAX;
        if took > START_MAX || !is_kept {
            return;
        }
        let times = self.by_kind.entry(kind.to_owned()).or_default();
        times.push(millis(took));
        times.drain(..times.len().saturating_sub(STARTS_MAX));
        let (store, key) = (self.store.clone(), format!("{START_TIMES}{kind}"));
        let Ok(value) = serde_json::to_vec(times).map(Bytes::from) else {
            return;
        };
        actix_rt::spawn(async move {
            if let Err(error) = store.put(&key, value, None).await {
                log::warn!(error:%; "the server's start time could not be stored");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[actix::test]
    async fn the_last_starts_of_a_kind_are_kept() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let mut times = StartTimes::load(store.clone()).await.unwrap();
        let seconds = Duration::from_secs;
        assert_eq!(times.expected("npx"), None);
        times.record("npx", seconds(121));
        assert_eq!(times.expected("npx"), None);
        times.record("npx", seconds(10));
        times.record("http", seconds(1));
        assert_eq!(times.expected("npx"), Some(seconds(15)));
        for _ in 0..STARTS_MAX - 1 {
            times.record("npx", seconds(2));
        }
        assert_eq!(times.expected("npx"), Some(seconds(15)));
        times.record("npx", seconds(2));
        assert_eq!(times.expected("npx"), Some(seconds(3)));
        actix_rt::task::yield_now().await;
        let again = StartTimes::load(store.clone()).await.unwrap();
        assert_eq!(again.expected("npx"), Some(seconds(3)));
        assert_eq!(again.expected("http"), Some(seconds(1) * 3 / 2));
        // Unrelated data under these keys is ignored.
        for (key, value) in [
            ("start-times/npx", "{}"),
            ("start-times/uvx", "[18446744073709551615]"),
        ] {
            store.put(key, Bytes::from(value), None).await.unwrap();
        }
        let odd = StartTimes::load(store).await.unwrap();
        assert_eq!(odd.expected("npx"), None);
        assert_eq!(odd.expected("uvx"), Some(seconds(180)));
    }

    #[actix::test]
    async fn the_number_of_kinds_is_limited() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let mut times = StartTimes::load(store).await.unwrap();
        for kind in 0..KINDS_MAX + 1 {
            times.record(&kind.to_string(), Duration::ZERO);
        }
        assert_eq!(times.by_kind.len(), KINDS_MAX);
    }
}
