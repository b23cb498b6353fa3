//! The record of one call.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use serde_json::{Value, json};

use super::redaction::{KeptBody, redact, redact_member};
use crate::id::ServerName;
use crate::masking::{LiveSecrets, REDACTED};
use crate::protocol::{Envelope, ErrorKind, Method};

macro_rules! outcomes {
    ($($(#[$doc:meta])* $outcome:ident = $name:literal,)*) => {
        /// How a call ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CallOutcome {
            $($(#[$doc])* $outcome,)*
        }

        impl CallOutcome {
            pub const ALL: &[Self] = &[$(Self::$outcome,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$outcome => $name,)* }
            }
        }
    };
}

outcomes! {
    Ok = "ok",
    /// A result with `isError`.
    ToolError = "tool_error",
    /// A JSON-RPC error from the server or the gateway.
    ProtocolError = "protocol_error",
    /// A policy forbids it.
    Denied = "denied",
    Timeout = "timeout",
    /// The client cancelled it, or disconnected.
    Cancelled = "cancelled",
    ServerLost = "server_lost",
    /// A limit on concurrent work was reached.
    Shed = "shed",
    BreakerOpen = "breaker_open",
    /// The server is unavailable, or the gateway is shutting down.
    Unavailable = "unavailable",
    /// The server needs input that the client cannot or will not provide.
    RefusedInput = "refused_input",
    /// The response asked for input; the client returns with another request.
    InputRequired = "input_required",
    /// The response is a task, which continues.
    Task = "task",
}

impl CallOutcome {
    pub fn parse(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|outcome| outcome.as_str() == name).copied()
    }

    /// The outcome of a call that the gateway failed.
    pub const fn of_failure(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Forbidden | ErrorKind::PolicyDenied | ErrorKind::ToolSuspended => {
                Self::Denied
            }
            ErrorKind::Timeout | ErrorKind::BodyTimeout => Self::Timeout,
            ErrorKind::Cancelled => Self::Cancelled,
            ErrorKind::ServerLost => Self::ServerLost,
            ErrorKind::Overloaded => Self::Shed,
            ErrorKind::BreakerOpen => Self::BreakerOpen,
            ErrorKind::ServerUnavailable
            | ErrorKind::ServerMisconfigured
            | ErrorKind::ShuttingDown => Self::Unavailable,
            ErrorKind::InputRefused | ErrorKind::MissingCapability | ErrorKind::ConsentRequired => {
                Self::RefusedInput
            }
            _ => Self::ProtocolError,
        }
    }
}

/// Maximum lengths of a record's texts, in bytes; longer ones are truncated.
pub(super) const METHOD_MAX: usize = 64;
pub(super) const NAME_MAX: usize = 512;
pub(super) const REQUEST_ID_MAX: usize = 128;

/// The request of a call.
#[derive(Clone, Debug)]
pub(super) enum RecordRequest {
    /// As it was sent: masking costs more than everything else about a record, so it waits until
    /// the record is written or read.
    Raw(Box<str>),
    Kept(KeptRequest),
}

/// The stored part of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptRequest {
    /// The name of the tool or prompt, or the URI, as the client wrote it.
    pub(super) name: Box<str>,
    /// Raw JSON.
    pub(super) id: Box<str>,
    pub(super) params: Option<KeptBody>,
}

impl KeptRequest {
    /// Reads the request that a client sent.
    pub(super) fn of(frame: Bytes, body_max: usize, secrets: &LiveSecrets) -> Self {
        let Ok(Envelope::Request(request)) = Envelope::parse(frame) else {
            // Only requests are recorded, so this cannot happen.
            return Self::default();
        };
        let name = request.item().unwrap_or_default();
        // A secret is not found any more once it is cut.
        let masked = secrets.replaced(&name, REDACTED);
        let frame = request.frame.as_str();
        let params = (body_max > 0).then(|| redact_member(frame, "params", body_max, secrets));
        Self {
            name: cut(masked.as_deref().unwrap_or(&name), NAME_MAX),
            id: cut(request.id.as_str(), REQUEST_ID_MAX),
            params: params.flatten(),
        }
    }
}

/// A result or an error.
#[derive(Clone, Debug)]
pub(super) enum RecordBody {
    /// As it was sent.
    Raw(Box<str>),
    /// Masked and truncated.
    Kept(KeptBody),
}

impl RecordRequest {
    /// The stored part of the request; empty before [`CallRecord::mask`].
    pub(super) fn kept(&self) -> &KeptRequest {
        static NOTHING: LazyLock<KeptRequest> = LazyLock::new(KeptRequest::default);
        match self {
            Self::Raw(_) => &NOTHING,
            Self::Kept(request) => request,
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Raw(frame) => frame.len(),
            Self::Kept(KeptRequest { name, id, params }) => {
                name.len() + id.len() + params.as_ref().map_or(0, |body| body.text.len())
            }
        }
    }
}

impl RecordBody {
    /// The stored part of the body; `None` before [`CallRecord::mask`].
    pub(super) fn kept(&self) -> Option<&KeptBody> {
        match self {
            Self::Raw(_) => None,
            Self::Kept(body) => Some(body),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Raw(text) => text.len(),
            Self::Kept(body) => body.text.len(),
        }
    }
}

/// A completed call.
#[derive(Clone, Debug)]
pub(super) struct CallRecord {
    /// End time, in milliseconds since 1970.
    pub(super) at: u64,
    pub(super) method: Method,
    pub(super) server: Option<ServerName>,
    pub(super) outcome: CallOutcome,
    pub(super) request: RecordRequest,
    /// The names are the server's, not public ones.
    pub(super) has_server_names: bool,
    /// The handle of the session.
    pub(super) session: Option<u32>,
    pub(super) client: Option<Arc<str>>,
    pub(super) revision: &'static str,
    /// Text code for a failure of the gateway, JSON-RPC code for an error of a server.
    pub(super) code: Option<Box<str>>,
    pub(super) durations: CallDurations,
    pub(super) request_bytes: u64,
    pub(super) answer_bytes: u64,
    pub(super) result: Option<RecordBody>,
}

/// Breakdown of a call's duration, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallDurations {
    pub(super) total: u64,
    /// Time from sending the request to the server until its response.
    pub(super) server: u64,
    /// Time before it was sent: waiting for a connection or a permit.
    pub(super) queue: u64,
}

impl CallRecord {
    /// The event of the masked call: everything except its bodies.
    pub(super) fn event(&self) -> Value {
        json!({
            "timestamp": self.at,
            "method": self.method.as_str(),
            "target": self.request.kept().name,
            "serverId": self.server.as_ref().map(ServerName::as_str),
            "session": self.session.map(|session| format!("{session:08x}")),
            "client": self.client,
            "outcome": self.outcome.as_str(),
            "code": self.code,
            "duration": self.durations.total as f64 / 1000.0,
            "requestBytes": self.request_bytes,
            "answerBytes": self.answer_bytes,
        })
    }

    /// Removes secrets, and truncates the bodies to about `body_max` bytes.
    pub(super) fn mask(&mut self, body_max: usize, secrets: &LiveSecrets) {
        if let RecordRequest::Raw(frame) = &self.request {
            let frame = Bytes::copy_from_slice(frame.as_bytes());
            let kept = KeptRequest::of(frame, body_max, secrets);
            self.request = RecordRequest::Kept(kept);
        }
        if let Some(RecordBody::Raw(text)) = &self.result {
            self.result = Some(RecordBody::Kept(redact(text, body_max, secrets)));
        }
    }

    /// Approximate size in memory while it waits to be written, in bytes.
    pub(super) fn size(&self) -> usize {
        let result = self.result.as_ref().map_or(0, RecordBody::size);
        size_of::<Self>() + self.request.size() + result
    }
}

/// The method of a record: a client can invent one of any length.
pub(super) fn cut_method(method: &Method) -> Method {
    match method {
        Method::Other(name) => Method::Other(cut(name, METHOD_MAX)),
        known => known.clone(),
    }
}

/// The text, truncated.
pub(super) fn cut(text: &str, max: usize) -> Box<str> {
    let end = text.floor_char_boundary(max);
    text.get(..end).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_parse_from_their_names() {
        for outcome in CallOutcome::ALL {
            assert_eq!(CallOutcome::parse(outcome.as_str()), Some(*outcome));
        }
        assert_eq!(CallOutcome::parse("OK"), None);
    }

    #[test]
    fn every_failure_has_an_outcome() {
        let failed = ErrorKind::ALL
            .iter()
            .map(|kind| CallOutcome::of_failure(*kind));
        assert!(failed.into_iter().all(|outcome| outcome != CallOutcome::Ok));
        let shed = CallOutcome::of_failure(ErrorKind::Overloaded);
        assert_eq!(shed, CallOutcome::Shed);
    }
}
