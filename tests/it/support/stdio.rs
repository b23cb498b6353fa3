//! A client of `mcpvisor stdio`: the child's stdin and stdout.

use std::process::{ExitStatus, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{Setup, initialize, request, soon};

pub(crate) struct StdioClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl StdioClient {
    /// Starts `mcpvisor stdio` with these arguments; nothing was said yet.
    pub(crate) fn start(setup: &Setup, arguments: &[&str]) -> Self {
        let arguments = [&["--config", "config.toml", "stdio"], arguments].concat();
        Self::spawn(setup, &arguments)
    }

    fn spawn(setup: &Setup, arguments: &[&str]) -> Self {
        let mut command = Command::from(setup.command(arguments));
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(setup.path("stdio.log"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    /// The same without naming a configuration.
    pub(crate) fn start_unconfigured(setup: &Setup) -> Self {
        Self::spawn(setup, &["stdio"])
    }

    /// The same after a handshake.
    pub(crate) async fn open(setup: &Setup, arguments: &[&str]) -> Self {
        Self::open_as(setup, arguments, "2025-11-25", json!({})).await
    }

    pub(crate) async fn open_as(
        setup: &Setup,
        arguments: &[&str],
        revision: &str,
        capabilities: Value,
    ) -> Self {
        let mut client = Self::start(setup, arguments);
        client.say(&initialize(revision, &capabilities)).await;
        let answer = client.next().await;
        assert_eq!(answer["result"]["protocolVersion"], revision, "{answer}");
        client
            .say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().unwrap().cast_signed()
    }

    pub(crate) async fn say(&mut self, message: &Value) {
        self.write(&format!("{message}\n")).await;
    }

    pub(crate) async fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).await.unwrap();
        stdin.flush().await.unwrap();
    }

    /// The next message. Every line on stdout must be one (S-STDIO-02).
    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = Value> {
        soon("a line on stdout", async {
            let line = self.lines.next_line().await.unwrap();
            let line = line.expect("a line, not the end of stdout");
            let message: Value = serde_json::from_str(&line).unwrap();
            let of = |message: &Value| assert_eq!(message["jsonrpc"], "2.0", "{line}");
            match message.as_array() {
                Some(members) => members.iter().for_each(of),
                None => of(&message),
            }
            message
        })
    }

    /// The next message with this method, others left out.
    pub(crate) async fn method(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
        }
    }

    /// The answer to a request that was said, other messages left out.
    pub(crate) async fn answer(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    pub(crate) async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.say(&request(id, method, params)).await;
        self.answer(id).await
    }

    /// The result of a tool.
    pub(crate) async fn call(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        let answer = self.ask(id, "tools/call", params).await;
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    /// Says nothing more.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Reads nothing more.
    pub(crate) async fn ended_unread(self) -> ExitStatus {
        let Self {
            mut child,
            stdin: _stdin,
            lines,
        } = self;
        drop(lines);
        soon("the end of mcpvisor stdio", async {
            child.wait().await.unwrap()
        })
        .await
    }

    /// The remaining messages, and the end of the process.
    pub(crate) async fn ended(mut self) -> (String, ExitStatus) {
        soon("the end of mcpvisor stdio", async {
            let mut rest = String::new();
            let mut reader = self.lines.into_inner();
            reader.read_to_string(&mut rest).await.unwrap();
            (rest, self.child.wait().await.unwrap())
        })
        .await
    }
}
