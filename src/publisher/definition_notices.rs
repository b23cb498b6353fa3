//! Warns operators of tools that nobody approved, and of characters that people do not see.

use std::collections::HashSet;

use serde_json::json;

use crate::catalog::{MergeNotice, UnapprovedTool};
use crate::telemetry::{EventFeed, EventKind, unix_millis};

/// Notices of one merge that are logged one by one.
const LOGGED_MAX: usize = 20;

/// Notices that were given and still hold.
#[derive(Default)]
pub(super) struct DefinitionNotices(HashSet<String>);

impl DefinitionNotices {
    /// Logs and publishes what is new. `notices` are those of the catalogs as they are now.
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
            if let MergeNotice::Unapproved(tool) = notice {
                events.publish(EventKind::Pin, || event(tool));
            }
        }
        if reported > LOGGED_MAX {
            let more = reported - LOGGED_MAX;
            log::warn!("{more} more tools or texts need a look: `mcpvisor status` names them");
        }
        self.0 = holds;
    }
}

/// Different for every definition; `None` for notices about something else.
fn key(notice: &MergeNotice) -> Option<String> {
    match notice {
        MergeNotice::Unapproved(tool) => Some(format!("{notice} {}", tool.digest)),
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

fn event(tool: &UnapprovedTool) -> serde_json::Value {
    json!({
        "timestamp": unix_millis(),
        "serverId": tool.server,
        "tool": tool.native,
        "state": tool.state,
        "suspended": tool.is_suspended,
        "digest": tool.digest,
    })
}
