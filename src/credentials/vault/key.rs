//! Sources of the vault's key.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};

use super::key_command::KeyCommand;
use crate::cipher::{Cipher, KEY_BYTES};
use crate::id::random_bytes;
use crate::store::{open_trusted, private_file};

/// Maximum length of a key text, in bytes.
const KEY_TEXT_MAX: u64 = 4096;

/// The source of the key.
#[derive(Clone, Debug)]
pub enum VaultKey {
    /// The variable with this name contains 32 bytes in base64.
    Variable(&'static str, SecretString),
    /// A file that contains the key, created when the first token is stored.
    File(PathBuf),
    /// A command that prints the key.
    Command(KeyCommand),
}

impl VaultKey {
    /// Reads the key; `None` if its file does not exist yet.
    ///
    /// # Errors
    ///
    /// Names the source that has no valid key, without its content.
    pub(super) fn read(&self) -> io::Result<Option<SecretString>> {
        let text = match self {
            Self::Variable(_, text) => text.clone(),
            Self::Command(command) => command.text()?,
            Self::File(path) => {
                if path.symlink_metadata().is_err() {
                    return Ok(None);
                }
                // Must be private; refused if owned by a different user.
                private_file(path)?;
                read_key_file(path)?
            }
        };
        let is_key = cipher_of(&text).is_some();
        let wrong = || io::Error::other(format!("{self} is not 32 bytes in base64"));
        is_key.then_some(Some(text)).ok_or_else(wrong)
    }

    /// Discards a cached key that can change. Returns whether reading it again can give a different
    /// key.
    pub(super) fn refresh(&self) -> bool {
        match self {
            Self::Command(command) => command.forget(),
            Self::Variable(..) | Self::File(_) => false,
        }
    }
}

/// The source, for messages.
impl fmt::Display for VaultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name, _) => write!(f, "the key in the variable {name}"),
            Self::File(path) => write!(f, "the key in `{}`", path.display()),
            Self::Command(command) => write!(f, "the key from the command `{command}`"),
        }
    }
}

/// Reads a key file that only this user and root can modify.
///
/// # Errors
///
/// Fails like [`open_trusted`].
pub fn read_key_file(path: &Path) -> io::Result<SecretString> {
    let mut text = String::new();
    let file = open_trusted(path)?;
    file.take(KEY_TEXT_MAX).read_to_string(&mut text)?;
    Ok(text.into())
}

/// Returns the cipher of a key in its text form; `None` if the text is not a key.
pub(super) fn cipher_of(text: &SecretString) -> Option<Cipher> {
    let bytes = STANDARD.decode(text.expose_secret().trim()).ok()?;
    Some(Cipher::new(&bytes.try_into().ok()?))
}

/// Generates a key in its text form.
///
/// # Errors
///
/// Fails if the system cannot provide random numbers.
pub(super) fn new_key() -> io::Result<SecretString> {
    let bytes = random_bytes::<KEY_BYTES>()?;
    Ok(STANDARD.encode(bytes).into())
}

/// The default location of the key: beside this user's configuration, so that it is not part of the
/// data directory, or inside it for users without a home directory.
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
    fn the_key_is_outside_the_data_directory_if_there_is_a_home() {
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
