//! Reads and watches the configuration file. The file system may hang, so the work runs on separate
//! threads and never on the thread that supervises.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::config_file::{ConfigFile, Reading};
use crate::config::Loaded;
use crate::config::watch::{Changed, Watch, WatchSettings};

/// Maximum time for one read or change on the file system.
const FILE_WAIT: Duration = Duration::from_secs(5);

/// Maximum hanging reads and changes; at the limit, further ones fail immediately.
const HUNG_MAX: usize = 4;

/// The configuration file, watched if it can change.
pub(super) struct ConfigReader {
    file: Arc<ConfigFile>,
    /// `None` if changes are applied only on request.
    watch: Option<Watch>,
    report: mpsc::Sender<Changed>,
    changes: mpsc::Receiver<Changed>,
    /// Cloned by each thread that is still reading or writing.
    running: Arc<()>,
}

impl ConfigReader {
    /// Starts watching a file that was read, unless its configuration says otherwise.
    pub(super) fn start(file: ConfigFile, loaded: &Loaded) -> Self {
        // One queued report covers all changes until it is received.
        let (report, changes) = mpsc::channel(1);
        let is_watched = loaded.config.watch && file.has_path();
        let settings = WatchSettings::default();
        let start = || Watch::start(&file.watched(loaded), &settings, report.clone());
        Self {
            watch: is_watched.then(start),
            file: Arc::new(file),
            report,
            changes,
            running: Arc::new(()),
        }
    }

    /// Receives reports of changes that only another read can find.
    pub(super) fn report(&self) -> mpsc::Sender<Changed> {
        self.report.clone()
    }

    /// Completes when the configuration may have changed.
    pub(super) async fn changed(&mut self) {
        // The channel stays open, because `self` holds a sender.
        let _ = self.changes.recv().await;
    }

    /// Watches the files that were read.
    pub(super) fn watch(&mut self, loaded: &Loaded) {
        if let Some(watch) = &mut self.watch {
            watch.follow(&self.file.watched(loaded));
        }
    }

    /// Reads the file once it has settled.
    pub(super) async fn read_settled(&self) -> Reading {
        match self.on_thread(ConfigFile::read_settled).await {
            Some(Some(reading)) => reading,
            Some(None) => {
                // Applied once the file settles.
                let _ = self.report.try_send(Changed);
                self.file.unsettled()
            }
            None => self.late_reading(),
        }
    }

    /// Runs work on a thread; `None` if it takes too long or too many threads already hang. If the
    /// thread finishes late, the file is read again.
    pub(super) fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ConfigFile) -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        let (file, late) = (Arc::clone(&self.file), self.report.clone());
        let is_free = Arc::strong_count(&self.running) <= HUNG_MAX;
        let running = is_free.then(|| Arc::clone(&self.running));
        let (done, result) = oneshot::channel();
        if let Some(running) = running {
            spawn_blocking(move || {
                let is_late = done.send(work(&file)).is_err();
                drop(running);
                if is_late {
                    // If the channel is full, a report is already pending.
                    let _ = late.try_send(Changed);
                }
            });
        }
        async { timeout(FILE_WAIT, result).await.ok()?.ok() }
    }

    /// The result of a reading that took too long.
    pub(super) fn late_reading(&self) -> Reading {
        let wait = humantime::format_duration(FILE_WAIT);
        self.file.unread(format!(
            "it and the files that it names were not read within {wait}; they are read again when \
             their file system answers"
        ))
    }
}
