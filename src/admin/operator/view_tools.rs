//! A view's tools for operators: their token costs, and which clients may use them.

use std::collections::HashSet;
use std::sync::Arc;

use super::GatewayState;
use crate::admin::status::{ToolView, ViewAccess};
use crate::catalog::{ItemKind, ItemOwner, ServerPart};
use crate::id::{Principal, ServerName, ViewId};
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

/// The server's own name of a tool or prompt.
fn native(owner: &ItemOwner) -> String {
    owner.native.parse().unwrap_or_default()
}

impl GatewayState {
    /// Tools visible to clients of a view, in list order.
    pub(in crate::admin) fn tools(&self, view: &ViewId) -> Vec<ToolView> {
        let tool = |(public, owner): (&str, &ItemOwner)| {
            self.item(public, &owner.server, &native(owner), &owner.item)
        };
        self.catalog.shown_in(view).tools().map(tool).collect()
    }

    /// The prompts, resources, resource templates or skills of the endpoint of all servers, in list order.
    pub(in crate::admin) fn items(&self, kind: ItemKind) -> Vec<ToolView> {
        let shown = self.catalog.shown_in(&ViewId::Default);
        if kind == ItemKind::Prompts {
            let prompt = |(public, owner): (&str, &ItemOwner)| {
                self.item(public, &owner.server, &native(owner), &owner.item)
            };
            return shown.prompts().map(prompt).collect();
        }
        let of_part = |part: &Arc<ServerPart>| -> Vec<ToolView> {
            let items = part.items(kind).iter();
            items
                .map(|item| {
                    let public = shown.public_uri(&part.server, item.native());
                    self.item(&public, &part.server, item.native(), item.raw())
                })
                .collect()
        };
        shown.parts().flat_map(of_part).collect()
    }

    /// Tools that servers list and their settings hide from clients.
    pub(in crate::admin) fn hidden_tools(&self) -> Vec<ToolView> {
        let shown = self.catalog.shown_in(&ViewId::Default);
        let listed = shown
            .tools()
            .map(|(_, owner)| (&owner.server, native(owner)));
        let listed: HashSet<(&ServerName, String)> = listed.collect();
        let of_part = |part: &Arc<ServerPart>| -> Vec<ToolView> {
            let items = part.items(ItemKind::Tools).iter();
            let hidden =
                items.filter(|item| !listed.contains(&(&part.server, item.native().to_owned())));
            hidden
                .map(|item| self.item(item.native(), &part.server, item.native(), item.raw()))
                .collect()
        };
        shown.parts().flat_map(of_part).collect()
    }

    /// Whether clients see a server's tool.
    pub(in crate::admin) fn shows_tool(&self, server: &str, tool: &str) -> bool {
        let shown = self.catalog.shown_in(&ViewId::Default);
        let is_it = |owner: &ItemOwner| owner.server.as_str() == server && native(owner) == tool;
        shown.tools().any(|(_, owner)| is_it(owner))
    }

    fn item(&self, public: &str, server: &ServerName, native: &str, item: &RawJson) -> ToolView {
        ToolView {
            name: public.to_owned(),
            server: server.to_string(),
            native_name: native.to_owned(),
            tokens: ToolView::tokens_of(item.as_bytes().len()),
            entry: self.masked_item(item),
        }
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
