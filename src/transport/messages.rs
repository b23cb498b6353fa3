//! Parses the bytes of a peer into envelopes: single messages, arrays of messages, and the
//! essentials of a message that is too long to keep.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::protocol::{Envelope, EnvelopeError, RequestId, our_number, without_bom};
use crate::telemetry::{Reason, is_unprintable};

/// Maximum messages in an array (only revision 2025-03-26 allows arrays, S-HTTP-10).
const BATCH_MAX: usize = 1024;

/// Passes each message in `bytes` to `take`: the message itself, or the members of an array. Bytes
/// that are not UTF-8, as sent by programs in another locale, are replaced by U+FFFD.
///
/// # Errors
///
/// Returns the error of the first invalid message; `take` has received the messages before it.
pub(crate) fn for_each_message(
    bytes: Bytes,
    mut take: impl FnMut(Envelope),
) -> Result<(), EnvelopeError> {
    let bytes = without_bom(bytes);
    match each_message(bytes.clone(), &mut take) {
        Err(EnvelopeError::Json(_)) if std::str::from_utf8(&bytes).is_err() => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            each_message(Bytes::from(text), &mut take)
        }
        read => read,
    }
}

fn each_message(bytes: Bytes, mut take: impl FnMut(Envelope)) -> Result<(), EnvelopeError> {
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'[') {
        take(Envelope::parse(bytes)?);
        return Ok(());
    }
    let members: Vec<&RawValue> =
        serde_json::from_slice(&bytes).map_err(|error| EnvelopeError::Json(error.to_string()))?;
    if members.len() > BATCH_MAX {
        return Err(EnvelopeError::NotAnObject);
    }
    for member in members {
        take(Envelope::parse(bytes.slice_ref(member.get().as_bytes()))?);
    }
    Ok(())
}

/// The answer to `call` in `bytes`. Its id is ignored, because a server that did not read the
/// request cannot know it.
pub(crate) fn answer(bytes: &Bytes, call: u64) -> Option<Envelope> {
    let Ok(Envelope::Response(response)) = Envelope::parse(bytes.clone()) else {
        return None;
    };
    Envelope::parse(response.with_id(&RequestId::from(call))).ok()
}

/// Why bytes from a server are not a message; the parser can quote them.
pub(crate) fn fault(error: &EnvelopeError) -> Reason {
    match error {
        EnvelopeError::Json(why) => Reason::quoting("not valid JSON", why),
        other => other.to_string().into(),
    }
}

/// Printable excerpt from the start of a peer's bytes, for errors and logs.
pub(crate) fn excerpt(bytes: &[u8], length_max: usize) -> String {
    let head = bytes.get(..length_max).unwrap_or(bytes);
    let text = String::from_utf8_lossy(head);
    let text: String = text
        .chars()
        .map(|character| {
            if is_unprintable(character) {
                ' '
            } else {
                character
            }
        })
        .collect();
    let text = text.trim();
    if bytes.len() > head.len() {
        format!("{text}…")
    } else {
        text.to_owned()
    }
}

/// Finds the top-level `id` and `method` of a JSON-RPC message as its bytes pass by, keeping only a
/// few bytes whatever the message's size.
#[derive(Debug, Default)]
pub(crate) struct MessageScanner {
    depth: usize,
    state: ScanState,
    /// The top-level string or number that is being read, truncated.
    word: Vec<u8>,
    /// The top-level key whose value is being read.
    key: Option<Vec<u8>>,
    id: Option<u64>,
    has_method: bool,
    method: Option<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    #[default]
    Outside,
    InString,
    Escaped,
}

/// Longest word that is kept, in bytes.
const WORD_MAX: usize = 320;

impl MessageScanner {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match self.state {
                ScanState::InString => self.in_string(byte),
                ScanState::Escaped => {
                    self.state = ScanState::InString;
                    self.keep(byte);
                }
                ScanState::Outside => self.outside(byte),
            }
        }
    }

    /// Number of our request that the message answers; `None` for any other message.
    pub(crate) fn response_id(&self) -> Option<u64> {
        self.id.filter(|_| !self.has_method)
    }

    pub(crate) fn method(self) -> Option<String> {
        self.method
    }

    fn in_string(&mut self, byte: u8) {
        match byte {
            b'\\' => self.state = ScanState::Escaped,
            b'"' => {
                self.state = ScanState::Outside;
                // A word in the place of a key is kept until its colon.
                if self.depth == 1
                    && let Some(key) = self.key.take()
                {
                    let text = std::mem::take(&mut self.word);
                    match key.as_slice() {
                        b"method" => self.method = String::from_utf8(text).ok(),
                        b"id" => self.id = our_number(&text),
                        _ => {}
                    }
                }
            }
            _ => self.keep(byte),
        }
    }

    fn outside(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.state = ScanState::InString;
                if self.depth == 1 {
                    self.word.clear();
                }
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                let key = std::mem::take(&mut self.word);
                self.has_method |= key == b"method";
                self.key = Some(key);
            }
            b',' => self.end_value(),
            _ if !byte.is_ascii_whitespace() => self.keep(byte),
            _ => {}
        }
    }

    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        if self.key.take().is_some_and(|key| key == b"id") {
            self.id = our_number(&self.word);
        }
        self.word.clear();
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.word.len() <= WORD_MAX {
            self.word.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(text: &str) -> Option<u64> {
        let mut scanner = MessageScanner::default();
        scanner.feed(text.as_bytes());
        scanner.response_id()
    }

    #[test]
    fn the_id_of_a_response_is_found_and_nothing_else() {
        let cases = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":8}}"#, Some(7)),
            (
                r#"{"result":{"id":8,"a":["}",{"id":9}]},"id" : 7 }"#,
                Some(7),
            ),
            (r#"{"result":"\"id\":3,","id":4}"#, Some(4)),
            (r#"{"result":"\\","id":4}"#, Some(4)),
            (r#"{"a":"id","id":5,"result":1}"#, Some(5)),
            (r#"{"id":18446744073709551615,"result":1}"#, Some(u64::MAX)),
            (r#"{"id":18446744073709551616,"result":1}"#, None),
            (r#"{"id":7,"method":"sampling/createMessage"}"#, None),
            (r#"{"method":"x","id":7}"#, None),
            (r#"{"id":"7","result":1}"#, Some(7)),
            (r#"{"result":1,"id":7.0}"#, Some(7)),
            (r#"{"id":7.5,"result":1}"#, None),
            (r#"{"id":"x7","result":1}"#, None),
            (r#"{"id":null,"result":1}"#, None),
            (r#"{"result":{"id":8}}"#, None),
            (r#"[{"id":8}]"#, None),
            (r#"{"id":7"#, None),
            ("id:7,", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(scan(text), expected, "{text}");
        }
    }

    #[test]
    fn the_method_is_found_in_the_beginning_of_a_message() {
        let cases = [
            (
                r#"{"jsonrpc":"2.0","method":"tools/call","par"#,
                Some("tools/call"),
            ),
            (r#"{"id":"method","method":"a","#, Some("a")),
            (
                r#"{"params":{"method":"no","x":[1,{"method":2}]},"method":"b""#,
                Some("b"),
            ),
            (
                r#"{"x":"\"method\":\"no\"","id":1,"method" : "c","#,
                Some("c"),
            ),
            (r#"{"params":{"method":"no"}"#, None),
            (r#"{"method":"cut"#, None),
            (r#"{"method":7,"x":"y"}"#, None),
            ("", None),
        ];
        for (head, expected) in cases {
            let mut scanner = MessageScanner::default();
            scanner.feed(head.as_bytes());
            assert_eq!(scanner.method().as_deref(), expected, "{head}");
        }
    }

    #[test]
    fn arrays_are_taken_apart_and_stop_at_the_first_fault() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let cases = [
            (ping.to_owned(), 1, true),
            (format!(" [ {ping} ,{ping}]"), 2, true),
            ("[]".to_owned(), 0, true),
            (format!("[{ping},3]"), 1, false),
            (format!("[{ping}"), 0, false),
            (format!("[[{ping}]]"), 0, false),
            (
                format!("[{}{ping}]", format!("{ping},").repeat(BATCH_MAX)),
                0,
                false,
            ),
        ];
        for (text, expected, good) in cases {
            let mut count = 0;
            let outcome = for_each_message(Bytes::from(text.clone()), |_| count += 1);
            assert_eq!((count, outcome.is_ok()), (expected, good), "{text}");
        }
    }

    #[test]
    fn a_mark_before_the_text_and_bytes_of_another_charset_do_no_harm() {
        let good = br#"{"jsonrpc":"2.0","id":1,"result":{"t":"caf"#;
        let end = br#""}}"#;
        let message = |before: &[u8], letter: &[u8]| [before, good, letter, end].concat();
        let bom = b"\xef\xbb\xbf";
        let table = [
            (message(bom, "é".as_bytes()), "café"),
            (message(b"", b"\xe9"), "caf\u{fffd}"),
            (message(bom, b"\xe9\xff"), "caf\u{fffd}\u{fffd}"),
            (
                [&bom[..], b"[", &message(b"", b"\xe9"), b"]"].concat(),
                "caf\u{fffd}",
            ),
        ];
        for (bytes, expected) in table {
            let mut texts = Vec::new();
            let read = for_each_message(Bytes::from(bytes), |envelope| {
                let Envelope::Response(response) = envelope else {
                    return;
                };
                texts.push(response.frame.as_str().to_owned());
            });
            assert!(read.is_ok(), "{expected}");
            assert!(texts.concat().contains(expected), "{texts:?}");
        }
        assert!(for_each_message(Bytes::from_static(b"caf\xe9"), |_| {}).is_err());
    }

    #[test]
    fn an_excerpt_is_short_and_printable() {
        assert_eq!(excerpt(b"  a\nb\x1b[1m\n", 100), "a b [1m");
        assert_eq!(excerpt("ää".as_bytes(), 3), "ä\u{fffd}…");
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter_and_nothing_panics(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'"'), Just(b'{'), Just(b'}'), Just(b':'), Just(b'\\'), any::<u8>()],
                0..200,
            ),
            cut in 0..200_usize,
        ) {
            let mut whole = MessageScanner::default();
            whole.feed(&bytes);
            let mut parts = MessageScanner::default();
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            parts.feed(head);
            parts.feed(tail);
            prop_assert_eq!(whole.response_id(), parts.response_id());
        }

        #[test]
        fn agrees_with_a_real_parser(
            id in any::<u64>(),
            text in ".*",
            id_first in any::<bool>(),
        ) {
            let value = serde_json::json!({ "id": 1, "text": text });
            let message = if id_first {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{value}}}"#)
            } else {
                format!(r#"{{"result":{value},"jsonrpc":"2.0","id":{id}}}"#)
            };
            prop_assert_eq!(scan(&message), Some(id));
        }
    }
}
