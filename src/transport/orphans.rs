//! Ends processes that left the process group of their server, and processes that a killed gateway
//! left behind.
//!
//! Each scan of all processes takes some milliseconds, on a thread of its own. Requests that arrive
//! during a scan share the next one.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::process::{OrphanScope, ProcessOwner, TaggedProcess, end, find, reap};

/// Maximum wait for killed processes to disappear.
pub(super) const KILL_WAIT_MAX: Duration = Duration::from_secs(5);

/// Delay before checking again whether processes have ended; doubled each time up to the second
/// value.
pub(super) const POLL_FIRST: Duration = Duration::from_millis(5);
pub(super) const POLL_MAX: Duration = Duration::from_millis(160);

/// Scans in a row that must find nothing, because one scan can miss a process that is forking, or
/// that is executing another program and has no environment for a moment.
const EMPTY_LOOKS: usize = 2;

/// Finds the tagged processes of one data directory.
#[derive(Clone, Debug)]
pub(super) struct OrphanFinder {
    instance: ProcessOwner,
    last: Arc<Mutex<Option<ProcessScan>>>,
}

#[derive(Clone, Debug)]
struct ProcessScan {
    began: Instant,
    found: Arc<Vec<TaggedProcess>>,
}

impl OrphanFinder {
    pub(super) fn new(instance: ProcessOwner) -> Self {
        Self {
            instance,
            last: Arc::default(),
        }
    }

    pub(super) fn instance(&self) -> &ProcessOwner {
        &self.instance
    }

    async fn find(&self, wanted: OrphanScope) -> Vec<TaggedProcess> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        let scan = match last.take() {
            // The scan started after this request, so its result can be shared.
            Some(scan) if scan.began > asked => scan,
            Some(_) | None => self.scan().await,
        };
        let found = scan.found.iter();
        let wanted = found.filter(|process| self.instance.selects(wanted, process.tag));
        let wanted = wanted.cloned().collect();
        *last = Some(scan);
        wanted
    }

    async fn scan(&self) -> ProcessScan {
        let instance = self.instance;
        let began = Instant::now();
        let found = spawn_blocking(move || find(&instance)).await;
        // The scan fails only if its runtime is shutting down.
        let found = Arc::new(found.unwrap_or_default());
        ProcessScan { began, found }
    }

    /// Asks the selected processes to exit, and kills the rest after `grace`, or when `hurry`
    /// resolves. Repeats this until none is left, because the processes can start others.
    pub(super) async fn end_all(
        &self,
        wanted: OrphanScope,
        grace: Duration,
        hurry: impl Future<Output = ()>,
    ) {
        let begin = Instant::now();
        let mut hurry = Box::pin(hurry);
        let mut is_kill_due = false;
        // The signalled processes, and whether they were killed.
        let mut signalled: HashMap<i32, (TaggedProcess, bool)> = HashMap::new();
        let mut pause = POLL_FIRST;
        let mut empty_looks = 0;
        loop {
            let found = self.find(wanted).await;
            let waited = begin.elapsed();
            if found.is_empty() {
                empty_looks += 1;
                if empty_looks == EMPTY_LOOKS {
                    break;
                }
            } else if waited >= grace + KILL_WAIT_MAX {
                log::error!(processes = found.len(); "killed processes have not ended");
                break;
            } else {
                empty_looks = 0;
            }
            let at_once = is_kill_due || waited >= grace;
            for process in found {
                let before = signalled.get(&process.pid).map(|(_, killed)| *killed);
                if (at_once || before.is_none()) && self.signal(&process, at_once).await {
                    if before != Some(at_once) {
                        log_end(&process, wanted, at_once);
                    }
                    signalled.insert(process.pid, (process, at_once));
                }
            }
            if at_once || empty_looks > 0 {
                sleep(pause).await;
            } else {
                let wait = Box::pin(sleep(pause.min(grace.saturating_sub(waited))));
                is_kill_due = matches!(select(&mut hurry, wait).await, Either::Left(_));
            }
            pause = (2 * pause).min(POLL_MAX);
        }
        signalled.values().for_each(|(process, _)| reap(process));
    }

    async fn signal(&self, process: &TaggedProcess, at_once: bool) -> bool {
        let (instance, it) = (self.instance, process.clone());
        let signalled = spawn_blocking(move || end(&instance, &it, at_once)).await;
        signalled.unwrap_or(false)
    }
}

fn log_end(process: &TaggedProcess, wanted: OrphanScope, at_once: bool) {
    let (pid, name) = (process.pid, process.name.as_str());
    let how = if at_once { "killed" } else { "asked to end" };
    match wanted {
        OrphanScope::EarlierRuns => {
            log::warn!(pid, name; "process left behind by an earlier gateway was {how}");
        }
        OrphanScope::ThisRun | OrphanScope::Child(_) => {
            log::info!(pid, name; "process that left its server's group was {how}");
        }
    }
}
