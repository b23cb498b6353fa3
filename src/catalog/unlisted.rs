//! Tools and prompts that servers can serve without listing them: which server gets an unlisted name.

use super::snapshot::{MergedServer, Snapshot, SuspendedItem};
use super::{ItemKind, PinMode, PinState, json, public_name};
use crate::id::ServerName;
use crate::protocol::RawJson;

/// Longest name that is sent to a server which does not list it, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// The owner of an unlisted name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnlistedItem {
    /// This server knows whether there is such an item, under its native name.
    Perhaps { server: ServerName, native: RawJson },
    /// The lists of the server have to be approved, and this item cannot have been.
    Suspended(SuspendedItem),
}

impl Snapshot {
    /// The server that an unlisted tool or prompt is sent to: the server whose prefix the name has,
    /// otherwise the only server without a prefix.
    ///
    /// `None` for a name that clients cannot use: its item is listed under another name or hidden,
    /// or the globs of the server or of this catalog exclude it.
    pub fn unlisted(&self, kind: ItemKind, public: &str) -> Option<UnlistedItem> {
        let (view, native) = self.owner_by_prefix(kind, public)?;
        let is_sound = public.len() <= NAME_BYTES_MAX
            && !public.chars().any(char::is_control)
            && !native.is_empty()
            && native.trim() == native;
        // Servers can treat upper and lower case alike.
        let is_it = |listed: &str| listed.eq_ignore_ascii_case(native);
        let mut listed = view.part.items(kind).iter();
        if !is_sound || listed.any(|item| is_it(item.native())) {
            return None;
        }
        let server = view.part.server();
        if kind == ItemKind::Tools {
            let prefix = &view.rules.prefix;
            let listed_as = public_name::wanted(server, prefix, native, self.rules.name_max);
            let of_catalog = self.rules.filter.as_ref()?;
            let is_shown = view.rules.filter.as_ref()?.shows_unlisted(native)
                && [public, &*listed_as]
                    .into_iter()
                    .all(|name| of_catalog.shows_unlisted(name));
            if !is_shown {
                return None;
            }
        }
        if view.rules.pins == PinMode::Block {
            return Some(UnlistedItem::Suspended(SuspendedItem {
                server: server.clone(),
                state: PinState::New,
            }));
        }
        Some(UnlistedItem::Perhaps {
            server: server.clone(),
            native: json::quoted(native),
        })
    }

    /// Whether this is the only server: what it does not have, it refuses in its own words.
    pub fn has_one_server(&self) -> bool {
        self.servers.len() == 1
    }

    /// Servers serve without declaring it. Among several, the declaration decides.
    fn may_serve(&self, view: &MergedServer, kind: ItemKind) -> bool {
        self.has_one_server() || view.part.declares(kind.capability())
    }

    fn owner_by_prefix<'n>(
        &self,
        kind: ItemKind,
        public: &'n str,
    ) -> Option<(&MergedServer, &'n str)> {
        let prefixed = |view: &&MergedServer| public_name::has_prefix(public, &view.rules.prefix);
        // The configuration can give two servers the same prefix.
        let mut named = self.servers.iter().filter(prefixed).peekable();
        if named.peek().is_some() {
            let owner = only(named)?;
            let native = public_name::without_prefix(public, &owner.rules.prefix)?;
            return self.may_serve(owner, kind).then_some((owner, native));
        }
        let serves =
            |view: &&MergedServer| view.rules.prefix.is_empty() && self.may_serve(view, kind);
        Some((only(self.servers.iter().filter(serves))?, public))
    }
}

/// The first, if it is the only one.
pub(super) fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}
