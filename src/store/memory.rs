//! A store in memory that ends with the process.

use std::collections::BTreeMap;
use std::future::ready;
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Store, StoreError, StoredEntry};

#[derive(Default)]
pub struct MemoryStore(Mutex<BTreeMap<Box<str>, MemoryEntry>>);

struct MemoryEntry {
    value: Bytes,
    expires: Option<Instant>,
}

impl MemoryStore {
    fn live(&self, key: &str) -> Option<Bytes> {
        let now = Instant::now();
        self.0
            .lock()
            .get(key)
            .filter(|entry| entry.is_live(now))
            .map(|entry| entry.value.clone())
    }

    fn write(&self, key: &str, value: Bytes, ttl: Option<Duration>) {
        let expires = ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        self.0
            .lock()
            .insert(key.into(), MemoryEntry { value, expires });
    }
}

impl MemoryEntry {
    fn is_live(&self, now: Instant) -> bool {
        self.expires.is_none_or(|at| at > now)
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        ready(Ok(self.live(key))).boxed()
    }

    fn put(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.write(key, value, ttl);
        ready(Ok(())).boxed()
    }

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let mut entries = self.0.lock();
        entries.remove(key);
        let below = format!("{key}/");
        let from = entries.range::<str, _>((Bound::Included(&*below), Bound::Unbounded));
        let keys = from.map(|(key, _)| key.clone());
        let keys: Vec<_> = keys.take_while(|key| key.starts_with(&below)).collect();
        for key in keys {
            entries.remove(&key);
        }
        ready(Ok(())).boxed()
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<StoredEntry>, StoreError>> {
        let now = Instant::now();
        let entries = self.0.lock();
        let from = entries.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let matching = from.take_while(|(key, _)| key.starts_with(prefix));
        let live = matching.filter(|(_, entry)| entry.is_live(now));
        let found = live
            .map(|(key, entry)| StoredEntry {
                key: key.to_string(),
                value: entry.value.clone(),
                expires_in: entry.expires.map(|at| at - now),
            })
            .collect();
        ready(Ok(found)).boxed()
    }
}
