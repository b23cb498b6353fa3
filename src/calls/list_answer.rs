//! Lists that clients ask for.

use tokio::time::Instant;

use crate::calls::call_context::CallContext;
use crate::calls::client_reply::ClientReply;
use crate::catalog::{ItemKind, Snapshot};
use crate::downstream::{Caller, ConnectionCommand, ConnectionKey};
use crate::protocol::{Failure, Request};

impl CallContext {
    /// One page of a list, as a client sees it.
    ///
    /// # Errors
    ///
    /// Returns -32602 for a cursor that is not of this list, and why the only server of its view is
    /// not there, if that was never listed.
    pub(crate) fn list(
        &self,
        kind: ItemKind,
        request: &Request,
        caller: &Caller,
        catalog: &Snapshot,
    ) -> Result<ClientReply, Failure> {
        self.check_listed(caller, catalog)?;
        self.reread(kind, caller);
        let published = (&caller.view, &self.catalog);
        let decorator = self.decorator(caller);
        decorator.list(kind, request, catalog, published, caller.revision)
    }

    /// Has the lists read again, in the background, that this client sees and that are old: not every
    /// server announces its changes. What is different then is announced to clients.
    fn reread(&self, kind: ItemKind, caller: &Caller) {
        let known = self.catalog.known_lists();
        let now = Instant::now();
        if !known.has_old(kind, now) {
            return;
        }
        for server in self.downstreams.all().values() {
            let own = server.list_key_for(caller);
            let shared = (!own.is_shared()).then(ConnectionKey::shared);
            for key in shared.into_iter().chain([own]) {
                if known.is_old(server.name(), &key, (kind, now))
                    && self.shows(server, caller)
                    && let Some(Ok(up)) = server.find(&key).map(|child| child.current())
                {
                    up.value.command(ConnectionCommand::Reread(kind));
                }
            }
        }
    }
}
