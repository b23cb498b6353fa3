//! The directory of the gateway's state, locked by one gateway at a time.

use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::store::{check_way_to, private_dir, private_file, write_private};

/// How long a lock can outlive its process: a child that was starting when the gateway was killed
/// holds the lock until it notices.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Delay between two attempts to lock.
const LOCK_RETRY: Duration = Duration::from_millis(20);

const RUN_FILE: &str = "run.json";
const OWNER_FILE: &str = "instance";

/// A locked data directory. The lock ends with the process.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// The directory itself, which can be locked even on a read-only file system.
    directory: File,
    /// The file that earlier releases lock; `None` if it cannot be created.
    _lock: Option<File>,
}

/// Why the data directory is unusable.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error(
        "data directory `{path}` is used by another gateway{owner}: stop it, or set another `gateway.data_dir`"
    )]
    InUse { path: PathBuf, owner: String },
    #[error("data directory `{path}` cannot be used: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl DataDirError {
    /// Whether the directory itself is unsuitable, as opposed to a failure of the system.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::InUse { .. } => true,
            Self::Io { source, .. } => source.raw_os_error().is_none(),
        }
    }
}

/// The process that uses the directory, stored in `run.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunFile {
    pub(super) pid: u32,
    pub(super) listen: String,
}

impl DataDir {
    /// Creates the directory if necessary and locks it. Blocks briefly if it is in use.
    ///
    /// # Errors
    ///
    /// Returns [`DataDirError`] when another gateway uses the directory, other users could replace
    /// it, or the system fails.
    pub fn lock(path: &Path) -> Result<Self, DataDirError> {
        let failed = |source| DataDirError::Io {
            path: path.to_owned(),
            source,
        };
        private_dir(path).map_err(failed)?;
        check_way_to(path).map_err(failed)?;
        let directory = File::open(path).map_err(failed)?;
        let lock = private_file(&path.join("lock")).ok();
        for locked in [Some(&directory), lock.as_ref()].into_iter().flatten() {
            match try_for(locked, LOCK_WAIT) {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let owner = read_run_file(path)
                        .map_or_else(String::new, |run| format!(" (pid {})", run.pid));
                    let path = path.to_owned();
                    return Err(DataDirError::InUse { path, owner });
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
        // It names a process that has ended.
        let _ = fs::remove_file(path.join(RUN_FILE));
        Ok(Self {
            path: path.to_owned(),
            directory,
            _lock: lock,
        })
    }

    /// Whether the path still leads to the locked directory.
    pub fn is_in_place(&self) -> bool {
        let identity = |found: &Metadata| (found.dev(), found.ino());
        let locked = self.directory.metadata();
        let found = fs::metadata(&self.path);
        matches!((locked, found), (Ok(locked), Ok(found)) if identity(&locked) == identity(&found))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the process that holds the lock and the id of the directory, if their files are
    /// missing.
    ///
    /// # Errors
    ///
    /// Returns the system's error when a file cannot be written.
    pub fn write_missing(path: &Path, listen: &str, owner: Uuid) -> io::Result<()> {
        if path.join(OWNER_FILE).symlink_metadata().is_err() {
            write_owner(path, owner)?;
        }
        if path.join(RUN_FILE).symlink_metadata().is_ok() {
            return Ok(());
        }
        let run = RunFile {
            pid: std::process::id(),
            listen: listen.to_owned(),
        };
        write_private(&path.join(RUN_FILE), &serde_json::to_vec(&run)?)
    }

    /// The id of the directory, the same for every gateway that uses it. A copy gets its own id,
    /// since two gateways can use the original and the copy at the same time.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the id cannot be stored.
    pub fn owner(directory: &Path, mint: impl FnOnce() -> Uuid) -> io::Result<Uuid> {
        let place = directory_identity(directory)?;
        let kept = fs::read_to_string(directory.join(OWNER_FILE)).unwrap_or_default();
        if let Some(owner) = instance_id_in(&kept, &place) {
            return Ok(owner);
        }
        let owner = mint();
        // If the id is missing, processes left behind by a killed gateway are not found.
        if let Err(error) = write_owner(directory, owner) {
            log::warn!(error:%; "could not store the id of the data directory");
        }
        Ok(owner)
    }

    /// The path of a data directory's control socket.
    pub fn control_socket(path: &Path) -> PathBuf {
        path.join("control.sock")
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // Another gateway may already use a new directory at the same path.
        if self.is_in_place() {
            // A leftover file is harmless: without the lock, its process has ended.
            let _ = fs::remove_file(self.path.join(RUN_FILE));
        }
    }
}

/// The id in the file's text, if it was assigned to the directory at this place.
fn instance_id_in(kept: &str, place: &str) -> Option<Uuid> {
    // A line without a newline was not completely written.
    let (owner, at) = kept.strip_suffix('\n')?.split_once(' ')?;
    let owner = Uuid::try_parse(owner).ok()?;
    (at == place).then_some(owner)
}

fn write_owner(directory: &Path, owner: Uuid) -> io::Result<()> {
    let place = directory_identity(directory)?;
    let path = directory.join(OWNER_FILE);
    write_private(&path, format!("{owner} {place}\n").as_bytes())
}

/// Distinguishes a directory from its copies, as far as the system allows.
fn directory_identity(path: &Path) -> io::Result<String> {
    let directory = fs::metadata(path)?;
    Ok(format!("{}:{}", directory.dev(), directory.ino()))
}

fn try_for(lock: &File, wait: Duration) -> Result<(), TryLockError> {
    let attempts = wait.as_millis() / LOCK_RETRY.as_millis();
    for _ in 0..attempts {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::park_timeout(LOCK_RETRY),
            tried => return tried,
        }
    }
    lock.try_lock()
}

pub(super) fn read_run_file(path: &Path) -> Option<RunFile> {
    serde_json::from_slice(&fs::read(path.join(RUN_FILE)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_second_gateway_names_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let first = DataDir::lock(&path).unwrap();
        let owner = Uuid::from_u128(1);
        DataDir::write_missing(&path, "127.0.0.1:1", owner).unwrap();
        let error = DataDir::lock(&path).unwrap_err().to_string();
        assert!(
            error.contains(&format!("(pid {})", std::process::id())),
            "{error}"
        );
        drop(first);
        assert!(DataDir::lock(&path).is_ok());
    }

    #[test]
    fn a_directory_that_others_can_replace_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("above/below/state");
        DataDir::lock(&path).unwrap();
        for open in ["above", "above/below"].map(|name| base.path().join(name)) {
            for (mode, trusted) in [(0o777, false), (0o1777, true), (0o755, true)] {
                fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
                match DataDir::lock(&path) {
                    Ok(_) => assert!(trusted, "{open:?} {mode:o}"),
                    Err(error) => {
                        assert!(!trusted && error.is_refusal(), "{error}");
                        assert!(error.to_string().contains("chmod o-w"), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_directory_keeps_its_name_and_a_copy_gets_another() {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["state", "copy"].map(|name| directory.path().join(name));
        let owner = |path: &Path, minted: u128| {
            let _locked = DataDir::lock(path).unwrap();
            let owner = DataDir::owner(path, || Uuid::from_u128(minted));
            owner.unwrap().as_u128()
        };
        assert_eq!(owner(&path, 1), 1);
        assert_eq!(owner(&path, 2), 1);
        fs::create_dir(&copy).unwrap();
        fs::copy(path.join("instance"), copy.join("instance")).unwrap();
        assert_eq!(owner(&copy, 3), 3);
        assert_eq!(owner(&copy, 4), 3);
        for torn in ["", "x\n", "00000000-0000-0000-0000-00000000"] {
            fs::write(path.join("instance"), torn).unwrap();
            assert_eq!(owner(&path, 5), 5);
        }
        let kept = fs::read_to_string(path.join("instance")).unwrap();
        fs::write(path.join("instance"), kept.trim_end()).unwrap();
        assert_eq!(owner(&path, 6), 6);
    }

    #[test]
    fn a_lock_that_ends_in_a_moment_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let first = DataDir::lock(directory.path()).unwrap();
        let left = first.directory.try_clone().unwrap();
        drop(first);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::park_timeout(LOCK_RETRY * 3);
                drop(left);
            });
            assert!(DataDir::lock(directory.path()).is_ok());
        });
    }
}
