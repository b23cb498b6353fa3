//! One recorded message, and its form in a report.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use tokio::time::Instant;

use crate::masking::LiveSecrets;
use crate::memory::RingEntry;
use crate::protocol::{Envelope, Method, Notification, Outcome, RawJson, Request, RequestId};
use crate::telemetry::millis;
use crate::transport::messages::MessageScanner;
use crate::transport::{LinkEvent, SignInPlace, messages};

/// Largest frame that is kept whole, in bytes, which costs no copy.
const WHOLE_MAX: usize = 4096;

/// Bytes kept of a larger frame, so that its method can be shown.
const HEAD_MAX: usize = 512;

/// Maximum characters of an id or a method.
const WORD_MAX: usize = 80;

#[derive(Debug)]
pub(super) struct RecordedMessage {
    pub(super) at: Instant,
    call: Option<u64>,
    /// Size of the whole message, in bytes.
    size: usize,
    what: RecordedContent,
}

#[derive(Debug)]
enum RecordedContent {
    /// A frame for the server: all of its bytes, or the first ones.
    Sent(Bytes),
    Received {
        kind: RecordedKind,
        method: Option<Method>,
        id: Option<Box<str>>,
        head: Bytes,
    },
    /// A transport event that is not a message.
    Event(RecordedKind, Box<str>),
}

/// Kind of the recorded content.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedKind {
    Request,
    Notification,
    Result,
    Error,
    /// One call failed in transport.
    Failed,
    SessionGone,
    /// The server asks its user to sign in.
    SignIn,
    Closed,
    /// A message of which only the start was recorded.
    #[default]
    Message,
}

impl RecordedKind {
    /// Name of the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Notification => "notification",
            Self::Result => "result",
            Self::Error => "error",
            Self::Failed => "failed",
            Self::SessionGone => "session gone",
            Self::SignIn => "sign in",
            Self::Closed => "closed",
            Self::Message => "message",
        }
    }
}

/// One message in a report.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageReport {
    /// Milliseconds from the message to the report.
    pub before_ms: u64,
    /// `sent` to the server or `received` from it.
    pub direction: Cow<'static, str>,
    pub kind: RecordedKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Size of the whole message, in bytes.
    pub bytes: usize,
    /// The start of the message, or the transport's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl RecordedMessage {
    pub(super) fn sent(at: Instant, call: Option<u64>, frame: &Bytes, body_max: usize) -> Self {
        let kept = if frame.len() <= WHOLE_MAX {
            frame.clone()
        } else {
            head(frame, HEAD_MAX.max(body_max))
        };
        Self {
            at,
            call,
            size: frame.len(),
            what: RecordedContent::Sent(kept),
        }
    }

    /// Describes an event without keeping its bytes, which can be a small part of a large buffer.
    pub(super) fn received(at: Instant, event: &LinkEvent, body_max: usize) -> Self {
        let event_of = |call, kind, text: &str| Self {
            at,
            call,
            size: 0,
            what: RecordedContent::Event(kind, text.into()),
        };
        match event {
            LinkEvent::Received { call, envelope } => {
                let outline = Outline::of(envelope);
                let number = outline.id.and_then(RequestId::as_number);
                let id = outline.id.filter(|_| number.is_none());
                let frame = outline.frame.as_bytes();
                Self {
                    at,
                    call: call.or(number),
                    size: frame.len(),
                    what: RecordedContent::Received {
                        kind: outline.kind,
                        method: outline.method.cloned(),
                        id: id.map(|id| short(id.as_str()).into()),
                        head: head(frame, body_max),
                    },
                }
            }
            LinkEvent::Failed { call, error } => {
                event_of(Some(*call), RecordedKind::Failed, &format!("{error:#}"))
            }
            LinkEvent::SessionGone { call, refusal } => {
                let why = format!("{:#}", refusal.error);
                event_of(*call, RecordedKind::SessionGone, &why)
            }
            // The query of the page is a secret.
            LinkEvent::SignIn(place) => {
                let host = match place {
                    SignInPlace::Page(url) => url.host_str().unwrap_or_default(),
                    SignInPlace::Gateway | SignInPlace::Client => "",
                };
                event_of(None, RecordedKind::SignIn, host)
            }
            LinkEvent::Closed(end) => event_of(None, RecordedKind::Closed, &format!("{end:#}")),
        }
    }

    pub(super) fn report(
        &self,
        now: Instant,
        body_max: usize,
        secrets: &LiveSecrets,
    ) -> MessageReport {
        let quoted = |body: &[u8]| {
            let text = messages::excerpt(body, body_max);
            let is_cut = self.size > body.len().min(body_max);
            (body_max > 0).then(|| secrets.masked_body(&text, is_cut))
        };
        let (direction, kind, method, id, text) = match &self.what {
            RecordedContent::Sent(kept) => {
                let (kind, method) = classify(kept, kept.len() == self.size);
                ("sent", kind, method, None, quoted(kept))
            }
            RecordedContent::Received {
                kind,
                method,
                id,
                head,
            } => {
                let method = method.as_ref().map(|method| short(method.as_str()));
                let id = id.as_ref().map(|id| id.to_string());
                ("received", *kind, method, id, quoted(head))
            }
            RecordedContent::Event(kind, text) => {
                let text = (!text.is_empty()).then(|| secrets.masked(text));
                ("received", *kind, None, None, text)
            }
        };
        MessageReport {
            before_ms: millis(now.saturating_duration_since(self.at)),
            direction: direction.into(),
            kind,
            method: method.map(|method| secrets.masked(&method)),
            id: id
                .map(|id| secrets.masked(&id))
                .or(self.call.map(|call| call.to_string())),
            bytes: self.size,
            text,
        }
    }
}

impl RingEntry for RecordedMessage {
    /// Memory that the entry uses, in bytes.
    fn bytes(&self) -> usize {
        let own = size_of::<Self>();
        own + match &self.what {
            RecordedContent::Sent(kept) => kept.len(),
            RecordedContent::Received { head, id, .. } => {
                head.len() + id.as_ref().map_or(0, |id| id.len())
            }
            RecordedContent::Event(_, text) => text.len(),
        }
    }
}

/// The recorded parts of an envelope.
struct Outline<'e> {
    kind: RecordedKind,
    method: Option<&'e Method>,
    id: Option<&'e RequestId>,
    frame: &'e RawJson,
}

impl<'e> Outline<'e> {
    fn of(envelope: &'e Envelope) -> Self {
        let (kind, method, id, frame) = match envelope {
            Envelope::Request(Request {
                method, id, frame, ..
            }) => (RecordedKind::Request, Some(method), Some(id), frame),
            Envelope::Notification(Notification { method, frame, .. }) => {
                (RecordedKind::Notification, Some(method), None, frame)
            }
            Envelope::Response(response) => {
                let kind = match response.outcome {
                    Outcome::Result(_) => RecordedKind::Result,
                    Outcome::Error(_) => RecordedKind::Error,
                };
                (kind, None, response.id.as_ref(), &response.frame)
            }
        };
        Self {
            kind,
            method,
            id,
            frame,
        }
    }
}

fn head(frame: &Bytes, length: usize) -> Bytes {
    match frame.get(..length.min(frame.len())) {
        Some([]) | None => Bytes::new(),
        Some(head) => Bytes::copy_from_slice(head),
    }
}

fn short(text: &str) -> String {
    text.chars().take(WORD_MAX).collect()
}

/// Kind of a frame that the gateway sent.
fn classify(kept: &Bytes, is_whole: bool) -> (RecordedKind, Option<String>) {
    if !is_whole {
        let mut scanner = MessageScanner::default();
        scanner.feed(kept);
        let method = scanner.method().map(|method| short(&method));
        return (RecordedKind::Message, method);
    }
    match Envelope::parse(kept.clone()) {
        Ok(envelope) => {
            let Outline { kind, method, .. } = Outline::of(&envelope);
            (kind, method.map(|method| short(method.as_str())))
        }
        Err(_) => (RecordedKind::Message, None),
    }
}

/// Method and item of a request that the gateway sent.
pub(super) fn request_of(frame: &Bytes) -> (String, Option<String>) {
    let Ok(Envelope::Request(request)) = Envelope::parse(frame.clone()) else {
        return (String::new(), None);
    };
    let name = request.name().map(|name| short(&name));
    (short(request.method.as_str()), name)
}
