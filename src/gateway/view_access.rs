//! What the policies leave of the tools of a view, for operators.

use super::state::GatewayState;
use crate::admin::ViewAccess;
use crate::id::{Principal, ViewId};

/// Tools that are judged for one answer, each for each key: a judgement takes up to some 30 µs.
const JUDGED_MAX: usize = 5000;

/// Keys in one answer.
const KEYS_MAX: usize = 100;

impl GatewayState {
    /// `None` where there are no policies.
    pub(super) fn view_access(&self, view: &ViewId) -> Option<ViewAccess> {
        let policies = self.catalog.policies()?;
        let tools = self.catalog.shown_in(view).tools().count();
        let keys = self.keys.load();
        let judged = keys.iter().take(KEYS_MAX.min(JUDGED_MAX / tools.max(1)));
        let by_key = judged.map(|key| {
            let client = (&key.principal, &key.scopes);
            let permitted = self.catalog.permitted_tools(view, client);
            (key.name.clone(), permitted)
        });
        let by_key: Vec<(String, usize)> = by_key.collect();
        let names = policies.rules.iter().map(|rule| rule.name.to_string());
        Some(ViewAccess {
            policies: names.collect(),
            default: policies.default,
            unnamed: (self.catalog).permitted_tools(view, (&Principal::Anonymous, &None)),
            more_keys: keys.len() - by_key.len(),
            by_key,
        })
    }
}
