//! One JSON-RPC message: the bytes of its sender, and where the parts are that we act on.
//!
//! A message is parsed once, borrowed, and validated as JSON on the way. Forwarding replaces the
//! id, a name or a progress token in place ([`splice`]), so that everything the gateway does not
//! understand survives byte for byte.

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

/// Where a part of a frame is, in bytes.
pub type Span = Range<usize>;

/// One replacement in a frame; an empty span inserts.
pub type Edit = (Span, Bytes);

/// Why bytes are no JSON-RPC message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("not valid JSON: {0}")]
    Json(String),
    #[error("a JSON-RPC message is an object")]
    NotAnObject,
    #[error("`jsonrpc` must be \"2.0\"")]
    Version,
    #[error("`id` must be a string or an integer")]
    Id,
    #[error("a message has a `method`, a `result` or an `error`, and only one of them")]
    Shape,
    #[error(
        "the name of a member can be taken for `{0}`, although it is spelled differently; spell it \
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
    /// Apart, since a request changes hands often.
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
    /// Absent or null when the sender could not read the request's id.
    pub id: Option<RequestId>,
    pub outcome: Outcome,
    id_span: Span,
    /// The room of a large answer, until its client has read it.
    pub(crate) room: Option<HeldRoom>,
}

/// The content of a response: one of the two, never both (B-RPC-05).
#[derive(Clone, Debug)]
pub enum Outcome {
    Result(RawJson),
    Error(RawJson),
}

/// Where the members of `params` are that the gateway acts on; spans count from the start of the
/// frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamSpans {
    pub name: Option<Span>,
    pub uri: Option<Span>,
    /// `ref` of `completion/complete`.
    pub reference: Option<Span>,
    pub meta: Option<Span>,
    /// Whether `_meta` of a request names the revision of its sender.
    pub claims_revision: bool,
    /// `arguments` of a tool call or a prompt.
    pub arguments: Option<Span>,
    /// `task`, with which a client of 2025-11-25 wants a task.
    pub task: Option<Span>,
    /// Answers to what a server asked for in the middle of a call (2026-07-28).
    pub input_responses: Option<Span>,
    /// The state that goes with them, opaque to the client.
    pub request_state: Option<Span>,
    /// `progressToken`, of `_meta` in a request and of `params` in `notifications/progress`.
    pub progress_token: Option<Span>,
    /// `progress` of `notifications/progress`.
    pub progress: Option<Span>,
    /// `requestId` of `notifications/cancelled`.
    pub request_id: Option<Span>,
}

impl Envelope {
    /// Parses one message. Arrays (batches) are the caller's business.
    ///
    /// # Errors
    ///
    /// Returns an [`EnvelopeError`] that says which rule of JSON-RPC the bytes break.
    pub fn parse(frame: Bytes) -> Result<Self, EnvelopeError> {
        Self::parse_with(frame, false)
    }

    /// Parses one message of a client. The server behind the gateway might ignore the case of names,
    /// so no member can have a name that resembles one by which the gateway decides.
    ///
    /// # Errors
    ///
    /// As [`Envelope::parse`], and [`EnvelopeError::Misspelled`].
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

/// A notification that was written with `"id": null`, as JSON-RPC 1.0 has them.
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
    /// `params.name` as text; `None` when it is missing or no string.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        text_at(&self.frame, self.params.name.as_ref())
    }

    /// `params.uri` as text; `None` when it is missing or no string.
    pub fn uri(&self) -> Option<Cow<'_, str>> {
        text_at(&self.frame, self.params.uri.as_ref())
    }

    /// The name that the request is about, or else the URI.
    pub fn item(&self) -> Option<Cow<'_, str>> {
        self.name().or_else(|| self.uri())
    }

    /// `params.requestState` as text; `None` when it is missing or no string.
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
    /// Returns [`EnvelopeError::Json`] when they have another shape than `T`.
    pub fn params_as<T: DeserializeOwned>(&self) -> Result<T, EnvelopeError> {
        params_of(&self.frame)
    }

    /// The text of `params`, which an absent or null `params` has none of.
    ///
    /// # Errors
    ///
    /// Returns [`EnvelopeError::Json`] when the frame has two of them.
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

    /// The edit that gives the request another id.
    pub fn edit_id(&self, id: &RequestId) -> Edit {
        (self.id_span.clone(), id.as_bytes().clone())
    }

    /// The edit that makes `token` the progress token: replaces the client's, or asks for
    /// progress where the client did not. `None` when `params` holds nothing to attach it to.
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
    /// Returns [`EnvelopeError::Json`] when they have another shape than `T`.
    pub fn params_as<T: DeserializeOwned>(&self) -> Result<T, EnvelopeError> {
        params_of(&self.frame)
    }

    /// `params.name` as text; `None` when it is missing or no string.
    pub fn name(&self) -> Option<Cow<'_, str>> {
        text_at(&self.frame, self.params.name.as_ref())
    }

    /// `params.uri` as text; `None` when it is missing or no string.
    pub fn uri(&self) -> Option<Cow<'_, str>> {
        text_at(&self.frame, self.params.uri.as_ref())
    }

    /// Raw JSON of a member of `params`.
    pub fn member(&self, span: Option<&Span>) -> Option<Bytes> {
        span.map(|span| self.frame.as_bytes().slice(span.clone()))
    }
}

impl Response {
    /// The frame with another id; everything else stays as it was written.
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

    /// The same in parts that are lent, not copied.
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

    /// The same kind of answer with another id and another result or error.
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

/// A whole answer around a result.
pub fn result_frame(id: &RequestId, result: &RawJson) -> Bytes {
    result_frame_from_parts(id, &[result.as_str()])
}

/// A whole answer around a result that is put together of `parts`.
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

/// A whole answer around an error object.
pub fn error_frame(id: &RequestId, error: &RawJson) -> Bytes {
    let (id, error) = (id.as_str(), error.as_str());
    Bytes::from([r#"{"jsonrpc":"2.0","id":"#, id, r#","error":"#, error, "}"].concat())
}

/// A request of the gateway's own.
pub fn request<T: Serialize>(id: u64, method: &Method, params: &T) -> Bytes {
    let params = RawJson::from_value(params);
    let method = RawJson::from_value(&method.as_str());
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":{},"params":{}}}"#,
        method.as_str(),
        params.as_str()
    ))
}

/// A notification of the gateway's own; `None` leaves `params` out.
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

/// The notification that takes a request back.
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

/// Removes the byte order mark that editors and shells of Windows write before a text. Readers of JSON
/// can ignore it (RFC 8259, section 8.1).
pub fn without_bom(mut text: Bytes) -> Bytes {
    if text.starts_with(BOM) {
        text.advance(BOM.len());
    }
    text
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The bytes as text. serde_json does not look into strings that nobody reads, and what passes here
/// is sent on: a server may end on bytes that are no UTF-8.
fn unicode(bytes: Bytes) -> Result<ByteString, EnvelopeError> {
    ByteString::try_from(bytes).map_err(EnvelopeError::json)
}

/// Where `raw`, which was borrowed from `frame`, lies in it.
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
