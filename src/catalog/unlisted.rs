//! Routes unlisted tool and prompt names, for servers that serve items without listing them.

use super::merged_server::MergedServer;
use super::snapshot::{Snapshot, SuspendedItem};
use super::uri_routing::only;
use super::{ItemKind, PinMode, PinState, json, public_name};
use crate::id::ServerName;
use crate::protocol::RawJson;

/// Maximum length of an unlisted name that is sent to a server, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// The owner of an unlisted name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnlistedItem {
    /// This server knows whether the item exists, under its native name.
    Perhaps { server: ServerName, native: RawJson },
    /// The server's lists need approval, which this item cannot have.
    Suspended(SuspendedItem),
}

impl Snapshot {
    /// The server for an unlisted tool or prompt: the one whose prefix the name has, otherwise the
    /// only server without a prefix.
    ///
    /// `None` for a name that clients cannot use: its item is hidden or listed under a different
    /// name, or the globs of the server or of this catalog exclude it.
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

    /// Whether this is the only server, which then rejects unknown items itself.
    pub fn has_one_server(&self) -> bool {
        self.servers.len() == 1
    }

    /// Servers can serve items without declaring the capability. With several servers, the
    /// declaration decides.
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
