//! Requests of the command line to a running gateway, and their answers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::status::Status;
use crate::downstream::ServerOrder;
use crate::telemetry::LogLine;

/// A request over the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum ControlRequest {
    Status,
    /// A fresh connection to a server, now.
    Restart {
        server: String,
    },
    /// A server out of service.
    Stop {
        server: String,
    },
    /// A server in service again.
    Start {
        server: String,
    },
    /// The processes of a server are killed.
    Kill {
        server: String,
    },
    /// No calls to a server, or to a tool of it, until a reset.
    Trip {
        server: String,
        tool: Option<String>,
    },
    /// Calls again; without a tool to the server and all its tools.
    Reset {
        server: String,
        tool: Option<String>,
    },
    /// The kept lines of a server: those after the line of this number, the last ones of them.
    Logs {
        server: String,
        #[serde(default)]
        after: u64,
        #[serde(default)]
        last: Option<usize>,
    },
    /// The crash reports of a server, or of all.
    Crashes {
        server: Option<String>,
    },
}

/// The outcome of an order: a sentence for people either way.
pub type OrderOutcome = Result<String, String>;

/// The gateway, as the control socket sees it. Lives on one thread.
pub trait Operator {
    fn status(&self) -> Status;

    /// Carries out an order, or says why not.
    fn order(
        &self,
        server: &str,
        order: ServerOrder,
    ) -> Pin<Box<dyn Future<Output = OrderOutcome>>>;

    /// The kept lines of a server, oldest first.
    ///
    /// # Errors
    ///
    /// Says why there are none.
    fn logs(&self, server: &str) -> Result<Vec<LogLine>, String>;

    /// The crash reports of a server, or of all, as [`super::crashes`] returns them. A server that
    /// is not configured any more may have some.
    ///
    /// # Errors
    ///
    /// Says why they cannot be read.
    fn crashes(&self, server: Option<&str>) -> Result<serde_json::Value, String>;
}

/// Why a server cannot be operated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inoperable<'a> {
    /// No such server; these are there.
    Unknown(&'a [&'a str]),
    Disabled,
    /// With what it lacks.
    Misconfigured(&'a str),
    /// It is being added or removed.
    Absent,
}

impl Inoperable<'_> {
    /// The whole sentence. The name may be anything that somebody typed.
    pub fn sentence(&self, server: &str) -> String {
        let server: String = server.chars().take(64).collect();
        format!("server {server:?} {self}")
    }
}

impl fmt::Display for Inoperable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown([]) => f.write_str("is not configured; no server is"),
            Self::Unknown(known) => {
                write!(f, "is not configured; there are: {}", known.join(", "))
            }
            Self::Disabled => {
                f.write_str("is disabled: remove `enabled = false` from the configuration")
            }
            Self::Misconfigured(why) => write!(f, "is misconfigured: {why}"),
            Self::Absent => f.write_str("is being added or removed; try again in a moment"),
        }
    }
}

/// The answer to a request, as JSON: `refused` with a sentence, or what was asked for.
pub(super) async fn answer(
    operator: Rc<dyn Operator>,
    request: ControlRequest,
) -> serde_json::Value {
    let (server, order) = match request {
        ControlRequest::Status => return serde_json::json!({ "status": operator.status() }),
        ControlRequest::Logs {
            server,
            after,
            last,
        } => {
            return match operator.logs(&server) {
                Ok(lines) => serde_json::json!({ "logs": selected(lines, after, last) }),
                Err(why) => serde_json::json!({ "refused": why }),
            };
        }
        ControlRequest::Crashes { server } => {
            return match operator.crashes(server.as_deref()) {
                Ok(crashes) => crashes,
                Err(why) => serde_json::json!({ "refused": why }),
            };
        }
        ControlRequest::Restart { server } => (server, ServerOrder::Restart),
        ControlRequest::Stop { server } => (server, ServerOrder::Stop),
        ControlRequest::Start { server } => (server, ServerOrder::Start),
        ControlRequest::Kill { server } => (server, ServerOrder::Kill),
        ControlRequest::Trip { server, tool } => (server, ServerOrder::Trip(tool)),
        ControlRequest::Reset { server, tool } => (server, ServerOrder::Reset(tool)),
    };
    match operator.order(&server, order).await {
        Ok(done) => serde_json::json!({ "done": done }),
        Err(why) => serde_json::json!({ "refused": why }),
    }
}

/// The lines after number `after`, at most the last so many. A number beyond all of them is of
/// lines that were forgotten, as by a restart: then it counts as none.
fn selected(mut lines: Vec<LogLine>, after: u64, last: Option<usize>) -> Vec<LogLine> {
    let newest = lines.last().map_or(0, |line| line.sequence);
    if after <= newest {
        lines.retain(|line| line.sequence > after);
    }
    let skipped = last.map_or(0, |last| lines.len().saturating_sub(last));
    lines.split_off(skipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::LogSource;

    #[test]
    fn new_lines_are_selected_by_number() {
        let line = |sequence| LogLine {
            sequence,
            at: 0,
            source: LogSource::Stderr,
            text: String::new(),
        };
        let cases: [(u64, Option<usize>, &[u64]); 7] = [
            (0, None, &[3, 4, 5]),
            (3, None, &[4, 5]),
            (5, None, &[]),
            (9, None, &[3, 4, 5]),
            (0, Some(2), &[4, 5]),
            (4, Some(2), &[5]),
            (0, Some(0), &[]),
        ];
        for (after, last, expected) in cases {
            let lines = selected((3..=5).map(line).collect(), after, last);
            let numbers: Vec<u64> = lines.iter().map(|line| line.sequence).collect();
            assert_eq!(numbers, expected, "{after} {last:?}");
        }
        assert!(selected(Vec::new(), 7, None).is_empty());
    }

    #[test]
    fn a_server_that_cannot_be_operated_is_reported_with_the_reason() {
        let table = [
            (Inoperable::Unknown(&["a", "b"]), "there are: a, b"),
            (Inoperable::Unknown(&[]), "no server is"),
            (Inoperable::Disabled, "enabled = false"),
            (
                Inoperable::Misconfigured("`T` is not set"),
                "`T` is not set",
            ),
            (Inoperable::Absent, "try again"),
        ];
        for (why, word) in table {
            let sentence = why.sentence("x\u{1b}[1m");
            assert!(sentence.contains(word), "{sentence}");
            assert!(!sentence.contains('\u{1b}'), "{sentence}");
        }
        let long = Inoperable::Disabled.sentence(&"x".repeat(10_000));
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn requests_are_one_line_of_json() {
        let request = ControlRequest::Stop {
            server: "a\nb".to_owned(),
        };
        let line = serde_json::to_string(&request).unwrap();
        assert_eq!(line, r#"{"ask":"stop","server":"a\nb"}"#);
        assert_eq!(
            serde_json::from_str::<ControlRequest>(&line).unwrap(),
            request
        );
    }
}
