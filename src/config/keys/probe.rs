//! `probe` of a server.

use serde_json::{Map, Value as Json, json};

use crate::config::checks::{NOT_EMPTY, not_empty};
use crate::config::declaration::kinds::{count, duration, flag, optional};
use crate::config::declaration::texts::text;
use crate::config::declaration::{ValueKind, keys};
use crate::config::section::Section;
use crate::config::units::{DAY, MILLI, MINUTE, SECOND};
use crate::downstream::ProbeSettings;

keys! {
    /// A request that shows whether the server works: before it counts as up, and at intervals
    /// afterwards. Without `tool` and `resource` it is a ping.
    ProbeTable for ProbeSettings, check {
        /// Tool to call, by the server's own name. It must have `readOnlyHint`.
        tool: optional(text(NOT_EMPTY, not_empty), "\"health\"");
        /// Arguments of the call.
        arguments: ArgumentsKind;
        /// URI of a resource to read.
        resource: optional(text(NOT_EMPTY, not_empty), "\"file:///health\"");
        /// Interval.
        every: duration(SECOND..=DAY);
        /// Time to answer.
        timeout: duration(10 * MILLI..=10 * MINUTE);
        /// Failures in a row after which the server is restarted. Until it is up, it is probed
        /// every second for `start_timeout`.
        failures: count(1..=1000);
        /// Call the tool although the server does not mark it with `readOnlyHint`.
        allow_effects: flag();
    }
}

fn check(probe: &mut ProbeSettings, section: &Section<'_>) {
    let (tool, resource) = (section.path("tool"), section.path("resource"));
    if probe.tool.is_some() && probe.resource.is_some() {
        let message = format!("`{tool}` and `{resource}` cannot be combined");
        section.refuse(&["tool", "resource"], message, None);
    }
    if probe.tool.is_none() && section.has("arguments") {
        let message = format!("`{}` needs `{tool}`", section.path("arguments"));
        section.refuse(&["arguments"], message, None);
    }
}

/// Arguments of a tool, as a table of any values.
struct ArgumentsKind;

impl ValueKind for ArgumentsKind {
    type Value = Map<String, Json>;

    fn must_be(&self) -> String {
        "a table".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "type": "object" })
    }

    fn toml(&self, _: &Map<String, Json>) -> Option<String> {
        Some("{}".to_owned())
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<Map<String, Json>> {
        section.json(key)
    }
}
