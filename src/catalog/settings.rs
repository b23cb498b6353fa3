//! How items of a server are named and which of them are shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Exposure, PinMode, PinnedDefinitions, ToolOverride};
use crate::id::ServerName;

/// When the resource URIs of a server are wrapped, so that they cannot be taken for another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wrap {
    /// When one of them is also another server's, except for URLs that clients may fetch.
    #[default]
    Auto,
    /// All of them, always.
    Always,
    /// Never: those of the gateway itself, which no server can take.
    Never,
}

/// Naming and filtering of one server's tools, prompts and resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSettings {
    /// Put before tool and prompt names as `prefix__name`; `None` is the server's name, an empty
    /// text leaves native names unchanged.
    pub prefix: Option<String>,
    /// Globs over native tool names; empty allows all.
    pub allow: Vec<String>,
    /// Globs over native tool names; wins over `allow`.
    pub deny: Vec<String>,
    pub wrap: Wrap,
    /// How its tools are treated whose definition is not approved.
    pub pins: PinMode,
}

/// Overrides, by the public names that the tools have without them.
pub type ToolOverrides = BTreeMap<String, ToolOverride>;

/// The servers and tools that a view shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewSettings {
    /// In this order; empty is all, in the order of the configuration.
    pub servers: Vec<ServerName>,
    /// Globs over public tool names; empty allows all.
    pub allow: Vec<String>,
    /// Globs over public tool names; wins over `allow`.
    pub deny: Vec<String>,
    pub expose: Exposure,
    pub overrides: ToolOverrides,
}

/// Limits of the merged catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogSettings {
    /// Longest prefixed name, in characters: clients put their own prefix before it and stop at
    /// 60 or 64.
    pub name_max: usize,
    /// Items on one page of a list.
    pub page_items: usize,
    /// Length of the merged server instructions, in bytes.
    pub instructions_max: usize,
    /// Whether the state of the gateway is listed as a resource.
    pub tree_resource: bool,
    /// Globs over public tool names; empty allows all.
    pub allow: Vec<String>,
    /// Globs over public tool names; wins over `allow`.
    pub deny: Vec<String>,
    /// How the tools are listed.
    pub expose: Exposure,
    pub overrides: ToolOverrides,
    /// The definitions that are approved, of all servers.
    pub pinned: Arc<PinnedDefinitions>,
    /// Whether clients see a single server as if they were connected to it: its identity, its
    /// instructions and its pages.
    pub is_one_server: bool,
}

impl Default for CatalogSettings {
    fn default() -> Self {
        Self {
            name_max: 45,
            page_items: 1000,
            instructions_max: 8 * 1024,
            tree_resource: false,
            allow: Vec::new(),
            deny: Vec::new(),
            expose: Exposure::All,
            overrides: ToolOverrides::new(),
            pinned: Arc::default(),
            is_one_server: false,
        }
    }
}

/// Limits of what one server may list. What exceeds them is quarantined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestLimits {
    /// Items of one kind.
    pub items: usize,
    /// One item, in bytes.
    pub item_bytes: usize,
    /// A name, in bytes.
    pub name_bytes: usize,
    /// A URI or URI template, in bytes.
    pub uri_bytes: usize,
}

impl IngestLimits {
    /// No limits.
    pub const NONE: Self = Self {
        items: usize::MAX,
        item_bytes: usize::MAX,
        name_bytes: usize::MAX,
        uri_bytes: usize::MAX,
    };
}

impl Default for IngestLimits {
    fn default() -> Self {
        Self {
            items: 10_000,
            item_bytes: 1024 * 1024,
            name_bytes: 1024,
            uri_bytes: 4096,
        }
    }
}
