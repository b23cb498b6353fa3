//! Reads, backs up and atomically replaces a client's file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::clients::ClientError;

/// Maximum size of a client's file, in bytes: Claude Code keeps its history in the same one.
const FILE_MAX: u64 = 64 * 1024 * 1024;

/// Suffix of the copy of a file before the gateway was added to it.
pub(super) const BACKUP: &str = ".before-mcpvisor";

/// Suffix of the copy of a file before its servers were moved to the gateway.
pub(super) const MOVED: &str = ".moved-to-mcpvisor";

/// A planned change to a file.
#[derive(Debug)]
pub struct Change {
    pub path: PathBuf,
    /// `None` if the file does not exist yet.
    before: Option<String>,
    /// `None` to remove the file.
    pub(super) after: Option<String>,
    is_backed_up: bool,
    pub(super) moved: Moved,
}

/// How a change treats the record of servers that were moved to the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    Kept,
    /// Replaces it by this content of the client's file.
    Record(String),
    /// Removes it: the servers are back in the file.
    Back,
}

impl Change {
    pub(super) fn new(path: PathBuf, before: Option<String>, after: String) -> Self {
        Self {
            path,
            before,
            after: Some(after),
            is_backed_up: true,
            moved: Moved::Kept,
        }
    }

    /// Changes a file that contains the gateway, so the backup of it without the gateway stays.
    pub(super) fn update(path: PathBuf, before: String, after: Option<String>) -> Self {
        Self {
            path,
            before: Some(before),
            after,
            is_backed_up: false,
            moved: Moved::Kept,
        }
    }

    /// Whether the file is removed.
    pub fn is_removal(&self) -> bool {
        self.after.is_none()
    }

    /// Path of the backup of the existing file.
    pub fn backup(&self) -> Option<PathBuf> {
        let copied = self.before.as_ref().filter(|_| self.is_backed_up);
        copied.map(|_| beside(&self.path, BACKUP))
    }

    /// Replaces the file atomically, after a copy of it is safe.
    ///
    /// # Errors
    ///
    /// Returns the error; the file is then unchanged.
    pub fn write(&self) -> Result<(), ClientError> {
        // If the file is a symbolic link, its target is replaced.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        self.write_to(&path)
            .map_err(|source| ClientError::Io { path, source })
    }

    fn write_to(&self, path: &Path) -> std::io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        if let Some(backup) = self.backup() {
            fs::copy(path, backup)?;
        }
        let record = beside(&self.path, MOVED);
        if let Moved::Record(text) = &self.moved {
            replace(&record, text, path)?;
        }
        match &self.after {
            Some(after) => replace(path, after, path)?,
            None => removed(path)?,
        }
        match self.moved {
            Moved::Back => removed(&record),
            Moved::Kept | Moved::Record(_) => Ok(()),
        }
    }
}

/// Replaces a file atomically. Its permissions become those of the file `like`.
fn replace(path: &Path, text: &str, like: &Path) -> std::io::Result<()> {
    let unfinished = beside(path, ".mcpvisor-new");
    // The remains of an earlier attempt can have different permissions.
    removed(&unfinished)?;
    let mut file = private(&unfinished)?;
    if let Ok(there) = fs::metadata(like) {
        file.set_permissions(there.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

/// Creates a file that only its owner can read: it can contain secrets.
fn private(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Removes a file that may be missing.
fn removed(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(suffix);
    path.with_file_name(name)
}

/// The content of a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>, ClientError> {
    let failed = |source| ClientError::Io {
        path: path.to_owned(),
        source,
    };
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let mut text = String::new();
    file.take(FILE_MAX + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > FILE_MAX {
        let why = format!("larger than {FILE_MAX} bytes");
        return Err(failed(std::io::Error::new(ErrorKind::FileTooLarge, why)));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_change_keeps_link_and_mode_and_makes_a_backup() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("real.json"), "old").unwrap();
        fs::set_permissions(at("real.json"), fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(at("real.json"), at("link.json")).unwrap();
        let change = Change::new(at("link.json"), Some("old".to_owned()), "new".to_owned());
        change.write().unwrap();
        change.write().unwrap();
        assert!(fs::symlink_metadata(at("link.json")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(at("real.json")).unwrap(), "new");
        let mode = fs::metadata(at("real.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(
            fs::read_to_string(at("link.json.before-mcpvisor")).unwrap(),
            "new"
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_missing_file_is_created_with_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/mcp.json");
        assert!(read(&path).unwrap().is_none());
        let change = Change::new(path.clone(), None, "{}\n".to_owned());
        assert_eq!(change.backup(), None);
        change.write().unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("{}\n"));
    }
}
