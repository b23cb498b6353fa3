//! A store that cannot be used for a while.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use mcpvisor::id::SessionOwner;
use mcpvisor::protocol::Failure;
use mcpvisor::store::{MemoryStore, Store, StoreError, StoredEntry};
use serde_json::json;
use tokio::sync::Mutex;

use crate::sim::client::Client;
use crate::sim::sessions::full;
use crate::sim::world::{World, millis, pass, run, settle};

/// Reads and writes of entries fail while it is down.
#[derive(Clone, Default)]
pub(crate) struct Outage {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) is_down: Arc<AtomicBool>,
    /// Whoever holds it makes those wait who put or delete.
    pub(crate) writes: Arc<Mutex<()>>,
    /// Bytes that were put in.
    pub(crate) written: Arc<AtomicUsize>,
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
        if self.is_down.load(Ordering::Relaxed) {
            let error = StoreError::Unavailable("down".to_owned());
            return ready(Err(error)).boxed();
        }
        self.written.fetch_add(value.len(), Ordering::Relaxed);
        let key = key.to_owned();
        async move {
            let _turn = self.writes.lock().await;
            self.store.put(&key, value, ttl).await
        }
        .boxed()
    }

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        async move {
            let _turn = self.writes.lock().await;
            self.store.delete(&key).await
        }
        .boxed()
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<StoredEntry>, StoreError>> {
        if self.is_down.load(Ordering::Relaxed) {
            let error = StoreError::Unavailable("down".to_owned());
            return ready(Err(error)).boxed();
        }
        self.store.scan(prefix)
    }
}

/// Why the session of a client cannot be found now.
async fn unfindable(world: &World, client: &Client) -> Failure {
    let owner = SessionOwner::default();
    let found = world.sessions.find(client.id, &owner).await;
    found.err().unwrap()
}

#[test]
fn a_session_that_cannot_be_kept_is_refused() {
    run(async {
        let world = Rc::new(World::new());
        world.store_is_down.store(true, Ordering::Relaxed);
        let refused = Client::try_open(world.clone(), 0, json!({})).await;
        let failure = refused.err().unwrap();
        assert_eq!(failure.kind.http_status(), 503);
        assert!(failure.retry_after_ms.is_some());
        assert_eq!(world.counted("sessions_unsaved"), 1);
        assert!(world.sessions.is_empty());
        world.store_is_down.store(false, Ordering::Relaxed);
        world.client(json!({})).await;
    });
}

#[test]
fn a_session_is_unknown_only_when_its_record_is_gone() {
    run(async {
        let world = Rc::new(World::new());
        let client = world.client(json!({})).await;
        let hold = world.writes.lock().await;
        let sessions = world.sessions.clone();
        let ended =
            actix_rt::spawn(async move { sessions.end(client.id, &SessionOwner::default()).await });
        settle().await;
        // It is in the store, so a gateway that is killed now would know it again.
        assert_eq!(world.store.scan("session/").await.unwrap().len(), 1);
        let failure = unfindable(&world, &client).await;
        assert_eq!(failure.kind.http_status(), 503);
        drop(hold);
        assert!(ended.await.unwrap());
        assert!(world.store.scan("session/").await.unwrap().is_empty());
        assert!(
            world
                .sessions
                .find(client.id, &SessionOwner::default())
                .await
                .unwrap()
                .is_none()
        );
    });
}

#[test]
fn a_subscription_is_answered_when_it_is_written() {
    run(async {
        let world = Rc::new(World::new());
        let _server = world.stdio("a", full).await;
        let clients = [world.client(json!({})).await, world.client(json!({})).await];
        pass(millis(50)).await;
        let entries = async || world.store.scan("session/").await.unwrap().len();
        // Both the one that its server is asked for, and the one that needs no word with it.
        for (client, before) in clients.iter().zip([2, 3]) {
            for (method, after) in [("resources/subscribe", 1), ("resources/unsubscribe", 0)] {
                let hold = world.writes.lock().await;
                let params = json!({"uri": "x://1"});
                let changed = client.request(method, params.clone()).await;
                assert!(changed.is_waiting(), "{method}");
                drop(hold);
                settle().await;
                assert_eq!(changed.result(), json!({}));
                assert_eq!(entries().await, before + after);
                if (before, after) == (2, 0) {
                    client.request("resources/subscribe", params).await.result();
                }
            }
        }
        for client in &clients {
            client.end().await;
        }
        assert_eq!(entries().await, 0);
    });
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
        let failure = unfindable(&world, &client).await;
        assert_eq!(failure.kind.http_status(), 503);
        assert!(failure.retry_after_ms.is_some());
        world.store_is_down.store(false, Ordering::Relaxed);
        client.call("a__echo").await.result();
    });
}
