//! Encodes messages for clients as server-sent events or lines, and maps errors to HTTP statuses.
//! Pure.

use std::io::Write as _;

use actix_web::http::StatusCode;
use bytes::Bytes;
use memchr::memchr2;

use crate::bridge::error::{modern_status, status_of};
use crate::calls::{ReplyError, StreamEvent};

/// How long a client should wait before it reopens a broken stream, in milliseconds.
const RETRY_MS: u32 = 1000;

/// Space reserved for the fields of an event other than its data, in bytes.
const FIELDS_LEN: usize = 96;

/// Writes an event of a session's stream. The first event has no data (S-HTTP-30) but contains the
/// reconnection time, because the connection can break before the next event (S-HTTP-31).
pub(super) fn stream_event(event: &StreamEvent, text: &mut Vec<u8>) {
    let frame = event.frame.as_deref().unwrap_or_default();
    text.reserve(frame.len() + FIELDS_LEN);
    // Writing to a vector does not fail.
    let _ = match (&event.id, &event.frame) {
        (Some(id), Some(_)) => write!(text, "event: message\nid: {id}\ndata: "),
        (Some(id), None) => write!(text, "id: {id}\nretry: {RETRY_MS}\ndata: "),
        (None, _) => text.write_all(b"event: message\ndata: "),
    };
    push_line(text, frame);
    text.extend_from_slice(b"\n\n");
}

/// Returns the HTTP status for an error that answers a request without a session.
pub(super) fn error_status(error: &ReplyError) -> StatusCode {
    let status = match error {
        ReplyError::Gateway { kind, .. } => modern_status(*kind),
        ReplyError::Server(object) => status_of(object),
    };
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Encodes a message as a server-sent event of HTTP+SSE (S-SSE-03).
pub(super) fn sse_event(id: &str, message: &[u8]) -> Bytes {
    let before = format!("event: message\nid: {id}\ndata: ");
    framed(before.as_bytes(), message, b"\n\n")
}

/// Encodes a message as a server-sent event after which a client cannot resume.
pub(super) fn event_without_id(message: &[u8]) -> Bytes {
    framed(b"event: message\ndata: ", message, b"\n\n")
}

/// Encodes a message as one line (S-STDIO-01).
pub(super) fn as_line(message: &[u8]) -> Bytes {
    framed(b"", message, b"\n")
}

fn framed(before: &[u8], message: &[u8], after: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(before.len() + message.len() + after.len());
    text.extend_from_slice(before);
    push_line(&mut text, message);
    text.extend_from_slice(after);
    Bytes::from(text)
}

/// Appends a message without raw line breaks, which would end it here. In JSON they can only occur
/// between tokens.
fn push_line(text: &mut Vec<u8>, message: &[u8]) {
    let mut rest = message;
    while let Some(at) = memchr2(b'\n', b'\r', rest) {
        let (before, after) = rest.split_at(at);
        text.extend_from_slice(before);
        text.push(b' ');
        rest = after.get(1..).unwrap_or_default();
    }
    text.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::EventId;

    fn written_event(event: &StreamEvent) -> String {
        let mut text = Vec::new();
        stream_event(event, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn s_stdio_01_a_message_is_one_line_and_one_event() {
        let message = Bytes::from("{\r\n\"a\":\n1}");
        assert_eq!(as_line(&message), "{  \"a\": 1}\n");
        assert_eq!(
            sse_event("i.1", &message),
            "event: message\nid: i.1\ndata: {  \"a\": 1}\n\n"
        );
        let event = StreamEvent::message(message);
        let written = "event: message\ndata: {  \"a\": 1}\n\n";
        assert_eq!(written_event(&event), written);
    }

    #[test]
    fn s_http_31_the_first_event_says_when_to_come_back() {
        let id = EventId::parse("1.0.0.").unwrap();
        let mut event = StreamEvent::message(Bytes::from("{}"));
        event.id = Some(id.clone());
        let written = "event: message\nid: 1.0.0.\ndata: {}\n\n";
        assert_eq!(written_event(&event), written);
        event.frame = None;
        assert_eq!(written_event(&event), "id: 1.0.0.\nretry: 1000\ndata: \n\n");
    }
}
