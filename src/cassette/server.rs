//! Serves a cassette over stdin and stdout.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::playback::{Matching, Playback};
use super::{Cassette, CassetteError, Fault, RecordedAnswer};
use crate::transport::{Line, LineSplitter};

/// Revisions that clients can choose; the gateway bridges the others.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Maximum length of a line, in bytes.
const LINE_MAX: usize = 32 * 1024 * 1024;

/// How far a cassette was played, for the process that its parent starts after a recorded exit.
#[derive(Serialize, Deserialize)]
struct Position {
    /// Process id of the parent; another parent starts at the beginning.
    parent: i32,
    used: Vec<bool>,
}

/// Serves a cassette to the client on stdin and stdout, until the client leaves or the recorded
/// process ended.
///
/// # Errors
///
/// Returns [`CassetteError`] if the cassette cannot be read, or the pipes fail.
pub async fn serve_cassette(path: &Path, matching: Matching) -> Result<(), CassetteError> {
    let position = PositionFile::beside(path);
    let mut replay = Replay {
        playback: Playback::new(Cassette::read(path)?, matching),
        resume: Some(position.clone()),
    };
    let end = serve(&mut replay, tokio::io::stdin(), tokio::io::stdout()).await?;
    if end == PlaybackEnd::Exit {
        position.keep(replay.playback.used());
        return Err(io::Error::other("the recorded server ended at this call").into());
    }
    Ok(())
}

/// A playback, and where it continues.
struct Replay {
    playback: Playback,
    /// Read before the first call is answered: the gateway also starts processes that are only
    /// asked for their lists, and these must leave the position to the next one that is called.
    resume: Option<PositionFile>,
}

impl Replay {
    fn answer(&mut self, method: &str, params: &Value) -> Option<&RecordedAnswer> {
        if let Some(used) = self.resume.take().and_then(|it| it.take()) {
            self.playback.resume(used);
        }
        self.playback.answer(method, params)
    }
}

/// The file that holds the position between two processes.
#[derive(Clone)]
struct PositionFile(PathBuf);

impl PositionFile {
    fn beside(cassette: &Path) -> Self {
        let mut name = cassette.as_os_str().to_owned();
        name.push(".position");
        Self(name.into())
    }

    /// Reads and removes the position, if this process has the same parent.
    fn take(&self) -> Option<Vec<bool>> {
        let text = std::fs::read(&self.0).ok()?;
        let _ = std::fs::remove_file(&self.0);
        let position: Position = serde_json::from_slice(&text).ok()?;
        (position.parent == parent()).then_some(position.used)
    }

    fn keep(&self, used: &[bool]) {
        let position = Position {
            parent: parent(),
            used: used.to_vec(),
        };
        let written = serde_json::to_vec(&position).map_err(io::Error::from);
        if let Err(error) = written.and_then(|text| std::fs::write(&self.0, text)) {
            eprintln!(
                "the next process starts at the beginning: cannot write {}: {error}",
                self.0.display()
            );
        }
    }
}

fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |parent| parent.as_raw_pid())
}

/// Why a client is no longer served.
#[derive(Debug, PartialEq, Eq)]
enum PlaybackEnd {
    Closed,
    /// The recorded process ended here.
    Exit,
}

async fn serve(
    replay: &mut Replay,
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<PlaybackEnd> {
    let mut lines = LineSplitter::new(LINE_MAX);
    loop {
        let has_ended = reader.read_buf(lines.space()).await? == 0;
        while let Some(line) = lines.next_line() {
            match reply(replay, &line) {
                Reply::Message(message) => {
                    writer.write_all(format!("{message}\n").as_bytes()).await?
                }
                Reply::Nothing => {}
                Reply::Exit => return Ok(PlaybackEnd::Exit),
            }
        }
        writer.flush().await?;
        if has_ended {
            return Ok(PlaybackEnd::Closed);
        }
    }
}

/// Reaction to one line.
enum Reply {
    Message(Value),
    Nothing,
    Exit,
}

fn reply(replay: &mut Replay, line: &Line) -> Reply {
    let refuse = |id: &Value, code: i64, text: String| {
        let error = json!({"code": code, "message": text});
        Reply::Message(json!({"jsonrpc": "2.0", "id": id, "error": error}))
    };
    let Line::Whole(line) = line else {
        return refuse(
            &Value::Null,
            -32600,
            format!("the line is longer than {LINE_MAX} bytes"),
        );
    };
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        return refuse(&Value::Null, -32700, "the line is not JSON".to_owned());
    };
    // Notifications and answers need none.
    let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else {
        return Reply::Nothing;
    };
    let params = &message["params"];
    let own = match method {
        "initialize" => Some(
            replay
                .playback
                .initialize(&params["protocolVersion"], &REVISIONS),
        ),
        "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
            Some(json!({}))
        }
        _ => replay.playback.list(method),
    };
    if let Some(result) = own {
        return Reply::Message(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }
    match replay.answer(method, params) {
        Some(RecordedAnswer::Fault(Fault::Exit)) => Reply::Exit,
        Some(RecordedAnswer::Fault(Fault::Silence)) => Reply::Nothing,
        Some(answer) => answer.response(id).map_or(Reply::Nothing, Reply::Message),
        None if params["name"].is_null() && params["uri"].is_null() => {
            refuse(id, -32601, format!("method not found: {method}"))
        }
        None => {
            let text =
                format!("the cassette has no answer to this `{method}`; record it, or use --loose");
            refuse(id, -32602, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cassette::RecordedExchange;

    /// The lines that a client receives for these lines, and how serving ended.
    async fn played(calls: Vec<RecordedExchange>, lines: &[Value]) -> (Vec<Value>, PlaybackEnd) {
        let initialize = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}});
        let lists = BTreeMap::from([("tools".to_owned(), vec![json!({"name": "add"})])]);
        let cassette = Cassette::new(initialize, lists, calls);
        let mut replay = Replay {
            playback: Playback::new(cassette, Matching::Strict),
            resume: None,
        };
        let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let mut output = Vec::new();
        let end = serve(&mut replay, input.as_bytes(), &mut output)
            .await
            .unwrap();
        let text = String::from_utf8(output).unwrap();
        let answers = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (answers.collect(), end)
    }

    fn request(id: u64, method: &str, params: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    #[tokio::test]
    async fn a_client_is_answered_until_the_recorded_end() {
        let exchange = |name: &str, answer| RecordedExchange {
            method: "tools/call".to_owned(),
            params: json!({"name": name, "arguments": {}}),
            answer,
        };
        let call =
            |id, name: &str| request(id, "tools/call", json!({"name": name, "arguments": {}}));
        let calls = vec![
            exchange("add", RecordedAnswer::Result(json!({"content": []}))),
            exchange("slow", RecordedAnswer::Fault(Fault::Silence)),
            exchange(
                "bad",
                RecordedAnswer::Error(json!({"code": -7, "message": "no"})),
            ),
            exchange("crash", RecordedAnswer::Fault(Fault::Exit)),
        ];
        let lines = [
            request(0, "initialize", json!({"protocolVersion": "2025-03-26"})),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            request(1, "tools/list", json!({})),
            call(2, "add"),
            call(3, "slow"),
            call(4, "bad"),
            call(5, "unknown"),
            request(6, "prompts/list", json!({})),
            call(7, "crash"),
            call(8, "add"),
        ];
        let (answers, end) = played(calls, &lines).await;
        assert_eq!(end, PlaybackEnd::Exit);
        let ids: Vec<_> = answers
            .iter()
            .map(|answer| answer["id"].as_u64().unwrap())
            .collect();
        assert_eq!(ids, [0, 1, 2, 4, 5, 6]);
        assert_eq!(answers[0]["result"]["protocolVersion"], "2025-03-26");
        assert_eq!(answers[1]["result"]["tools"][0]["name"], "add");
        assert_eq!(answers[3]["error"]["code"], -7);
        assert_eq!(answers[4]["error"]["code"], -32602);
        assert_eq!(answers[5]["error"]["code"], -32601);
    }

    #[test]
    fn a_position_counts_for_the_same_parent_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = PositionFile::beside(&dir.path().join("a.json"));
        assert_eq!(file.take(), None);
        file.keep(&[true, false]);
        assert_eq!(file.take(), Some(vec![true, false]));
        assert_eq!(file.take(), None);
        std::fs::write(&file.0, r#"{"parent": 0, "used": [true]}"#).unwrap();
        assert_eq!(file.take(), None);
    }

    #[test]
    fn a_process_that_is_only_asked_for_lists_leaves_the_position() {
        let dir = tempfile::tempdir().unwrap();
        let file = PositionFile::beside(&dir.path().join("a.json"));
        file.keep(&[true]);
        let call = RecordedExchange {
            method: "tools/call".to_owned(),
            params: json!({"name": "add"}),
            answer: RecordedAnswer::Result(json!({})),
        };
        let lists = BTreeMap::from([("tools".to_owned(), vec![json!({"name": "add"})])]);
        let mut replay = Replay {
            playback: Playback::new(
                Cassette::new(json!({}), lists, vec![call]),
                Matching::Strict,
            ),
            resume: Some(file.clone()),
        };
        let line = |message: Value| Line::Whole(message.to_string().into());
        reply(&mut replay, &line(request(1, "tools/list", json!({}))));
        assert!(file.0.exists());
        let call = request(2, "tools/call", json!({"name": "add"}));
        reply(&mut replay, &line(call));
        assert!(!file.0.exists());
        assert_eq!(replay.playback.used(), [true]);
    }
}
