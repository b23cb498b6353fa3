//! Notices that the configuration file changed.
//!
//! The *directory* is watched, since editors replace the file and Kubernetes swaps a link beside
//! it; and the file is looked at every few seconds, since network file systems tell nothing.
//! What counts is the content: a file that was only touched is no change. It knows nothing of
//! what a change means, and does not look at files that `${file:…}` names: SIGHUP is for those.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode};
use notify_debouncer_full::{DebounceEventResult, Debouncer, NoCache, new_debouncer_opt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{self, MissedTickBehavior};

use super::{FILE_MAX, Fingerprint};

/// How patient a watch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// Events within this time lead to one look at the file: editors write in several steps.
    pub settle: Duration,
    /// Time between two looks without any event.
    pub poll_every: Duration,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(200),
            poll_every: Duration::from_secs(10),
        }
    }
}

/// The file has another content than at the last event. It may have been changed again since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed;

/// A running watch; it ends when it is dropped.
pub struct Watch {
    task: JoinHandle<()>,
    /// `None` where the system has no events to offer; the polling goes on.
    _events: Option<Debouncer<RecommendedWatcher, NoCache>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Watches `path`, of which `known` is the content that was loaded; a change between the
    /// loading and this call is noticed too. The receiver holds one event at most, which stands
    /// for all changes until it is taken. Must be called within a tokio runtime.
    pub fn start(
        path: &Path,
        known: Fingerprint,
        settings: &WatchSettings,
    ) -> (Self, mpsc::Receiver<Changed>) {
        let (poke, pokes) = mpsc::channel(1);
        let (report, changes) = mpsc::channel(1);
        let events = match watch_directory(path, settings.settle, poke) {
            Ok(events) => Some(events),
            Err(error) => {
                log::warn!(
                    path:% = path.display(), error:%;
                    "no events for the configuration file, polling it instead"
                );
                None
            }
        };
        let look = Look {
            path: path.to_owned(),
            seen: known,
        };
        let task = tokio::spawn(run(look, settings.poll_every, pokes, report));
        (
            Self {
                task,
                _events: events,
            },
            changes,
        )
    }
}

fn watch_directory(
    path: &Path,
    settle: Duration,
    poke: mpsc::Sender<()>,
) -> notify::Result<Debouncer<RecommendedWatcher, NoCache>> {
    // A full channel means that a look is due anyway.
    let handler = move |_: DebounceEventResult| {
        let _ = poke.try_send(());
    };
    // No cache of file ids: it would walk through the whole directory.
    let config = notify::Config::default();
    let mut debouncer = new_debouncer_opt(settle, None, handler, NoCache::new(), config)?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    debouncer.watch(
        directory.unwrap_or(Path::new(".")),
        RecursiveMode::NonRecursive,
    )?;
    Ok(debouncer)
}

async fn run(
    mut look: Look,
    poll_every: Duration,
    mut pokes: mpsc::Receiver<()>,
    report: mpsc::Sender<Changed>,
) {
    let mut poll = time::interval(poll_every);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has_events = true;
    loop {
        tokio::select! {
            _ = poll.tick() => {}
            poke = pokes.recv(), if has_events => has_events = poke.is_some(),
        }
        let looked = tokio::task::spawn_blocking(move || {
            let changed = look.again();
            (look, changed)
        });
        let Ok((back, changed)) = looked.await else {
            return;
        };
        look = back;
        if changed && report.try_send(Changed) == Err(mpsc::error::TrySendError::Closed(Changed)) {
            return;
        }
    }
}

/// What the file held when it was last looked at.
struct Look {
    path: PathBuf,
    seen: Fingerprint,
}

impl Look {
    /// Whether the file has another content now. A file that cannot be read, as between the two
    /// steps of a replacement, is no change.
    fn again(&mut self) -> bool {
        let Ok(content) = read(&self.path) else {
            return false;
        };
        let now = Fingerprint::of(&content);
        let changed = now != self.seen;
        self.seen = now;
        changed
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let about = fs::metadata(path)?;
    if !about.is_file() || about.len() > FILE_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fs::read(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);
    const EVENTS_ONLY: WatchSettings = WatchSettings {
        settle: Duration::from_millis(20),
        poll_every: Duration::from_secs(3600),
    };

    async fn next(changes: &mut mpsc::Receiver<Changed>) -> Option<Changed> {
        time::timeout(DEADLINE, changes.recv())
            .await
            .expect("a change within the deadline")
    }

    #[tokio::test]
    async fn every_way_of_changing_the_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        fs::write(&path, "one").unwrap();
        let (_watch, mut changes) = Watch::start(&path, Fingerprint::of(b"one"), &EVENTS_ONLY);
        // Written in place.
        fs::write(&path, "two").unwrap();
        assert_eq!(next(&mut changes).await, Some(Changed));
        // Replaced, as editors do.
        let beside = directory.path().join("config.toml.new");
        fs::write(&beside, "three").unwrap();
        fs::rename(&beside, &path).unwrap();
        assert_eq!(next(&mut changes).await, Some(Changed));
        // Removed and written again.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "four").unwrap();
        assert_eq!(next(&mut changes).await, Some(Changed));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_swapped_link_is_noticed() {
        use std::os::unix::fs::symlink;

        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (version, text) in [("v1", "one"), ("v2", "two")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("config.toml"), text).unwrap();
        }
        symlink("v1", at("..data")).unwrap();
        symlink("..data/config.toml", at("config.toml")).unwrap();
        let known = Fingerprint::of(b"one");
        let (_watch, mut changes) = Watch::start(&at("config.toml"), known, &EVENTS_ONLY);
        symlink("v2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert_eq!(next(&mut changes).await, Some(Changed));
    }

    #[tokio::test]
    async fn without_events_the_polling_finds_it_also_what_changed_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        fs::write(&path, "two").unwrap();
        let settings = WatchSettings {
            settle: Duration::from_secs(3600),
            poll_every: Duration::from_millis(10),
        };
        let (_watch, mut changes) = Watch::start(&path, Fingerprint::of(b"one"), &settings);
        assert_eq!(next(&mut changes).await, Some(Changed));
        fs::write(&path, "three").unwrap();
        assert_eq!(next(&mut changes).await, Some(Changed));
    }

    #[test]
    fn only_the_content_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        let mut look = Look {
            path: path.clone(),
            seen: Fingerprint::of(b"one"),
        };
        assert!(!look.again(), "no file is no change");
        fs::write(&path, "one").unwrap();
        assert!(!look.again(), "the same content again");
        fs::write(&path, "two").unwrap();
        assert!(look.again());
        assert!(!look.again(), "told once");
    }
}
