//! Ends what left the process group of its server, and what a gateway left that was killed.
//!
//! Each look at all processes takes some milliseconds, on a thread of its own. Whoever asks while
//! one is under way shares the next.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::process::{Instance, Marked, Wanted, end, find, reap};
use super::spawner::{LOOK_FIRST, LOOK_MAX, VANISH_MAX};

/// Finds the processes of one data directory.
#[derive(Clone, Debug)]
pub(super) struct Finder {
    instance: Instance,
    last: Arc<Mutex<Option<Look>>>,
}

#[derive(Clone, Debug)]
struct Look {
    began: Instant,
    found: Arc<Vec<Marked>>,
}

impl Finder {
    pub(super) fn new(instance: Instance) -> Self {
        Self {
            instance,
            last: Arc::default(),
        }
    }

    pub(super) fn instance(&self) -> &Instance {
        &self.instance
    }

    async fn find(&self, wanted: Wanted) -> Vec<Marked> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        let look = match last.take() {
            // It began while somebody else was waited for.
            Some(look) if look.began > asked => look,
            Some(_) | None => self.look().await,
        };
        let found = look.found.iter();
        let wanted = found.filter(|process| self.instance.wants(wanted, process.mark));
        let wanted = wanted.cloned().collect();
        *last = Some(look);
        wanted
    }

    async fn look(&self) -> Look {
        let instance = self.instance;
        let began = Instant::now();
        let found = spawn_blocking(move || find(&instance)).await;
        // It ends early only together with its runtime.
        let found = Arc::new(found.unwrap_or_default());
        Look { began, found }
    }

    /// Asks all that are wanted to end, and kills those that are there after `grace` or when
    /// `hurry` is over. They may have others join them: it looks until none is left.
    pub(super) async fn end_all(
        &self,
        wanted: Wanted,
        grace: Duration,
        hurry: impl Future<Output = ()>,
    ) {
        let begin = Instant::now();
        let mut hurry = Box::pin(hurry);
        let mut hurries = false;
        // And whether they were killed.
        let mut told: HashMap<i32, (Marked, bool)> = HashMap::new();
        let mut pause = LOOK_FIRST;
        loop {
            let found = self.find(wanted).await;
            let waited = begin.elapsed();
            if found.is_empty() || waited >= grace + VANISH_MAX {
                if !found.is_empty() {
                    log::error!(processes = found.len(); "killed processes do not end");
                }
                break;
            }
            let at_once = hurries || waited >= grace;
            for process in found {
                let before = told.get(&process.pid).map(|(_, killed)| *killed);
                if (at_once || before.is_none()) && self.tell(&process, at_once).await {
                    if before != Some(at_once) {
                        log_end(&process, wanted, at_once);
                    }
                    told.insert(process.pid, (process, at_once));
                }
            }
            if at_once {
                sleep(pause).await;
            } else {
                let wait = Box::pin(sleep(pause.min(grace.saturating_sub(waited))));
                hurries = matches!(select(&mut hurry, wait).await, Either::Left(_));
            }
            pause = (2 * pause).min(LOOK_MAX);
        }
        told.values().for_each(|(process, _)| reap(process));
    }

    async fn tell(&self, process: &Marked, at_once: bool) -> bool {
        let (instance, it) = (self.instance, process.clone());
        let told = spawn_blocking(move || end(&instance, &it, at_once)).await;
        told.unwrap_or(false)
    }
}

fn log_end(process: &Marked, wanted: Wanted, at_once: bool) {
    let (pid, name) = (process.pid, process.name.as_str());
    let how = if at_once { "killed" } else { "asked to end" };
    match wanted {
        Wanted::EarlierRuns => {
            log::warn!(pid, name; "process that an earlier gateway left behind is {how}");
        }
        Wanted::Child(_) => {
            log::info!(pid, name; "process that left its server's group is {how}");
        }
    }
}
