//! The example server: a real MCP server over stdio without further dependencies.
//!
//! The gateway starts it as a child process and communicates over its pipes, as with any other
//! server. It has a tool for each effect, pleasant or not, that a server can have on its client, so
//! that people can try the gateway and tests can stress it. It supports the revisions with a
//! handshake, 2024-11-05 to 2025-11-25, and sends only fields that the negotiated one defines.

mod args;
mod prompts;
mod resources;
mod state;
mod tools;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufWriter};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use crate::transport::{Line, LineSplitter};
use state::{ExampleSession, RpcError};

/// Supported revisions, newest first; the newest is offered if a client requests an unsupported
/// one.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Maximum length of a line, in bytes; the response to a longer one is an error.
const LINE_MAX: usize = 32 * 1024 * 1024;

/// Maximum number of queued output lines; a handler that finds the queue full waits.
const QUEUE_MAX: usize = 256;

/// Maximum number of concurrent requests, counting a batch as one; further ones are refused.
const RUNNING_MAX: usize = 4096;

/// Time for responses in progress after stdin was closed.
const END_GRACE: Duration = Duration::from_millis(200);

/// The exit code of the tool `crash`.
const CRASH_CODE: i32 = 13;

const INSTRUCTIONS: &str = "This is the example server built into mcpvisor. It lets you try \
the gateway with nothing else installed: `echo` and `add` respond immediately, `slow` reports \
progress, `ask` asks the user a question, `crash` ends the server process and shows how it \
restarts. Replace it in config.toml with your own servers.";

/// How [`serve`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServeEnd {
    /// The client closed its end.
    Closed,
    /// The tool `crash` was called: the process must exit immediately with [`CRASH_CODE`].
    Crash,
}

/// Serves one client on stdin and stdout until stdin closes.
///
/// Writes only protocol messages to stdout (and noise, if the tool `flood` requests it); one line
/// on stderr reports that it started. The tool `crash` ends the process with code 13.
///
/// # Errors
/// Fails if stdin cannot be read or stdout cannot be written.
pub async fn run() -> io::Result<()> {
    eprintln!(
        "mcpvisor example server {}: ready on stdin and stdout",
        env!("CARGO_PKG_VERSION")
    );
    match serve(tokio::io::stdin(), tokio::io::stdout()).await? {
        ServeEnd::Closed => Ok(()),
        ServeEnd::Crash => crash(),
    }
}

/// Writes a line to stderr; a closed stderr is ignored.
fn log_stderr(text: &str) {
    let _ = writeln!(io::stderr(), "mcpvisor example server: {text}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "the tool exists to die without notice"
)]
fn crash() -> ! {
    log_stderr("crashing: tool `crash` was called");
    std::process::exit(CRASH_CODE)
}

/// Like [`run`], over any pair of byte streams: one JSON-RPC message per line (S-STDIO-01).
pub(crate) async fn serve<R, W>(mut reader: R, writer: W) -> io::Result<ServeEnd>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (out, queue) = mpsc::channel(QUEUE_MAX);
    let mut writing = tokio::spawn(write_lines(writer, queue));
    let session = Arc::new(ExampleSession::new(out));
    let mut running = JoinSet::new();
    let mut lines = LineSplitter::new(LINE_MAX);
    loop {
        let has_ended = tokio::select! {
            read = reader.read_buf(lines.space()) => read? == 0,
            () = session.crash.notified() => return Ok(ServeEnd::Crash),
            written = &mut writing => return written.map_err(io::Error::other)?.map(|()| ServeEnd::Closed),
            Some(_) = running.join_next() => continue,
        };
        while let Some(line) = lines.next_line() {
            accept(&session, line, &mut running).await;
        }
        if has_ended {
            if let Some(line) = lines.finish() {
                accept(&session, line, &mut running).await;
            }
            return finish(session, running, writing).await;
        }
    }
}

/// Waits briefly for responses in progress, then ends.
async fn finish(
    session: Arc<ExampleSession>,
    mut running: JoinSet<()>,
    writing: JoinHandle<io::Result<()>>,
) -> io::Result<ServeEnd> {
    let drained = async { while running.join_next().await.is_some() {} };
    tokio::select! {
        _ = tokio::time::timeout(END_GRACE, drained) => {}
        () = session.crash.notified() => return Ok(ServeEnd::Crash),
    }
    running.shutdown().await;
    drop(session);
    match tokio::time::timeout(END_GRACE, writing).await {
        Ok(written) => written
            .map_err(io::Error::other)?
            .map(|()| ServeEnd::Closed),
        Err(_) => Ok(ServeEnd::Closed),
    }
}

async fn write_lines<W: AsyncWrite + Unpin>(
    writer: W,
    mut queue: mpsc::Receiver<String>,
) -> io::Result<()> {
    let mut writer = BufWriter::new(writer);
    while let Some(line) = queue.recv().await {
        writer.write_all(line.as_bytes()).await?;
        writer.write_all(b"\n").await?;
        if queue.is_empty() {
            writer.flush().await?;
        }
    }
    writer.flush().await
}

/// Handles one line: session state changes here and in order, requests run in separate tasks.
async fn accept(session: &Arc<ExampleSession>, line: Line, running: &mut JoinSet<()>) {
    let message: Value = match line {
        Line::Whole(line) if line.trim_ascii().is_empty() => return,
        Line::Whole(line) => match serde_json::from_slice(&line) {
            Ok(message) => message,
            Err(error) => {
                let text = format!("the line is not JSON: {error}");
                return session.refuse(&Value::Null, -32700, text).await;
            }
        },
        Line::TooLong { .. } => {
            let text = format!("the line is longer than {LINE_MAX} bytes");
            return session.refuse(&Value::Null, -32600, text).await;
        }
    };
    if running.len() >= RUNNING_MAX {
        let text = format!("more than {RUNNING_MAX} requests at the same time");
        return session.refuse(&message["id"], -32000, text).await;
    }
    if let Value::Array(batch) = message {
        return accept_batch(session, batch, running).await;
    }
    if let Some(request) = take_message(session, message).await {
        let session = session.clone();
        running.spawn(async move {
            if let Some(answer) = answer(&session, request).await {
                session.send(&answer).await;
            }
        });
    }
}

/// Handles a batch, which exists only in 2025-03-26; its responses are sent as one batch (JSON-RPC
/// 2.0 §6).
async fn accept_batch(session: &Arc<ExampleSession>, batch: Vec<Value>, running: &mut JoinSet<()>) {
    if session.revision() != Some("2025-03-26") || batch.is_empty() || batch.len() > RUNNING_MAX {
        let text = "a batch is not allowed here";
        return session.refuse(&Value::Null, -32600, text).await;
    }
    let mut requests = Vec::new();
    for message in batch {
        requests.extend(take_message(session, message).await);
    }
    let session = session.clone();
    running.spawn(async move {
        let answers = requests
            .into_iter()
            .map(|request| answer(&session, request));
        let answers: Vec<Value> = join_all(answers).await.into_iter().flatten().collect();
        if !answers.is_empty() {
            session.send(&Value::Array(answers)).await;
        }
    });
}

/// A request to be handled by a task.
struct ClientRequest {
    id: Value,
    method: String,
    params: Value,
    cancelled: state::RunningRequest,
}

/// Does what must happen in the order of the lines, and returns a request that may take longer.
async fn take_message(session: &Arc<ExampleSession>, mut message: Value) -> Option<ClientRequest> {
    let id = message.get("id").cloned();
    let params = message.get_mut("params").map_or(Value::Null, Value::take);
    let (id, text) = match (id, message["method"].as_str()) {
        (None, Some("notifications/cancelled")) => {
            session.cancel(&params["requestId"]);
            return None;
        }
        (None, Some(_)) => return None,
        (Some(id), None) if message.get("result").is_some() || message.get("error").is_some() => {
            session.answered(&id, message);
            return None;
        }
        (Some(id), Some("initialize")) => {
            let answer = initialize(session, &params);
            session.send(&envelope(&id, answer)).await;
            return None;
        }
        (Some(id), Some(method)) if id.is_string() || id.is_i64() || id.is_u64() => {
            let method = method.to_owned();
            if let Some(cancelled) = session.start(&id) {
                return Some(ClientRequest {
                    id,
                    method,
                    params,
                    cancelled,
                });
            }
            (id, "a request with this id is still running")
        }
        (Some(_), Some(_)) => (Value::Null, "`id` is neither a string nor an integer"),
        (id, None) => {
            let id = id.unwrap_or_default();
            (id, "`method` is missing or not a string")
        }
    };
    session.refuse(&id, -32600, text).await;
    None
}

/// The response to a request; `None` if it was cancelled (S-STDIO-04).
async fn answer(session: &Arc<ExampleSession>, request: ClientRequest) -> Option<Value> {
    let ClientRequest {
        id,
        method,
        params,
        mut cancelled,
    } = request;
    tokio::select! {
        () = cancelled.wait() => None,
        result = dispatch(session, &method, &params) => Some(envelope(&id, result)),
    }
}

async fn dispatch(
    session: &Arc<ExampleSession>,
    method: &str,
    params: &Value,
) -> Result<Value, RpcError> {
    if method == "ping" {
        return Ok(json!({}));
    }
    if session.revision().is_none() {
        let text = "the session is not initialized: send `initialize` first";
        return Err(RpcError::new(-32600, text));
    }
    match method {
        "tools/call" => return tools::call(session, params).await,
        "tools/list" => first_page(params).map(|()| tools::list(session)),
        "resources/list" => first_page(params).map(|()| resources::list()),
        "resources/templates/list" => first_page(params).map(|()| resources::templates()),
        "resources/read" => resources::read(session, params),
        "resources/subscribe" => resources::subscribe(session, params),
        "resources/unsubscribe" => resources::unsubscribe(session, params),
        "prompts/list" => first_page(params).map(|()| prompts::list()),
        "prompts/get" => prompts::get(params),
        "completion/complete" => prompts::complete(params),
        "logging/setLevel" => session.set_level(params),
        _ => Err(RpcError::new(-32601, format!("method not found: {method}"))),
    }
    .map(|result| session.remove_unknown_fields(result))
}

/// Lists have a single page here, so any cursor is unknown.
fn first_page(params: &Value) -> Result<(), RpcError> {
    match params.get("cursor") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(RpcError::params("unknown cursor: the list has one page")),
    }
}

fn initialize(session: &ExampleSession, params: &Value) -> Result<Value, RpcError> {
    let Some(wanted) = params["protocolVersion"].as_str() else {
        return Err(RpcError::params(
            "`protocolVersion` is missing or not a string",
        ));
    };
    let revision = REVISIONS
        .into_iter()
        .find(|known| *known == wanted)
        .unwrap_or(REVISIONS[0]);
    session.initialized(revision, params["capabilities"].clone());
    let mut result = json!({
        "protocolVersion": revision,
        "capabilities": {
            "tools": {"listChanged": true},
            "resources": {"subscribe": true},
            "prompts": {},
            "logging": {},
        },
        "serverInfo": {"name": "mcpvisor-example", "version": env!("CARGO_PKG_VERSION")},
        "instructions": INSTRUCTIONS,
    });
    if revision >= "2025-03-26" {
        result["capabilities"]["completions"] = json!({});
    }
    if revision >= "2025-06-18" {
        result["serverInfo"]["title"] = "mcpvisor example server".into();
    }
    Ok(result)
}

fn envelope(id: &Value, result: Result<Value, RpcError>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(refusal) => failure(id, &refusal),
    }
}

fn failure(id: &Value, refusal: &RpcError) -> Value {
    let mut error = json!({"code": refusal.code, "message": refusal.message});
    if let Some(data) = &refusal.data {
        error["data"] = data.clone();
    }
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}
