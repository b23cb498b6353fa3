//! Where the key of the vault is, and what is sealed with it.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::{ExposeSecret as _, SecretString};

use super::key_command::KeyCommand;
use crate::id::random_bytes;
use crate::store::{open_trusted, private_file};

/// Bytes of the key, which is written in base64.
const KEY_BYTES: usize = 32;

/// Longest text of a key that is read, in bytes.
const KEY_TEXT_MAX: u64 = 4096;

/// Where the key is.
#[derive(Clone, Debug)]
pub enum VaultKey {
    /// 32 bytes in base64, in the variable of this name.
    Variable(&'static str, SecretString),
    /// A file with such a text. It is made when the first token is kept.
    File(PathBuf),
    /// A command that prints such a text.
    Command(KeyCommand),
}

impl VaultKey {
    /// The key; `None` if its file was not made yet.
    ///
    /// # Errors
    ///
    /// Names the source that gives no key, without what it gave.
    pub(super) fn read(&self) -> io::Result<Option<SecretString>> {
        let text = match self {
            Self::Variable(_, text) => text.clone(),
            Self::Command(command) => command.text()?,
            Self::File(path) => {
                if path.symlink_metadata().is_err() {
                    return Ok(None);
                }
                // Closed to others, and refused if it is not ours.
                private_file(path)?;
                read_key_file(path)?
            }
        };
        let is_key = Cipher::of(&text).is_some();
        let wrong = || io::Error::other(format!("{self} is not 32 bytes in base64"));
        is_key.then_some(Some(text)).ok_or_else(wrong)
    }

    /// Whether it may be another one when it is read again; then it is.
    pub(super) fn refresh(&self) -> bool {
        match self {
            Self::Command(command) => command.forget(),
            Self::Variable(..) | Self::File(_) => false,
        }
    }
}

/// The source, for people.
impl fmt::Display for VaultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name, _) => write!(f, "the key in the variable {name}"),
            Self::File(path) => write!(f, "the key in `{}`", path.display()),
            Self::Command(command) => write!(f, "the key of the command `{command}`"),
        }
    }
}

/// The text of a file with a key, which only this user and root can change.
///
/// # Errors
///
/// As [`open_trusted`].
pub fn read_key_file(path: &Path) -> io::Result<SecretString> {
    let mut text = String::new();
    let file = open_trusted(path)?;
    file.take(KEY_TEXT_MAX).read_to_string(&mut text)?;
    Ok(text.into())
}

/// Seals with one key.
pub(super) struct Cipher(LessSafeKey);

impl Cipher {
    /// `None` if the text is no key.
    pub(super) fn of(text: &SecretString) -> Option<Self> {
        let bytes = STANDARD.decode(text.expose_secret().trim()).ok()?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).ok()?;
        Some(Self(LessSafeKey::new(key)))
    }

    /// Opens a secret that was sealed under this name; `None` if that was with another key, or if it was changed.
    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let plain = self.0.open_in_place(nonce, Aad::from(name), &mut text);
        plain.ok().map(|plain| plain.to_vec())
    }

    /// # Errors
    ///
    /// Returns that it is too large, or that the system gives no random numbers.
    pub(super) fn seal(&self, name: &str, plain: &[u8]) -> io::Result<Vec<u8>> {
        let nonce = random_bytes::<NONCE_LEN>()?;
        let (sealing, mut text) = (Nonce::assume_unique_for_key(nonce), plain.to_vec());
        let sealed = (self.0).seal_in_place_append_tag(sealing, Aad::from(name), &mut text);
        sealed.map_err(|_| io::Error::other("it is too large"))?;
        Ok([&nonce[..], &text].concat())
    }
}

/// A new key, as it is written.
///
/// # Errors
///
/// Returns that the system gives no random numbers.
pub(super) fn new_key() -> io::Result<SecretString> {
    let bytes = random_bytes::<KEY_BYTES>()?;
    Ok(STANDARD.encode(bytes).into())
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

    #[test]
    fn a_key_in_a_directory_that_others_can_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let base = tempfile::tempdir().unwrap();
        let directory = base.path().join("open");
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("key");
        std::fs::write(&file, new_key().unwrap().expose_secret()).unwrap();
        let key = VaultKey::File(file);
        assert!(key.read().unwrap().is_some());
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&directory, open).unwrap();
        assert!(key.read().unwrap_err().to_string().contains("chmod o-w"));
    }
}
