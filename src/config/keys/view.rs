//! `[views.NAME]`.

use crate::catalog::Exposure;
use crate::config::checks::{GLOB, NOT_EMPTY, glob, not_empty};
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{ChoiceKind, choice};
use crate::config::declaration::texts::texts;

pub(super) fn expose() -> ChoiceKind<Exposure> {
    choice(&[
        ("all", Exposure::All),
        ("search", Exposure::Search),
        ("groups", Exposure::Groups),
        ("pluggedin", Exposure::Pluggedin),
        ("dynamic", Exposure::Dynamic),
    ])
}

/// One view as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewKeys {
    pub(crate) servers: Vec<String>,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) expose: Exposure,
}

keys! {
    /// The servers and tools that clients of `/mcp/NAME` see. Each server has an endpoint by itself, too:
    /// `/mcp/server/NAME`, where its tools keep their own names.
    ViewTable for ViewKeys {
        /// Its servers, in this order; none is all.
        servers: texts(NOT_EMPTY, not_empty);
        /// Globs over the tools that are listed, by the names that clients see, as `files__*`; none
        /// allows all.
        allow: texts(GLOB, glob);
        /// Globs over the tools that are not listed; wins over `allow`.
        deny: texts(GLOB, glob);
        /// What it lists: its tools ("all"), or a few tools by which they are found and called:
        /// "search" (in everyday words), "groups" (one for each server, loaded when it is wanted),
        /// and "pluggedin" and "dynamic", which are named as those of other systems.
        expose: expose();
    }
}
