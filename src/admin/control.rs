//! `control.sock`: the command line asks the running gateway, one JSON line for another.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::control_request::ControlRequest;
use super::data_dir::DataDir;
use super::instances::Instances;
use super::operator::{self, Operator};
use super::status::Status;
use crate::id::ViewId;
use crate::store::DirectoryLease;

/// Longest line in either direction, in bytes.
const LINE_MAX: u64 = 64 * 1024 * 1024;
/// MCP clients over the socket at a time.
const CLIENTS_MAX: usize = 32;
/// How long the disk may take to make the socket.
const BIND_MAX: Duration = Duration::from_secs(5);
/// How long the disk may take to remove it.
const REMOVE_MAX: Duration = Duration::from_millis(500);
/// Time between two attempts to make it.
const BIND_AGAIN: Duration = Duration::from_secs(10);
/// How often it is looked whether the data directory is another one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest path of a socket on all systems, in bytes.
const SOCKET_PATH_MAX: usize = 100;
/// How long either side waits for the other; an order takes up to 8 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The gateway's end of the socket; it is removed when this is dropped.
pub struct ControlServer(#[expect(dead_code, reason = "held")] AbortOnDropHandle<()>);

/// A socket under its name, which is removed with it.
struct NamedSocket {
    listener: UnixListener,
    path: PathBuf,
}

/// Both directions of a connection to the socket.
pub type ControlHalves = (BufReader<OwnedReadHalf>, OwnedWriteHalf);

/// Why the running gateway could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("no gateway runs with the data directory `{0}`: start it with `mcpvisor serve`")]
    NotRunning(PathBuf),
    #[error("the gateway did not answer: {0}")]
    Io(#[from] io::Error),
    #[error("the gateway's answer was not understood; is it of another version? ({0})")]
    Answer(#[from] serde_json::Error),
    #[error("{0}")]
    Refused(String),
}

impl ControlServer {
    /// Opens the socket, readable by its owner only, and opens it again when the data directory is
    /// another one. Where the directory takes no socket, it is beside the list of gateways.
    pub async fn start(
        data_dir: &Path,
        lease: DirectoryLease,
        operator: Arc<dyn Operator>,
    ) -> Self {
        let data_dir = data_dir.to_owned();
        let mut directory = lease.number();
        let mut bound = bind(&data_dir, directory).await;
        let task = actix_rt::spawn(async move {
            let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
            loop {
                match bound {
                    Ok(socket) => {
                        let is_same = || lease.number() == directory;
                        accept_while(is_same, &socket, &operator, &clients).await;
                    }
                    Err(error) => {
                        log::warn!(error:%; "the command line cannot ask this gateway");
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

impl Drop for NamedSocket {
    fn drop(&mut self) {
        let path = self.path.clone();
        let (done, removed) = std::sync::mpsc::channel();
        let remove = move || done.send(std::fs::remove_file(path));
        drop(std::thread::Builder::new().spawn(remove));
        // If it stays, as on a disk that hangs, the next start removes it.
        let _ = removed.recv_timeout(REMOVE_MAX);
    }
}

/// Serves clients until the data directory is replaced, or the socket is removed from it.
async fn accept_while(
    is_same: impl Fn() -> bool,
    socket: &NamedSocket,
    operator: &Arc<dyn Operator>,
    clients: &Arc<Semaphore>,
) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut removed = pin!(until_removed(socket.path.clone()));
    while is_same() {
        let accepted = tokio::select! {
            accepted = socket.listener.accept() => accepted,
            _ = looks.tick() => continue,
            () = &mut removed => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (operator, clients) = (operator.clone(), clients.clone());
                actix_rt::spawn(async move {
                    if serve(stream, operator, clients).await.is_err() {
                        log::debug!("a control request was not answered");
                    }
                });
            }
            Err(error) => {
                log::warn!(error:%; "the control socket accepts no connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Ends when the socket is not under its name any more. The disk may hang meanwhile.
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

/// Answers one request; a client that was asked for is served until it leaves.
async fn serve(
    stream: UnixStream,
    operator: Arc<dyn Operator>,
    clients: Arc<Semaphore>,
) -> io::Result<()> {
    let (reader, writer) = stream.into_split();
    let mut halves = (BufReader::new(reader), writer);
    let answered = answer(&mut halves, &operator, &clients);
    let Some(view) = timeout(ANSWER_TIMEOUT, answered)
        .await
        .map_err(io::Error::other)??
    else {
        return Ok(());
    };
    // One that came meanwhile is refused by the end of its connection.
    let _permit = clients.try_acquire().map_err(io::Error::other)?;
    let (reader, writer) = halves;
    let stream = reader.into_inner().reunite(writer);
    let stream = stream.map_err(io::Error::other)?.into_std()?;
    operator.serve_client(view, stream)?.await;
    Ok(())
}

/// Answers a request; returns the view of a client that is to be served after it.
async fn answer(
    (reader, writer): &mut ControlHalves,
    operator: &Arc<dyn Operator>,
    clients: &Semaphore,
) -> io::Result<Option<ViewId>> {
    let line = read_line(reader).await?;
    let mut client = None;
    let answer = match serde_json::from_str(&line) {
        Ok(ControlRequest::Client { .. }) if clients.available_permits() == 0 => {
            json!({ "refused": format!("{CLIENTS_MAX} commands speak to servers already") })
        }
        Ok(request) => {
            if let ControlRequest::Client { view } = &request {
                client = Some(view.clone());
            }
            operator::answer(operator.clone(), request).await
        }
        Err(error) => json!({ "refused": format!("not understood: {error}") }),
    };
    let is_refused = answer.get("refused").is_some();
    writer.write_all(format!("{answer}\n").as_bytes()).await?;
    Ok(client.filter(|_| !is_refused))
}

/// Whether a gateway that uses this data directory takes requests.
pub fn is_served(data_dir: &Path) -> bool {
    let connect = |path: &Path| with_short(path, StdStream::connect).is_ok();
    socket_paths(data_dir).iter().any(|path| connect(path))
}

/// Asks the gateway that uses this data directory for its status.
///
/// # Errors
///
/// Returns [`ControlError::NotRunning`] when there is none.
pub async fn ask_status(data_dir: &Path) -> Result<Status, ControlError> {
    ask(data_dir, &ControlRequest::Status).await
}

/// Asks the gateway that uses this data directory; [`ControlRequest`] says what it answers.
///
/// # Errors
///
/// Returns [`ControlError::NotRunning`] when there is none, [`ControlError::Refused`] with its
/// reason when it does not do what is asked.
pub async fn ask<T: DeserializeOwned>(
    data_dir: &Path,
    request: &ControlRequest,
) -> Result<T, ControlError> {
    // Boxed, because the caller holds the buffers of the whole conversation otherwise.
    let (answer, _) = Box::pin(converse(data_dir, request)).await?;
    // Its only member has the name of what was asked for.
    let answer = answer.into_iter().next().map(|(_, answer)| answer);
    Ok(serde_json::from_value(answer.unwrap_or_default())?)
}

/// Opens the way of an MCP client of this view to the gateway that uses this data directory: lines
/// of JSON-RPC in both directions.
///
/// # Errors
///
/// As [`ask`].
pub async fn open_client(data_dir: &Path, view: ViewId) -> Result<ControlHalves, ControlError> {
    let request = ControlRequest::Client { view };
    Ok(converse(data_dir, &request).await?.1)
}

async fn converse(
    data_dir: &Path,
    request: &ControlRequest,
) -> Result<(Map<String, Value>, ControlHalves), ControlError> {
    let connect = |path: &PathBuf| with_short(path, StdStream::connect).ok();
    let stream = socket_paths(data_dir).iter().find_map(connect);
    let stream = stream.ok_or_else(|| ControlError::NotRunning(data_dir.to_owned()))?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let request = serde_json::to_string(request)? + "\n";
    writer.write_all(request.as_bytes()).await?;
    let line = timeout(ANSWER_TIMEOUT, read_line(&mut reader));
    let line = line.await.map_err(io::Error::other)??;
    let answer: Map<String, Value> = serde_json::from_str(&line)?;
    match answer.get("refused").and_then(Value::as_str) {
        Some(reason) => Err(ControlError::Refused(reason.to_owned())),
        None => Ok((answer, (reader, writer))),
    }
}

/// Reads one line of bounded length; it is empty at the end.
///
/// # Errors
///
/// Returns the system's error.
pub async fn read_line(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<String> {
    let mut line = String::new();
    reader.take(LINE_MAX).read_line(&mut line).await?;
    Ok(line)
}

/// Where the socket of a gateway with this data directory may be, the likeliest first.
fn socket_paths(data_dir: &Path) -> Vec<PathBuf> {
    let instances = Instances::of_user().ok();
    let other = instances.map(|instances| instances.socket_of(data_dir));
    let usual = DataDir::control_socket(data_dir);
    std::iter::once(usual).chain(other).collect()
}

/// Opens the socket in the first place that takes it; not in a directory that may be used by
/// another gateway.
async fn bind(data_dir: &Path, directory: Option<u64>) -> io::Result<NamedSocket> {
    let paths = socket_paths(data_dir);
    let unusable = usize::from(directory.is_none());
    let mut last = io::Error::other("there is no place for the control socket");
    for path in paths.into_iter().skip(unusable) {
        let of_thread = path.clone();
        let binding = timeout(BIND_MAX, spawn_blocking(move || bind_private(&of_thread)));
        let bound = match binding.await {
            Ok(bound) => bound.map_err(io::Error::other).flatten(),
            Err(late) => Err(io::Error::other(late)),
        };
        match bound {
            Ok(listener) => {
                return Ok(NamedSocket {
                    listener: UnixListener::from_std(listener)?,
                    path,
                });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Opens a socket that nobody else can connect to: it gets its name when it is private. The umask
/// would do, but is that of the whole process, which starts programs at the same time.
fn bind_private(path: &Path) -> io::Result<StdListener> {
    // Only its gateway uses the name: what is there is left from a process that was killed.
    remove_if_there(path)?;
    let unnamed = path.with_extension("new");
    remove_if_there(&unnamed)?;
    let listener = with_short(&unnamed, StdListener::bind)?;
    std::fs::set_permissions(&unnamed, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(unnamed, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Names a socket by a path that is short enough for one: a long one leads through the directory
/// that is open.
fn with_short<T>(path: &Path, name: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    let (true, Some(directory), Some(file)) = (
        path.as_os_str().len() > SOCKET_PATH_MAX,
        path.parent(),
        path.file_name(),
    ) else {
        return name(path.to_owned());
    };
    let directory = File::open(directory)?;
    let through = format!("/proc/self/fd/{}", directory.as_raw_fd());
    name(Path::new(&through).join(file))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_can_be_anywhere_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        for length in [1, 60, 200] {
            let deep = directory.path().join("x".repeat(length));
            std::fs::create_dir(&deep).unwrap();
            let path = DataDir::control_socket(&deep);
            for _ in 0..2 {
                let _listener = bind_private(&path).unwrap();
                let mode = std::fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
                assert!(with_short(&path, StdStream::connect).is_ok());
            }
        }
    }

    #[tokio::test]
    async fn a_directory_that_takes_no_socket_has_it_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        // The directory is none, or may be used by another gateway.
        for (data_dir, number) in [(&*file, Some(1)), (directory.path(), None)] {
            let socket = bind(data_dir, number).await.unwrap();
            assert!(!socket.path.starts_with(directory.path()));
            assert!(is_served(data_dir));
            drop(socket);
            assert!(!is_served(data_dir));
        }
    }
}
