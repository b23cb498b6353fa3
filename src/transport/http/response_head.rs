//! The head of an HTTP/1 response, as far as awc does not understand it: interim responses, and
//! bodies that end with the connection. Pure.

use std::ops::Range;

use memchr::memchr;

/// The first response in some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResponseHead {
    /// More bytes are needed.
    Partial,
    /// `100`, `102`, `103` or another interim response, which ends at `length` (RFC 9110, section
    /// 15.2).
    Interim { length: usize },
    /// The final response, or bytes that are not HTTP.
    Final(Framing),
}

/// Defines the end of a response's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// The headers define the end, or the response has no body.
    Announced,
    /// The end of the connection ends it (RFC 9112, section 6.3). awc reads such a body only in
    /// HTTP/1.0, so the version is overwritten at `minor_version`.
    ToTheEnd { minor_version: Range<usize> },
}

/// Reads the head of the first response in `bytes`.
pub(super) fn read(bytes: &[u8]) -> ResponseHead {
    let mut status = None;
    let mut is_framed = false;
    let mut start = 0;
    loop {
        let rest = bytes.get(start..).unwrap_or_default();
        let Some(end) = memchr(b'\n', rest) else {
            return ResponseHead::Partial;
        };
        let line = rest.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line_start = start;
        start += end + 1;
        match status {
            // Some servers send an empty line after the body before.
            None if line.is_empty() => {}
            None => match status_code(line) {
                Some(code) => status = Some((code, line_start)),
                None => return ResponseHead::Final(Framing::Announced),
            },
            Some((code, _)) if line.is_empty() && matches!(code, 100 | 102..=199) => {
                return ResponseHead::Interim { length: start };
            }
            Some((code, line_start)) if line.is_empty() => {
                // A 202 has no body in MCP, and some servers omit its length and keep the connection.
                let framing = if is_framed || matches!(code, 101 | 202 | 204 | 304) {
                    Framing::Announced
                } else {
                    let minor = line_start + VERSION.len();
                    Framing::ToTheEnd {
                        minor_version: minor..minor + 1,
                    }
                };
                return ResponseHead::Final(framing);
            }
            Some(_) => is_framed |= announces_end(line),
        }
    }
}

const VERSION: &[u8] = b"HTTP/1.";

fn status_code(line: &[u8]) -> Option<u16> {
    let (_, rest) = line.strip_prefix(VERSION)?.split_first()?;
    let code = rest.trim_ascii_start().get(..3)?;
    std::str::from_utf8(code).ok()?.parse().ok()
}

/// Whether a header defines the end of the body.
fn announces_end(line: &[u8]) -> bool {
    // The first letter excludes most headers.
    if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
        return false;
    }
    let Some(colon) = memchr(b':', line) else {
        return false;
    };
    let (name, value) = line.split_at(colon);
    let name = name.trim_ascii_end();
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    name.eq_ignore_ascii_case(b"content-length")
        || name.eq_ignore_ascii_case(b"transfer-encoding")
            && !value.eq_ignore_ascii_case(b"identity")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn to_the_end(minor: usize) -> ResponseHead {
        ResponseHead::Final(Framing::ToTheEnd {
            minor_version: minor..minor + 1,
        })
    }

    #[test]
    fn a_body_ends_by_its_headers_or_with_the_connection() {
        let announced = || ResponseHead::Final(Framing::Announced);
        let table = [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                announced(),
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\n{}",
                announced(),
            ),
            (
                "HTTP/1.1 200 OK\nTRANSFER-ENCODING: chunked\n\n",
                announced(),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n{}",
                to_the_end(7),
            ),
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
                to_the_end(7),
            ),
            (
                "HTTP/1.1 200\r\nContent-Type: text/event-stream\r\n\r\n",
                to_the_end(7),
            ),
            ("HTTP/1.1 500 X\r\nTotal: 1\r\n\r\n", to_the_end(7)),
            ("\r\nHTTP/1.1 404 X\r\n\r\n", to_the_end(9)),
            ("HTTP/1.0 200 OK\r\n\r\n{}", to_the_end(7)),
            ("HTTP/1.1 202 Accepted\r\n\r\n", announced()),
            ("HTTP/1.1 204 No Content\r\n\r\n", announced()),
            ("HTTP/1.1 304 Not Modified\r\n\r\n", announced()),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", announced()),
            ("HTTP/2 200\r\n\r\n", announced()),
            ("SSH-2.0-x\r\n", announced()),
            ("HTTP/1.1 x\r\n\r\n", announced()),
            ("HTTP/1.1 200 OK\r\nContent-", ResponseHead::Partial),
            ("HTTP/1.1 200 OK\r\n\r", ResponseHead::Partial),
            ("", ResponseHead::Partial),
        ];
        for (bytes, expected) in table {
            assert_eq!(read(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn interim_responses_are_told_from_the_response_itself() {
        for status in ["100 Continue", "102 Processing", "103 Early Hints", "199 X"] {
            let interim = format!("HTTP/1.1 {status}\r\nLink: </x>\r\n\r\n");
            let bytes = format!("{interim}HTTP/1.1 200 OK\r\n\r\n");
            let length = interim.len();
            let expected = ResponseHead::Interim { length };
            assert_eq!(read(bytes.as_bytes()), expected, "{status}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic_and_a_head_only_grows(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'H'), Just(b':'), any::<u8>()], 0..200,
            ),
        ) {
            let head = [&b"HTTP/1.1 200 OK\r\n"[..], &bytes].concat();
            let whole = read(&head);
            for end in 0..head.len() {
                let part = read(&head[..end]);
                prop_assert!(part == ResponseHead::Partial || part == whole);
            }
        }
    }
}
