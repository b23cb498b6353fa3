//! `control.sock`: the command line asks the running gateway, one JSON line for another.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::data_dir::DataDir;
use super::operator::{self, ControlRequest, Operator};

/// Longest line in either direction, in bytes.
const LINE_MAX: u64 = 64 * 1024 * 1024;
/// How long either side waits for the other; an order takes up to 8 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The gateway's end of the socket; it is removed when this is dropped.
pub struct ControlServer {
    path: PathBuf,
    task: JoinHandle<()>,
}

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
        let task = actix_rt::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let operator = operator.clone();
                        actix_rt::spawn(async move {
                            let answered = timeout(ANSWER_TIMEOUT, answer(stream, operator)).await;
                            if !matches!(answered, Ok(Ok(()))) {
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

async fn answer(stream: UnixStream, operator: Arc<dyn Operator>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(LINE_MAX))
        .read_line(&mut line)
        .await?;
    let mut answer = match serde_json::from_str(&line) {
        Ok(request) => operator::answer(operator, request).await,
        Err(error) => serde_json::json!({ "refused": format!("not understood: {error}") }),
    }
    .to_string();
    answer.push('\n');
    writer.write_all(answer.as_bytes()).await
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
    let path = DataDir::control_socket(data_dir);
    let stream = UnixStream::connect(&path)
        .await
        .map_err(|_| ControlError::NotRunning(data_dir.to_owned()))?;
    let (reader, mut writer) = stream.into_split();
    let request = serde_json::to_string(request)? + "\n";
    writer.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    let mut read = BufReader::new(reader.take(LINE_MAX));
    timeout(ANSWER_TIMEOUT, read.read_line(&mut line))
        .await
        .map_err(io::Error::other)??;
    let answer: Value = serde_json::from_str(&line)?;
    match answer.get("refused").and_then(Value::as_str) {
        Some(reason) => Err(ControlError::Refused(reason.to_owned())),
        None => Ok(answer),
    }
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
