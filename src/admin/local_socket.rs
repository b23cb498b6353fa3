//! `control.sock`: the operator API for the owner of the data directory, without a token.

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::data_dir::DataDir;
use super::http::OwnerApi;
use super::instances::Instances;
use super::operator::Operator;
use crate::store::{DirectoryLease, ShortPath, SocketFile};

/// Maximum time to create the socket on disk.
const BIND_MAX: Duration = Duration::from_secs(5);
/// Delay between two attempts to create the socket.
const BIND_AGAIN: Duration = Duration::from_secs(10);
/// Interval at which the data directory is checked for replacement.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The gateway's end of the socket, which is removed when this is dropped.
pub struct LocalServer(#[expect(dead_code, reason = "held")] AbortOnDropHandle<()>);

/// A bound socket. Dropping it removes its file.
struct NamedSocket {
    listener: UnixListener,
    file: SocketFile,
}

impl LocalServer {
    /// Opens the socket, accessible to its owner only, and reopens it when the data directory is
    /// replaced. If the directory cannot hold a socket, it is created next to the list of gateways.
    pub async fn start(data_dir: &Path, lease: DirectoryLease, operator: Arc<Operator>) -> Self {
        let data_dir = data_dir.to_owned();
        let mut directory = lease.number();
        let mut bound = bind(&data_dir, directory).await;
        let task = actix_rt::spawn(async move {
            let Some(api) = OwnerApi::start(operator).await else {
                log::error!(
                    "could not serve the control socket; commands cannot reach this gateway"
                );
                return;
            };
            loop {
                match bound {
                    Ok(socket) => {
                        let is_same = || lease.number() == directory;
                        accept_while(is_same, &socket, &api).await;
                    }
                    Err(error) => {
                        log::warn!(error:%; "could not open the control socket; commands cannot reach this gateway");
                        tokio::time::sleep(BIND_AGAIN).await;
                    }
                }
                directory = lease.number();
                bound = bind(&data_dir, directory).await;
            }
        });
        Self(AbortOnDropHandle::new(task))
    }
}

/// Serves clients until the data directory is replaced or the socket file is removed.
async fn accept_while(is_same: impl Fn() -> bool, socket: &NamedSocket, api: &OwnerApi) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut removed = pin!(until_removed(socket.file.path().to_owned()));
    while is_same() {
        let accepted = tokio::select! {
            accepted = socket.listener.accept() => accepted,
            _ = looks.tick() => continue,
            () = &mut removed => return,
        };
        match accepted {
            Ok((stream, _)) => {
                actix_rt::spawn(api.serve(stream));
            }
            Err(error) => {
                log::warn!(error:%; "the control socket could not accept a connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Completes when the socket file is no longer there. The disk may hang meanwhile.
async fn until_removed(path: PathBuf) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        looks.tick().await;
        let path = path.clone();
        let look = spawn_blocking(move || path.symlink_metadata());
        if let Ok(Err(error)) = look.await
            && error.kind() == io::ErrorKind::NotFound
        {
            return;
        }
    }
}

/// Whether a gateway that uses this data directory accepts requests.
pub fn is_served(data_dir: &Path) -> bool {
    reachable_socket(data_dir).is_some()
}

/// The socket of the gateway that uses this data directory, if it accepts connections.
pub(super) fn reachable_socket(data_dir: &Path) -> Option<ShortPath> {
    let paths = socket_paths(data_dir).into_iter();
    let mut paths = paths.filter_map(|path| ShortPath::new(&path).ok());
    paths.find(|path| StdStream::connect(&path.path).is_ok())
}

/// Possible socket paths for a gateway with this data directory, the most likely first.
fn socket_paths(data_dir: &Path) -> Vec<PathBuf> {
    let instances = Instances::of_user().ok();
    let other = instances.map(|instances| instances.socket_of(data_dir));
    let usual = DataDir::control_socket(data_dir);
    std::iter::once(usual).chain(other).collect()
}

/// Opens the socket at the first path that works, but never in a directory that another gateway may
/// be using.
async fn bind(data_dir: &Path, directory: Option<u64>) -> io::Result<NamedSocket> {
    let paths = socket_paths(data_dir);
    let unusable = usize::from(directory.is_none());
    let mut last = io::Error::other("no directory is available for the control socket");
    for path in paths.into_iter().skip(unusable) {
        // Only this gateway uses the path, so an existing file was left by a killed process.
        let binding = timeout(BIND_MAX, spawn_blocking(move || SocketFile::replace(&path)));
        let bound = match binding.await {
            Ok(bound) => bound.map_err(io::Error::other).flatten(),
            Err(late) => Err(io::Error::other(late)),
        };
        match bound {
            Ok((listener, file)) => {
                let listener = UnixListener::from_std(listener)?;
                return Ok(NamedSocket { listener, file });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn a_socket_can_be_anywhere_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        for length in [1, 60, 200] {
            let deep = directory.path().join("x".repeat(length));
            std::fs::create_dir(&deep).unwrap();
            let path = DataDir::control_socket(&deep);
            for _ in 0..2 {
                let _listener = SocketFile::replace(&path).unwrap();
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
                let short = ShortPath::new(&path).unwrap();
                assert!(StdStream::connect(&short.path).is_ok());
            }
        }
    }

    #[tokio::test]
    async fn a_directory_that_takes_no_socket_has_it_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        // The directory is unusable, or another gateway may be using it.
        for (data_dir, number) in [(&*file, Some(1)), (directory.path(), None)] {
            let socket = bind(data_dir, number).await.unwrap();
            assert!(!socket.file.path().starts_with(directory.path()));
            assert!(is_served(data_dir));
            drop(socket);
            assert!(!is_served(data_dir));
        }
    }
}
