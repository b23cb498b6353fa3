//! The merged tools, prompts, resources and resource templates of all servers. Pure: no I/O,
//! clock or actors.
//!
//! A [`ServerPart`] is what one server offers, checked item by item. [`merge`] makes a
//! [`Snapshot`] of all parts: names and URIs that are unique, a table from each of them to its
//! owner, and the lists as finished JSON pages. Items stay the bytes that their server wrote; only
//! names and URIs are replaced in them.

mod filter;
mod instructions;
mod item;
mod kind;
mod list;
mod merge;
mod name;
mod notice;
mod page;
mod part;
mod rewrite;
mod schema;
mod settings;
mod shape;
mod snapshot;
mod stored;
mod template;
mod uri;

use crate::protocol::json;

pub use filter::InvalidNames;
pub use item::{Hints, Item};
pub use kind::ItemKind;
pub use list::{Caching, ListPage, NoList};
pub use merge::merge;
pub use notice::Notice;
pub use page::InvalidCursor;
pub use part::{Quarantined, ServerPart};
pub use settings::{CatalogSettings, IngestLimits, NameSettings};
pub use snapshot::{Changes, EXTENSIONS, Owned, OwnedUri, Snapshot};

#[cfg(test)]
mod tests;
