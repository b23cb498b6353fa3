//! Locates the configuration file and checks that it can be trusted.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::{FILE_MAX, FILE_NAME};
use crate::store::open_trusted;

/// Where to look for a configuration when no path is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The working directory, then the user's configuration directory.
    WorkingDirectory,
    /// Only the user's configuration directory: a client starts `mcpvisor stdio`, possibly inside
    /// an untrusted repository.
    User,
}

impl Lookup {
    /// Whether the lookup finds a file.
    pub fn finds_any(self, environment: &dyn Environment) -> bool {
        let here = environment.current_dir().unwrap_or_default();
        find(None, self, &here, environment).is_some()
    }
}

/// Base directory for relative paths of the built-in configuration: where the user's file would be,
/// so that paths stay the same once it is written.
pub(super) fn built_in_directory(here: &Path, environment: &dyn Environment) -> PathBuf {
    let of_user = of_user(environment);
    let directory = of_user.as_deref().and_then(Path::parent);
    directory.unwrap_or(here).to_owned()
}

/// The given file, else the first existing file in the default locations; `None` selects the
/// built-in configuration. Relative paths are resolved against `here`.
pub(super) fn find(
    named: Option<&Path>,
    lookup: Lookup,
    here: &Path,
    environment: &dyn Environment,
) -> Option<PathBuf> {
    if let Some(named) = named {
        return Some(here.join(named));
    }
    let in_place = (lookup == Lookup::WorkingDirectory).then(|| here.join(FILE_NAME));
    let mut places = in_place.into_iter().chain(of_user(environment));
    places.find(|path| path.symlink_metadata().is_ok())
}

/// Reads a configuration.
///
/// # Errors
///
/// Fails like [`open_trusted`].
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = open_trusted(path)?;
    file.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        let message = format!("it is larger than {FILE_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// `mcpvisor/config.toml` in `XDG_CONFIG_HOME`, which must be absolute, or in `~/.config`.
pub(super) fn of_user(environment: &dyn Environment) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = environment.var(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let of_home = || absolute("HOME").map(|home| home.join(".config"));
    let directory = absolute("XDG_CONFIG_HOME").or_else(of_home)?;
    Some(directory.join("mcpvisor").join(FILE_NAME))
}
