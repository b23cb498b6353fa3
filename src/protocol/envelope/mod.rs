//! One JSON-RPC message: the sender's bytes, and the positions of the parts that the gateway acts
//! on.
//!
//! A message is parsed once, without copying, which also validates it as JSON. Forwarding replaces
//! the id, a name or a progress token in place ([`splice`]), so that everything the gateway does
//! not understand survives byte for byte.

mod constructors;
mod peek;
mod raw_json;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Buf as _, Bytes};
use bytestring::ByteString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Method, json};
use crate::memory::HeldRoom;
use peek::EnvelopePeek;
pub(crate) use raw_json::our_number;
pub use raw_json::{RawJson, RequestId};

/// Byte range of a part of a frame.
pub type Span = Range<usize>;

/// One replacement in a frame; an empty span inserts.
pub type Edit = (Span, Bytes);

/// Why bytes are not a JSON-RPC message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("not valid JSON: {0}")]
    Json(String),
    #[error("a JSON-RPC message must be an object")]
    NotAnObject,
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    #[error("`id` must be a string or an integer")]
    Id,
    #[error("a message must have exactly one of `method`, `result` and `error`")]
    Shape,
    #[error(
        "the name of a member can be mistaken for `{0}`, but is spelled differently; spell it \
         `{0}`, or remove it"
    )]
    Misspelled(&'static str),
}

impl EnvelopeError {
    fn json(error: impl ToString) -> Self {
        Self::Json(error.to_string())
    }
}

/// A parsed JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Envelope {
    Request(Request),
    Notification(Notification),
    Response(Response),
}

#[derive(Clone, Debug)]
pub struct Request {
    pub frame: RawJson,
    pub id: RequestId,
    pub method: Method,
    /// Boxed, because requests are moved often.
    pub params: Box<ParamSpans>,
    id_span: Span,
}

#[derive(Clone, Debug)]
pub struct Notification {
    pub frame: RawJson,
    pub method: Method,
    pub params: Box<ParamSpans>,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub frame: RawJson,
    /// Absent or null if the sender could not read the request's id.
    pub id: Option<RequestId>,
    pub outcome: Outcome,
    id_span: Span,
    /// The room of a large answer, until its client has read it.
    pub(crate) room: Option<HeldRoom>,
}

/// The content of a response: either a result or an error, never both (B-RPC-05).
#[derive(Clone, Debug)]
pub enum Outcome {
    Result(RawJson),
    Error(RawJson),
}

/// Positions of the members of `params` that the gateway acts on, counted from the start of the
/// frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamSpans {
    pub name: Option<Span>,
    pub uri: Option<Span>,
    /// `ref` of `completion/complete`.
    pub reference: Option<Span>,
    pub meta: Option<Span>,
    /// Whether `_meta` of a request names the sender's revision.
    pub claims_revision: bool,
    /// `arguments` of a tool call or a prompt.
    pub arguments: Option<Span>,
    /// `task`, with which a client of 2025-11-25 requests a task.
    pub task: Option<Span>,
    /// Responses to the requests that a server made during a call (2026-07-28).
    pub input_responses: Option<Span>,
    /// The state that accompanies them, opaque to the client.
    pub request_state: Option<Span>,
    /// `progressToken`, of `_meta` in a request and of `params` in `notifications/progress`.
    pub progress_token: Option<Span>,
    /// `progress` of `notifications/progress`.
    pub progress: Option<Span>,
    /// `requestId` of `notifications/cancelled`.
    pub request_id: Option<Span>,
}

impl Envelope {
    /// Parses one message. Arrays (batches) are handled by the caller.
    ///
    /// # Errors
    ///
    /// Returns an [`EnvelopeError`] that names the violated rule of JSON-RPC.
    pub fn parse(frame: Bytes) -> Result<Self, EnvelopeError> {
        Self::parse_with(frame, false)
    }

    /// Parses one message from a client. The server behind the gateway might compare names
    /// case-insensitively, so a member name must not resemble a name that the gateway acts on.
    ///
    /// # Errors
    ///
    /// Fails like [`Envelope::parse`], and with [`EnvelopeError::Misspelled`].
    pub fn parse_of_client(frame: Bytes) -> Result<Self, EnvelopeError> {
        Self::parse_with(frame, true)
    }

    /// A response holds the room of its bytes.
    pub(crate) fn take_room(&mut self, room: &mut Option<HeldRoom>) {
        if let Self::Response(response) = self {
            response.room = room.take();
        }
    }

    fn parse_with(frame: Bytes, is_strict: bool) -> Result<Self, EnvelopeError> {
        let frame = without_bom(frame);
        if frame.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            RawJson::try_new(frame)?;
            return Err(EnvelopeError::NotAnObject);
        }
        let frame = unicode(frame)?;
        let peek: EnvelopePeek<'_> = serde_json::from_str(&frame).map_err(EnvelopeError::json)?;
        if peek.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
            return Err(EnvelopeError::Version);
        }
        let is_null = peek.id.is_some_and(|id| id.get() == "null");
        let method = peek.method.as_deref().unwrap_or_default();
        if is_null && method.starts_with("notifications/") {
            return Self::parse_with(without_id(&frame)?, is_strict);
        }
        let id_span = peek.id.map(|raw| span_in(frame.as_bytes(), raw));
        let method = peek.method.as_deref().map(Method::parse);
        let params = peek.locate(frame.as_bytes(), is_strict)?;
        let text = |raw: &RawValue| frame.slice_ref(raw.get());
        let id = peek.id.map(text);
        let value = |raw: &RawValue| RawJson(text(raw));
        let outcome = match (peek.result, peek.error) {
            (Some(result), None) => Some(Outcome::Result(value(result))),
            (None, Some(error)) => Some(Outcome::Error(value(error))),
            (None, None) => None,
            (Some(_), Some(_)) => return Err(EnvelopeError::Shape),
        };
        let frame_json = RawJson(frame.clone());
        match (method, outcome) {
            (Some(method), None) => {
                let params = params.unwrap_or_default();
                Ok(match (id, id_span) {
                    (Some(id), Some(id_span)) => {
                        let id = RequestId::from_json(id)?;
                        Self::Request(Request {
                            frame: frame_json,
                            id,
                            method,
                            params,
                            id_span,
                        })
                    }
                    _ => Self::Notification(Notification {
                        frame: frame_json,
                        method,
                        params,
                    }),
                })
            }
            (None, Some(outcome)) => {
                let id = id.filter(|id| *id != "null");
                let id = id.map(RequestId::of_response).transpose()?;
                let id_span = id_span.unwrap_or(0..0);
                Ok(Self::Response(Response {
                    frame: frame_json,
                    id,
                    outcome,
                    id_span,
                    room: None,
                }))
            }
            (Some(_), Some(_)) | (None, None) => Err(EnvelopeError::Shape),
        }
    }
}

/// Removes `"id": null` from a notification in the style of JSON-RPC 1.0.
fn without_id(frame: &str) -> Result<Bytes, EnvelopeError> {
    let members: BTreeMap<&str, &RawValue> =
        serde_json::from_str(frame).map_err(EnvelopeError::json)?;
    let rest: BTreeMap<_, _> = members
        .into_iter()
        .filter(|(key, _)| *key != "id")
        .collect();
    let text = serde_json::to_vec(&rest).map_err(EnvelopeError::json)?;
    Ok(Bytes::from(text))
}

impl Request {
    /// `params.name` as text; `None` if it is missing or not a string.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        text_at(&self.frame, self.params.name.as_ref())
    }

    /// `params.uri` as text; `None` if it is missing or not a string.
    pub fn uri(&self) -> Option<Cow<'_, str>> {
        text_at(&self.frame, self.params.uri.as_ref())
    }

    /// The name that the request concerns, or else the URI.
    pub fn item(&self) -> Option<Cow<'_, str>> {
        self.name().or_else(|| self.uri())
    }

    /// `params.requestState` as text; `None` if it is missing or not a string.
    pub fn request_state(&self) -> Option<Cow<'_, str>> {
        text_at(&self.frame, self.params.request_state.as_ref())
    }

    /// Raw JSON of a member of `params`.
    pub fn member(&self, span: Option<&Span>) -> Option<Bytes> {
        span.map(|span| self.frame.as_bytes().slice(span.clone()))
    }

    /// The members of `params`; an absent `params` counts as an empty object.
    ///
    /// # Errors
    ///
    /// Returns [`EnvelopeError::Json`] if they do not have the shape of `T`.
    pub fn params_as<T: DeserializeOwned>(&self) -> Result<T, EnvelopeError> {
        params_of(&self.frame)
    }

    /// The text of `params`; `None` if `params` is absent or null.
    ///
    /// # Errors
    ///
    /// Returns [`EnvelopeError::Json`] if the frame has two of them.
    pub fn params_text(&self) -> Result<Option<&str>, EnvelopeError> {
        #[derive(Deserialize)]
        struct FrameWithParams<'a> {
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        let frame: FrameWithParams<'_> =
            serde_json::from_str(&self.frame.0).map_err(EnvelopeError::json)?;
        Ok(frame.params.map(RawValue::get))
    }

    /// The edit that replaces the request's id.
    pub fn edit_id(&self, id: &RequestId) -> Edit {
        (self.id_span.clone(), id.as_bytes().clone())
    }

    /// The edit that makes `token` the progress token: it replaces the client's token, or requests
    /// progress if the client did not. `None` if `params` has no place for it.
    pub fn edit_progress_token(&self, token: &RequestId) -> Option<Edit> {
        let params = &self.params;
        if let Some(span) = &params.progress_token {
            return Some((span.clone(), token.as_bytes().clone()));
        }
        if let Some(meta) = &params.meta {
            let inside = meta.start + 1;
            let empty = self
                .frame
                .as_bytes()
                .slice(meta.clone())
                .iter()
                .skip(1)
                .find(|b| !b.is_ascii_whitespace())
                == Some(&b'}');
            let comma = if empty { "" } else { "," };
            let text = [r#""progressToken":"#, token.as_str(), comma].concat();
            return Some((inside..inside, Bytes::from(text)));
        }
        let after = params.name.as_ref().or(params.uri.as_ref())?.end;
        let text = [r#","_meta":{"progressToken":"#, token.as_str(), "}"].concat();
        Some((after..after, Bytes::from(text)))
    }
}

impl Notification {
    /// The members of `params`; an absent `params` counts as an empty object.
    ///
    /// # Errors
    ///
    /// Returns [`EnvelopeError::Json`] if they do not have the shape of `T`.
    pub fn params_as<T: DeserializeOwned>(&self) -> Result<T, EnvelopeError> {
        params_of(&self.frame)
    }

    /// `params.name` as text; `None` if it is missing or not a string.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        text_at(&self.frame, self.params.name.as_ref())
    }

    /// `params.uri` as text; `None` if it is missing or not a string.
    pub fn uri(&self) -> Option<Cow<'_, str>> {
        text_at(&self.frame, self.params.uri.as_ref())
    }

    /// Raw JSON of a member of `params`.
    pub fn member(&self, span: Option<&Span>) -> Option<Bytes> {
        span.map(|span| self.frame.as_bytes().slice(span.clone()))
    }
}

impl Response {
    /// The frame with a different id; everything else stays verbatim.
    pub fn with_id(&self, id: &RequestId) -> Bytes {
        if self.id_span.is_empty() {
            let (Outcome::Result(value) | Outcome::Error(value)) = &self.outcome;
            return self.with_id_and_value(id, value);
        }
        splice(
            self.frame.as_bytes(),
            &mut [(self.id_span.clone(), id.as_bytes().clone())],
        )
    }

    /// Like [`Self::with_id`], in parts that share the frame's memory.
    pub fn parts_with_id(&self, id: &RequestId) -> [Bytes; 3] {
        if self.id_span.is_empty() {
            return [self.with_id(id), Bytes::new(), Bytes::new()];
        }
        let frame = self.frame.as_bytes();
        let Range { start, end } = self.id_span;
        [
            frame.slice(..start),
            id.as_bytes().clone(),
            frame.slice(end..),
        ]
    }

    /// A response of the same kind with a different id and a different result or error.
    pub fn with_id_and_value(&self, id: &RequestId, value: &RawJson) -> Bytes {
        match &self.outcome {
            Outcome::Result(_) => result_frame(id, value),
            Outcome::Error(_) => error_frame(id, value),
        }
    }
}

/// Replaces parts of a frame. Spans must lie inside it and not overlap.
pub fn splice(frame: &[u8], edits: &mut [Edit]) -> Bytes {
    edits.sort_by_key(|(span, _)| span.start);
    let added: usize = edits.iter().map(|(_, text)| text.len()).sum();
    let mut spliced = Vec::with_capacity(frame.len() + added);
    let mut copied = 0;
    for (span, text) in edits.iter() {
        spliced.extend_from_slice(frame.get(copied..span.start).unwrap_or_default());
        spliced.extend_from_slice(text);
        copied = span.end.max(copied);
    }
    spliced.extend_from_slice(frame.get(copied..).unwrap_or_default());
    Bytes::from(spliced)
}

/// Builds a whole response around a result.
pub fn result_frame(id: &RequestId, result: &RawJson) -> Bytes {
    result_frame_from_parts(id, &[result.as_str()])
}

/// Builds a whole response around a result assembled from `parts`.
pub fn result_frame_from_parts(id: &RequestId, parts: &[&str]) -> Bytes {
    const HEAD: &str = r#"{"jsonrpc":"2.0","id":"#;
    const RESULT: &str = r#","result":"#;

    let id = id.as_str();
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = HEAD.len() + id.len() + RESULT.len() + length + 1;
    let mut frame = String::with_capacity(length);
    frame.extend([HEAD, id, RESULT]);
    frame.extend(parts.iter().copied());
    frame.push('}');
    Bytes::from(frame)
}

/// Builds a whole response around an error object.
pub fn error_frame(id: &RequestId, error: &RawJson) -> Bytes {
    let (id, error) = (id.as_str(), error.as_str());
    Bytes::from([r#"{"jsonrpc":"2.0","id":"#, id, r#","error":"#, error, "}"].concat())
}

/// Builds a request that the gateway sends itself.
pub fn request<T: Serialize>(id: u64, method: &Method, params: &T) -> Bytes {
    let params = RawJson::from_value(params);
    let method = RawJson::from_value(&method.as_str());
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{}}}"#,
        method.as_str(),
        params.as_str()
    ))
}

/// Builds a notification that the gateway sends itself; `None` omits `params`.
pub fn notification<T: Serialize>(method: &Method, params: Option<&T>) -> Bytes {
    let method = RawJson::from_value(&method.as_str());
    let params =
        params.map(|params| format!(r#","params":{}"#, RawJson::from_value(params).as_str()));
    let params = params.unwrap_or_default();
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","method":{}{params}}}"#,
        method.as_str()
    ))
}

/// Builds the notification that cancels a request.
pub fn cancelled(request_id: &impl Serialize, reason: Option<&str>) -> Bytes {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CancelledParams<'c, I> {
        request_id: &'c I,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'c str>,
    }
    let params = CancelledParams { request_id, reason };
    notification(&Method::Cancelled, Some(&params))
}

/// Removes the byte order mark that Windows editors and shells prepend to text. JSON parsers may
/// ignore it (RFC 8259, section 8.1).
pub fn without_bom(mut text: Bytes) -> Bytes {
    if text.starts_with(BOM) {
        text.advance(BOM.len());
    }
    text
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Validates the bytes as UTF-8. serde_json does not validate strings that are skipped, and the
/// message is forwarded: invalid bytes could crash a server.
fn unicode(bytes: Bytes) -> Result<ByteString, EnvelopeError> {
    ByteString::try_from(bytes).map_err(EnvelopeError::json)
}

/// Position of `raw`, which was borrowed from `frame`.
fn span_in(frame: &[u8], raw: &RawValue) -> Span {
    let start = raw.get().as_ptr() as usize - frame.as_ptr() as usize;
    start..start + raw.get().len()
}

fn text_at<'a>(frame: &'a RawJson, span: Option<&Span>) -> Option<Cow<'a, str>> {
    json::text(frame.0.get(span?.clone())?)
}

fn params_of<T: DeserializeOwned>(frame: &RawJson) -> Result<T, EnvelopeError> {
    #[derive(Deserialize)]
    struct FrameWithParams<T> {
        params: Option<T>,
    }
    let whole: FrameWithParams<T> = serde_json::from_str(&frame.0).map_err(EnvelopeError::json)?;
    match whole.params {
        Some(params) => Ok(params),
        None => serde_json::from_str("{}").map_err(EnvelopeError::json),
    }
}

#[cfg(test)]
mod tests;
