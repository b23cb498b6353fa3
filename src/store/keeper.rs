//! The thread that opens a store's file, checks that it stays in place, and writes back changes
//! kept in memory while the disk failed. Only this thread may block on the disk.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::disk_state::{Disk, Shared};
use super::overlay::{Change, KeptChange};
use super::{OpenError, Store, StoreError};

/// Interval at which the thread checks the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of changes written in one batch.
const BATCH_MAX: usize = 256;

/// Maximum time that requests may hold a store that is being closed.
const RELEASE_MAX: Duration = Duration::from_secs(10);

/// A store that was opened.
pub struct OpenedStore {
    pub store: Arc<dyn Store>,
    /// Blocks until the file is closed, after the store was dropped.
    pub closed: Box<dyn FnOnce() + Send>,
    /// A notice for operators.
    pub notice: Option<String>,
}

/// The location of a store's file. Its methods can block.
pub trait StatePlace: Send {
    /// Opens the file, or creates it; moves a damaged one aside.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`] if it cannot be used at present.
    fn open(&mut self) -> Result<OpenedStore, OpenError>;

    /// Why the open file is no longer in place.
    fn lost(&mut self) -> Option<String>;

    /// Maintains the other files of the location, once a second while the file is open.
    fn tend(&mut self) {}

    /// Moves the closed, damaged file aside.
    fn set_aside(&mut self) -> Result<String, OpenError>;
}

pub(super) fn start(
    place: impl StatePlace + 'static,
    shared: Arc<Shared>,
) -> io::Result<oneshot::Receiver<Result<(), OpenError>>> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let (first, opened) = oneshot::channel();
    let thread = std::thread::Builder::new().name("store-keeper".to_owned());
    thread.spawn(move || {
        let keeper = Keeper {
            place,
            shared,
            open: None,
        };
        runtime.block_on(keeper.run(first));
    })?;
    Ok(opened)
}

struct Keeper<P> {
    place: P,
    shared: Arc<Shared>,
    open: Option<OpenedStore>,
}

impl<P: StatePlace> Keeper<P> {
    async fn run(mut self, first: oneshot::Sender<Result<(), OpenError>>) {
        let opened = self.open();
        // Ignore an error: the gateway has stopped waiting.
        let _ = first.send(opened);
        loop {
            let closing = self.shared.closing.notified();
            if timeout(LOOK_EVERY, closing).await.is_ok() {
                break;
            }
            self.look().await;
        }
        self.close().await;
        let closed = self.shared.closed.clone();
        // Unlock the directory before anything in it is restarted.
        drop(self);
        closed.cancel();
    }

    async fn look(&mut self) {
        if self.open.is_some()
            && let Some(why) = self.place.lost()
        {
            self.replace(why).await;
        } else if self.open.is_none() {
            let _ = self.open();
        }
        if self.open.is_some() {
            self.place.tend();
        }
        let is_behind = {
            let state = self.shared.lock();
            state.summary.failure.is_some() || !state.overlay.is_empty()
        };
        if is_behind && self.open.is_some() {
            self.write_back().await;
        }
    }

    fn open(&mut self) -> Result<(), OpenError> {
        let opened = self.place.open();
        let mut state = self.shared.lock();
        match opened {
            Ok(opened) => {
                state.disk = Disk::Open(opened.store.clone());
                if let Some(notice) = &opened.notice {
                    log::warn!("{notice}");
                    state.summary.notice = Some(notice.clone());
                }
                if state.overlay.is_empty() {
                    state.recover();
                }
                drop(state);
                self.open = Some(opened);
                Ok(())
            }
            Err(error) => {
                state.fail(error.why());
                Err(error)
            }
        }
    }

    /// Replaces a lost file: copies its content to a new one.
    async fn replace(&mut self, why: String) {
        let Some(opened) = &self.open else { return };
        self.shared.lock().fail(why.clone());
        let held = opened.store.scan("").await.unwrap_or_default();
        for entry in held {
            let put = Change::put(entry.value, entry.expires_in);
            // Every change since then is newer. An entry that does not fit is lost with the file.
            let _ = (self.shared.lock().overlay).keep(&entry.key, 0, put);
        }
        self.close().await;
        if self.open().is_ok() {
            self.shared.lock().summary.notice = Some(format!("{why}, and created again"));
        }
    }

    /// Writes everything kept in memory; the disk is used again once nothing is left.
    async fn write_back(&mut self) {
        let written = self.try_write_back().await;
        let Err(error) = written else { return };
        if let StoreError::Damaged(_) = error {
            self.close().await;
            match self.place.set_aside() {
                Ok(notice) => {
                    log::warn!("{notice}");
                    self.shared.lock().summary.notice = Some(notice);
                }
                Err(error) => self.shared.lock().fail(error.why()),
            }
            let _ = self.open();
        } else {
            self.shared.lock().fail(error.to_string());
        }
    }

    async fn try_write_back(&mut self) -> Result<(), StoreError> {
        let Some(opened) = &self.open else {
            return Ok(());
        };
        if mem::take(&mut self.shared.lock().is_damaged) {
            return Err(StoreError::Damaged("it cannot be read".to_owned()));
        }
        // Run even if there is nothing to write: a disk that hung must respond.
        opened.store.get("").await.map(drop)?;
        loop {
            let kept = self.shared.lock().overlay.in_order();
            for changes in kept.chunks(BATCH_MAX) {
                let made = changes.iter();
                let made = made.map(|(key, kept)| make(&*opened.store, key, kept));
                join_all(made)
                    .await
                    .into_iter()
                    .collect::<Result<(), _>>()?;
                let mut state = self.shared.lock();
                for (key, kept) in changes {
                    state.overlay.written(key, kept.number);
                }
            }
            let mut state = self.shared.lock();
            if state.overlay.is_empty() {
                state.disk = Disk::Open(opened.store.clone());
                state.recover();
                return Ok(());
            }
        }
    }

    /// Closes the file, so that it cannot interfere with a file opened later at its path.
    async fn close(&mut self) {
        let Some(opened) = self.open.take() else {
            return;
        };
        self.shared.lock().disk = Disk::Away;
        let deadline = Instant::now() + RELEASE_MAX;
        while Arc::strong_count(&opened.store) > 1 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(opened.store);
        (opened.closed)();
    }
}

async fn make(store: &dyn Store, key: &str, kept: &KeptChange) -> Result<(), StoreError> {
    match &kept.change {
        Change::Put { value, expires } => {
            let ttl = expires.map(|at| at.saturating_duration_since(Instant::now()));
            store.put(key, value.clone(), ttl).await
        }
        Change::Delete => store.delete(key).await,
    }
}
