//! A test client that reads and writes lines in memory.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
    duplex, split,
};
use tokio::task::JoinHandle;

use crate::example_server::{ServeEnd, serve};

/// A client of one server.
pub(super) struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    pub(super) input: WriteHalf<DuplexStream>,
    pub(super) server: JoinHandle<std::io::Result<ServeEnd>>,
    /// Messages that preceded the last response.
    pub(super) seen: Vec<Value>,
    last_id: u64,
}

impl Client {
    pub(super) fn new() -> Self {
        let (ours, theirs) = duplex(64 * 1024);
        let (reader, writer) = split(theirs);
        let (output, input) = split(ours);
        let lines = BufReader::new(output).lines();
        let server = tokio::spawn(serve(reader, writer));
        Self {
            lines,
            input,
            server,
            seen: Vec::new(),
            last_id: 0,
        }
    }

    pub(super) async fn initialized(revision: &str, capabilities: Value) -> Self {
        let mut client = Self::new();
        let params = json!({"protocolVersion": revision, "capabilities": capabilities});
        let answer = client.ask("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], revision);
        client
            .write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
    }

    pub(super) async fn write(&mut self, message: &Value) {
        self.write_raw(&message.to_string()).await;
    }

    pub(super) async fn write_raw(&mut self, line: &str) {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// The next line as JSON; a line that is not JSON is returned as a string.
    pub(super) async fn read(&mut self) -> Value {
        let deadline = Duration::from_secs(20);
        let line = tokio::time::timeout(deadline, self.lines.next_line()).await;
        let line = line.unwrap().unwrap().expect("a line before the end");
        serde_json::from_str(&line).unwrap_or_else(|_| line.into())
    }

    pub(super) async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    /// Sends a request and reads up to its response; earlier messages are in `seen`.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.seen.clear();
        loop {
            let message = self.read().await;
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.seen.push(message);
        }
    }

    pub(super) async fn call(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self
            .ask("tools/call", json!({"name": name, "arguments": arguments}))
            .await;
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// The text of a successful call.
    pub(super) async fn text(&mut self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments).await;
        assert!(result["isError"].is_null(), "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The text of a failed call.
    pub(super) async fn fault(&mut self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }
}
