//! Truncates a message body and removes its secrets before it is stored.

use memchr::memchr2;

use crate::masking::{LiveSecrets, REDACTED, hide, names_count, names_secret, text_spans};

/// The stored part of a JSON value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptBody {
    pub(super) text: String,
    /// Whether nothing was truncated.
    pub(super) is_whole: bool,
    /// Whether a secret was replaced.
    pub(super) is_redacted: bool,
}

/// Bits of a body's state.
pub(super) const WHOLE: i64 = 1;
pub(super) const IS_REDACTED: i64 = 2;

/// Extra bit in the state of the parameters: names are the server's.
pub(super) const SERVER_NAMES: i64 = 4;

impl KeptBody {
    /// The state as bits.
    pub(super) fn state(&self) -> i64 {
        let whole = if self.is_whole { WHOLE } else { 0 };
        let redacted = if self.is_redacted { IS_REDACTED } else { 0 };
        whole | redacted
    }
}

/// Copies a JSON value, up to about `limit` bytes. Replaces the values of members with secret
/// names, tokens after `Bearer`, and all strings in `secrets`.
pub(super) fn redact(json: &str, limit: usize, secrets: &LiveSecrets) -> KeptBody {
    let mut copy = Copy {
        json,
        limit,
        secrets,
        at: 0,
        out: String::with_capacity(json.len().min(limit) + 16),
        is_redacted: false,
    };
    let is_whole = copy.run().is_some();
    let Copy {
        mut out,
        mut is_redacted,
        ..
    } = copy;
    let masked = if is_whole {
        secrets.replaced(&out, REDACTED)
    } else {
        out.truncate(out.floor_char_boundary(limit));
        secrets.replaced_in_cut(&out, REDACTED)
    };
    if let Some(masked) = masked {
        is_redacted = true;
        out = masked;
    }
    KeptBody {
        text: out,
        is_whole,
        is_redacted,
    }
}

/// A pass over valid JSON.
struct Copy<'j> {
    json: &'j str,
    limit: usize,
    secrets: &'j LiveSecrets,
    at: usize,
    out: String,
    is_redacted: bool,
}

impl<'j> Copy<'j> {
    /// `None` if the limit was reached.
    fn run(&mut self) -> Option<()> {
        while let Some(first) = self.json.as_bytes().get(self.at) {
            if self.out.len() >= self.limit {
                return None;
            }
            if *first == b'"' {
                self.string()?;
            } else {
                self.until_string()?;
            }
        }
        (self.out.len() <= self.limit).then_some(())
    }

    /// Copies the text between two strings.
    fn until_string(&mut self) -> Option<()> {
        let rest = self.json.get(self.at..)?;
        let window = rest.get(..rest.floor_char_boundary(self.room() + 1))?;
        let length = memchr::memchr(b'"', window.as_bytes()).unwrap_or(window.len());
        self.out.push_str(window.get(..length)?);
        self.at += length.max(1);
        Some(())
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.out.len())
    }

    fn string(&mut self) -> Option<()> {
        let start = self.at + 1;
        let rest = self.json.get(start..)?;
        let window = rest.get(..rest.floor_char_boundary(self.room() + 1))?;
        let Some(length) = string_length(window) else {
            self.out.push('"');
            self.push_redacted(window);
            return None;
        };
        let content = window.get(..length)?;
        self.at = start + length + 1;
        self.out.push('"');
        let value = value_after(self.json, self.at);
        let is_secret = value.is_some() && is_secret_name(content);
        if value.is_some() {
            self.out.push_str(content);
        } else {
            self.push_redacted(content);
        }
        self.out.push('"');
        match value.filter(|_| is_secret) {
            Some(value) => self.secret(content, value),
            None => Some(()),
        }
    }

    /// Appends JSON text without its secrets.
    fn push_redacted(&mut self, text: &str) {
        if let Some(unescaped) = self.secret_behind_escapes(text) {
            self.is_redacted = true;
            self.out.push_str(&unescaped);
            return;
        }
        let spans = text_spans(text);
        self.is_redacted |= !spans.is_empty();
        match spans.is_empty() {
            true => self.out.push_str(text),
            false => self.out.push_str(&hide(text, spans, REDACTED)),
        }
    }

    /// Finds a secret hidden by JSON escapes: any letter can be written as one.
    fn secret_behind_escapes(&self, text: &str) -> Option<String> {
        if !text.contains("\\u") && !text.contains("\\/") {
            return None;
        }
        let unescaped: String = serde_json::from_str(&format!("\"{text}\"")).ok()?;
        let masked = self.secrets.replaced(&unescaped, REDACTED)?;
        let quoted = serde_json::Value::from(masked).to_string();
        Some(quoted.get(1..quoted.len() - 1)?.to_owned())
    }

    /// Replaces the value of a secret, which starts at `start`. Booleans and null are not secrets.
    fn secret(&mut self, name: &str, start: usize) -> Option<()> {
        let rest = self.json.get(start..)?;
        let is_kept = match rest.as_bytes().first()? {
            b't' | b'f' | b'n' => true,
            b'"' => rest.starts_with("\"\""),
            b'[' | b'{' => false,
            _ => names_count(name),
        };
        if is_kept {
            return Some(());
        }
        self.out.push_str(self.json.get(self.at..start)?);
        self.out.push('"');
        self.out.push_str(REDACTED);
        self.out.push('"');
        self.is_redacted = true;
        self.at = start + value_length(rest, SKIP_MAX)?;
        Some(())
    }
}

/// Maximum length of a skipped value, in bytes; everything after a longer one is dropped.
const SKIP_MAX: usize = 64 * 1024;

fn is_secret_name(content: &str) -> bool {
    if !content.contains('\\') {
        return names_secret(content);
    }
    let unescaped = serde_json::from_str::<String>(&format!("\"{content}\""));
    unescaped.is_ok_and(|name| names_secret(&name))
}

/// The start of a member's value, if a member name ends at `at`; `None` otherwise.
fn value_after(json: &str, at: usize) -> Option<usize> {
    let colon = at + spaces(json, at);
    if json.as_bytes().get(colon) != Some(&b':') {
        return None;
    }
    Some(colon + 1 + spaces(json, colon + 1))
}

fn spaces(json: &str, at: usize) -> usize {
    let rest = json.as_bytes().get(at..).unwrap_or_default();
    rest.iter().take_while(|b| b.is_ascii_whitespace()).count()
}

/// Length of a string's content, in bytes; its opening quote is before `text`.
fn string_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        match bytes.get(at) {
            Some(b'"') => return Some(at),
            _ => at += 2,
        }
    }
}

/// Length of the JSON value at the start of `json`, in bytes; `None` if it exceeds `max`.
fn value_length(json: &str, max: usize) -> Option<usize> {
    let json = json.get(..json.floor_char_boundary(max))?;
    let bytes = json.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match bytes.get(at)? {
            b'"' => at += string_length(json.get(at + 1..)?)? + 2,
            b'[' | b'{' => (at, depth) = (at + 1, depth + 1),
            b']' | b'}' if depth > 0 => (at, depth) = (at + 1, depth - 1),
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' if depth > 0 => at += 1,
            _ => {
                let rest = bytes.get(at..)?.iter();
                at += rest.take_while(|b| !b",]} \n\r\t".contains(b)).count();
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Copies a member of an object; `None` if it is missing, or follows a very long one.
pub(super) fn redact_member(
    object: &str,
    name: &str,
    limit: usize,
    secrets: &LiveSecrets,
) -> Option<KeptBody> {
    let rest = member(object, name)?;
    let Some(length) = value_length(rest, SKIP_MAX) else {
        let start = rest.get(..rest.floor_char_boundary(SKIP_MAX))?;
        let mut kept = redact(start, limit, secrets);
        kept.is_whole = false;
        return Some(kept);
    };
    Some(redact(rest.get(..length)?, limit, secrets))
}

/// The text of an object from the value of a member on.
fn member<'j>(object: &'j str, name: &str) -> Option<&'j str> {
    let mut at = spaces(object, 0) + 1;
    loop {
        at += spaces(object, at);
        let key = object.get(at..)?.strip_prefix('"')?;
        let key = key.get(..key.floor_char_boundary(SKIP_MAX))?;
        let key = key.get(..string_length(key)?)?;
        let value = value_after(object, at + key.len() + 2)?;
        let rest = object.get(value..)?;
        if key == name {
            return Some(rest);
        }
        let end = value + value_length(rest, SKIP_MAX)?;
        let comma = end + spaces(object, end);
        object.get(comma..)?.strip_prefix(',')?;
        at = comma + 1;
    }
}

#[cfg(test)]
mod tests;
