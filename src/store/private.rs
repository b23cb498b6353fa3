//! Files and directories that only their owner can use, whatever the umask.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Creates a directory and its parents for this user only, or removes the access of others to an
/// existing one.
///
/// # Errors
///
/// Refuses a link, and a directory of a different user, who could put files into it; else the
/// system's error.
pub fn private_dir(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let directory = open(
        OpenOptions::new().read(true),
        OFlags::NOFOLLOW | OFlags::DIRECTORY,
        path,
    )?;
    close_to_others(&directory, 0o700)
}

/// Opens a file that only its owner can use, creating it if necessary.
///
/// # Errors
///
/// Fails like [`private_dir`].
pub fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    let file = open(options.mode(0o600), OFlags::NOFOLLOW, path)?;
    close_to_others(&file, 0o600)?;
    Ok(file)
}

/// Writes a file that only its owner can read. The replacement is atomic: a reader finds either the
/// old or the new text.
///
/// # Errors
///
/// Fails like [`private_dir`].
pub fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let mut file = private_file(Path::new(&unfinished))?;
    file.set_len(0)?;
    file.write_all(text)?;
    drop(file);
    fs::rename(unfinished, path)
}

fn open(options: &mut OpenOptions, flags: OFlags, path: &Path) -> io::Result<File> {
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = options.custom_flags(flags).open(path);
    opened.map_err(|error| {
        let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        match is_link {
            true => refused(
                path,
                "is a link, which is not followed: use its target instead",
            ),
            false => error,
        }
    })
}

fn close_to_others(opened: &File, mode: u32) -> io::Result<()> {
    let found = opened.metadata()?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        let message = "it belongs to a different user: use a location that only this user owns";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    if found.mode() & 0o777 != mode {
        opened.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> io::Error {
    let message = format!("`{}` {why}", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn existing_open_files_become_private() {
        let directory = tempfile::tempdir().unwrap();
        let (inner, file) = (directory.path().join("a/b"), directory.path().join("a/b/f"));
        for _ in 0..2 {
            private_dir(&inner).unwrap();
            private_file(&file).unwrap();
            assert_eq!((mode(&inner), mode(&file)), (0o700, 0o600));
            fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
            fs::set_permissions(&inner, Permissions::from_mode(0o777)).unwrap();
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        private_dir(&at("there")).unwrap();
        symlink(at("there"), at("link")).unwrap();
        symlink(at("elsewhere"), at("file")).unwrap();
        for refused in [
            private_dir(&at("link")),
            private_file(&at("file")).map(drop),
        ] {
            let why = refused.unwrap_err().to_string();
            assert!(why.contains("is a link"), "{why}");
        }
        assert!(!at("elsewhere").exists());
    }
}
