//! Rules for which unlisted names clients can use.

use std::sync::Arc;

use super::name_filter::NameFilter;
use super::{CatalogSettings, NameSettings, PinMode, public_name};
use crate::id::ServerName;

/// How the names of a server's items are formed, and which ones clients can use.
#[derive(Clone, Debug)]
pub(super) struct NameRules {
    pub(super) prefix: Box<str>,
    /// `None` if the globs are invalid, which hides everything.
    pub(super) filter: Option<Arc<NameFilter>>,
    pub(super) pins: PinMode,
}

/// Which public tool names clients of a catalog can use.
#[derive(Clone, Debug)]
pub(super) struct PublicRules {
    pub(super) filter: Option<Arc<NameFilter>>,
    pub(super) name_max: usize,
}

impl NameRules {
    pub(super) fn of(server: &ServerName, names: &NameSettings) -> Self {
        Self {
            prefix: public_name::prefix(server, names).into(),
            filter: NameFilter::new(names).ok().map(Arc::new),
            pins: names.pins,
        }
    }
}

impl PublicRules {
    pub(super) fn of(settings: &CatalogSettings) -> Self {
        let filter = NameFilter::of(&settings.allow, &settings.deny);
        Self {
            filter: filter.ok().map(Arc::new),
            name_max: settings.name_max,
        }
    }
}
