//! Lists that clients ask for.

use tokio::time::Instant;

use crate::calls::call_context::CallContext;
use crate::calls::client_reply::ClientReply;
use crate::catalog::{ItemKind, PinMode, Snapshot};
use crate::downstream::{Caller, ConnectionCommand, ConnectionKey};
use crate::protocol::{Era, Failure, Method, Request};

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

    /// Whether a request that the gateway usually answers is sent to the only server of the view: the
    /// server does not declare what it needs. Official servers serve such a request or refuse it. Policies
    /// and pins do not see the items of this answer, so it is sent only where there are none.
    pub(crate) fn is_for_only_server(
        &self,
        method: &Method,
        caller: &Caller,
        catalog: &Snapshot,
    ) -> bool {
        let needed = match method {
            Method::LoggingSetLevel => "logging",
            Method::PromptsList => "prompts",
            Method::ResourcesList | Method::ResourceTemplatesList => "resources",
            _ => return false,
        };
        let Some(server) = catalog.one_server() else {
            return false;
        };
        let settings = self.downstreams.get(server.part.server());
        let is_unpinned = settings.is_some_and(|it| it.settings().names.pins == PinMode::Off);
        // Only a server of the newer era adds what its clients expect of a list.
        let is_readable =
            caller.revision.era() == Era::Legacy || server.part.revision.era() == Era::Modern;
        let is_shown_whole = is_unpinned && self.policy.load().is_none();
        !server.part.declares(needed) && is_readable && is_shown_whole
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
