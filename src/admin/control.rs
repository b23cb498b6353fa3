//! `control.sock`: the command line asks the running gateway, one JSON line for another.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::data_dir::DataDir;
use super::status::Status;

/// Longest line in either direction, in bytes.
const LINE_MAX: u64 = 64 * 1024 * 1024;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asked for each request.
pub(crate) type StatusSource = Rc<dyn Fn() -> Status>;

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
    #[error("the gateway refused: {0}")]
    Refused(String),
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
enum Request {
    Status,
}

impl ControlServer {
    /// Opens the socket, readable by its owner only.
    ///
    /// # Errors
    ///
    /// Returns the system's error, such as a path that is too long for a socket.
    pub fn start(data_dir: &Path, status: StatusSource) -> io::Result<Self> {
        let path = DataDir::control_socket(data_dir);
        // The directory is ours: what is there is left from a process that was killed.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path)?;
        set_private(&path)?;
        let task = actix_rt::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let status = status.clone();
                        actix_rt::spawn(async move {
                            let answered = timeout(PATIENCE, answer(stream, status)).await;
                            if !matches!(answered, Ok(Ok(()))) {
                                log::debug!("a control request was not answered");
                            }
                        });
                    }
                    Err(error) => {
                        log::warn!(error:%; "control socket does not accept");
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

async fn answer(stream: UnixStream, status: StatusSource) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(LINE_MAX))
        .read_line(&mut line)
        .await?;
    let mut answer = match serde_json::from_str(&line) {
        Ok(Request::Status) => serde_json::json!({ "status": status() }),
        Err(error) => serde_json::json!({ "refused": format!("not understood: {error}") }),
    }
    .to_string();
    answer.push('\n');
    writer.write_all(answer.as_bytes()).await
}

/// Asks the gateway that uses this data directory for its status.
///
/// # Errors
///
/// Returns [`ControlError::NotRunning`] when there is none.
pub async fn ask_status(data_dir: &Path) -> Result<Value, ControlError> {
    let path = DataDir::control_socket(data_dir);
    let stream = UnixStream::connect(&path)
        .await
        .map_err(|_| ControlError::NotRunning(data_dir.to_owned()))?;
    let (reader, mut writer) = stream.into_split();
    let request = serde_json::to_string(&Request::Status)? + "\n";
    writer.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    let read = BufReader::new(reader.take(LINE_MAX));
    let mut read = read;
    timeout(PATIENCE, read.read_line(&mut line))
        .await
        .map_err(io::Error::other)??;
    let mut answer: Value = serde_json::from_str(&line)?;
    match answer.get("refused").and_then(Value::as_str) {
        Some(reason) => Err(ControlError::Refused(reason.to_owned())),
        None => Ok(answer["status"].take()),
    }
}

#[cfg(unix)]
fn set_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}
