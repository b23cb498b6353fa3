//! Tests of the durable store on a disk that fails, hangs, is damaged, or disappears.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::*;

/// The behaviour of the simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Good,
    Full,
    /// No request is answered until this is reset.
    Hung,
    Damaged,
}

/// The test's control over the disk and its content.
#[derive(Clone)]
struct World {
    mode: watch::Sender<Mode>,
    /// The file currently at the path.
    file: Arc<Mutex<Arc<MemoryStore>>>,
    /// Whether the file at the path differs from the opened one.
    is_lost: Arc<Mutex<bool>>,
    /// Why it cannot be opened.
    refused: Arc<Mutex<Option<OpenError>>>,
}

/// A file on the simulated disk.
struct Disk {
    file: Arc<MemoryStore>,
    mode: watch::Receiver<Mode>,
}

struct Place(World);

impl World {
    fn new(mode: Mode) -> Self {
        Self {
            mode: watch::Sender::new(mode),
            file: Arc::default(),
            is_lost: Arc::default(),
            refused: Arc::default(),
        }
    }

    async fn opened(&self) -> DurableStore {
        let (store, opened) = DurableStore::start(Place(self.clone())).unwrap();
        opened.await.unwrap().unwrap();
        store
    }

    fn file(&self) -> Arc<MemoryStore> {
        self.file.lock().clone()
    }
}

impl StatePlace for Place {
    fn open(&mut self) -> Result<OpenedStore, OpenError> {
        if let Some(error) = self.0.refused.lock().take() {
            return Err(error);
        }
        let mode = self.0.mode.subscribe();
        while *mode.borrow() == Mode::Hung {
            std::thread::yield_now();
        }
        *self.0.is_lost.lock() = false;
        let file = self.0.file();
        Ok(OpenedStore {
            store: Arc::new(Disk { file, mode }),
            closed: Box::new(|| {}),
            notice: None,
        })
    }

    fn lost(&mut self) -> Option<String> {
        let is_lost = *self.0.is_lost.lock();
        is_lost.then(|| "it was removed".to_owned())
    }

    fn set_aside(&mut self) -> Result<String, OpenError> {
        *self.0.file.lock() = Arc::default();
        self.0.mode.send_replace(Mode::Good);
        Ok("it was moved aside".to_owned())
    }
}

impl Disk {
    /// Carries out a request according to the disk's mode.
    fn request<'d, T: Send + 'd>(
        &'d self,
        writes: bool,
        request: BoxFuture<'d, Result<T, StoreError>>,
    ) -> BoxFuture<'d, Result<T, StoreError>> {
        let mut mode = self.mode.clone();
        Box::pin(async move {
            let mode = *mode.wait_for(|mode| *mode != Mode::Hung).await.unwrap();
            match mode {
                Mode::Full if writes => Err(StoreError::Unavailable("full".to_owned())),
                Mode::Damaged => Err(StoreError::Damaged("torn".to_owned())),
                _ => request.await,
            }
        })
    }
}

impl Store for Disk {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        let key = key.to_owned();
        self.request(false, Box::pin(async move { self.file.get(&key).await }))
    }

    fn put(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        let put = async move { self.file.put(&key, value, ttl).await };
        self.request(true, Box::pin(put))
    }

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        self.request(true, Box::pin(async move { self.file.delete(&key).await }))
    }

    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<StoredEntry>, StoreError>> {
        let prefix = prefix.to_owned();
        let scan = async move { self.file.scan(&prefix).await };
        self.request(false, Box::pin(scan))
    }
}

fn keys(entries: &[StoredEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}

/// Waits for the thread of the store.
#[expect(clippy::disallowed_types, reason = "the thread runs in real time")]
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    use std::time::Instant;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn put(store: &DurableStore, key: &str) {
    store.put(key, "v".into(), None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failing_disk_only_loses_durability() {
    for mode in [Mode::Full, Mode::Hung, Mode::Damaged] {
        let world = World::new(Mode::Good);
        let store = world.opened().await;
        put(&store, "kept").await;
        put(&store, "ended").await;
        put(&store, "ended/below").await;
        assert_eq!(store.summary(), StoreSummary::default());
        world.mode.send_replace(mode);
        put(&store, "new").await;
        store.delete("ended").await.unwrap();
        // The store's thread can have moved a damaged file aside.
        if mode != Mode::Damaged {
            assert!(store.summary().failure.is_some(), "{mode:?}");
        }
        assert_eq!(store.get("new").await, Ok(Some("v".into())), "{mode:?}");
        assert_eq!(store.get("ended/below").await, Ok(None), "{mode:?}");
        let found = store.scan("new").await.unwrap();
        assert_eq!(keys(&found), ["new"], "{mode:?}");
        if mode != Mode::Damaged {
            world.mode.send_replace(Mode::Good);
        }
        let recovered = || store.summary().failure.is_none();
        until("the disk takes changes again", recovered).await;
        let file = world.file().scan("").await.unwrap();
        let expected = match mode {
            Mode::Damaged => &["new"][..],
            _ => &["kept", "new"],
        };
        assert_eq!(keys(&file), expected, "{mode:?}");
        let notice = store.summary().notice;
        assert_eq!(notice.is_some(), mode == Mode::Damaged);
    }
}

#[tokio::test(start_paused = true)]
async fn entries_on_a_hung_disk_do_not_count_as_absent() {
    let world = World::new(Mode::Good);
    let store = world.opened().await;
    put(&store, "session/1").await;
    world.mode.send_replace(Mode::Hung);
    put(&store, "session/2").await;
    assert!(store.get("session/1").await.is_err());
    assert!(store.scan("session/1").await.is_err());
    assert_eq!(store.scan("session/2").await.unwrap().len(), 1);
    world.mode.send_replace(Mode::Good);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_at_startup_is_used_once_it_responds() {
    let world = World::new(Mode::Hung);
    world.file().put("old", "v".into(), None).await.unwrap();
    let (store, _opened) = DurableStore::start(Place(world.clone())).unwrap();
    store.note_late();
    assert!(store.scan("").await.unwrap().is_empty());
    put(&store, "new").await;
    assert!(store.summary().failure.is_some());
    world.mode.send_replace(Mode::Good);
    until("the disk is used", || store.summary().failure.is_none()).await;
    assert_eq!(keys(&store.scan("").await.unwrap()), ["new", "old"]);
    assert_eq!(keys(&world.file().scan("").await.unwrap()), ["new", "old"]);
}

#[tokio::test(start_paused = true)]
async fn the_content_of_a_removed_file_moves_to_a_new_one() {
    let world = World::new(Mode::Good);
    let store = world.opened().await;
    put(&store, "a").await;
    *world.file.lock() = Arc::default();
    *world.is_lost.lock() = true;
    until("the file is missed", || !*world.is_lost.lock()).await;
    until("there is a new one", || store.summary().failure.is_none()).await;
    assert_eq!(keys(&world.file().scan("").await.unwrap()), ["a"]);
    assert!(store.summary().notice.is_some());
    put(&store, "b").await;
    store.stop().await;
    assert_eq!(keys(&world.file().scan("").await.unwrap()), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_locked_file_is_retried_and_the_first_attempt_reports_why() {
    let world = World::new(Mode::Good);
    let reason = "used".to_owned();
    *world.refused.lock() = Some(OpenError::Refused { reason });
    let (store, opened) = DurableStore::start(Place(world.clone())).unwrap();
    assert!(opened.await.unwrap().is_err_and(|error| error.is_final()));
    put(&store, "a").await;
    until("it is opened", || store.summary().failure.is_none()).await;
    assert_eq!(keys(&world.file().scan("").await.unwrap()), ["a"]);
}
