//! How a message is written on a channel. Pure.

use bytes::Bytes;

/// As a server-sent event (S-SSE-03).
pub(in crate::front) fn as_event(message: &[u8]) -> Bytes {
    framed(b"event: message\ndata: ", message, b"\n\n")
}

/// As a line of its own (S-STDIO-01).
pub(in crate::front) fn as_line(message: &[u8]) -> Bytes {
    framed(b"", message, b"\n")
}

/// Raw line breaks in JSON stand only between its tokens; here they would end the message.
fn framed(before: &[u8], message: &[u8], after: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(before.len() + message.len() + after.len());
    text.extend_from_slice(before);
    text.extend(message.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        other => *other,
    }));
    text.extend_from_slice(after);
    Bytes::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_stdio_01_a_message_is_one_line_and_one_event() {
        let message = b"{\r\n\"a\":\n1}";
        assert_eq!(as_line(message), "{  \"a\": 1}\n");
        assert_eq!(as_event(message), "event: message\ndata: {  \"a\": 1}\n\n");
    }
}
