//! Parses the parts of an HTTP/1 response head that awc does not understand: interim responses, and
//! bodies that end with the connection. Pure.

use std::ops::Range;
use std::time::Duration;

use memchr::memchr;

/// Result of parsing the first response in a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResponseHead {
    /// More bytes are needed.
    Partial,
    /// `100`, `102`, `103` or another interim response, ending at `length` (RFC 9110, section
    /// 15.2).
    Interim { length: usize },
    /// The final response, or bytes that are not HTTP.
    Final(Framing),
}

/// How the end of a response's body is determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// The headers define the end, or the response has no body.
    Announced,
    /// The body ends with the connection (RFC 9112, section 6.3). awc supports this only in
    /// HTTP/1.0, so the version at `minor_version` has to be overwritten.
    ToTheEnd { minor_version: Range<usize> },
}

/// Parses the head of the first response in `bytes`.
pub(super) fn read(bytes: &[u8]) -> ResponseHead {
    let mut status = None;
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
            // Some servers send an empty line after the previous body.
            None if line.is_empty() => {}
            None => match status_code(line) {
                // In MCP, a 202 has no body; some servers omit its length and keep the connection
                // open.
                None | Some(101 | 202 | 204 | 304) => {
                    return ResponseHead::Final(Framing::Announced);
                }
                Some(code) => status = Some((matches!(code, 100..=199), line_start)),
            },
            Some((true, _)) if line.is_empty() => {
                return ResponseHead::Interim { length: start };
            }
            Some((false, line_start)) if line.is_empty() => {
                let minor = line_start + VERSION.len();
                return ResponseHead::Final(Framing::ToTheEnd {
                    minor_version: minor..minor + 1,
                });
            }
            // awc parses the rest of the head.
            Some((false, _)) if announces_end(line) => {
                return ResponseHead::Final(Framing::Announced);
            }
            Some(_) => {}
        }
    }
}

/// How long the server keeps an idle connection, according to the head (`Keep-Alive: timeout=5`).
pub(super) fn keep_alive(head: &[u8]) -> Option<Duration> {
    let lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    // An empty line may precede the head.
    let mut lines = lines
        .skip_while(|line| line.is_empty())
        .take_while(|line| !line.is_empty());
    let value = lines.find_map(|line| match line.split_at(memchr(b':', line)?) {
        (name, value) if name.trim_ascii_end().eq_ignore_ascii_case(b"keep-alive") => {
            value.get(1..)
        }
        _ => None,
    })?;
    let seconds = std::str::from_utf8(value)
        .ok()?
        .split(',')
        .find_map(|part| {
            let (name, seconds) = part.split_once('=')?;
            let seconds = seconds.trim().trim_matches('"').parse().ok()?;
            name.trim()
                .eq_ignore_ascii_case("timeout")
                .then_some(seconds)
        })?;
    Some(Duration::from_secs(seconds))
}

const VERSION: &[u8] = b"HTTP/1.";

fn status_code(line: &[u8]) -> Option<u16> {
    let (_, rest) = line.strip_prefix(VERSION)?.split_first()?;
    let [hundreds, tens, ones, ..] = rest.trim_ascii_start() else {
        return None;
    };
    [hundreds, tens, ones]
        .into_iter()
        .try_fold(0, |code, digit| {
            digit
                .is_ascii_digit()
                .then(|| code * 10 + u16::from(digit - b'0'))
        })
}

/// Whether a header determines the end of the body.
fn announces_end(line: &[u8]) -> bool {
    // Comparing the first letter rules out most headers.
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
    fn a_server_may_say_how_long_it_keeps_a_connection() {
        let table = [
            ("Keep-Alive: timeout=5\r\n", Some(5)),
            ("X: 1\r\nkeep-alive : max=100, Timeout=\"15\"\r\n", Some(15)),
            ("Keep-Alive: max=3\r\n", None),
            ("Keep-Alive: timeout=soon\r\n", None),
            ("Keep-Alive: timeout=99999999999999999999\r\n", None),
            ("Connection: keep-alive\r\n", None),
            ("\r\nKeep-Alive: timeout=5\r\n", None),
        ];
        for (headers, seconds) in table {
            let head = format!("\r\nHTTP/1.1 200 OK\r\n{headers}\r\n");
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(keep_alive(head.as_bytes()), expected, "{headers:?}");
        }
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
