//! Recorded calls, as operators see them.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::record::CallOutcome;
use super::redaction::{IS_REDACTED, SERVER_NAMES, WHOLE};
use crate::id::{ServerName, ViewId};
use crate::protocol::{Method, request};

/// A recorded call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryEntry {
    pub(super) id: i64,
    /// End time, in milliseconds since 1970.
    pub(super) at: i64,
    pub(super) method: String,
    /// Empty if no server was found.
    pub(super) server: String,
    pub(super) outcome: String,
    pub(super) session: Option<u32>,
    pub(super) name: String,
    pub(super) client: Option<String>,
    pub(super) revision: String,
    pub(super) request_id: String,
    pub(super) code: Option<String>,
    pub(super) total_us: i64,
    pub(super) server_us: i64,
    pub(super) queue_us: i64,
    pub(super) request_bytes: i64,
    pub(super) answer_bytes: i64,
    pub(super) params_state: i64,
    pub(super) result_state: i64,
    pub(super) params: Option<String>,
    pub(super) result: Option<String>,
}

/// One page of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPage {
    /// The calls, newest first.
    pub entries: Vec<HistoryEntry>,
    /// Number of all matching calls; absent if only a search would tell.
    pub total: Option<u64>,
    pub(super) limit: usize,
    pub(super) offset: usize,
    /// Whether the page includes everything that belongs on it.
    pub(super) is_complete: bool,
    pub(super) has_more: bool,
    /// The last id that was examined.
    pub(super) last: Option<i64>,
}

impl Default for HistoryPage {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            total: None,
            limit: 0,
            offset: 0,
            is_complete: true,
            has_more: false,
            last: None,
        }
    }
}

/// Why a call cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayable {
    #[error(
        "its parameters were not kept, or were truncated: `history.bodies` sets how much is kept"
    )]
    Cut,
    #[error("its parameters contained secrets, which are not kept")]
    Redacted,
}

/// A page of records for operators, the newest first.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallPage {
    pub entries: Vec<RecordedCall>,
    /// Number of all matching calls; absent if only a search would tell.
    pub total: Option<u64>,
    pub limit: usize,
    pub offset: usize,
    /// Whether the page has everything that belongs on it: a search stops after some time.
    pub complete: bool,
    /// The id before which the next page starts.
    pub next: Option<String>,
}

/// A call for operators.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RecordedCall {
    pub id: String,
    /// End time, in milliseconds since 1970.
    pub timestamp: u64,
    pub method: String,
    /// The requested tool or prompt, or the resource's URI.
    pub target: String,
    pub server_id: Option<String>,
    /// The start of its session's id.
    pub session: Option<String>,
    pub client: Option<String>,
    pub revision: String,
    /// The JSON-RPC id from the client.
    pub request_id: Value,
    /// How the call ended, as the parameter `outcome` names it.
    pub outcome: String,
    pub success: bool,
    pub error: Option<CallError>,
    /// Total duration, in milliseconds.
    pub duration: f64,
    pub durations: CallDurations,
    pub request_bytes: u64,
    pub answer_bytes: u64,
    pub params: Option<Value>,
    /// `none`, `whole`, `redacted`, `cut` or `cut and redacted`.
    pub params_state: Cow<'static, str>,
    pub result: Option<Value>,
    /// Values as for `params_state`.
    pub result_state: Cow<'static, str>,
    /// Whether the call can be replayed.
    pub replayable: bool,
}

impl RecordedCall {
    /// The name of the call in lists.
    pub fn title(&self) -> &str {
        match self.target.as_str() {
            "" => &self.method,
            target => target,
        }
    }
}

/// Facts about one call, for statistics over many calls.
#[derive(Clone, Debug, PartialEq)]
pub struct CallTiming {
    /// End time, in milliseconds since 1970.
    pub at: u64,
    /// Total duration.
    pub millis: f64,
    /// Empty if no server was found.
    pub server: String,
    /// As the parameter `outcome` names it.
    pub outcome: String,
}

impl CallTiming {
    /// Whether the client got an error.
    pub fn is_failed(&self) -> bool {
        let outcome = CallOutcome::parse(&self.outcome);
        !matches!(
            outcome,
            Some(
                CallOutcome::Ok
                    | CallOutcome::ToolError
                    | CallOutcome::Cancelled
                    | CallOutcome::InputRequired
                    | CallOutcome::Task
            )
        )
    }

    pub fn is_tool_error(&self) -> bool {
        self.outcome == CallOutcome::ToolError.as_str()
    }
}

/// Why a call failed.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    /// The code of the gateway's error, or the number of the server's.
    pub code: String,
}

/// Breakdown of a call's duration, in milliseconds.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallDurations {
    pub total: f64,
    /// Time from sending the request to the server until its response.
    pub server: f64,
    /// Time in the server's queue.
    pub queue: f64,
}

impl HistoryPage {
    /// The durations of the calls, without parsing their bodies.
    pub fn timings(&self) -> Vec<CallTiming> {
        let timing = |entry: &HistoryEntry| CallTiming {
            at: u64::try_from(entry.at).unwrap_or_default(),
            millis: entry.total_us as f64 / 1000.0,
            server: entry.server.clone(),
            outcome: entry.outcome.clone(),
        };
        self.entries.iter().map(timing).collect()
    }

    /// The page in the form for operators.
    pub fn view(&self) -> CallPage {
        let goes_on = self.has_more || !self.is_complete;
        CallPage {
            entries: self.entries.iter().map(HistoryEntry::record).collect(),
            total: self.total,
            limit: self.limit,
            offset: self.offset,
            complete: self.is_complete,
            next: self.last.filter(|_| goes_on).map(|id| id.to_string()),
        }
    }
}

impl HistoryEntry {
    /// The call in the form for operators.
    pub fn record(&self) -> RecordedCall {
        let millis = |micros: i64| micros as f64 / 1000.0;
        let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
        RecordedCall {
            id: self.id.to_string(),
            timestamp: unsigned(self.at),
            method: self.method.clone(),
            target: self.name.clone(),
            server_id: (!self.server.is_empty()).then(|| self.server.clone()),
            session: self.session.map(|session| format!("{session:08x}")),
            client: self.client.clone(),
            revision: self.revision.clone(),
            request_id: value(&self.request_id),
            outcome: self.outcome.clone(),
            success: self.outcome == "ok",
            error: self.code.clone().map(|code| CallError { code }),
            duration: millis(self.total_us),
            durations: CallDurations {
                total: millis(self.total_us),
                server: millis(self.server_us),
                queue: millis(self.queue_us),
            },
            request_bytes: unsigned(self.request_bytes),
            answer_bytes: unsigned(self.answer_bytes),
            params: self.params.as_deref().map(value),
            params_state: state(self.params.as_ref(), self.params_state).into(),
            result: self.result.as_deref().map(value),
            result_state: state(self.result.as_ref(), self.result_state).into(),
            replayable: self.replay_frame(0).is_ok(),
        }
    }

    /// Whether the call contains a text.
    pub(super) fn contains(&self, text: &str) -> bool {
        let texts = [
            Some(&self.name),
            self.client.as_ref(),
            self.code.as_ref(),
            self.params.as_ref(),
            self.result.as_ref(),
        ];
        let mut texts = texts.into_iter().flatten();
        texts.any(|in_text| contains(in_text.as_bytes(), text.as_bytes()))
    }

    /// The view whose names the request uses: all servers, or the one whose endpoint the client
    /// used.
    pub fn view(&self) -> ViewId {
        let has_server_names = self.params_state & SERVER_NAMES != 0;
        let server = has_server_names.then(|| ServerName::try_new(&self.server).ok());
        server.flatten().map_or(ViewId::Default, ViewId::Server)
    }

    /// Rebuilds the request as a client would write it.
    ///
    /// # Errors
    ///
    /// Returns why its original form is not known.
    pub fn replay_frame(&self, id: u64) -> Result<Bytes, NotReplayable> {
        if self.params_state & IS_REDACTED != 0 {
            return Err(NotReplayable::Redacted);
        }
        if self.params_state & WHOLE == 0 {
            return Err(NotReplayable::Cut);
        }
        let params = self.params.as_deref().ok_or(NotReplayable::Cut)?;
        let params: Value = serde_json::from_str(params).map_err(|_| NotReplayable::Cut)?;
        let method = Method::parse(&self.method);
        Ok(request(id, &method, &params))
    }
}

/// Parses JSON; incomplete JSON becomes a string.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// How much of a body was kept.
fn state(body: Option<&String>, state: i64) -> &'static str {
    match (body, state & WHOLE != 0, state & IS_REDACTED != 0) {
        (None, _, _) => "none",
        (Some(_), true, false) => "whole",
        (Some(_), true, true) => "redacted",
        (Some(_), false, false) => "cut",
        (Some(_), false, true) => "cut and redacted",
    }
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    let Some((first, rest)) = wanted.split_first() else {
        return true;
    };
    let (lower, upper) = (first.to_ascii_lowercase(), first.to_ascii_uppercase());
    memchr::memchr2_iter(lower, upper, text).any(|at| {
        let found = text.get(at + 1..at + 1 + rest.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_search_is_case_insensitive() {
        let table = [
            ("Hello World", "o w", true),
            ("Hello World", "WORLD", true),
            ("Hello World", "worlds", false),
            ("aab", "ab", true),
            ("é", "É", false),
            ("é", "é", true),
            ("", "a", false),
        ];
        for (text, wanted, expected) in table {
            assert_eq!(
                contains(text.as_bytes(), wanted.as_bytes()),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn a_call_at_a_server_belongs_to_its_view() {
        let view = |server: &str, params_state| {
            let server = server.to_owned();
            let entry = HistoryEntry {
                server,
                params_state,
                ..HistoryEntry::default()
            };
            entry.view()
        };
        let one = ServerName::try_new("one").unwrap();
        assert_eq!(view("one", WHOLE | SERVER_NAMES), ViewId::Server(one));
        assert_eq!(view("one", WHOLE), ViewId::Default);
        assert_eq!(view("", WHOLE | SERVER_NAMES), ViewId::Default);
    }

    #[test]
    fn only_complete_records_can_be_replayed() {
        let entry = |params: Option<&str>, params_state| HistoryEntry {
            method: "tools/call".to_owned(),
            params: params.map(str::to_owned),
            params_state,
            ..HistoryEntry::default()
        };
        let frame = entry(Some(r#"{"name":"a"}"#), WHOLE)
            .replay_frame(7)
            .unwrap();
        let expected = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}}"#;
        assert_eq!(frame, expected);
        let table = [
            (Some("{}"), 0, NotReplayable::Cut),
            (None, 0, NotReplayable::Cut),
            (Some("{}"), WHOLE | IS_REDACTED, NotReplayable::Redacted),
        ];
        for (params, state, expected) in table {
            assert_eq!(entry(params, state).replay_frame(1), Err(expected));
        }
    }
}
