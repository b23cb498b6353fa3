//! Finds programs as a shell does.

use std::env::split_paths;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

/// The first program of this name in the directories of `PATH`.
pub fn find_program(name: &str, path: &OsStr) -> Option<PathBuf> {
    let mut places = split_paths(path).map(|directory| directory.join(name));
    places.find(|place| is_program(place))
}

pub(crate) fn is_program(path: &Path) -> bool {
    #[cfg(unix)]
    let is_executable = |about: &Metadata| {
        use std::os::unix::fs::PermissionsExt as _;
        about.permissions().mode() & 0o111 != 0
    };
    #[cfg(not(unix))]
    let is_executable = |_: &Metadata| true;
    let about = path.metadata();
    about.is_ok_and(|about| about.is_file() && is_executable(&about))
}

/// Checks whether a program can be started, before a launcher tries: the launcher could only say so
/// in its own words.
///
/// # Errors
///
/// Returns the error that the system would return.
pub(crate) fn check_program(name: &Path, path: &OsStr, directory: Option<&Path>) -> io::Result<()> {
    let is_bare = name.components().count() < 2 && !name.is_absolute();
    let place = match (is_bare, directory) {
        (true, _) => find_program(&name.to_string_lossy(), path),
        (false, Some(directory)) => Some(directory.join(name)),
        (false, None) => Some(name.to_owned()),
    };
    match place {
        None => Err(io::ErrorKind::NotFound.into()),
        Some(place) if is_program(&place) => Ok(()),
        Some(place) => Err(match place.metadata() {
            Ok(_) => io::ErrorKind::PermissionDenied.into(),
            Err(error) => error,
        }),
    }
}
