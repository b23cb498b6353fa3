//! Detects changes to the configuration file and the files it includes.
//!
//! The *directory* is watched, because editors replace the file and Kubernetes swaps a link beside
//! it. The file is also polled every few seconds, because network file systems send no events. Only
//! the content counts: touching a file is not a change. The module does not interpret changes, and
//! does not watch files that `${file:…}` names: use SIGHUP for those.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{self, MissedTickBehavior};

use super::{FILE_MAX, Fingerprint, LoadedFile};

/// Maximum number of reads of a file that keeps changing, before waiting for the next event or
/// poll.
const LOOKS_MAX: usize = 50;

/// Timing of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// How long new content must stay the same: editors and people write in several steps.
    pub settle: Duration,
    /// Interval between polls without events.
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

/// Reports that a file's content differs from the last event and has settled, so that partial
/// writes are not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed;

/// A running watch on some files; it ends when it is dropped.
pub struct Watch {
    files: Vec<WatchedFile>,
    report: mpsc::Sender<Changed>,
    settings: WatchSettings,
}

impl Watch {
    /// Watches files, each with the content that was loaded; a change between loading and this call
    /// is also detected. While `report` is full, events are dropped, because the queued one already
    /// covers them. Must be called within a tokio runtime.
    pub fn start(
        files: &[LoadedFile],
        settings: &WatchSettings,
        report: mpsc::Sender<Changed>,
    ) -> Self {
        let mut watch = Self {
            files: Vec::new(),
            report,
            settings: settings.clone(),
        };
        watch.follow(files);
        watch
    }

    /// Replaces the set of watched files. Files already in it are not watched again.
    pub fn follow(&mut self, files: &[LoadedFile]) {
        let is_wanted = |path: &Path| files.iter().any(|file| file.path == path);
        self.files.retain(|watched| is_wanted(&watched.path));
        for file in files {
            if self.files.iter().all(|watched| watched.path != file.path) {
                let watched = WatchedFile::start(file, &self.settings, self.report.clone());
                self.files.push(watched);
            }
        }
    }
}

struct WatchedFile {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl WatchedFile {
    fn start(file: &LoadedFile, settings: &WatchSettings, report: mpsc::Sender<Changed>) -> Self {
        let (path, seen, settings) = (file.path.clone(), file.fingerprint, settings.clone());
        let watched = path.clone();
        let task = tokio::spawn(async move {
            let (poke, pokes) = mpsc::channel(1);
            // The file system can hang.
            let events = spawn_blocking(move || events_of(&watched, poke)).await;
            run(path, seen, settings, pokes, report).await;
            drop(events);
        });
        let path = file.path.clone();
        Self { path, task }
    }
}

/// Subscribes to file system events; `None` if they are unavailable and changes are found by
/// polling.
fn events_of(path: &Path, poke: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    match watch_directory(path, poke) {
        Ok(events) => Some(events),
        // A missing directory can be created together with the file.
        Err(_) if !path.exists() => None,
        Err(error) => {
            log::warn!(
                path:% = path.display(), error:%;
                "file system events are unavailable for the configuration file; polling it instead"
            );
            None
        }
    }
}

fn watch_directory(path: &Path, poke: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let handler = move |event: notify::Result<notify::Event>| {
        // Our own reads of the file cause events as well. An error can hide any change.
        if event.is_ok_and(|event| event.kind.is_access()) {
            return;
        }
        // A full channel already has a read pending.
        let _ = poke.try_send(());
    };
    let mut watcher = notify::recommended_watcher(handler)?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    watcher.watch(
        directory.unwrap_or(Path::new(".")),
        RecursiveMode::NonRecursive,
    )?;
    Ok(watcher)
}

async fn run(
    path: PathBuf,
    mut seen: Fingerprint,
    settings: WatchSettings,
    mut pokes: mpsc::Receiver<()>,
    report: mpsc::Sender<Changed>,
) {
    let mut poll = time::interval(settings.poll_every);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut has_events = true;
    loop {
        tokio::select! {
            _ = poll.tick() => {}
            poke = pokes.recv(), if has_events => {
                has_events = poke.is_some();
                quiet(&mut pokes, settings.settle).await;
            }
        }
        let Some(now) = settled(|| look(path.clone()), seen, settings.settle).await else {
            continue;
        };
        seen = now;
        if report.try_send(Changed) == Err(mpsc::error::TrySendError::Closed(Changed)) {
            return;
        }
    }
}

/// Waits until no event has arrived for `settle`, so that a busy directory causes one read instead
/// of one per event. Stops after [`LOOKS_MAX`] events in a row.
async fn quiet(pokes: &mut mpsc::Receiver<()>, settle: Duration) {
    for _ in 0..LOOKS_MAX {
        let poke = time::timeout(settle, pokes.recv()).await;
        if !matches!(poke, Ok(Some(()))) {
            return;
        }
    }
}

/// The content of the file if it is new and not being written at the moment. An unreadable file, as
/// between the two steps of a replacement, is not a change.
async fn settled<L: Future<Output = Option<Fingerprint>>>(
    mut look: impl FnMut() -> L,
    seen: Fingerprint,
    settle: Duration,
) -> Option<Fingerprint> {
    let mut last = look().await?;
    for _ in 0..LOOKS_MAX {
        if last == seen {
            return None;
        }
        time::sleep(settle).await;
        let now = look().await?;
        if now == last {
            return Some(now);
        }
        last = now;
    }
    None
}

async fn look(path: PathBuf) -> Option<Fingerprint> {
    let content = spawn_blocking(move || read(&path)).await.ok()?.ok()?;
    Some(Fingerprint::of(&content))
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

    fn loaded(path: &Path, content: &str) -> LoadedFile {
        LoadedFile {
            path: path.to_owned(),
            fingerprint: Fingerprint::of(content.as_bytes()),
        }
    }

    async fn next(changes: &mut mpsc::Receiver<Changed>) -> Option<Changed> {
        time::timeout(DEADLINE, changes.recv())
            .await
            .expect("a change within the deadline")
    }

    #[tokio::test]
    async fn every_kind_of_file_change_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        fs::write(&path, "one").unwrap();
        let (report, mut changes) = mpsc::channel(1);
        let _watch = Watch::start(&[loaded(&path, "one")], &EVENTS_ONLY, report);
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

    #[tokio::test]
    async fn only_followed_files_are_watched() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["a", "b", "c"] {
            fs::write(at(name), "one").unwrap();
        }
        let files = ["a", "b", "c"].map(|name| loaded(&at(name), "one"));
        let [a, b, c] = &files;
        let (report, mut changes) = mpsc::channel(1);
        let mut watch = Watch::start(&[a.clone(), b.clone()], &EVENTS_ONLY, report);
        watch.follow(&[a.clone(), c.clone()]);
        let paths: Vec<_> = watch.files.iter().map(|file| file.path.clone()).collect();
        assert_eq!(paths, [at("a"), at("c")]);
        for name in ["a", "c"] {
            fs::write(at(name), "two").unwrap();
            assert_eq!(next(&mut changes).await, Some(Changed), "{name}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_swapped_link_is_detected() {
        use std::os::unix::fs::symlink;

        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (version, text) in [("v1", "one"), ("v2", "two")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("config.toml"), text).unwrap();
        }
        symlink("v1", at("..data")).unwrap();
        symlink("..data/config.toml", at("config.toml")).unwrap();
        let known = loaded(&at("config.toml"), "one");
        let (report, mut changes) = mpsc::channel(1);
        let _watch = Watch::start(&[known], &EVENTS_ONLY, report);
        symlink("v2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert_eq!(next(&mut changes).await, Some(Changed));
    }

    #[tokio::test]
    async fn polling_detects_changes_without_events() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        fs::write(&path, "two").unwrap();
        let settings = WatchSettings {
            settle: Duration::from_millis(5),
            poll_every: Duration::from_millis(10),
        };
        let (report, mut changes) = mpsc::channel(1);
        let (_poke, no_events) = mpsc::channel(1);
        let known = Fingerprint::of(b"one");
        let task = tokio::spawn(run(path.clone(), known, settings, no_events, report));
        assert_eq!(next(&mut changes).await, Some(Changed));
        fs::write(&path, "three").unwrap();
        assert_eq!(next(&mut changes).await, Some(Changed));
        drop(changes);
        fs::write(&path, "four").unwrap();
        time::timeout(DEADLINE, task)
            .await
            .expect("ends without its receiver")
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn only_settled_new_content_is_reported() {
        // The content at each read, and the content that is finally reported.
        let cases: [(&[Option<&str>], Option<&str>); 8] = [
            (&[None], None),
            (&[Some("old")], None),
            (&[Some("new"), Some("new")], Some("new")),
            // Emptied, then written.
            (&[Some(""), Some("new"), Some("new")], Some("new")),
            (
                &[Some("half"), Some("new"), Some("newer"), Some("newer")],
                Some("newer"),
            ),
            (&[Some("new"), None], None),
            (&[Some(""), Some("old")], None),
            (&[Some("new"), Some("old"), Some("old")], None),
        ];
        for (looks, reported) in cases {
            let mut looks = looks.iter();
            let look = || {
                let content = looks.next().expect("no further look is needed");
                std::future::ready(content.map(|text| Fingerprint::of(text.as_bytes())))
            };
            let found = settled(look, Fingerprint::of(b"old"), Duration::from_secs(1)).await;
            assert_eq!(found, reported.map(|text| Fingerprint::of(text.as_bytes())));
        }
        let mut number = 0_u32;
        let restless = || {
            number += 1;
            std::future::ready(Some(Fingerprint::of(&number.to_le_bytes())))
        };
        let found = settled(restless, Fingerprint::of(b"old"), Duration::from_secs(1)).await;
        assert_eq!(found, None, "a file that never settles");
    }
}
