//! Bounds for untrusted JSON: small text can nest deeply, or grow large when it is parsed into a
//! tree.

use memchr::memchr2_iter;
use serde::de::DeserializeOwned;

/// Maximum nesting of arrays and objects in one message. Most JSON parsers stop at 128 levels or
/// fewer; the others would recurse.
pub const DEPTH_MAX: usize = 100;

/// Maximum number of values in one parsed tree, in all its arrays and objects: each takes up to a
/// hundred times the memory of its text.
const VALUES_MAX: usize = 100_000;

/// Whether arrays and objects nest deeper than [`DEPTH_MAX`]. `text` must be valid JSON.
pub fn is_too_deep(text: &[u8]) -> bool {
    // Few messages have this many brackets, and counting them is fast.
    let may_be_deep = memchr2_iter(b'[', b'{', text).nth(DEPTH_MAX).is_some();
    may_be_deep && Shape::of(text).depth > DEPTH_MAX
}

/// Parses a value into a tree, unless it has too many members or elements, or a different shape.
pub fn parse_bounded<T: DeserializeOwned>(text: &str) -> Option<T> {
    // A value takes at least two bytes: itself and a separator.
    if text.len() / 2 > VALUES_MAX && Shape::of(text.as_bytes()).values > VALUES_MAX {
        return None;
    }
    serde_json::from_str(text).ok()
}

struct Shape {
    depth: usize,
    /// Upper bound on the number of values.
    values: usize,
}

impl Shape {
    fn of(text: &[u8]) -> Self {
        let (mut level, mut depth, mut values) = (0_usize, 0, 1);
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => skip_string(&mut bytes),
                b'[' | b'{' => {
                    level += 1;
                    depth = depth.max(level);
                    values += 1;
                }
                b']' | b'}' => level = level.saturating_sub(1),
                b',' => values += 1,
                _ => {}
            }
        }
        Self { depth, values }
    }
}

/// Advances past a string whose opening quotation mark was read.
fn skip_string<'a>(bytes: &mut impl Iterator<Item = &'a u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn nesting_is_counted_outside_of_strings() {
        for (text, expected) in [
            (nested(DEPTH_MAX), false),
            (nested(DEPTH_MAX + 1), true),
            (nested(100_000), true),
            (r#"{"a":"#.repeat(101) + "1" + &"}".repeat(101), true),
            (format!("[{}]", ["[]"; 1000].join(",")), false),
            (format!(r#"["{}"]"#, "[".repeat(1000)), false),
            (format!(r#"["\"{}\\"]"#, "[".repeat(1000)), false),
            (format!(r#"["\\",{}]"#, nested(DEPTH_MAX)), true),
        ] {
            assert_eq!(is_too_deep(text.as_bytes()), expected, "{text:.40}");
        }
    }

    #[test]
    fn trees_with_too_many_values_are_not_built() {
        let numbers = |count| format!("[{}]", vec!["1"; count].join(","));
        assert!(parse_bounded::<Value>(&numbers(VALUES_MAX / 2)).is_some());
        assert!(parse_bounded::<Value>(&numbers(VALUES_MAX + 1)).is_none());
        let objects = format!("[{}{{}}]", "{},".repeat(VALUES_MAX));
        assert!(parse_bounded::<Value>(&objects).is_none());
        let text = format!(r#""{}""#, ",".repeat(3 * VALUES_MAX));
        assert!(parse_bounded::<Value>(&text).is_some());
    }
}
