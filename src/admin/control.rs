//! `control.sock`: the command line asks the running gateway, one JSON line for another.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::control_request::ControlRequest;
use super::data_dir::DataDir;
use super::operator::{self, Operator};
use crate::id::ViewId;

/// Longest line in either direction, in bytes.
const LINE_MAX: u64 = 64 * 1024 * 1024;
/// MCP clients over the socket at a time.
const CLIENTS_MAX: usize = 32;
/// How long either side waits for the other; an order takes up to 8 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The gateway's end of the socket; it is removed when this is dropped.
pub struct ControlServer {
    path: PathBuf,
    task: JoinHandle<()>,
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
    #[error("the gateway's answer was not understood: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("{0}")]
    Refused(String),
}

impl ControlServer {
    /// Opens the socket, readable by its owner only.
    ///
    /// # Errors
    ///
    /// Returns the system's error, such as a path that is too long for a socket.
    pub fn start(data_dir: &Path, operator: Arc<dyn Operator>) -> io::Result<Self> {
        let path = DataDir::control_socket(data_dir);
        // The directory is ours: what is there is left from a process that was killed.
        remove_if_there(&path)?;
        let listener = bind_private(&path)?;
        let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
        let task = actix_rt::spawn(async move {
            loop {
                match listener.accept().await {
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
        });
        Ok(Self { path, task })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.task.abort();
        // If it stays, the next start removes it.
        let _ = std::fs::remove_file(&self.path);
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
    std::os::unix::net::UnixStream::connect(DataDir::control_socket(data_dir)).is_ok()
}

/// Asks the gateway that uses this data directory for its status.
///
/// # Errors
///
/// Returns [`ControlError::NotRunning`] when there is none.
pub async fn ask_status(data_dir: &Path) -> Result<Value, ControlError> {
    Ok(ask(data_dir, &ControlRequest::Status).await?["status"].take())
}

/// Asks the gateway that uses this data directory; the answer is named as in [`ControlRequest`]:
/// `status`, `logs` with the lines, `token`, or `done` with a sentence.
///
/// # Errors
///
/// Returns [`ControlError::NotRunning`] when there is none, [`ControlError::Refused`] with its
/// reason when it does not do what is asked.
pub async fn ask(data_dir: &Path, request: &ControlRequest) -> Result<Value, ControlError> {
    // Boxed, as whoever asks holds the buffers of the whole conversation otherwise.
    Ok(Box::pin(converse(data_dir, request)).await?.0)
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
) -> Result<(Value, ControlHalves), ControlError> {
    let path = DataDir::control_socket(data_dir);
    let stream = UnixStream::connect(&path)
        .await
        .map_err(|_| ControlError::NotRunning(data_dir.to_owned()))?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let request = serde_json::to_string(request)? + "\n";
    writer.write_all(request.as_bytes()).await?;
    let line = timeout(ANSWER_TIMEOUT, read_line(&mut reader));
    let line = line.await.map_err(io::Error::other)??;
    let answer: Value = serde_json::from_str(&line)?;
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

/// Opens a socket that nobody else can connect to: it gets its name when it is private. The umask
/// would do, but is that of the whole process, which starts programs at the same time.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let unnamed = path.with_file_name("new.sock");
    remove_if_there(&unnamed)?;
    let listener = UnixListener::bind(&unnamed)?;
    std::fs::set_permissions(&unnamed, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(unnamed, path)?;
    Ok(listener)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
