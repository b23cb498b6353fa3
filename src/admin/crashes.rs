//! Crash reports on disk: one JSON file each, `crashes/NAME.MILLIS.json` in the data directory.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use log::Level;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::downstream::{CrashReport, CrashSink};
use crate::store::{DirectoryLease, private_dir, write_private};
use crate::telemetry::{Counter, Counters};

/// Maximum reports waiting to be written; further ones are dropped and counted.
const QUEUE_MAX: usize = 64;

/// Maximum size of a report that is read, in bytes.
const READ_MAX: u64 = 16 << 20;

/// Maximum reports in a list.
const LIST_MAX: usize = 100;

/// Writes reports on a dedicated thread, and keeps the latest ones of each server.
#[derive(Debug)]
pub struct CrashWriter {
    queue: Arc<Mutex<Option<SyncSender<CrashReport>>>>,
    thread: JoinHandle<()>,
    counters: Counters,
}

/// A report in the form written to disk.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DatedReport {
    /// When, in milliseconds since 1970.
    pub at: u64,
    #[serde(flatten)]
    pub report: CrashReport,
}

/// The reports of a server, or of all servers.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Crashes {
    /// The newest first.
    pub crashes: Vec<CrashSummary>,
    /// The newest report.
    pub last: Option<DatedReport>,
}

/// A report in a list.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CrashSummary {
    /// When, in milliseconds since 1970.
    pub at: u64,
    pub server: String,
    pub reason: String,
    /// The name of its file in `crashes` of the data directory.
    pub file: String,
}

impl CrashWriter {
    /// Starts the writer thread. `clock` returns milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// Returns the system's error when no thread can be started.
    pub fn start(
        data_dir: &Path,
        (lease, counters): (DirectoryLease, Counters),
        clock: fn() -> u64,
    ) -> io::Result<Self> {
        let (queue, reports) = sync_channel(QUEUE_MAX);
        let reports_dir = ReportDirectory {
            directory: directory(data_dir),
            lease,
            clock,
            failed_starts: HashMap::new(),
        };
        let of_thread = counters.clone();
        let thread = std::thread::Builder::new()
            .name("crash-writer".to_owned())
            .spawn(move || write_all(&reports, reports_dir, &of_thread))?;
        Ok(Self {
            queue: Arc::new(Mutex::new(Some(queue))),
            thread,
            counters,
        })
    }

    pub fn sink(&self) -> CrashSink {
        let (queue, counters) = (self.queue.clone(), self.counters.clone());
        Arc::new(move |report| {
            let queue = queue.lock();
            let taken = queue.as_ref().map(|queue| queue.try_send(report).is_ok());
            if taken != Some(true) {
                counters.add(Counter::CrashesUnreported);
            }
        })
    }

    /// Writes the queued reports and stops; later reports are dropped. Blocks on the disk.
    pub fn stop(self) {
        self.queue.lock().take();
        if self.thread.join().is_err() {
            log::error!("the crash report writer panicked");
        }
    }
}

fn write_all(
    reports: &Receiver<CrashReport>,
    mut reports_dir: ReportDirectory,
    counters: &Counters,
) {
    while let Ok(report) = reports.recv() {
        let (server, was_up) = (report.server.clone(), report.was_up);
        match reports_dir.keep(report) {
            Ok(path) => {
                counters.add(Counter::CrashesReported);
                // The log line about the exit already gives the reason. A server that never starts
                // would repeat this line at each attempt.
                let level = if was_up { Level::Info } else { Level::Debug };
                let path = path.display().to_string();
                log::log!(level, server, report = path; "crash report written, see `mcpvisor servers crashes {server}`");
            }
            Err(error) => {
                counters.add(Counter::CrashesUnreported);
                log::error!(server, error:%; "could not write the crash report");
            }
        }
    }
}

struct ReportDirectory {
    directory: PathBuf,
    lease: DirectoryLease,
    clock: fn() -> u64,
    /// The latest report of each server whose last start failed. The next failed start replaces it,
    /// so that a server that stays down for a week does not push out the report of the original
    /// crash.
    failed_starts: HashMap<String, PathBuf>,
}

impl ReportDirectory {
    fn keep(&mut self, report: CrashReport) -> io::Result<PathBuf> {
        if self.lease.number().is_none() {
            return Err(io::Error::other("the data directory cannot be used"));
        }
        private_dir(&self.directory)?;
        // Newer than the newest report, even if the clock was set back.
        let newest = list(&self.directory, Some(&report.server))?;
        let after = newest.first().map_or(0, |newest| newest.at + 1);
        let at = (self.clock)().max(after);
        let path = self.directory.join(file_name(&report.server, at));
        let dated = DatedReport { at, report };
        write_private(&path, &serde_json::to_vec_pretty(&dated)?)?;
        let report = dated.report;
        let earlier = if report.was_up {
            self.failed_starts.remove(&report.server);
            None
        } else {
            let server = report.server.clone();
            self.failed_starts.insert(server, path.clone())
        };
        if let Some(earlier) = earlier {
            // Fails if the file is already gone.
            let _ = fs::remove_file(earlier);
        }
        self.remove_oldest(&report.server, report.keep)?;
        Ok(path)
    }

    fn remove_oldest(&self, server: &str, keep: usize) -> io::Result<()> {
        let found = list(&self.directory, Some(server))?;
        for old in found.iter().skip(keep) {
            fs::remove_file(self.directory.join(&old.file))?;
        }
        Ok(())
    }
}

fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join("crashes")
}

fn file_name(server: &str, at: u64) -> String {
    format!("{server}.{at:013}.json")
}

/// A report file, identified by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReportFile {
    at: u64,
    file: String,
}

/// Report files, newest first. Server names contain no dots.
fn list(directory: &Path, server: Option<&str>) -> io::Result<Vec<ReportFile>> {
    let files = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files?,
    };
    let mut found = Vec::new();
    for file in files {
        let Ok(file) = file?.file_name().into_string() else {
            continue;
        };
        let parts: Vec<&str> = file.split('.').collect();
        let [name, at, "json"] = parts[..] else {
            continue;
        };
        if let Ok(at) = at.parse()
            && server.is_none_or(|server| server == name)
        {
            found.push(ReportFile { at, file });
        }
    }
    found.sort_by(|one, other| (other.at, &other.file).cmp(&(one.at, &one.file)));
    Ok(found)
}

/// Reads the reports of one server, or of all servers.
///
/// # Errors
///
/// Returns the system's error when the directory cannot be read.
pub fn crashes(data_dir: &Path, server: Option<&str>) -> io::Result<Crashes> {
    let directory = directory(data_dir);
    let found = list(&directory, server)?;
    let mut read_reports = Crashes::default();
    for found in found.iter().take(LIST_MAX) {
        // Skip reports that were just removed or cannot be read.
        let Ok(dated) = read(&directory.join(&found.file)) else {
            continue;
        };
        read_reports.crashes.push(CrashSummary {
            at: dated.at,
            server: dated.report.server.clone(),
            reason: dated.report.reason.clone(),
            file: found.file.clone(),
        });
        read_reports.last.get_or_insert(dated);
    }
    Ok(read_reports)
}

/// The newest full reports of a server, newest first.
///
/// # Errors
///
/// Returns the system's error when the directory cannot be read.
pub fn crash_reports(data_dir: &Path, server: &str, most: usize) -> io::Result<Vec<DatedReport>> {
    let directory = directory(data_dir);
    let found = list(&directory, Some(server))?;
    let reports = found.iter().take(most);
    // Skip reports that were just removed or cannot be read.
    let reports = reports.filter_map(|found| read(&directory.join(&found.file)).ok());
    Ok(reports.collect())
}

fn read(path: &Path) -> io::Result<DatedReport> {
    let mut json = Vec::new();
    File::open(path)?.take(READ_MAX).read_to_end(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn report(server: &str, was_up: bool, reason: &str, keep: usize) -> CrashReport {
        CrashReport {
            server: server.to_owned(),
            connection: "shared".to_owned(),
            transport: "stdio".into(),
            generation: 1,
            was_up,
            lived_ms: 1,
            reason: reason.to_owned(),
            exit: None,
            limit: None,
            pending_calls: 0,
            pending: Vec::new(),
            messages: Vec::new(),
            log: Vec::new(),
            keep,
        }
    }

    fn reasons(data_dir: &Path, server: Option<&str>) -> Vec<String> {
        let listed = crashes(data_dir, server).unwrap();
        let lines = listed.crashes.into_iter();
        lines.map(|line| line.reason).collect()
    }

    #[test]
    fn the_last_reports_of_each_server_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(crashes(path, None).unwrap().last.is_none());
        // File names must differ even when the clock does not advance.
        let counters = Counters::default();
        let writer =
            CrashWriter::start(path, (DirectoryLease::default(), counters.clone()), || {
                1_700_000_000_000
            })
            .unwrap();
        let sink = writer.sink();
        for number in 0..5 {
            sink(report("a", true, &format!("a{number}"), 3));
        }
        sink(report("b-c", true, "b", 3));
        for number in 0..4 {
            sink(report("b-c", false, &format!("start{number}"), 3));
        }
        sink(report("b-c", true, "b again", 3));
        sink(report("b-c", false, "start again", 4));
        writer.stop();
        sink(report("a", true, "too late", 3));
        assert_eq!(reasons(path, Some("a")), ["a4", "a3", "a2"]);
        let expected = ["start again", "b again", "start3", "b"];
        assert_eq!(reasons(path, Some("b-c")), expected[..]);
        let newest = crash_reports(path, "b-c", 2).unwrap();
        let newest: Vec<&str> = newest.iter().map(|it| &*it.report.reason).collect();
        assert_eq!(newest, expected[..2]);
        assert_eq!(reasons(path, Some("b")), [""; 0]);
        assert_eq!(reasons(path, None).len(), 7);
        let view = counters.view();
        assert_eq!(view["crashes_reported"], 12);
        assert_eq!(view["crashes_unreported"], 1);
        let folder = path.join("crashes");
        for file in fs::read_dir(&folder).unwrap() {
            let mode = file.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        // A malformed report file is ignored.
        fs::write(folder.join("a.1800000000000.json"), "{").unwrap();
        fs::write(folder.join("notes.txt"), "x").unwrap();
        assert_eq!(reasons(path, Some("a")), ["a4", "a3", "a2"]);
    }
}
