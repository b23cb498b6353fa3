//! Chooses the recorded answer to each request.

use serde_json::{Value, json};

use super::matching::{is_equal, item};
use super::{Cassette, RecordedAnswer};

/// How closely a request must equal a recorded one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Matching {
    /// Method and parameters are equal.
    #[default]
    Strict,
    /// Otherwise the method and the named tool, prompt or resource are enough.
    Loose,
}

/// A cassette, and how far it was played.
pub(super) struct Playback {
    cassette: Cassette,
    matching: Matching,
    /// The recorded calls that were used, each once.
    used: Vec<bool>,
}

impl Playback {
    pub(super) fn new(cassette: Cassette, matching: Matching) -> Self {
        let used = vec![false; cassette.calls.len()];
        Self {
            cassette,
            matching,
            used,
        }
    }

    /// Result of `initialize` in this revision, if the server supports it, and otherwise in the
    /// recorded one.
    pub(super) fn initialize(&self, revision: &Value, supported: &[&str]) -> Value {
        let mut result = self.cassette.initialize.clone();
        if revision.as_str().is_some_and(|it| supported.contains(&it)) {
            result["protocolVersion"] = revision.clone();
        }
        result
    }

    /// All items of a list; `None` if the method lists nothing.
    pub(super) fn list(&self, method: &str) -> Option<Value> {
        let member = match method {
            "resources/templates/list" => "resourceTemplates",
            _ => method.strip_suffix("/list")?,
        };
        let items = self.cassette.lists.get(member)?;
        Some(json!({ member: items }))
    }

    /// The answer to a request: of equal recorded requests the first that was not used yet, and
    /// the last one after all of them.
    pub(super) fn answer(&mut self, method: &str, params: &Value) -> Option<&RecordedAnswer> {
        let calls = &self.cassette.calls;
        let of_method = |index: &usize| calls[*index].method == method;
        let equal = |index: &usize| is_equal(&calls[*index].params, params);
        let same_item = |index: &usize| item(&calls[*index].params) == item(params);
        let all = || (0..calls.len()).filter(of_method);
        let strict = choose(all().filter(equal), &self.used);
        let found = strict.or_else(|| match self.matching {
            Matching::Strict => None,
            Matching::Loose => choose(all().filter(same_item), &self.used),
        })?;
        self.used[found] = true;
        Some(&self.cassette.calls[found].answer)
    }

    /// For each recorded call, whether it was used.
    pub(super) fn used(&self) -> &[bool] {
        &self.used
    }

    /// Continues where an earlier process ended; ignores the state of another cassette.
    pub(super) fn resume(&mut self, used: Vec<bool>) {
        if used.len() == self.used.len() {
            self.used = used;
        }
    }
}

fn choose(candidates: impl Iterator<Item = usize> + Clone, used: &[bool]) -> Option<usize> {
    let mut unused = candidates.clone().filter(|index| !used[*index]);
    unused.next().or_else(|| candidates.last())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cassette::{Fault, RecordedExchange};

    fn playback(matching: Matching) -> Playback {
        let call = |n: i64, answer| RecordedExchange {
            method: "tools/call".to_owned(),
            params: json!({"name": "add", "arguments": {"n": n}}),
            answer,
        };
        let result = |n: i64| RecordedAnswer::Result(json!(n));
        let calls = vec![
            call(1, result(1)),
            call(1, RecordedAnswer::Fault(Fault::Exit)),
            call(1, result(3)),
            call(2, result(4)),
        ];
        let lists = BTreeMap::from([("tools".to_owned(), vec![json!({"name": "add"})])]);
        Playback::new(Cassette::new(json!({}), lists, calls), matching)
    }

    #[test]
    fn equal_requests_are_answered_in_the_recorded_order() {
        let mut playback = playback(Matching::Strict);
        let asked = json!({"name": "add", "arguments": {"n": 1}});
        let expected = [json!(1), Value::Null, json!(3), json!(3)];
        for expected in expected {
            let answer = playback.answer("tools/call", &asked).unwrap();
            let result = answer.response(&json!(7));
            assert_eq!(
                result.map_or(Value::Null, |it| it["result"].clone()),
                expected
            );
        }
        assert_eq!(playback.used(), [true, true, true, false]);
        assert!(playback.answer("prompts/get", &asked).is_none());
        let other = json!({"name": "add", "arguments": {"n": 9}});
        assert!(playback.answer("tools/call", &other).is_none());
    }

    #[test]
    fn loose_matching_needs_only_the_name() {
        let mut playback = playback(Matching::Loose);
        let other = json!({"name": "add", "arguments": {"n": 9}});
        let answer = playback.answer("tools/call", &other);
        assert_eq!(answer, Some(&RecordedAnswer::Result(json!(1))));
        let unknown = json!({"name": "subtract", "arguments": {}});
        assert!(playback.answer("tools/call", &unknown).is_none());
    }

    #[test]
    fn a_later_process_continues() {
        let mut first = playback(Matching::Strict);
        let asked = json!({"name": "add", "arguments": {"n": 1}});
        first.answer("tools/call", &asked);
        first.answer("tools/call", &asked);
        let mut second = playback(Matching::Strict);
        second.resume(first.used().to_vec());
        let answer = second.answer("tools/call", &asked);
        assert_eq!(answer, Some(&RecordedAnswer::Result(json!(3))));
        second.resume(vec![true]);
        assert_eq!(second.used().len(), 4);
        assert_eq!(
            second.list("tools/list").unwrap()["tools"][0]["name"],
            "add"
        );
        assert!(second.list("prompts/list").is_none());
    }
}
