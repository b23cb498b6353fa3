//! Answers requests for lists.

use tokio::time::Instant;

use crate::calls::call_context::CallContext;
use crate::calls::client_reply::ClientReply;
use crate::catalog::{ItemKind, PinMode, Snapshot};
use crate::downstream::{Caller, ConnectionCommand, ConnectionKey};
use crate::protocol::{Era, Failure, Method, Request, SKILLS_EXTENSION};

impl CallContext {
    /// Returns one page of a list in the client's view.
    ///
    /// # Errors
    ///
    /// Returns -32602 for a cursor that does not belong to this list. For a single-server view
    /// whose server was never listed or failed to list, returns why that server is unavailable.
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
        let page = decorator.list(kind, request, catalog, published, caller.revision)?;
        self.check_read(kind, caller, catalog)?;
        Ok(page)
    }

    /// Returns whether a request that the gateway usually answers is sent to the server of a
    /// single-server view, because the server does not declare the capability. Official servers may
    /// serve such a request anyway. Policies and pins do not apply to the items of this answer, so
    /// the request is sent only if neither is configured.
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
            Method::SkillsList => SKILLS_EXTENSION,
            _ => return false,
        };
        let Some(server) = catalog.one_server() else {
            return false;
        };
        let settings = self.downstreams.get(server.part.server());
        let is_unpinned = settings.is_some_and(|it| it.settings().names.pins == PinMode::Off);
        // Only a modern server adds the members that modern clients expect in a list.
        let is_readable =
            caller.revision.era() == Era::Legacy || server.part.revision.era() == Era::Modern;
        let is_shown_whole = is_unpinned && self.policy.load().is_none();
        !server.part.declares(needed) && is_readable && is_shown_whole
    }

    /// Reads outdated lists of the client's view again in the background, because not every server
    /// announces its changes. Clients are notified of differences.
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
