//! Warns operators about unapproved texts, and about hidden characters.

use std::collections::HashSet;

use serde_json::json;

use crate::catalog::{MergeNotice, PinKind, Unapproved};
use crate::telemetry::{EventFeed, EventKind, unix_millis};

/// Maximum number of notices of one merge that are logged individually.
const LOGGED_MAX: usize = 20;

/// Notices that were already given and still apply.
#[derive(Default)]
pub(super) struct DefinitionNotices(HashSet<String>);

impl DefinitionNotices {
    /// Logs and publishes new notices. `notices` are the current ones of all catalogs.
    pub(super) fn report<'n>(
        &mut self,
        notices: impl Iterator<Item = &'n MergeNotice>,
        events: &EventFeed,
    ) {
        let mut holds = HashSet::new();
        let mut reported = 0;
        for notice in notices {
            let Some(key) = key(notice) else { continue };
            if self.0.contains(&key) || holds.contains(&key) {
                holds.insert(key);
                continue;
            }
            holds.insert(key);
            reported += 1;
            if reported <= LOGGED_MAX {
                log::warn!(server = notice.server().as_str(); "{notice}");
            }
            if let MergeNotice::Unapproved(text) = notice {
                events.publish(EventKind::Pin, || event(text));
            }
        }
        if reported > LOGGED_MAX {
            let more = reported - LOGGED_MAX;
            log::warn!("{more} more definitions need review: `mcpvisor status` lists them");
        }
        self.0 = holds;
    }
}

/// A key that differs for every definition; `None` for notices about something else.
fn key(notice: &MergeNotice) -> Option<String> {
    match notice {
        MergeNotice::Unapproved(text) => Some(format!("{notice} {}", text.digest)),
        MergeNotice::HiddenText { .. } => Some(notice.to_string()),
        MergeNotice::Renamed { .. }
        | MergeNotice::Shortened { .. }
        | MergeNotice::Wrapped { .. }
        | MergeNotice::Hidden { .. }
        | MergeNotice::Quarantined { .. }
        | MergeNotice::OddSchema { .. }
        | MergeNotice::InvalidFilter { .. } => None,
    }
}

fn event(text: &Unapproved) -> serde_json::Value {
    json!({
        "timestamp": unix_millis(),
        "serverId": text.server,
        "kind": text.kind,
        "name": text.native,
        "tool": (text.kind == PinKind::Tool).then_some(&text.native),
        "state": text.state,
        "suspended": text.is_suspended,
        "digest": text.digest,
    })
}
