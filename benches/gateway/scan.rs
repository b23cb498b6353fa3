//! Searches bytes instead of parsing JSON, for paths that must cost almost nothing.
//!
//! Suitable only for this benchmark's messages: compact or spaced JSON whose keys do not occur
//! inside strings.

/// Position of `needle`.
pub(crate) fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    loop {
        let at = from + hay.get(from..)?.iter().position(|byte| *byte == first)?;
        if hay.get(at..)?.starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
}

pub(crate) fn contains(hay: &[u8], needle: &[u8]) -> bool {
    find(hay, needle).is_some()
}

pub(crate) fn count(mut hay: &[u8], needle: &[u8]) -> usize {
    let mut found = 0;
    while let Some(at) = find(hay, needle) {
        found += 1;
        hay = hay.get(at + needle.len()..).unwrap_or_default();
    }
    found
}

/// The raw value of a key: a whole string with its quotes, or a number or word.
pub(crate) fn value<'a>(json: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut rest = json;
    loop {
        let at = find(rest, key.as_bytes())?;
        let quoted = at > 0 && rest.get(at - 1) == Some(&b'"');
        rest = rest.get(at + key.len()..)?;
        if quoted && let Some(after) = rest.strip_prefix(b"\"") {
            let after = after.trim_ascii_start();
            if let Some(after) = after.strip_prefix(b":") {
                return token(after.trim_ascii_start());
            }
        }
    }
}

fn token(json: &[u8]) -> Option<&[u8]> {
    if json.first() != Some(&b'"') {
        let end = json.iter().position(|byte| b",}] \r\n".contains(byte))?;
        return json.get(..end);
    }
    let mut escaped = false;
    for (at, byte) in json.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return json.get(..=at),
            _ => {}
        }
    }
    None
}

pub(crate) fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.trim().parse().ok()
}
