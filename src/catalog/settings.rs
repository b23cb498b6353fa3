//! Naming and filtering of a server's items.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Exposure, PinMode, PinnedDefinitions, ToolOverride};
use crate::id::ServerName;

/// When a server's resource URIs are wrapped, so that they cannot be mistaken for another server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wrap {
    /// If another server also has one of them, except for URLs that clients can fetch.
    #[default]
    Auto,
    /// Always, for all of them.
    Always,
    /// Never: for the gateway's own URIs, which no server can take.
    Never,
}

/// Naming and filtering of one server's tools, prompts and resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameSettings {
    /// Prefix of tool and prompt names, as in `prefix__name`; `None` uses the server's name, an
    /// empty string leaves native names unchanged.
    pub prefix: Option<String>,
    /// Globs over native tool names; empty allows all.
    pub allow: Vec<String>,
    /// Globs over native tool names; takes precedence over `allow`.
    pub deny: Vec<String>,
    pub wrap: Wrap,
    /// How tools with unapproved definitions are treated.
    pub pins: PinMode,
    /// Whether tools that only user interfaces call exist only in the view of this server.
    pub own_apps: bool,
}

/// Overrides, by the tools' public names without overrides.
pub type ToolOverrides = BTreeMap<String, ToolOverride>;

/// The servers and tools that a view shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewSettings {
    /// Servers in this order; empty is all, in the order of the configuration.
    pub servers: Vec<ServerName>,
    /// Globs over public tool names; empty allows all.
    pub allow: Vec<String>,
    /// Globs over public tool names; takes precedence over `allow`.
    pub deny: Vec<String>,
    pub expose: Exposure,
    pub overrides: ToolOverrides,
    pub results: ResultSettings,
}

/// How the results of tools reach clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultSettings {
    /// Size in bytes above which clients get a preview; `None` for never.
    pub preview_above: Option<usize>,
}

/// Minimum value of [`ResultSettings::preview_above`], in bytes: a preview has about 3 KiB.
pub const PREVIEW_ABOVE_MIN: usize = 16 * 1024;

/// Limits of the merged catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogSettings {
    /// Maximum length of a prefixed name, in characters: clients put their own prefix before it and
    /// stop at 60 or 64.
    pub name_max: usize,
    /// Items on one page of a list.
    pub page_items: usize,
    /// Maximum length of the merged server instructions, in bytes.
    pub instructions_max: usize,
    /// Whether the state of the gateway is listed as a resource.
    pub tree_resource: bool,
    /// Globs over public tool names; empty allows all.
    pub allow: Vec<String>,
    /// Globs over public tool names; takes precedence over `allow`.
    pub deny: Vec<String>,
    /// How the tools are listed.
    pub expose: Exposure,
    pub overrides: ToolOverrides,
    /// The approved definitions of all servers.
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

/// Limits on what one server can list. Items above them are quarantined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestLimits {
    /// Maximum number of items of one kind.
    pub items: usize,
    /// Maximum size of one item, in bytes.
    pub item_bytes: usize,
    /// Maximum length of a name, in bytes.
    pub name_bytes: usize,
    /// Maximum length of a URI or URI template, in bytes.
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
