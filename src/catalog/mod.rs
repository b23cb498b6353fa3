//! Merges the tools, prompts, resources and resource templates of all servers. Pure: no I/O, clock
//! or actors.
//!
//! A [`ServerPart`] is what one server offers, validated item by item. [`merge`] builds a
//! [`Snapshot`] of all parts: unique names and URIs, a table from each to its owner, and the lists
//! as finished JSON pages. Items keep their server's bytes; only names and URIs are replaced.

mod definition_diff;
mod exposure;
mod hidden_text;
mod instructions;
mod item;
mod item_kind;
mod list_page;
mod member_type;
mod merge;
mod merge_notice;
mod merged_server;
mod model_text;
mod name_filter;
mod name_rules;
mod page_cuts;
mod permitted;
mod pins;
mod public_item;
mod public_name;
mod public_pages;
mod schema;
mod search;
mod server_part;
mod settings;
mod snapshot;
mod stored_part;
mod tool_override;
mod unlisted;
mod uri;
mod uri_rewriter;
mod uri_routing;
mod uri_template;

use crate::protocol::json;

pub use definition_diff::{around_changes, definition_diff, line_diff};
pub use exposure::{DESCRIBED_MAX, Exposure, FOUND, FOUND_MAX, LISTED_MAX, StaticTool};
pub use hidden_text::HiddenText;
pub use item::{Item, ToolHints};
pub use item_kind::ItemKind;
pub use list_page::{InvalidListPage, ListAge, ListCaching, ListPage, ListedPage, NextCursor};
pub use merge::{merge, merge_view};
pub use merge_notice::MergeNotice;
pub use model_text::{ModelText, PinKind};
pub use name_filter::InvalidNameSettings;
pub use permitted::PolicyItem;
pub use pins::{PinMode, PinState, PinnedDefinition, PinnedDefinitions, ServerPins, Unapproved};
pub use public_name::may_belong_to;
pub use public_pages::InvalidCursor;
pub use server_part::{Quarantined, ServerPart};
pub use settings::{
    CatalogSettings, IngestLimits, NameSettings, PREVIEW_ABOVE_MIN, ResultSettings, ToolOverrides,
    ViewSettings, Wrap,
};
pub use snapshot::{Changes, EXTENSIONS, ItemOwner, OneServer, Snapshot, SuspendedItem};
pub use tool_override::{AnnotationOverrides, ToolOverride};
pub use unlisted::UnlistedItem;
pub use uri_rewriter::NAMED_URIS_MAX;
pub use uri_routing::UriOwner;

#[cfg(test)]
mod tests;
