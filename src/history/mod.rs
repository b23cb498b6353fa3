//! The call history: one record for each call at the edge, however it ended.
//!
//! A call starts a [`PendingCall`] and ends it with its outcome. Records wait in a bounded queue for
//! a single thread, which removes secrets (`redaction`) and writes them to tables, so that operators
//! can read pages (`query`). By default, the tables are in memory: the queue keeps the last calls,
//! and the thread works only when an operator reads. With `history.file`, the tables are a file of
//! the data directory: no call ever waits for the disk, and records above the limit are dropped and
//! counted.

mod block;
mod entry;
mod pending;
mod query;
mod queue;
mod record;
mod redaction;
mod search;
mod settings;
mod tables;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::masking::LiveSecrets;
use crate::protocol::Request;
use crate::store::DirectoryLease;
use crate::telemetry::{Counter, Counters, EventFeed, EventKind};
use queue::RecordQueue;
use record::CallRecord;
use tables::HistoryPlace;
use writer::{DIRECTORY_AWAY, HistoryState};

pub use entry::{CallPage, CallTiming, HistoryEntry, HistoryPage, NotReplayable, RecordedCall};
pub use pending::{CallEnding, PendingCall, RecordedCaller, is_tool_error};
pub use query::{HistoryFilter, HistoryQuery, LIMIT_DEFAULT, LIMIT_MAX, OFFSET_MAX};
pub use record::CallOutcome;
pub use settings::HistorySettings;

/// Time limit of a search; a page returns what was found by then.
const SEARCH_TIME: Duration = Duration::from_millis(40);

/// How long a reader waits for earlier records to be written, and for the file.
const READ_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum number of concurrent readers; one more is refused.
const READERS_MAX: usize = 4;

/// Why the history cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    #[error("call history is off: set `history.enabled = true`")]
    Off,
    #[error("the history cannot be read: {0}")]
    Unavailable(String),
    #[error("too many concurrent reads of the history; try again")]
    Busy,
}

/// A handle; clones share the history.
#[derive(Clone)]
pub struct History(Arc<HistoryParts>);

struct HistoryParts {
    state: Arc<HistoryState>,
    /// Receives an event for each completed call.
    events: EventFeed,
    readers: Arc<Semaphore>,
    /// An idle connection for readers, with its place.
    idle: Mutex<Option<((HistoryPlace, u64), Connection)>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl History {
    /// Starts the thread. A file that cannot be used is not an error: then nothing is recorded, and
    /// [`History::failure`] returns the reason.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the thread cannot be created.
    pub fn start(
        path: &Path,
        settings: HistorySettings,
        parts: (Counters, EventFeed, LiveSecrets, DirectoryLease),
    ) -> io::Result<Self> {
        let history = Self::new(path, settings, parts);
        let state = history.0.state.clone();
        let thread = std::thread::Builder::new().name("history".to_owned());
        let thread = thread.spawn(move || writer::run(&state))?;
        *history.0.thread.lock() = Some(thread);
        Ok(history)
    }

    /// A history that records nothing.
    pub fn off() -> Self {
        let settings = HistorySettings {
            enabled: false,
            ..HistorySettings::default()
        };
        let path = Path::new("");
        Self::new(path, settings, Default::default())
    }

    fn new(
        path: &Path,
        settings: HistorySettings,
        (counters, events, secrets, lease): (Counters, EventFeed, LiveSecrets, DirectoryLease),
    ) -> Self {
        let state = HistoryState {
            path: path.to_owned(),
            memory: format!("history-{}", Uuid::new_v4()),
            secrets,
            settings: ArcSwap::from_pointee(settings),
            queue: RecordQueue::default(),
            counters,
            lease,
            failure: ArcSwapOption::empty(),
        };
        state.configure_queue();
        Self(Arc::new(HistoryParts {
            state: Arc::new(state),
            events,
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            idle: Mutex::default(),
            thread: Mutex::default(),
        }))
    }

    /// Applies new settings.
    pub fn configure(&self, settings: HistorySettings) {
        self.0.state.settings.store(Arc::new(settings));
        self.0.state.configure_queue();
    }

    /// Starts the record of a call; `None` while recording is off.
    pub fn begin(&self, request: &Request, caller: &RecordedCaller<'_>) -> Option<PendingCall> {
        let settings = self.0.state.settings.load();
        let begin = || PendingCall::new(self.clone(), request, caller, settings.body_max);
        let is_told = PendingCall::is_logged() || self.0.events.gathers();
        let is_wanted = settings.enabled || is_told;
        is_wanted.then(begin)
    }

    /// Why calls are not recorded although they should be.
    pub fn failure(&self) -> Option<String> {
        let failure = self.0.state.failure.load();
        let failure = failure.as_deref().filter(|_| self.0.state.is_enabled());
        failure.cloned()
    }

    /// Reads one page, including all calls that ended before this request.
    ///
    /// # Errors
    ///
    /// Returns why the history cannot be read at present.
    pub async fn page(&self, query: HistoryQuery) -> Result<HistoryPage, HistoryError> {
        self.read(move |connection| {
            let deadline = Instant::now() + SEARCH_TIME;
            search::page(connection, &query, deadline)
        })
        .await
    }

    /// Reads several pages within the time of one. Those for which no time is left have no calls.
    ///
    /// # Errors
    ///
    /// Returns why the history cannot be read at present.
    pub async fn pages(
        &self,
        queries: Vec<HistoryQuery>,
    ) -> Result<Vec<HistoryPage>, HistoryError> {
        self.read(move |connection| {
            let deadline = Instant::now() + SEARCH_TIME;
            let page = |query| search::page(connection, query, deadline);
            queries.iter().map(page).collect()
        })
        .await
    }

    /// Reads one call; `None` if there is none with this id.
    ///
    /// # Errors
    ///
    /// Returns why the history cannot be read at present.
    pub async fn entry(&self, id: i64) -> Result<Option<HistoryEntry>, HistoryError> {
        self.read(move |connection| search::one(connection, id))
            .await
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, HistoryError> {
        if !self.0.state.is_enabled() {
            return Err(HistoryError::Off);
        }
        let permit = self.0.readers.clone().try_acquire_owned();
        let permit = permit.map_err(|_| HistoryError::Busy)?;
        let late = |_| HistoryError::Unavailable("it takes too long".to_owned());
        // If the thread is gone, the file is read as it is.
        drop(
            timeout(READ_TIMEOUT, self.0.state.queue.flush())
                .await
                .map_err(late)?,
        );
        if let Some(failure) = self.failure() {
            // The connection can belong to a file that is about to be moved away.
            *self.0.idle.lock() = None;
            return Err(HistoryError::Unavailable(failure));
        }
        let history = self.clone();
        let reading = spawn_blocking(move || {
            let _permit = permit;
            history.read_now(read)
        });
        let read = timeout(READ_TIMEOUT, reading).await.map_err(late)?;
        read.map_err(|error| HistoryError::Unavailable(error.to_string()))?
    }

    fn read_now<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, HistoryError> {
        let unavailable = |error: String| HistoryError::Unavailable(error);
        let place = self.0.state.place();
        let place = place.ok_or_else(|| unavailable(DIRECTORY_AWAY.to_owned()))?;
        let idle = self.0.idle.lock().take();
        let connection = match idle {
            Some((of, connection)) if of == place => connection,
            _ => (place.0.connect()).map_err(|error| unavailable(error.to_string()))?,
        };
        let found = read(&connection).map_err(|error| unavailable(error.to_string()))?;
        *self.0.idle.lock() = Some((place, connection));
        Ok(found)
    }

    /// Writes all waiting records to the file, if any, and ends the thread. Blocks until then.
    pub fn stop(&self) {
        self.0.state.queue.close();
        if let Some(thread) = self.0.thread.lock().take() {
            // A panic was reported where it happened.
            drop(thread.join());
        }
    }

    fn secrets(&self) -> &LiveSecrets {
        &self.0.state.secrets
    }

    fn push(&self, mut record: CallRecord, body_max: usize) {
        let state = &self.0.state;
        if self.0.events.gathers() {
            record.mask(body_max, &state.secrets);
            self.0.events.publish(EventKind::Call, || record.event());
        }
        let settings = state.settings.load();
        if settings.enabled && !state.queue.push(record, settings.queue_max) {
            state.counters.add(Counter::HistoryLost);
        }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("History").finish_non_exhaustive()
    }
}

impl Drop for HistoryParts {
    fn drop(&mut self) {
        self.state.queue.close();
    }
}
