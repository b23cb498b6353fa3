//! `[policies.NAME]`.

use crate::auth::Effect;
use crate::config::checks::{NOT_EMPTY, not_empty};
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{ChoiceKind, choice, optional};
use crate::config::declaration::texts::text;

pub(super) fn effect() -> ChoiceKind<Effect> {
    choice(&[("allow", Effect::Allow), ("deny", Effect::Deny)])
}

/// One policy as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyKeys {
    pub(crate) when: Option<String>,
    pub(crate) effect: Effect,
}

impl Default for PolicyKeys {
    fn default() -> Self {
        Self {
            when: None,
            effect: Effect::Deny,
        }
    }
}

keys! {
    /// A rule about what clients may use (docs/policy.md).
    PolicyTable for PolicyKeys {
        /// Condition in CEL.
        when: optional(text(NOT_EMPTY, not_empty), "\"tool.annotations.destructiveHint\"");
        /// Effect if the condition holds.
        effect: effect();
    }
}
