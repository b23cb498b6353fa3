//! Encrypted storage for secrets, such as the tokens of servers: one file for each name, sealed
//! (ChaCha20-Poly1305, RFC 8439) with a key that is kept elsewhere, so that a copy of the data
//! directory reveals nothing.
//!
//! During a rotation, files sealed with the previous key are also readable: see `rotation`.

mod key;
mod key_command;
mod key_ring;
mod rotation;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use key::{VaultKey, default_key_file, read_key_file};
pub use key_command::KeyCommand;
use key_ring::KeyRing;
pub use rotation::{Rotated, VaultPlace, rotate};

use crate::store::{private_dir, write_private};

/// Maximum size of a sealed file, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// A directory of sealed files within the data directory.
#[derive(Clone)]
pub struct Vault {
    directory: PathBuf,
    key: VaultKey,
}

impl Vault {
    /// Opens no files yet.
    pub fn new(directory: PathBuf, key: VaultKey) -> Self {
        Self { directory, key }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Checks that the key matches the sealed files; does not create one.
    ///
    /// # Errors
    ///
    /// Names the source of the key, and what is wrong with it.
    pub fn check(&self) -> io::Result<()> {
        if !self.directory.is_dir() {
            return self.key.read().map(drop);
        }
        let ring = KeyRing::shared(self.data_dir(), &self.directory, &self.key)?;
        let is_kept = !names_in(&self.directory).is_empty();
        match is_kept && !ring.has_key() {
            true => Err(io::Error::other(format!("{} is gone", self.key))),
            false => Ok(()),
        }
    }

    /// The source of the key, for messages.
    pub fn key_source(&self) -> String {
        self.key.to_string()
    }

    /// The secret stored under a name.
    ///
    /// # Errors
    ///
    /// Returns why it cannot be read: a different key, a damaged file, or the system's error.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(name);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(found) if found.len() > FILE_MAX => return Err(damaged("is too large")),
            Ok(_) | Err(_) => {}
        }
        let open = || {
            let ring = KeyRing::shared(self.data_dir(), &self.directory, &self.key)?;
            let sealed = fs::read(&path)?;
            match ring.has_key() {
                true => Ok(ring.open(name, &sealed)),
                false => Err(damaged(&format!("has lost its key: {} is gone", self.key))),
            }
        };
        let mut plain = open()?;
        // A file can have been sealed again after the key was replaced at its source.
        if plain.is_none() && self.key.refresh() {
            plain = open()?;
        }
        let other = || damaged("was sealed with a different key, or was modified");
        plain.map(Some).ok_or_else(other)
    }

    /// # Errors
    ///
    /// Returns the system's error, or that the key does not match; the stored secret then stays.
    pub fn write(&self, name: &str, plain: &[u8]) -> io::Result<()> {
        private_dir(self.data_dir())?;
        private_dir(&self.directory)?;
        let ring = KeyRing::for_writing(self.data_dir(), &self.directory, &self.key)?;
        write_private(&self.path(name), &ring.seal(name, plain)?)
    }

    /// # Errors
    ///
    /// Returns the system's error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The stored names with this prefix.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let names = names_in(&self.directory).into_iter();
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    fn data_dir(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    /// Names belong to servers or are generated here: none leads out of the directory.
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").finish_non_exhaustive()
    }
}

/// The names stored in a directory, without incompletely written files.
fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| !name.ends_with(".new")).collect()
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the sealed file {why}"))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn tokens_are_read_with_the_key_only() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("elsewhere/key");
        let kept = directory.path().join("data/credentials");
        let vault = Vault::new(kept.clone(), VaultKey::File(key.clone()));
        assert_eq!(vault.read("a").unwrap(), None);
        vault.write("a", b"secret").unwrap();
        assert_eq!(vault.read("a").unwrap().unwrap(), b"secret");
        let file = fs::read(kept.join("a")).unwrap();
        assert!(!file.windows(6).any(|part| part == b"secret"));
        // A file sealed for one name cannot be used under a different one.
        fs::copy(kept.join("a"), kept.join("b")).unwrap();
        assert!(vault.read("b").is_err());
        let other = Vault::new(
            kept.clone(),
            VaultKey::Variable("KEY", STANDARD.encode([7; 32]).into()),
        );
        assert!(other.read("a").is_err());
        fs::write(kept.join("a"), &file[..5]).unwrap();
        assert!(vault.read("a").is_err());
        fs::remove_file(key).unwrap();
        assert!(vault.read("a").is_err());
        vault.remove("a").unwrap();
        vault.remove("a").unwrap();
        assert_eq!(vault.read("a").unwrap(), None);
    }
}
