//! The record of a call in progress.

use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use tokio::time::Instant;

use super::History;
use super::record::{
    CallDurations, CallOutcome, CallRecord, KeptRequest, METHOD_MAX, NAME_MAX, REQUEST_ID_MAX,
    RecordBody, RecordRequest, cut, cut_method,
};
use super::redaction::redact;
use crate::id::ServerName;
use crate::protocol::{Failure, Method, RawJson, Request, Revision};
use crate::telemetry::unix_millis;

/// Log target of call lines.
const CALLS: &str = "mcpvisor::calls";

/// Maximum size of a result that is searched completely, in bytes.
const SEARCHED_MAX: usize = 64 * 1024;

/// Bytes searched at each end of a larger result.
const END: usize = 1024;

/// Maximum size of a body that is recorded as it was sent, in bytes; larger ones are masked and
/// truncated at once, which costs little beside passing them on.
const RAW_MAX: usize = 64 * 1024;

/// The caller of a recorded call.
#[derive(Clone, Debug)]
pub struct RecordedCaller<'c> {
    /// The handle of its session.
    pub session: Option<u32>,
    /// The name that the client reports.
    pub client: Option<&'c Arc<str>>,
    pub revision: Revision,
    /// The server whose endpoint the client used: requests then use that server's names.
    pub at_server: Option<&'c ServerName>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub enum CallEnding<'r> {
    Result(&'r RawJson),
    /// The gateway responded with a result.
    Done,
    /// The server returned this error object.
    Error(&'r RawJson),
    /// The gateway failed the call.
    Failed(&'r Failure),
    /// The client must provide input first, and returns with another request.
    InputRequired,
    /// The call continues in a task.
    Task,
}

/// A call that is being recorded. Dropping it without an outcome records that it was cancelled
/// without a response.
pub struct PendingCall {
    history: History,
    started: Instant,
    sent: Option<Instant>,
    body_max: usize,
    frame: RawJson,
    method: Method,
    server: Option<ServerName>,
    has_server_names: bool,
    session: Option<u32>,
    client: Option<Arc<str>>,
    revision: &'static str,
    has_ended: bool,
}

impl PendingCall {
    /// Whether calls are logged: one line for the request and one for its response.
    pub(super) fn is_logged() -> bool {
        log::log_enabled!(target: CALLS, log::Level::Debug)
    }

    pub(super) fn new(
        history: History,
        request: &Request,
        caller: &RecordedCaller<'_>,
        body_max: usize,
    ) -> Self {
        let method = cut_method(&request.method);
        log::debug!(
            target: CALLS, "type" = "mcp_request", method = method.as_str(),
            target = &*cut(&request.item().unwrap_or_default(), NAME_MAX),
            "requestId" = &*cut(request.id.as_str(), REQUEST_ID_MAX);
            "request"
        );
        Self {
            history,
            started: Instant::now(),
            sent: None,
            body_max,
            frame: request.frame.clone(),
            method,
            server: caller.at_server.cloned(),
            has_server_names: caller.at_server.is_some(),
            session: caller.session,
            client: caller.client.cloned(),
            revision: caller.revision.as_str(),
            has_ended: false,
        }
    }

    /// Sets the server that receives the call.
    pub fn at_server(&mut self, server: &ServerName) {
        self.server = Some(server.clone());
    }

    /// Sets when the call was last sent to its server.
    pub fn sent_at(&mut self, sent: Instant) {
        self.sent = Some(sent);
    }

    /// Completes the record with this outcome, which must match `ending`.
    pub fn end(mut self, ending: CallEnding<'_>, outcome: CallOutcome, answer_bytes: usize) {
        if let CallEnding::Failed(failure) = ending
            && self.server.is_none()
        {
            let server = failure.server.as_deref();
            self.server = server.and_then(|server| ServerName::try_new(server).ok());
        }
        self.push(Some(ending), outcome, answer_bytes);
    }

    fn recorded_request(&self) -> RecordRequest {
        let frame = self.frame.as_str();
        match frame.len() {
            0..=RAW_MAX => RecordRequest::Raw(frame.into()),
            _ => {
                let frame = self.frame.as_bytes().clone();
                let secrets = self.history.secrets();
                RecordRequest::Kept(KeptRequest::of(frame, self.body_max, secrets))
            }
        }
    }

    fn result(&self, ending: CallEnding<'_>) -> Option<RecordBody> {
        let body = |text: &str| match text.len() {
            0..=RAW_MAX => RecordBody::Raw(text.into()),
            _ => RecordBody::Kept(redact(text, self.body_max, self.history.secrets())),
        };
        match ending {
            _ if self.body_max == 0 => None,
            CallEnding::Result(value) | CallEnding::Error(value) => Some(body(value.as_str())),
            CallEnding::Failed(failure) => Some(body(&failure.error_object().to_string())),
            CallEnding::Done | CallEnding::InputRequired | CallEnding::Task => None,
        }
    }

    fn push(&mut self, ending: Option<CallEnding<'_>>, outcome: CallOutcome, answer_bytes: usize) {
        self.has_ended = true;
        let now = Instant::now();
        let micros = |from: Instant, to: Instant| {
            let time = to.saturating_duration_since(from);
            u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
        };
        let record = CallRecord {
            at: unix_millis(),
            method: self.method.clone(),
            server: self.server.take(),
            outcome,
            request: self.recorded_request(),
            has_server_names: self.has_server_names,
            session: self.session,
            client: self.client.take(),
            revision: self.revision,
            code: ending.and_then(code),
            durations: CallDurations {
                total: micros(self.started, now),
                server: self.sent.map_or(0, |sent| micros(sent, now)),
                queue: micros(self.started, self.sent.unwrap_or(now)),
            },
            request_bytes: self.frame.as_bytes().len() as u64,
            answer_bytes: answer_bytes as u64,
            result: ending.and_then(|ending| self.result(ending)),
        };
        if Self::is_logged() {
            self.log(&record);
        }
        self.history.push(record, self.body_max);
    }

    fn log(&self, record: &CallRecord) {
        let frame = self.frame.as_bytes().clone();
        let request = KeptRequest::of(frame, 0, self.history.secrets());
        log::debug!(
            target: CALLS, "type" = "mcp_response", method = record.method.as_str(),
            target = &*request.name, "requestId" = &*request.id,
            server = record.server.as_ref().map_or("", |server| server.as_str()),
            duration = record.durations.total as f64 / 1000.0,
            success = record.outcome == CallOutcome::Ok,
            outcome = record.outcome.as_str(), code = record.code.as_deref().unwrap_or("");
            "answer"
        );
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.has_ended {
            self.push(None, CallOutcome::Cancelled, 0);
        }
    }
}

impl CallEnding<'_> {
    /// The outcome for a request of this method.
    pub fn outcome(self, method: &Method) -> CallOutcome {
        match self {
            Self::Result(result) if is_tool_error(method, result) => CallOutcome::ToolError,
            Self::Result(_) | Self::Done => CallOutcome::Ok,
            Self::Error(_) => CallOutcome::ProtocolError,
            Self::Failed(failure) => CallOutcome::of_failure(failure.kind),
            Self::InputRequired => CallOutcome::InputRequired,
            Self::Task => CallOutcome::Task,
        }
    }
}

/// Whether a result says that the tool failed. Most results do not mention it and are not parsed.
/// Only both ends of a large one are searched.
pub fn is_tool_error(method: &Method, result: &RawJson) -> bool {
    static IS_ERROR: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"isError\""));
    let text = result.as_bytes();
    let says_so = |part: &[u8]| IS_ERROR.find(part).is_some();
    let may_be = *method == Method::ToolsCall
        && match text.len() {
            0..=SEARCHED_MAX => says_so(text),
            length => says_so(&text[..END]) || says_so(&text[length - END..]),
        };
    may_be
        && result
            .member("isError")
            .is_some_and(|value| value.as_str() == "true")
}

fn code(ending: CallEnding<'_>) -> Option<Box<str>> {
    match ending {
        CallEnding::Failed(failure) => Some(failure.kind.as_str().into()),
        CallEnding::Error(error) => Some(cut(error.member("code")?.as_str(), METHOD_MAX)),
        CallEnding::Result(_) | CallEnding::Done | CallEnding::InputRequired | CallEnding::Task => {
            None
        }
    }
}
