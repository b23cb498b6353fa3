//! A store that cannot be used for a while.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use mcpvisor::store::{MemoryStore, Store, StoreError, StoredEntry};
use serde_json::json;

use crate::world::{World, millis, pass, run, settle};

/// Reads fail while it is down.
pub(crate) struct Outage {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) is_down: Arc<AtomicBool>,
}

impl Store for Outage {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        if self.is_down.load(Ordering::Relaxed) {
            let error = StoreError::Unavailable("down".to_owned());
            return ready(Err(error)).boxed();
        }
        self.store.get(key)
    }

    fn put(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.put(key, value, ttl)
    }

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.delete(key)
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<Bytes>,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.compare_and_set(key, expected, value, ttl)
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<StoredEntry>, StoreError>> {
        self.store.scan(prefix)
    }
}

#[test]
fn a_session_whose_record_cannot_be_read_now_is_not_over() {
    run(async {
        let world = Rc::new(World::new());
        world.stdio("a", |_| {}).await;
        let client = world.client(json!({})).await;
        pass(millis(50)).await;
        world.session_panics(&client).await;
        settle().await;
        world.store_is_down.store(true, Ordering::Relaxed);
        let failure = world.sessions.find(client.id).await.err().unwrap();
        assert_eq!(failure.kind.http_status(), 503);
        assert!(failure.retry_after_ms.is_some());
        world.store_is_down.store(false, Ordering::Relaxed);
        client.call("a__echo").await.result();
    });
}
