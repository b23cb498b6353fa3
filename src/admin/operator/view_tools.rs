//! A view's tools for operators: their token costs, and which clients may use them.

use super::GatewayState;
use crate::admin::status::{ToolView, ViewAccess};
use crate::catalog::ItemOwner;
use crate::id::{Principal, ViewId};
use crate::masking::MASK;
use crate::protocol::RawJson;

/// Maximum policy decisions per answer, one per tool and key; each takes up to about 30 µs.
const JUDGED_MAX: usize = 5000;

/// Maximum keys in one answer.
const KEYS_MAX: usize = 100;

/// Approximate token cost of a tool.
fn tokens(owner: &ItemOwner) -> usize {
    ToolView::tokens_of(owner.item.as_bytes().len())
}

impl GatewayState {
    /// Tools visible to clients of a view, in list order.
    pub(in crate::admin) fn tools(&self, view: &ViewId) -> Vec<ToolView> {
        let tool = |(public, owner): (&str, &ItemOwner)| ToolView {
            name: public.to_owned(),
            server: owner.server.to_string(),
            native_name: owner.native.parse().unwrap_or_default(),
            tokens: tokens(owner),
            entry: self.masked_item(&owner.item),
        };
        self.catalog.shown_in(view).tools().map(tool).collect()
    }

    /// An item with secrets masked: a server may copy a token that it received into its texts.
    fn masked_item(&self, item: &RawJson) -> RawJson {
        let masked = self.log.secrets().replaced(item.as_str(), MASK);
        let masked = masked.and_then(|text| RawJson::try_new(text.into()).ok());
        masked.unwrap_or_else(|| item.clone())
    }

    /// The number of tools in a view, and the approximate token cost of their list.
    pub(in crate::admin) fn tools_cost(&self, view: &ViewId) -> (usize, usize) {
        let shown = self.catalog.shown_in(view);
        let costs = shown.tools().map(|(_, owner)| tokens(owner));
        costs.fold((0, 0), |(tools, all), of_one| (tools + 1, all + of_one))
    }

    /// Which tools of a view its clients may use; `None` without policies.
    pub(in crate::admin) fn view_access(&self, view: &ViewId) -> Option<ViewAccess> {
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
