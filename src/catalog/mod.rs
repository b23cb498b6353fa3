//! The merged tools, prompts and resources of all servers. Pure: no I/O, clock or actors.

mod settings;

pub use settings::{CatalogSettings, NameSettings};
