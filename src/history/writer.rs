//! The thread that masks and writes records. An unusable file loses records, but has no other
//! effect.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::time::Instant;

use super::queue::{Batch, RecordQueue};
use super::settings::HistorySettings;
use super::tables::{HistoryPlace, HistoryTables};
use crate::masking::LiveSecrets;
use crate::store::{DirectoryLease, OpenError, move_aside};
use crate::telemetry::{Counter, Counters, unix_millis};

/// Why nothing is read or written while the data directory is not locked.
pub(super) const DIRECTORY_AWAY: &str = "the data directory cannot be used";

/// Delay before a failed file is retried.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// State shared by calls, the thread and readers.
#[derive(Debug)]
pub(super) struct HistoryState {
    pub(super) path: PathBuf,
    /// The name of the database that holds the last calls while no file does.
    pub(super) memory: String,
    /// Secrets that are masked in records.
    pub(super) secrets: LiveSecrets,
    pub(super) settings: ArcSwap<HistorySettings>,
    pub(super) queue: RecordQueue,
    pub(super) counters: Counters,
    pub(super) lease: DirectoryLease,
    /// Why the file cannot be written at present.
    pub(super) failure: ArcSwapOption<String>,
}

impl HistoryState {
    pub(super) fn is_enabled(&self) -> bool {
        self.settings.load().enabled
    }

    /// The place of the records, and the number of the directory that it depends on; `None` while
    /// the data directory is away.
    pub(super) fn place(&self) -> Option<(HistoryPlace, u64)> {
        match self.settings.load().file {
            true => Some((HistoryPlace::File(self.path.clone()), self.lease.number()?)),
            false => Some((HistoryPlace::Memory(self.memory.clone()), 0)),
        }
    }

    /// Applies the settings to the queue.
    pub(super) fn configure_queue(&self) {
        let settings = self.settings.load();
        self.queue.set_ring(!settings.file);
        if !settings.enabled {
            self.queue.clear();
        }
    }
}

/// Runs until the queue is closed.
pub(super) fn run(state: &Arc<HistoryState>) {
    let mut writer = HistoryWriter::new(state.clone());
    if state.settings.load().file {
        writer.open();
    }
    while let Some(batch) = state.queue.take() {
        writer.work(batch);
    }
}

struct HistoryWriter {
    state: Arc<HistoryState>,
    tables: Option<HistoryTables>,
    /// Where the tables are, and the number of their directory.
    place: Option<(HistoryPlace, u64)>,
    /// Set while the file fails.
    retry_at: Option<Instant>,
}

impl HistoryWriter {
    fn new(state: Arc<HistoryState>) -> Self {
        Self {
            state,
            tables: None,
            place: None,
            retry_at: None,
        }
    }

    fn work(&mut self, mut batch: Batch) {
        self.open();
        let settings = self.state.settings.load_full();
        for record in &mut batch.records {
            record.mask(settings.body_max, &self.state.secrets);
        }
        let is_written = match (&mut self.tables, self.place.clone()) {
            (Some(tables), Some((place, _))) => {
                let written = tables
                    .write(&batch.records)
                    .and_then(|()| tables.trim(unix_millis(), &settings));
                self.note(written.map_err(|error| place.failed(&error)))
            }
            _ => false,
        };
        if !is_written {
            let lost = batch.records.len();
            (0..lost).for_each(|_| self.state.counters.add(Counter::HistoryLost));
        }
        for flushed in batch.flushes {
            // Sending fails only if the requester is gone.
            let _ = flushed.send(());
        }
    }

    fn open(&mut self) {
        let place = self.state.place();
        if self.place != place {
            // The settings changed, or the file was in a directory that no longer exists.
            self.tables = None;
            self.place.clone_from(&place);
            self.retry_at = None;
        }
        let is_pausing = self.retry_at.is_some_and(|at| Instant::now() < at);
        if self.tables.is_some() || is_pausing || !self.state.is_enabled() {
            return;
        }
        let opened = match &place {
            Some((place, _)) => HistoryTables::open(place),
            None => {
                let away = io::Error::other(DIRECTORY_AWAY);
                Err(OpenError::io(&self.state.path, &away))
            }
        };
        let opened = opened.map(|tables| self.tables = Some(tables));
        self.note(opened);
    }

    /// Records whether the file can be used, and logs when that changes.
    fn note<T>(&mut self, outcome: Result<T, OpenError>) -> bool {
        let before = self.state.failure.load_full();
        match outcome {
            Ok(_) => {
                if before.is_some() {
                    log::info!("call history works again");
                    self.state.failure.store(None);
                }
                self.retry_at = None;
                true
            }
            Err(error) => {
                if before.is_none() {
                    log::warn!(error:%; "call history is unavailable");
                }
                self.tables = None;
                let is_aside = matches!(error, OpenError::Damaged { .. }) && self.set_aside();
                // A new file is created immediately.
                self.retry_at = (!is_aside).then(|| Instant::now() + RETRY_AFTER);
                self.state.failure.store(Some(Arc::new(error.to_string())));
                false
            }
        }
    }
}

impl HistoryWriter {
    /// Moves a damaged file aside.
    fn set_aside(&self) -> bool {
        let path = &self.state.path;
        match move_aside(path, unix_millis()) {
            Ok(aside) => {
                log::warn!(
                    "the call history was damaged and was moved to `{}`",
                    aside.display()
                );
                true
            }
            Err(error) => {
                log::warn!(error:%; "the damaged call history could not be moved aside");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::record;

    fn batch(count: u64) -> Batch {
        Batch {
            records: (1..=count).map(record).collect(),
            ..Batch::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_disk_loses_records_until_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        let counters = Counters::default();
        let settings = HistorySettings {
            file: true,
            age_max: Duration::from_secs(u64::from(u32::MAX)),
            ..HistorySettings::default()
        };
        let state = Arc::new(HistoryState {
            path: directory.path().join("history.sqlite"),
            memory: String::new(),
            secrets: LiveSecrets::default(),
            settings: ArcSwap::from_pointee(settings),
            queue: RecordQueue::default(),
            counters: counters.clone(),
            lease: DirectoryLease::default(),
            failure: ArcSwapOption::empty(),
        });
        let mut writer = HistoryWriter::new(state.clone());
        writer.work(batch(10));
        assert_eq!(counters.view()["history_lost"], 0);
        writer.tables.as_ref().unwrap().fill_disk(1);
        writer.work(batch(1000));
        assert_eq!(counters.view()["history_lost"], 1000);
        assert!(state.failure.load_full().unwrap().contains("full"));
        // It is not retried immediately.
        writer.work(batch(5));
        assert_eq!(counters.view()["history_lost"], 1005);
        tokio::time::advance(RETRY_AFTER).await;
        writer.work(batch(1000));
        assert_eq!(counters.view()["history_lost"], 1005);
        assert!(state.failure.load_full().is_none());
    }
}
