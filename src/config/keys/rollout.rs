//! `rollout` of a server.

use serde_json::{Value as Json, json};

use crate::config::declaration::kinds::{ChoiceKind, TableKind, choice, count, duration, factor};
use crate::config::declaration::{KeyTable, ValueKind, keys};
use crate::config::section::Section;
use crate::config::units::{DAY, SECOND};
use crate::downstream::{AnswerComparison, RolloutSettings};

fn compare() -> ChoiceKind<AnswerComparison> {
    choice(&[
        ("shape", AnswerComparison::Shape),
        ("exact", AnswerComparison::Exact),
    ])
}

keys! {
    /// How a new version of a server is tried beside the old one, after a change of `command`,
    /// `args` or `url`, and by `mcpvisor servers upgrade` (docs/supervision.md).
    RolloutTable for RolloutSettings {
        /// How long the new version is watched.
        window in policy.window: duration(SECOND..=DAY);
        /// Share of the calls of read-only tools that the new version gets as well.
        share in policy.share: factor(0.0..=1.0);
        /// Calls that are compared at least; the window lasts until then.
        calls in policy.calls: count(0..=1_000_000);
        /// Maximum excess of its share of errors.
        max_errors in policy.max_errors: factor(0.0..=1.0);
        /// Maximum 99th percentile of its durations, as a multiple of the old version's.
        max_slowdown in policy.max_slowdown: factor(1.0..=1000.0);
        /// Maximum memory, as a multiple of the old version's, plus 64 MiB.
        max_memory in policy.max_memory: factor(1.0..=1000.0);
        /// Compare answers by their structure ("shape"), or completely ("exact").
        compare: compare();
    }
}

/// `"canary"`, or a table of the gates.
pub(super) struct RolloutKind(pub(super) TableKind<RolloutTable>);

impl ValueKind for RolloutKind {
    type Value = RolloutSettings;

    fn must_be(&self) -> String {
        "\"canary\", or a table of its gates".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [{ "const": "canary" }, self.0.schema()] })
    }

    fn toml(&self, value: &RolloutSettings) -> Option<String> {
        self.0.toml(value)
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<RolloutSettings> {
        match section.written_text(key) {
            None => self.0.read(section, key),
            Some("canary") => Some(RolloutSettings::default()),
            Some(_) => {
                let message = format!("`{}` must be {}", section.path(key), self.must_be());
                section.refuse(&[key], message, None);
                None
            }
        }
    }

    fn table(&self) -> Option<KeyTable> {
        self.0.table()
    }
}
