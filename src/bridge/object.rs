//! Edits a few members of a JSON object; the rest stays byte for byte.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;

use crate::protocol::{Edit, RawJson, json};

/// The members of an object, in text order.
pub(super) struct Object<'a> {
    members: Vec<Member<'a>>,
    /// The text after the last member: white space and the closing brace.
    tail: &'a str,
}

struct Member<'a> {
    key: Cow<'a, str>,
    value: &'a str,
    /// Key and value, verbatim.
    written: &'a str,
}

/// The change to one member.
pub(super) enum MemberChange {
    Keep,
    Drop,
    /// Replaces the value with this JSON.
    Value(String),
}

impl MemberChange {
    /// Drops the member unless `allowed`.
    pub(super) fn keep_if(allowed: bool) -> Self {
        if allowed { Self::Keep } else { Self::Drop }
    }

    /// Sets the value if there is one.
    pub(super) fn set_if_some(value: Option<String>) -> Self {
        value.map_or(Self::Keep, Self::Value)
    }
}

impl<'a> Object<'a> {
    /// Parses an object; `None` if `text` is not one.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let mut end = text.find('{')? + 1;
        let mut members = Vec::new();
        for (key, value) in json::members(text)? {
            let value_end = json::span(text, value).end;
            let written = text.get(end..value_end)?.trim_ascii_start();
            let written = written.strip_prefix(',').unwrap_or(written);
            members.push(Member {
                key,
                value,
                written: written.trim_ascii_start(),
            });
            end = value_end;
        }
        Some(Self {
            members,
            tail: text.get(end..)?,
        })
    }

    /// The value of a member; the last one if the name occurs more than once.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.members.iter().rev().find(|member| member.key == name);
        found.map(|member| member.value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        let pair = |member: &'_ Member<'a>| member.value;
        self.members
            .iter()
            .map(move |member| (&*member.key, pair(member)))
    }

    /// Rebuilds the object with changed members, and with `first` before them: complete members
    /// without a trailing comma. `None` if nothing changes.
    pub(super) fn rebuild(
        &self,
        first: &str,
        mut change: impl FnMut(&str, &'a str) -> MemberChange,
    ) -> Option<String> {
        let kept: usize = (self.members.iter())
            .map(|member| member.written.len() + 1)
            .sum();
        let mut text = String::with_capacity(first.len() + kept + self.tail.len() + 1);
        text.push('{');
        text.push_str(first);
        let mut changed = !first.is_empty();
        for member in &self.members {
            let written = match change(&member.key, member.value) {
                MemberChange::Keep => Cow::Borrowed(member.written),
                MemberChange::Drop => {
                    changed = true;
                    continue;
                }
                MemberChange::Value(value) => {
                    changed = true;
                    Cow::Owned(format!("{}:{value}", json::quoted(&member.key).as_str()))
                }
            };
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&written);
        }
        text.push_str(self.tail.trim_ascii_start());
        changed.then_some(text)
    }
}

/// The edits that remove members from `object`, a part of `whole`. Returns `None` if all members
/// would go, because an edit that adds a member could not know about it.
pub(super) fn removal_edits(
    whole: &str,
    object: &str,
    dropped: impl Fn(&str) -> bool,
) -> Vec<Edit> {
    let Some(parsed) = Object::parse(object) else {
        return Vec::new();
    };
    if parsed.members.iter().all(|member| dropped(&member.key)) {
        return Vec::new();
    }
    let mut edits: Vec<Edit> = Vec::new();
    let mut kept_end = None;
    let mut run_start = None;
    let start = json::span(whole, object).start + 1;
    for member in &parsed.members {
        let written = json::span(whole, member.written);
        if dropped(&member.key) {
            run_start = run_start.or(Some(kept_end.unwrap_or(start)));
            let end = written.end;
            match (edits.last_mut(), run_start) {
                (Some((span, _)), Some(at)) if span.start == at => span.end = end,
                (_, Some(at)) => edits.push((at..end, Bytes::new())),
                (_, None) => {}
            }
            continue;
        }
        // Before the first kept member, the comma after the dropped ones must go as well.
        if kept_end.is_none()
            && let Some((span, _)) = edits.last_mut()
        {
            span.end = written.start;
        }
        kept_end = Some(written.end);
        run_start = None;
    }
    edits
}

/// An array with changed elements (`None` keeps one); `None` if nothing changes, or `text` is not
/// an array.
pub(super) fn rebuild_elements(
    text: &str,
    mut change: impl FnMut(&str) -> Option<String>,
) -> Option<String> {
    let elements = json::elements(text)?;
    let changed: Vec<_> = elements.iter().map(|element| change(element)).collect();
    if changed.iter().all(Option::is_none) {
        return None;
    }
    let parts = elements.into_iter().zip(&changed);
    let parts: Vec<_> = parts
        .map(|(old, new)| new.as_deref().unwrap_or(old))
        .collect();
    Some(format!("[{}]", parts.join(",")))
}

/// Whether any of the words occurs in the text.
pub(super) fn contains_any(text: &[u8], words: &[&str]) -> bool {
    words
        .iter()
        .any(|word| memmem::find(text, word.as_bytes()).is_some())
}

/// Wraps text that this module built from valid parts.
pub(super) fn raw(text: String) -> Option<RawJson> {
    let built = RawJson::try_new(Bytes::from(text));
    debug_assert!(built.is_ok(), "built of valid parts");
    built.ok()
}

/// Deserializes an object. A derived implementation alone would also read an array by position.
pub(super) fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let object = Some(text).filter(|text| is_object(text));
    object.and_then(|text| serde_json::from_str(text).ok())
}

/// Whether a value is an object.
pub(super) fn is_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_members_leave_valid_json() {
        let members = [r#""a":1"#, r#""b" : [2]"#, r#""c":{"d":3}"#, r#""d":4"#];
        for dropped in 0_usize..15 {
            let is_dropped = |at: usize| dropped & (1 << at) != 0;
            let whole = format!(r#"{{"params": {{ {} }} }}"#, members.join(" , "));
            let object = json::member(&whole, "params").unwrap();
            let mut edits = removal_edits(&whole, object, |key| {
                is_dropped(["a", "b", "c", "d"].iter().position(|k| *k == key).unwrap())
            });
            // An insertion at the start, as for `_meta`.
            let start = json::span(&whole, object).start + 1;
            edits.push((start..start, Bytes::from_static(b"\"m\":0,")));
            let text = crate::protocol::splice(whole.as_bytes(), &mut edits);
            let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let params = value["params"].as_object().unwrap();
            for (at, key) in ["a", "b", "c", "d"].iter().enumerate() {
                assert_eq!(
                    params.contains_key(*key),
                    !is_dropped(at),
                    "{dropped} {key}"
                );
            }
            assert_eq!(params["m"], 0);
        }
        assert!(removal_edits(r#"{"a":1}"#, r#"{"a":1}"#, |_| true).is_empty());
    }

    #[test]
    fn kept_members_are_kept_byte_for_byte() {
        let text = " { \"a\\u0062\" : 1.50 ,\n \"x\":{ \"y\" :[ ] }, \"x2\":null } ";
        let object = Object::parse(text).unwrap();
        assert_eq!(object.get("ab"), Some("1.50"));
        assert!(object.rebuild("", |_, _| MemberChange::Keep).is_none());
        let rebuilt = object.rebuild("", |key, _| match key {
            "ab" => MemberChange::Drop,
            "x2" => MemberChange::Value("2".to_owned()),
            _ => MemberChange::Keep,
        });
        assert_eq!(rebuilt.unwrap(), r#"{"x":{ "y" :[ ] },"x2":2} "#);
        let first = object.rebuild(r#""z":0"#, |key, _| MemberChange::keep_if(key == "ab"));
        assert_eq!(first.unwrap(), "{\"z\":0,\"a\\u0062\" : 1.50} ");
        assert!(Object::parse("[]").is_none() && Object::parse("\"{\"").is_none());
        let empty = Object::parse("{ }").unwrap();
        let filled = empty
            .rebuild(r#""z":0"#, |_, _| MemberChange::Keep)
            .unwrap();
        assert_eq!(filled, r#"{"z":0}"#);
    }
}
