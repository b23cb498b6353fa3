//! The catalog of a client that is not permitted to use everything.

use std::sync::{Arc, OnceLock};

use super::snapshot::OwnerTable;
use super::{Exposure, ItemKind, Snapshot, ToolHints};
use crate::id::ServerName;

/// An item to be permitted or denied.
#[derive(Clone, Copy, Debug)]
pub struct PolicyItem<'a> {
    pub kind: ItemKind,
    pub server: &'a ServerName,
    /// The name or URI that its server uses.
    pub native: &'a str,
    pub hints: ToolHints,
}

impl Snapshot {
    /// The same catalog, listing only permitted items. Calls are looked up in the whole catalog, so
    /// that callers of other items learn why they are denied.
    pub fn permitted(self: &Arc<Self>, permits: impl Fn(&PolicyItem<'_>) -> bool) -> Self {
        let named = |kind: ItemKind, owner: &super::ItemOwner| {
            let native: String = owner.native.parse().unwrap_or_default();
            permits(&PolicyItem {
                kind,
                server: &owner.server,
                native: &native,
                hints: owner.hints,
            })
        };
        let located = |kind: ItemKind, owner: &super::UriOwner| {
            permits(&PolicyItem {
                kind,
                server: &owner.server,
                native: &owner.native,
                hints: ToolHints::default(),
            })
        };
        let (tools, tools_kept) = filtered(&self.tools, |it| named(ItemKind::Tools, it));
        let (prompts, prompts_kept) = filtered(&self.prompts, |it| named(ItemKind::Prompts, it));
        let (resources, resources_kept) =
            filtered(&self.resources, |it| located(ItemKind::Resources, it));
        let (templates, templates_kept) = filtered(&self.templates, |it| {
            located(ItemKind::ResourceTemplates, it)
        });
        let (skills, skills_kept) = filtered(&self.skills, |it| located(ItemKind::Skills, it));
        let kept = [
            tools_kept,
            prompts_kept,
            resources_kept,
            templates_kept,
            skills_kept,
        ];
        let pages = ItemKind::ALL.map(|kind| {
            let index = kind.index();
            let is_static = kind == ItemKind::Tools && self.exposure != Exposure::All;
            let keeps = |place: usize| is_static || kept[index].get(place) == Some(&true);
            self.pages[index].filtered(keeps)
        });
        Self {
            servers: self.servers.clone(),
            routes: self.routes.clone(),
            tools,
            suspended: self.suspended.clone(),
            prompts,
            resources,
            templates,
            skills,
            rules: self.rules.clone(),
            pages,
            instructions: self.instructions.clone(),
            one_server: self.one_server.clone(),
            notices: Vec::new(),
            exposure: self.exposure,
            search: OnceLock::new(),
            handshakes: Default::default(),
            whole: Some(self.clone()),
        }
    }

    /// The catalog in which call targets are looked up.
    pub fn for_calls(&self) -> &Self {
        self.whole.as_deref().unwrap_or(self)
    }
}

/// The kept rows, and their previous indices.
fn filtered<T: Clone>(
    table: &OwnerTable<T>,
    keeps: impl Fn(&T) -> bool,
) -> (OwnerTable<T>, Vec<bool>) {
    let mut rest = OwnerTable::default();
    let kept = table.iter().map(|(public, owner)| {
        let is_kept = keeps(owner);
        if is_kept {
            rest.insert(public, owner.clone());
        }
        is_kept
    });
    let kept = kept.collect();
    (rest, kept)
}
