//! The tools of a view, for operators: what they cost a model, and who may use them.

use super::GatewayState;
use crate::admin::status::{ToolView, ViewAccess};
use crate::catalog::ItemOwner;
use crate::id::{Principal, ViewId};
use crate::masking::MASK;
use crate::protocol::RawJson;

/// Tools that are judged for one answer, each for each key: a judgement takes up to some 30 µs.
const JUDGED_MAX: usize = 5000;

/// Keys in one answer.
const KEYS_MAX: usize = 100;

/// Roughly the tokens that a tool costs a model.
fn tokens(owner: &ItemOwner) -> usize {
    ToolView::tokens_of(owner.item.as_bytes().len())
}

impl GatewayState {
    /// The tools that clients of a view see, in list order.
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

    /// An item as operators see it: a server may write a token that it was sent into its texts.
    fn masked_item(&self, item: &RawJson) -> RawJson {
        let masked = self.log.secrets().replaced(item.as_str(), MASK);
        let masked = masked.and_then(|text| RawJson::try_new(text.into()).ok());
        masked.unwrap_or_else(|| item.clone())
    }

    /// The number of tools of a view, and roughly the tokens that their list costs a model.
    pub(in crate::admin) fn tools_cost(&self, view: &ViewId) -> (usize, usize) {
        let shown = self.catalog.shown_in(view);
        let costs = shown.tools().map(|(_, owner)| tokens(owner));
        costs.fold((0, 0), |(tools, all), of_one| (tools + 1, all + of_one))
    }

    /// Which tools of a view its clients may use; `None` where there are no policies.
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
