//! The keys that a vault currently uses: its key and, during a rotation, the previous one.
//!
//! `vault.check` in the data directory is sealed with the key, so that a different key is detected.
//! `vault.previous` contains the previous key, sealed with the new one. A lock on `vault.lock`
//! keeps both from changing.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::key::{VaultKey, cipher_of, new_key};
use super::names_in;
use crate::cipher::Cipher;
use crate::store::{private_file, write_private};

/// Sealed with the key.
const CHECK: &str = "vault.check";

/// The text of the previous key, sealed with the new one.
const PREVIOUS: &str = "vault.previous";

const LOCK: &str = "vault.lock";

/// Maximum wait for the lock, also on threads that serve other work.
const LOCK_WITHIN: Duration = Duration::from_secs(5);

/// Interval between attempts to take the lock.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Held together with the lock, so that no key changes.
pub(super) struct KeyRing<'v> {
    data_dir: &'v Path,
    directory: &'v Path,
    key: &'v VaultKey,
    current: Option<(SecretString, Cipher)>,
    pub(super) previous: Option<Cipher>,
    lock: File,
}

impl<'v> KeyRing<'v> {
    /// The keys for reading a directory, under a shared lock.
    ///
    /// # Errors
    ///
    /// Names the key if it does not match the directory.
    pub(super) fn shared(
        data_dir: &'v Path,
        directory: &'v Path,
        key: &'v VaultKey,
    ) -> io::Result<Self> {
        let lock = locked(data_dir, File::try_lock_shared)?;
        Self::load(data_dir, directory, key, lock)?.fitting()
    }

    /// Like [`KeyRing::shared`], for writing; creates the key and the check if they do not exist.
    ///
    /// # Errors
    ///
    /// Fails like [`KeyRing::shared`].
    pub(super) fn for_writing(
        data_dir: &'v Path,
        directory: &'v Path,
        key: &'v VaultKey,
    ) -> io::Result<Self> {
        let ring = Self::shared(data_dir, directory, key)?;
        if ring.has_key() && ring.check_path().exists() {
            return Ok(ring);
        }
        drop(ring);
        let mut ring = Self::alone(data_dir, directory, key)?;
        if !ring.has_key() {
            ring.replace_key(&new_key()?)?;
        }
        ring.write_check()?;
        drop(ring);
        Self::shared(data_dir, directory, key)
    }

    /// The keys under an exclusive lock.
    ///
    /// # Errors
    ///
    /// Fails like [`KeyRing::shared`].
    pub(super) fn alone(
        data_dir: &'v Path,
        directory: &'v Path,
        key: &'v VaultKey,
    ) -> io::Result<Self> {
        let lock = locked(data_dir, File::try_lock)?;
        Self::load(data_dir, directory, key, lock)?.fitting()
    }

    /// The keys under an exclusive lock, whether or not they match.
    pub(super) fn unchecked(
        data_dir: &'v Path,
        directory: &'v Path,
        key: &'v VaultKey,
    ) -> io::Result<Self> {
        let lock = locked(data_dir, File::try_lock)?;
        Self::load(data_dir, directory, key, lock)
    }

    /// # Errors
    ///
    /// Names the key if it does not match the directory.
    pub(super) fn fitting(self) -> io::Result<Self> {
        let (data_dir, directory, key) = (self.data_dir, self.directory, self.key);
        let mut ring = self;
        // The key can have been replaced at its source.
        if !ring.fits() && key.refresh() {
            ring = Self::load(data_dir, directory, key, ring.lock)?;
        }
        match ring.fits() {
            true => Ok(ring),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{key} does not match `{}`: restore the old key, or re-encrypt everything with \
                     `mcpvisor vault rotate --old-key-file FILE`",
                    directory.display()
                ),
            )),
        }
    }

    fn load(
        data_dir: &'v Path,
        directory: &'v Path,
        key: &'v VaultKey,
        lock: File,
    ) -> io::Result<Self> {
        let current = key.read()?;
        let current = current.and_then(|text| Some((text.clone(), cipher_of(&text)?)));
        let sealed = fs::read(data_dir.join(PREVIOUS)).ok();
        let opened = current.as_ref().zip(sealed);
        let opened = opened.and_then(|((_, cipher), sealed)| cipher.open(PREVIOUS, &sealed));
        let previous = opened.and_then(|text| String::from_utf8(text).ok());
        Ok(Self {
            data_dir,
            directory,
            key,
            current,
            previous: previous.and_then(|text| cipher_of(&text.into())),
            lock,
        })
    }

    pub(super) fn has_key(&self) -> bool {
        self.current.is_some()
    }

    /// The text of the key.
    pub(super) fn text(&self) -> Option<&SecretString> {
        self.current.as_ref().map(|(text, _)| text)
    }

    /// Whether the sealed files match these keys, or nothing indicates otherwise. A missing key is
    /// replaced with a new one.
    fn fits(&self) -> bool {
        if !self.has_key() {
            return true;
        }
        if let Ok(sealed) = fs::read(self.check_path()) {
            return self.open(CHECK, &sealed).is_some();
        }
        let names = names_in(self.directory);
        names.is_empty() || names.iter().any(|name| self.opens_file(name))
    }

    fn opens_file(&self, name: &str) -> bool {
        let sealed = fs::read(self.directory.join(name));
        sealed.is_ok_and(|sealed| self.open(name, &sealed).is_some())
    }

    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let before = || self.previous.as_ref()?.open(name, sealed);
        self.open_with_current(name, sealed).or_else(before)
    }

    pub(super) fn open_with_current(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (_, cipher) = self.current.as_ref()?;
        cipher.open(name, sealed)
    }

    /// # Errors
    ///
    /// Fails if the key is missing, or the text is too large.
    pub(super) fn seal(&self, name: &str, plain: &[u8]) -> io::Result<Vec<u8>> {
        let none = || io::Error::other(format!("{} is gone", self.key));
        let (_, cipher) = self.current.as_ref().ok_or_else(none)?;
        cipher.seal(name, plain)
    }

    /// Replaces the key with a different one, after `keep_previous`, if there is an old one.
    ///
    /// # Errors
    ///
    /// Returns the system's error, or that the key is not stored in a file.
    pub(super) fn replace_key(&mut self, text: &SecretString) -> io::Result<()> {
        let VaultKey::File(path) = self.key else {
            return Err(io::Error::other(format!("{} is not in a file", self.key)));
        };
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        write_durably(path, format!("{}\n", text.expose_secret()).as_bytes())?;
        self.previous = self.current.take().map(|(_, cipher)| cipher);
        self.current = cipher_of(text).map(|cipher| (text.clone(), cipher));
        Ok(())
    }

    /// Stores the previous key, readable with the next one.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn keep_previous(&self, old: &SecretString, new: &SecretString) -> io::Result<()> {
        let none = || io::Error::other("the key is not 32 bytes in base64");
        let cipher = cipher_of(new).ok_or_else(none)?;
        let sealed = cipher.seal(PREVIOUS, old.expose_secret().trim().as_bytes())?;
        write_durably(&self.data_dir.join(PREVIOUS), &sealed)
    }

    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn forget_previous(&self) -> io::Result<()> {
        match fs::remove_file(self.data_dir.join(PREVIOUS)) {
            // Another rotation finished first.
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Pins the current key: any other is refused from now on.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn write_check(&self) -> io::Result<()> {
        write_private(&self.check_path(), &self.seal(CHECK, b"mcpvisor")?)
    }

    fn check_path(&self) -> PathBuf {
        self.data_dir.join(CHECK)
    }
}

/// A process that holds the lock for longer is possibly suspended forever.
fn locked(
    data_dir: &Path,
    try_lock: impl Fn(&File) -> Result<(), TryLockError>,
) -> io::Result<File> {
    let path = data_dir.join(LOCK);
    let file = private_file(&path)?;
    let until = Instant::now() + LOCK_WITHIN;
    loop {
        match try_lock(&file) {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                thread::park_timeout(LOOK_EVERY);
            }
            Err(TryLockError::WouldBlock) => {
                let why = format!(
                    "`{}` is held by another process: does a `mcpvisor vault rotate` hang?",
                    path.display()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
    }
}

/// Writes and syncs the file before anything depends on it, so that it survives a power failure.
pub(super) fn write_durably(path: &Path, text: &[u8]) -> io::Result<()> {
    write_private(path, text)?;
    File::open(path)?.sync_all()?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
