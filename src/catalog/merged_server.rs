//! The servers of a catalog, each with the rules under which clients see its items.

use std::borrow::Cow;
use std::sync::Arc;

use super::name_rules::NameRules;
use super::{Item, ItemKind, ServerPart, uri};
use crate::id::{QuickMap, ServerName};

/// Which URIs of a server are wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapping {
    Nothing,
    /// All except URLs that clients can fetch themselves.
    Movable,
    Everything,
}

/// One server of a catalog.
#[derive(Clone, Debug)]
pub(super) struct MergedServer {
    pub(super) part: Arc<ServerPart>,
    pub(super) wrap_prefix: String,
    pub(super) rules: NameRules,
    pub(super) wrapping: Wrapping,
    /// The instructions that clients read: the approved ones, if they are pinned.
    pub(super) instructions: Option<String>,
    pub(super) shown: [usize; ItemKind::COUNT],
}

impl MergedServer {
    /// The URIs or templates of the passed-through server, unchanged.
    pub(super) fn unwrapped(&self, kind: ItemKind) -> impl Iterator<Item = &str> {
        let uris = self.part.items(kind).iter().map(Item::native);
        uris.filter(|native| self.public_uri(native) == *native)
    }

    pub(super) fn wraps(&self) -> bool {
        self.wrapping != Wrapping::Nothing
    }

    pub(super) fn public_uri<'a>(&self, native: &'a str) -> Cow<'a, str> {
        let is_wrapped = match self.wrapping {
            Wrapping::Nothing => false,
            Wrapping::Movable => !uri::is_fixed(native),
            Wrapping::Everything => true,
        };
        if is_wrapped {
            Cow::Owned(uri::wrap(&self.wrap_prefix, native))
        } else {
            Cow::Borrowed(native)
        }
    }
}

/// The servers of a catalog, in config order.
#[derive(Debug)]
pub(super) struct MergedServers {
    all: Vec<MergedServer>,
    by_name: QuickMap<ServerName, usize>,
}

impl MergedServers {
    pub(super) fn new(all: Vec<MergedServer>) -> Self {
        let servers = all.iter().enumerate();
        let by_name = servers.map(|(index, server)| (server.part.server().clone(), index));
        Self {
            by_name: by_name.collect(),
            all,
        }
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, MergedServer> {
        self.all.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn index(&self, server: &ServerName) -> Option<usize> {
        self.by_name.get(server).copied()
    }

    pub(super) fn at(&self, index: usize) -> Option<&MergedServer> {
        self.all.get(index)
    }

    pub(super) fn get(&self, server: &ServerName) -> Option<&MergedServer> {
        self.at(self.index(server)?)
    }
}
