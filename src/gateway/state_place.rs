//! The data directory as the place of the state: locked, watched, and made again when it is gone.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fs, io};

use tokio::time::timeout;
use uuid::Uuid;

use super::{STATE_FILE, StartError};
use crate::admin::{ApiToken, DataDir, DataDirError, KeyUses, read_key_uses, with_files};
use crate::store::{
    DirectoryLease, DurableStore, OpenError, OpenedStore, SqliteStore, StatePlace, StoreClock,
    move_aside,
};
use crate::telemetry::{even_millis, unix_millis};

/// How long the start waits for the disk; without it, the gateway serves from memory.
const START_WAIT: Duration = Duration::from_secs(5);

/// The data directory, with the right to use its files.
pub(super) struct DataPlace {
    path: PathBuf,
    directory: Option<DataDir>,
    lease: DirectoryLease,
    /// The device and number of the state file that is open.
    file: Option<(u64, u64)>,
    named: Arc<OnceLock<NamedFiles>>,
    /// Whether these could not be written last time.
    fails: bool,
}

impl DataPlace {
    /// `directory` is locked already, if it could be.
    pub(super) fn new(path: PathBuf, directory: Option<DataDir>, lease: DirectoryLease) -> Self {
        let place = Self {
            path,
            directory,
            lease,
            file: None,
            named: Arc::default(),
            fails: false,
        };
        if place.directory.is_some() {
            place.lease.hold();
        }
        place
    }

    fn lock(&mut self) -> Result<(), OpenError> {
        if self.directory.is_none() {
            let locked = DataDir::lock(&self.path);
            self.directory = Some(locked.map_err(|error| self.refused(&error))?);
            self.lease.hold();
        }
        Ok(())
    }

    fn refused(&self, error: &DataDirError) -> OpenError {
        let (path, reason) = (self.path.clone(), error.to_string());
        match error {
            DataDirError::Io { source, .. } if !error.is_refusal() => OpenError::io(&path, source),
            _ => OpenError::Refused { reason },
        }
    }

    fn state_file(&self) -> PathBuf {
        self.path.join(STATE_FILE)
    }
}

impl StatePlace for DataPlace {
    fn open(&mut self) -> Result<OpenedStore, OpenError> {
        self.lock()?;
        let path = self.state_file();
        let open =
            || SqliteStore::open_with_threads(&path, StoreClock::new(unix_millis, even_millis));
        let (opened, notice) = match open() {
            Err(OpenError::Damaged { .. }) => {
                let notice = self.set_aside()?;
                (open()?, Some(notice))
            }
            opened => (opened?, None),
        };
        let (store, threads) = opened;
        self.file = identity(&path).ok();
        Ok(OpenedStore {
            store: Arc::new(store),
            closed: Box::new(move || threads.join()),
            notice,
        })
    }

    fn lost(&mut self) -> Option<String> {
        let directory = self.directory.as_ref()?;
        if !directory.is_in_place() {
            self.lease.give_up();
            self.directory = None;
            return Some("data directory was removed or replaced".to_owned());
        }
        let path = self.state_file();
        let is_there = identity(&path).is_ok_and(|found| Some(found) == self.file);
        (!is_there).then(|| format!("`{STATE_FILE}` was removed or replaced"))
    }

    fn tend(&mut self) {
        let Some(named) = self.named.get() else {
            return;
        };
        let written = named.write_missing(&self.path);
        if let (Err(error), false) = (&written, self.fails) {
            log::warn!(error:%; "could not write who uses the data directory");
        }
        self.fails = written.is_err();
    }

    fn set_aside(&mut self) -> Result<String, OpenError> {
        let path = self.state_file();
        let aside = move_aside(&path, unix_millis())?;
        let aside = aside.file_name().unwrap_or_default().to_string_lossy();
        Ok(format!(
            "`{STATE_FILE}` was damaged and is now `{aside}`: the sessions and lists that it held are lost"
        ))
    }
}

/// Files of the data directory that tell others which gateway uses it, and how they reach it.
pub(super) struct NamedFiles {
    owner: Uuid,
    token: Option<Arc<ApiToken>>,
    listen: String,
}

impl NamedFiles {
    fn write_missing(&self, data_dir: &Path) -> io::Result<()> {
        DataDir::write_missing(data_dir, &self.listen, self.owner)?;
        self.token.as_ref().map_or(Ok(()), |it| it.write_missing())
    }
}

/// The data directory, opened.
pub(super) struct OpenedPlace {
    pub(super) lease: DirectoryLease,
    pub(super) store: Arc<DurableStore>,
    named: Arc<OnceLock<NamedFiles>>,
}

impl OpenedPlace {
    /// Writes files now, and from now on whenever they are missing.
    pub(super) async fn keep(&self, data_dir: &Path, files: NamedFiles) {
        let (path, named) = (data_dir.to_owned(), Arc::clone(&self.named));
        let is_held = self.lease.number().is_some();
        let keep = move || {
            let written = is_held.then(|| files.write_missing(&path));
            // The store's thread writes them too from now on.
            let _ = named.set(files);
            written
        };
        if let Some(Some(Err(error))) = with_files(keep).await {
            log::warn!(error:%; "others cannot see which gateway uses the data directory");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Opens the state in a data directory, which is `locked` already if it could be, and reads the other
/// files of the start.
///
/// # Errors
///
/// As [`open_store`].
pub(super) async fn open_data_dir(
    data_dir: &Path,
    locked: Option<DataDir>,
    listens: bool,
) -> Result<(OpenedPlace, KeptFiles), StartError> {
    let lease = DirectoryLease::unheld();
    let place = DataPlace::new(data_dir.to_owned(), locked, lease.clone());
    let named = Arc::clone(&place.named);
    let store = Arc::new(open_store(place).await?);
    let kept = KeptFiles::read(data_dir, &lease, listens).await?;
    let opened = OpenedPlace {
        lease,
        store,
        named,
    };
    Ok((opened, kept))
}

/// Opens the state; a disk that fails or hangs costs durability only.
///
/// # Errors
///
/// Returns [`StartError`] when another gateway uses the directory, or a newer release wrote it.
async fn open_store(place: DataPlace) -> Result<DurableStore, StartError> {
    let (store, opened) = DurableStore::start(place)?;
    match timeout(START_WAIT, opened).await {
        Ok(Ok(Err(refused))) if refused.is_final() => {
            store.stop().await;
            return Err(match refused {
                OpenError::Refused { reason } => StartError::DataDir(reason),
                other => StartError::Store(other),
            });
        }
        // The store has said why, and tries again.
        Ok(_) => {}
        Err(_) => store.note_late(),
    }
    Ok(store)
}

/// The files of the data directory that the start reads, beside the state.
pub(super) struct KeptFiles {
    /// The name of the directory, by which processes of an earlier gateway are found.
    pub(super) owner: Uuid,
    pub(super) token: Arc<ApiToken>,
    pub(super) key_uses: KeyUses,
}

impl KeptFiles {
    /// Reads or makes them; those of a directory that cannot be used end with the process. A token
    /// is kept only where something listens.
    ///
    /// # Errors
    ///
    /// Returns the system's error when it has no randomness.
    pub(super) async fn read(
        data_dir: &Path,
        lease: &DirectoryLease,
        listens: bool,
    ) -> io::Result<Self> {
        let path = data_dir.to_owned();
        let is_held = lease.number().is_some();
        let read = move || {
            is_held.then(|| {
                let owner = DataDir::owner(&path, Uuid::new_v4);
                let token = listens.then(|| ApiToken::open(&path).ok()).flatten();
                (owner, token, read_key_uses(&path))
            })
        };
        let (owner, token, key_uses) = match with_files(read).await.flatten() {
            Some((owner, token, uses)) => (owner.ok(), token, uses),
            None => (None, None, KeyUses::default()),
        };
        let token = token.map_or_else(|| ApiToken::unkept(data_dir), Ok)?;
        Ok(Self {
            owner: owner.unwrap_or_else(Uuid::new_v4),
            token: Arc::new(token),
            key_uses,
        })
    }

    /// The files of a gateway with this token that listens here.
    pub(super) fn named(&self, token: Option<Arc<ApiToken>>, listen: &str) -> NamedFiles {
        NamedFiles {
            owner: self.owner,
            token,
            listen: listen.to_owned(),
        }
    }
}
