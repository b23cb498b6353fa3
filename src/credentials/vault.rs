//! Secrets at rest, as the tokens of servers: one file for each name, sealed (ChaCha20-Poly1305, RFC 8439) with a key that
//! is kept elsewhere, so that a copy of the data directory tells nothing.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretString};

use crate::store::{private_dir, private_file, write_private};

/// Bytes of the key, which is written in base64.
const KEY_BYTES: usize = 32;

/// Largest sealed file that is read, in bytes.
const FILE_MAX: u64 = 4 << 20;

/// Where the key is.
#[derive(Clone, Debug)]
pub enum VaultKey {
    /// 32 bytes in base64.
    Given(SecretString),
    /// A file with such a text. It is made when the first token is kept.
    File(PathBuf),
}

/// A directory of sealed files.
#[derive(Clone)]
pub struct Vault {
    directory: PathBuf,
    key: VaultKey,
}

impl Vault {
    /// Nothing is read or written yet.
    pub fn new(directory: PathBuf, key: VaultKey) -> Self {
        Self { directory, key }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What was kept under a name.
    ///
    /// # Errors
    ///
    /// Returns why it cannot be read: another key, a damaged file, or the system's error.
    pub fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let path = self.path(name);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(found) if found.len() > FILE_MAX => return Err(damaged("is too large")),
            Ok(_) | Err(_) => {}
        }
        let mut sealed = fs::read(path)?;
        let key = self.key()?.ok_or_else(|| damaged("has lost its key"))?;
        let (nonce, text) = sealed
            .split_at_mut_checked(NONCE_LEN)
            .ok_or_else(|| damaged("is cut off"))?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged("is cut off"))?;
        let aad = Aad::from(name);
        let plain = key.open_in_place(nonce, aad, text);
        let plain = plain.map_err(|_| damaged("was sealed with another key, or changed"))?;
        Ok(Some(plain.to_vec()))
    }

    /// # Errors
    ///
    /// Returns the system's error; what was kept before stays.
    pub fn write(&self, name: &str, plain: &[u8]) -> io::Result<()> {
        let key = match self.key()? {
            Some(key) => key,
            None => self.make_key()?,
        };
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce)?;
        let mut text = plain.to_vec();
        let sealing = Nonce::assume_unique_for_key(nonce);
        let aad = Aad::from(name);
        key.seal_in_place_append_tag(sealing, aad, &mut text)
            .map_err(|_| io::Error::other("it is too large"))?;
        if let Some(data_dir) = self.directory.parent() {
            private_dir(data_dir)?;
        }
        private_dir(&self.directory)?;
        write_private(&self.path(name), &[&nonce[..], &text].concat())
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

    /// The names that begin so, under which something is kept.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// Names are those of servers, or made of them here: none leads out of the directory.
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The key; `None` if its file was not made yet.
    fn key(&self) -> io::Result<Option<LessSafeKey>> {
        match &self.key {
            VaultKey::Given(text) => cipher(text.expose_secret()).map(Some),
            VaultKey::File(path) => {
                if path.symlink_metadata().is_err() {
                    return Ok(None);
                }
                // Closed to others, and refused if it is not ours.
                private_file(path)?;
                cipher(&fs::read_to_string(path)?).map(Some)
            }
        }
    }

    fn make_key(&self) -> io::Result<LessSafeKey> {
        let VaultKey::File(path) = &self.key else {
            return Err(damaged("has no key"));
        };
        let mut bytes = [0; KEY_BYTES];
        random(&mut bytes)?;
        let text = STANDARD.encode(bytes);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        write_private(path, format!("{text}\n").as_bytes())?;
        cipher(&text)
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").finish_non_exhaustive()
    }
}

fn cipher(text: &str) -> io::Result<LessSafeKey> {
    let wrong = || io::Error::other("the key of the credentials is not 32 bytes in base64");
    let bytes = STANDARD.decode(text.trim()).map_err(|_| wrong())?;
    let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| wrong())?;
    Ok(LessSafeKey::new(key))
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    let filled = SystemRandom::new().fill(bytes);
    filled.map_err(|_| io::Error::other("the system gives no random numbers"))
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its sealed file {why}"))
}

/// Where the key is unless the configuration or the environment says so: beside the configuration
/// of this user, so that it is no part of the data directory; in it for users without a home.
pub fn default_key_file(data_dir: &Path, variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    let of = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|it| it.is_absolute())
    };
    let config = of("XDG_CONFIG_HOME").or_else(|| of("HOME").map(|home| home.join(".config")));
    match config {
        Some(config) => config.join("mcpvisor/credentials.key"),
        None => data_dir.join("credentials.key"),
    }
}

#[cfg(test)]
mod tests {
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
        // A file of one server is not another's.
        fs::copy(kept.join("a"), kept.join("b")).unwrap();
        assert!(vault.read("b").is_err());
        let other = Vault::new(
            kept.clone(),
            VaultKey::Given(STANDARD.encode([7; 32]).into()),
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

    #[test]
    fn the_key_is_no_part_of_the_data_directory_of_a_user_with_a_home() {
        let data = Path::new("/data");
        let of = |name: &'static str, value: &'static str| {
            default_key_file(data, move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(
            of("HOME", "/home/me"),
            Path::new("/home/me/.config/mcpvisor/credentials.key")
        );
        assert_eq!(
            of("XDG_CONFIG_HOME", "/c"),
            Path::new("/c/mcpvisor/credentials.key")
        );
        assert_eq!(of("HOME", "relative"), Path::new("/data/credentials.key"));
    }
}
