//! The file of a Unix socket that only the user can open.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Maximum length of a socket path that all systems accept, in bytes.
const SOCKET_PATH_MAX: usize = 100;

/// Maximum time to remove the socket from disk.
const REMOVE_MAX: Duration = Duration::from_millis(500);

/// A bound socket's file, which is removed when this is dropped, unless another socket replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Opens a socket at `path`, and replaces one that a killed process left.
    ///
    /// # Errors
    ///
    /// Returns the system's error, `AddrInUse` if a process accepts connections there, or
    /// `AlreadyExists` if the file is not a socket.
    pub fn listen(path: &Path) -> io::Result<(UnixListener, Self)> {
        let is_served =
            || ShortPath::new(path).is_ok_and(|it| UnixStream::connect(it.path).is_ok());
        match path.symlink_metadata() {
            Ok(found) if !found.file_type().is_socket() => {
                let message = "the file is not a socket";
                Err(io::Error::new(io::ErrorKind::AlreadyExists, message))
            }
            Ok(_) if is_served() => {
                let message = "another process serves this socket";
                Err(io::Error::new(io::ErrorKind::AddrInUse, message))
            }
            Ok(_) | Err(_) => Self::replace(path),
        }
    }

    /// Opens a socket in place of any file at `path`. It gets its final name only after its
    /// permissions are set. A umask would affect the whole process, which starts programs at the
    /// same time.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn replace(path: &Path) -> io::Result<(UnixListener, Self)> {
        let unnamed = path.with_extension("new");
        match fs::remove_file(&unnamed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let short = ShortPath::new(&unnamed)?;
        let listener = UnixListener::bind(&short.path)?;
        fs::set_permissions(&unnamed, Permissions::from_mode(0o600))?;
        fs::rename(unnamed, path)?;
        listener.set_nonblocking(true)?;
        let identity = identity(&path.symlink_metadata()?);
        let path = path.to_owned();
        Ok((listener, Self { path, identity }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A socket path that is short enough for every system. A long path is reached through its
/// directory, which stays open while this value exists.
pub struct ShortPath {
    pub path: PathBuf,
    _directory: Option<File>,
}

impl ShortPath {
    /// # Errors
    ///
    /// Returns the system's error if the directory of a long path cannot be opened.
    pub fn new(path: &Path) -> io::Result<Self> {
        let (true, Some(directory), Some(file)) = (
            path.as_os_str().len() > SOCKET_PATH_MAX,
            path.parent(),
            path.file_name(),
        ) else {
            return Ok(Self {
                path: path.to_owned(),
                _directory: None,
            });
        };
        let directory = File::open(directory)?;
        let through = format!("/proc/self/fd/{}", directory.as_raw_fd());
        Ok(Self {
            path: Path::new(&through).join(file),
            _directory: Some(directory),
        })
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let (path, own) = (self.path.clone(), self.identity);
        let (done, removed) = mpsc::channel();
        let remove = move || {
            let found = path.symlink_metadata();
            if found.is_ok_and(|found| identity(&found) == own) {
                // If it fails, the next start replaces the file.
                let _ = fs::remove_file(path);
            }
            done.send(())
        };
        drop(thread::Builder::new().spawn(remove));
        // A disk can hang.
        let _ = removed.recv_timeout(REMOVE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_private_replaces_a_stale_one_and_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let (stale, file) = SocketFile::listen(&path).unwrap();
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let used = SocketFile::listen(&path).unwrap_err();
        assert_eq!(used.kind(), io::ErrorKind::AddrInUse);
        drop(stale);
        let (_listener, newer) = SocketFile::listen(&path).unwrap();
        drop(file);
        assert!(path.exists(), "the file of another socket");
        drop(newer);
        assert!(!path.exists());
        fs::write(&path, "text").unwrap();
        let other = SocketFile::listen(&path).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::AlreadyExists);
    }
}
