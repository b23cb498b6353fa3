//! Which file is the configuration, and whether it may say what runs here.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::{FILE_MAX, FILE_NAME};
use crate::store::open_trusted;

/// Where a configuration is looked for that nobody named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// In the working directory, then among the configurations of the user.
    WorkingDirectory,
    /// Only among those of the user: `mcpvisor stdio` is started by a client, in a directory that
    /// may be a repository of somebody else.
    User,
}

impl Lookup {
    /// Whether a file is there that the lookup finds.
    pub fn finds_any(self, environment: &dyn Environment) -> bool {
        let here = environment.current_dir().unwrap_or_default();
        find(None, self, &here, environment).is_some()
    }
}

/// Where relative paths of the built-in configuration start: where the file of the user would be, so
/// that they stay the same once it is written.
pub(super) fn built_in_directory(here: &Path, environment: &dyn Environment) -> PathBuf {
    let of_user = of_user(environment);
    let directory = of_user.as_deref().and_then(Path::parent);
    directory.unwrap_or(here).to_owned()
}

/// The named file, else the first one that is there; `None` stands for the built-in one. Relative
/// paths start at `here`.
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
/// As [`open_trusted`].
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

/// `mcpvisor/config.toml` in `XDG_CONFIG_HOME`, which has to be absolute, or in `~/.config`.
pub(super) fn of_user(environment: &dyn Environment) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = environment.var(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let of_home = || absolute("HOME").map(|home| home.join(".config"));
    let directory = absolute("XDG_CONFIG_HOME").or_else(of_home)?;
    Some(directory.join("mcpvisor").join(FILE_NAME))
}
