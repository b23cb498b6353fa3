//! A message as it came: what it is, and how one that cannot be taken is refused.

use actix_web::HttpRequest;
use actix_web::http::header::HeaderName;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::protocol::{Envelope, EnvelopeError, ErrorKind, Failure, RequestId};

/// Messages in one batch (2025-03-26).
pub(super) const BATCH_MAX: usize = 64;

/// A refusal with the id of the request that it answers, if there was one to read.
pub(super) struct RequestFailure {
    pub(super) failure: Failure,
    pub(super) id: Option<RequestId>,
}

impl RequestFailure {
    /// The id as raw JSON.
    pub(super) fn id(&self) -> &str {
        self.id.as_ref().map_or("null", RequestId::as_str)
    }
}

impl From<Failure> for RequestFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, id: None }
    }
}

/// Says what is wrong with a message, with its id if that can be read.
pub(super) fn envelope_failure(error: &EnvelopeError, body: &[u8]) -> RequestFailure {
    #[derive(Deserialize)]
    struct IdPeek<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let is_json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
    let failure = match error {
        EnvelopeError::Json(why) if is_json => {
            let message = format!("not a JSON-RPC message: {why}");
            Failure::new(ErrorKind::InvalidRequest, message)
        }
        EnvelopeError::Json(_) => Failure::new(ErrorKind::ParseError, error.to_string()),
        EnvelopeError::NotAnObject
        | EnvelopeError::Version
        | EnvelopeError::Id
        | EnvelopeError::Shape => Failure::new(ErrorKind::InvalidRequest, error.to_string()),
    };
    let peek = serde_json::from_slice::<IdPeek<'_>>(body).ok();
    let id = peek.and_then(|peek| Some(Bytes::copy_from_slice(peek.id?.get().as_bytes())));
    let id = id.and_then(|id| RequestId::try_new(id).ok());
    RequestFailure { failure, id }
}

pub(super) fn request_id_of(envelope: &Envelope) -> Option<RequestId> {
    match envelope {
        Envelope::Request(request) => Some(request.id.clone()),
        Envelope::Notification(_) | Envelope::Response(_) => None,
    }
}

pub(super) fn is_array(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// A header as text, which is ASCII.
pub(super) fn text<'a>(request: &'a HttpRequest, name: &HeaderName) -> Option<&'a str> {
    let value = request.headers().get(name)?.as_bytes();
    let text = value.is_ascii().then(|| str::from_utf8(value));
    text?.ok()
}
