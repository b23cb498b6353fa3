//! The data directory as the location of the state: locked, watched, and recreated if removed.

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

/// Maximum wait for the disk at startup; after that, the gateway serves from memory.
const START_WAIT: Duration = Duration::from_secs(5);

/// The data directory, with exclusive access to its files.
pub(super) struct DataPlace {
    path: PathBuf,
    directory: Option<DataDir>,
    lease: DirectoryLease,
    /// Device and inode of the open state file.
    file: Option<(u64, u64)>,
    named: Arc<OnceLock<NamedFiles>>,
    /// Whether the last attempt to write the `named` files failed.
    fails: bool,
}

impl DataPlace {
    /// `directory` is already locked, or `None` if it could not be.
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
            log::warn!(error:%; "could not write the files that identify the gateway in the data directory");
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

/// Files in the data directory that identify the gateway using it, and how to reach it.
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

/// An opened data directory.
pub(super) struct OpenedPlace {
    pub(super) lease: DirectoryLease,
    pub(super) store: Arc<DurableStore>,
    named: Arc<OnceLock<NamedFiles>>,
}

impl OpenedPlace {
    /// Writes the files now, and again whenever they are missing.
    pub(super) async fn keep(&self, data_dir: &Path, files: NamedFiles) {
        let (path, named) = (data_dir.to_owned(), Arc::clone(&self.named));
        let is_held = self.lease.number().is_some();
        let keep = move || {
            let written = is_held.then(|| files.write_missing(&path));
            // From now on, the store's thread also writes them.
            let _ = named.set(files);
            written
        };
        if let Some(Some(Err(error))) = with_files(keep).await {
            log::warn!(error:%; "could not write the files that identify the gateway in the data directory");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Opens the state in a data directory, which is already `locked` if that was possible, and reads
/// the other files needed at startup.
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

/// Opens the state. A failing or hanging disk only costs durability.
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
        // The store has logged the error, and tries again.
        Ok(_) => {}
        Err(_) => store.note_late(),
    }
    Ok(store)
}

/// The files of the data directory, apart from the state, that are read at startup.
pub(super) struct KeptFiles {
    /// Id of the directory, which identifies processes of an earlier gateway.
    pub(super) owner: Uuid,
    pub(super) token: Arc<ApiToken>,
    pub(super) key_uses: KeyUses,
}

impl KeptFiles {
    /// Reads or creates the files. In an unusable directory, they last only for this process. A
    /// token is stored only if the gateway listens.
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

    /// The files of a gateway with this token and address.
    pub(super) fn named(&self, token: Option<Arc<ApiToken>>, listen: &str) -> NamedFiles {
        NamedFiles {
            owner: self.owner,
            token,
            listen: listen.to_owned(),
        }
    }
}
