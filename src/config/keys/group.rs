//! `[groups.NAME]`.

use std::time::Duration;

use crate::config::declaration::keys;
use crate::config::declaration::kinds::{ChoiceKind, choice, count, optional};
use crate::supervision::{Strategy, Tuning};

use super::tables::any_duration;

/// Where the failure of a group is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escalation {
    Gateway,
}

/// One group as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupKeys {
    pub(crate) strategy: Strategy,
    pub(crate) max_restarts: u32,
    pub(crate) within: Duration,
    pub(crate) escalate: Option<Escalation>,
}

impl Default for GroupKeys {
    fn default() -> Self {
        let Tuning {
            max_restarts,
            within,
            ..
        } = Tuning::default();
        Self {
            strategy: Strategy::default(),
            max_restarts,
            within,
            escalate: None,
        }
    }
}

fn strategy() -> ChoiceKind<Strategy> {
    choice(&[
        ("one_for_one", Strategy::OneForOne),
        ("rest_for_one", Strategy::RestForOne),
        ("one_for_all", Strategy::OneForAll),
    ])
}

fn escalate() -> ChoiceKind<Escalation> {
    choice(&[("gateway", Escalation::Gateway)])
}

keys! {
    /// A group of servers that fail together (docs/supervision.md). Its servers name it in `group`;
    /// their order in the file is the order of the group.
    GroupTable for GroupKeys {
        /// Servers that restart when one fails: it alone ("one_for_one"), and those after it
        /// ("rest_for_one"), or all ("one_for_all").
        strategy: strategy();
        /// More failures of its servers than this in `within` make the group "broken": all its
        /// servers stop and are retried together every `supervision.reconnect_every`.
        max_restarts: count(0..=10_000);
        /// Period in which failures are counted.
        within: any_duration();
        /// "gateway": a broken group ends the gateway with exit code 70, for an outer supervisor.
        escalate: optional(escalate(), "\"gateway\"");
    }
}
