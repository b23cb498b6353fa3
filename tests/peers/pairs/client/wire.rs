//! How the scripted client reaches the gateway.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Client;
use crate::pairs::server::META_VERSION;
use crate::support::{Answer, Events, Http};

pub(crate) enum Wire {
    Http {
        address: SocketAddr,
        session: Mutex<Option<String>>,
    },
    /// HTTP+SSE: where messages go, and the stream until it is read.
    Old {
        address: SocketAddr,
        path: String,
        events: Mutex<Option<Events>>,
    },
    /// The pipes of a child; the reading end until it is read.
    Stdio {
        lines: mpsc::UnboundedSender<Value>,
        output: Mutex<Option<ChildStdout>>,
    },
}

impl Wire {
    pub(crate) fn http(address: SocketAddr) -> Self {
        Self::Http {
            address,
            session: Mutex::default(),
        }
    }

    pub(crate) async fn old(address: SocketAddr) -> Self {
        let http = Http::new(address, "GET", "/sse").header("Accept", "text/event-stream");
        let mut events = http.send().await.events();
        let path = events.next().await.unwrap().data;
        Self::Old {
            address,
            path,
            events: Mutex::new(Some(events)),
        }
    }

    pub(crate) fn stdio(mut input: ChildStdin, output: ChildStdout) -> Self {
        let (lines, mut messages) = mpsc::unbounded_channel::<Value>();
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                let line = format!("{message}\n");
                if input.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        Self::Stdio {
            lines,
            output: Mutex::new(Some(output)),
        }
    }
}

impl Client {
    /// Whether closing a request's stream is how this client cancels.
    pub(crate) fn cancels_by_closing(&self) -> bool {
        self.modern() && matches!(self.wire, Wire::Http { .. })
    }

    /// Reads the one channel, where there is one.
    pub(super) fn read(self: &Arc<Self>) {
        match &self.wire {
            Wire::Http { .. } => {}
            Wire::Old { events, .. } => {
                if let Some(events) = events.lock().unwrap().take() {
                    tokio::spawn(self.clone().take_events(events));
                }
            }
            Wire::Stdio { output, .. } => {
                if let Some(output) = output.lock().unwrap().take() {
                    tokio::spawn(self.clone().take_lines(output));
                }
            }
        }
    }

    /// Opens the general stream, where there is one.
    pub(super) async fn listen(self: &Arc<Self>) {
        if let Wire::Http { address, .. } = &self.wire {
            let http = Http::new(*address, "GET", "/mcp").header("Accept", "text/event-stream");
            let answer = self.with_session(http).send().await;
            if answer.is_stream() {
                tokio::spawn(self.clone().take_events(answer.events()));
            } else {
                let refusal = format!("to the client: no general stream: {answer:?}");
                self.verdicts.note(refusal);
            }
        }
    }

    /// Sends a message; what comes back for it is taken by the task that is returned.
    pub(super) fn send(self: &Arc<Self>, message: Value) -> JoinHandle<()> {
        let client = self.clone();
        match &self.wire {
            Wire::Http { address, .. } => {
                let http = Http::post(*address, message.to_string());
                let http = self.headers(self.with_session(http), &message);
                tokio::spawn(async move { client.take_answer(http.send().await).await })
            }
            Wire::Old { address, path, .. } => {
                let http = Http::post(*address, message.to_string()).path(path);
                tokio::spawn(async move {
                    let answer = http.send().await;
                    if answer.status != 202 {
                        let refusal = format!("to the client: {message} got {answer:?}");
                        client.verdicts.note(refusal);
                    }
                })
            }
            Wire::Stdio { lines, .. } => {
                let _ = lines.send(message);
                tokio::spawn(std::future::ready(()))
            }
        }
    }

    fn with_session(&self, http: Http) -> Http {
        let Wire::Http { session, .. } = &self.wire else {
            return http;
        };
        match session.lock().unwrap().as_deref() {
            Some(session) => http
                .header("Mcp-Session-Id", session)
                .header("MCP-Protocol-Version", self.revision.as_str()),
            None => http,
        }
    }

    /// Headers that repeat the body, as the sessionless revision demands.
    fn headers(&self, http: Http, message: &Value) -> Http {
        let params = &message["params"];
        if params["_meta"].get(META_VERSION).is_none() {
            return http;
        }
        let method = message["method"].as_str().unwrap_or_default();
        let http = http
            .header("MCP-Protocol-Version", self.revision.as_str())
            .header("Mcp-Method", method);
        let name = match method {
            "tools/call" | "prompts/get" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => None,
        };
        match name {
            Some(name) => http.header("Mcp-Name", name),
            None => http,
        }
    }

    async fn take_answer(self: Arc<Self>, answer: Answer) {
        if let Wire::Http { session, .. } = &self.wire
            && let Some(id) = answer.header("mcp-session-id")
        {
            if self.modern() {
                self.verdicts.note("to the client: a session".to_owned());
            }
            *session.lock().unwrap() = Some(id.to_owned());
        }
        if answer.is_stream() {
            return self.take_events(answer.events()).await;
        }
        let status = answer.status;
        let body = answer.bytes().await;
        if body.is_empty() {
            return;
        }
        match serde_json::from_slice(&body) {
            Ok(message) => self.received(message),
            Err(error) => {
                let body = String::from_utf8_lossy(&body);
                let fault = format!("to the client: {status} with no JSON ({error}): {body}");
                self.verdicts.note(fault);
            }
        }
    }

    async fn take_events(self: Arc<Self>, mut events: Events) {
        while let Some(event) = events.next().await {
            if let Some(message) = event.message() {
                self.received(message);
            }
        }
    }

    async fn take_lines(self: Arc<Self>, output: ChildStdout) {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match serde_json::from_str(&line) {
                Ok(message) => self.received(message),
                Err(_) => self
                    .verdicts
                    .note(format!("to the client: no message on stdout: {line}")),
            }
        }
    }
}
