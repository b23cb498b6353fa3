//! An MCP client over the control socket, for a single command.

use std::io;
use std::path::Path;

use mcpvisor::admin::{ClientHalves, OperatorClient, read_line};
use mcpvisor::id::ViewId;
use mcpvisor::telemetry::one_line;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::question::Questions;
use crate::commands::output::CliError;
use crate::commands::progress::ProgressLine;

/// The newest revision with sessions, in which questions arrive as requests during a call.
const REVISION: &str = "2025-11-25";

/// Maximum pages of a list that are read, as protection against endless pagination.
const PAGES_MAX: usize = 1000;

pub(in crate::commands) struct GatewayClient {
    halves: ClientHalves,
    next_id: u64,
    /// Result of `initialize`.
    pub(in crate::commands) initialized: Value,
    interrupt: Signal,
    /// Asks the person at the terminal, if there is one.
    questions: Option<Questions>,
}

impl GatewayClient {
    /// Connects as a client of this view. `can_ask` declares elicitation.
    pub(in crate::commands) async fn open(
        data_dir: &Path,
        view: ViewId,
        can_ask: bool,
    ) -> Result<Self, CliError> {
        let mut client = Self {
            halves: OperatorClient::open(data_dir)?.open_client(view).await?,
            next_id: 1,
            initialized: Value::Null,
            interrupt: signal(SignalKind::interrupt())?,
            questions: can_ask.then(Questions::default),
        };
        // Servers whose behaviour depends on this capability use a separate connection for clients
        // that declare it, so it is declared only if necessary.
        let capabilities = match can_ask {
            true => json!({"elicitation": {"form": {}, "url": {}}}),
            false => json!({}),
        };
        let params = json!({
            "protocolVersion": REVISION,
            "capabilities": capabilities,
            "clientInfo": {"name": "mcpvisor-tools", "version": env!("CARGO_PKG_VERSION")},
        });
        client.initialized = client.request("initialize", &params).await?;
        client.notify("notifications/initialized", None).await?;
        Ok(client)
    }

    /// All items of a list, whose results have them in this member.
    pub(in crate::commands) async fn list(
        &mut self,
        method: &str,
        member: &str,
    ) -> Result<Vec<Value>, CliError> {
        let mut all = Vec::new();
        let mut params = json!({});
        for _ in 0..PAGES_MAX {
            let mut page = self.request(method, &params).await?;
            let items: Vec<Value> = serde_json::from_value(page[member].take())?;
            all.extend(items);
            match page["nextCursor"].take() {
                Value::Null => return Ok(all),
                cursor => params = json!({ "cursor": cursor }),
            }
        }
        Err(format!("`{method}` has more than {PAGES_MAX} pages").into())
    }

    pub(super) async fn call_tool(
        &mut self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Value, CliError> {
        // The request id also serves as a unique progress token.
        let token = self.next_id;
        let params = json!({
            "name": name, "arguments": arguments, "_meta": {"progressToken": token},
        });
        self.request("tools/call", &params).await
    }

    /// Sends a request, and answers the gateway's questions until the result arrives. The gateway
    /// enforces its own deadlines; Ctrl-C cancels the request.
    async fn request(&mut self, method: &str, params: &Value) -> Result<Value, CliError> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        let mut progress = ProgressLine::new();
        loop {
            let line = tokio::select! {
                line = read_line(&mut self.halves.0) => line?,
                _ = self.interrupt.recv() => {
                    progress.clear();
                    return Err(self.cancel(id).await);
                }
            };
            if line.is_empty() {
                progress.clear();
                let message = "the gateway ended the connection; `mcpvisor logs` may say why";
                return Err(message.into());
            }
            let message: Incoming = serde_json::from_str(&line)?;
            match message.method.as_deref() {
                Some("notifications/progress") => progress.show(message.params),
                Some(_) if message.id.is_null() => {}
                Some(method) => {
                    progress.clear();
                    let answered = answer_to(&mut self.questions, method, &message.params);
                    let answer = tokio::select! {
                        answer = answered => answer,
                        _ = self.interrupt.recv() => return Err(self.cancel(id).await),
                    };
                    let id = message.id;
                    self.send(&match answer {
                        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
                    })
                    .await?;
                }
                None if message.id == id => {
                    progress.clear();
                    return outcome(message);
                }
                None => {}
            }
        }
    }

    /// Cancels the request at the gateway.
    async fn cancel(&mut self, id: u64) -> CliError {
        let params = json!({"requestId": id, "reason": "cancelled at the terminal"});
        match self.notify("notifications/cancelled", Some(params)).await {
            Ok(()) => "cancelled; the tool may have run".into(),
            Err(why) => why,
        }
    }

    async fn notify(&mut self, method: &str, params: Option<Value>) -> Result<(), CliError> {
        let message = match params {
            Some(params) => json!({"jsonrpc": "2.0", "method": method, "params": params}),
            None => json!({"jsonrpc": "2.0", "method": method}),
        };
        Ok(self.send(&message).await?)
    }

    async fn send(&mut self, message: &Value) -> io::Result<()> {
        self.halves
            .1
            .write_all(format!("{message}\n").as_bytes())
            .await
    }
}

/// A message from the gateway.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Incoming {
    id: Value,
    method: Option<String>,
    params: Value,
    result: Value,
    error: Option<IncomingError>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IncomingError {
    message: Option<String>,
}

fn outcome(message: Incoming) -> Result<Value, CliError> {
    let Some(error) = message.error else {
        return Ok(message.result);
    };
    let words = error.message;
    let words = words.as_deref().unwrap_or("the request failed");
    Err(one_line(words).into())
}

/// The result or error for a request from the gateway.
async fn answer_to(
    questions: &mut Option<Questions>,
    method: &str,
    params: &Value,
) -> Result<Value, Value> {
    match (method, questions) {
        ("ping", _) => Ok(json!({})),
        ("elicitation/create", Some(questions)) => Ok(questions.ask(params).await),
        ("elicitation/create", None) => {
            eprintln!("declined a question of the server: there is no terminal to ask on");
            Ok(json!({"action": "decline"}))
        }
        _ => Err(json!({"code": -32601, "message": "this client is a command line"})),
    }
}
