//! Failures for requests whose item is unknown because its server was never listed: they report the
//! state of the server instead of an unknown item.

use serde_json::Value;

use crate::calls::call_context::CallContext;
use crate::catalog::{ItemKind, Snapshot};
use crate::downstream::{Caller, CredentialsChoice, Server};
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure, Method, Request, parse_bounded};

/// When a client should retry a request to a server that is up but was not listed yet, in
/// milliseconds.
const LISTED_SOON_MS: u64 = 1_000;

impl CallContext {
    /// Replaces the failure of a request for an unknown item, if the item could belong to a server
    /// that was never listed.
    pub(crate) fn of_missing_server(
        &self,
        unknown: Failure,
        request: &Request,
        caller: &Caller,
        catalog: &Snapshot,
    ) -> Failure {
        let is_unknown = matches!(
            unknown.kind,
            ErrorKind::InvalidParams | ErrorKind::ResourceNotFound
        );
        let Some(item) = named_item(request).filter(|_| is_unknown) else {
            return unknown;
        };
        let servers = self.downstreams.all();
        let is_owner = |server: &Server| match &item {
            NamedItem::Name(name) => self.may_be_item_of(name, server, caller),
            NamedItem::Uri => self.shows(server, caller),
        };
        let mut missing = servers
            .values()
            .filter(|server| catalog.for_calls().part(server.name()).is_none() && is_owner(server));
        missing
            .next()
            .map_or(unknown, |server| not_listed(server, caller))
    }

    /// Refuses a list of a single server that was never listed, because an empty list would claim
    /// that the server has no items.
    ///
    /// # Errors
    ///
    /// Returns the reason why the server is unavailable.
    pub(crate) fn check_listed(&self, caller: &Caller, catalog: &Snapshot) -> Result<(), Failure> {
        let ViewId::Server(name) = &caller.view else {
            return Ok(());
        };
        if catalog.part(name).is_some() {
            return Ok(());
        }
        match self.downstreams.get(name) {
            // If credentials are per user, the list stays empty until a call has asked the user to
            // sign in.
            Some(server) if server.settings().credentials == CredentialsChoice::Shared => {
                Err(not_listed(&server, caller))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an empty list of a single server that failed to answer for it, for the same reason.
    ///
    /// # Errors
    ///
    /// Returns the reason why the list could not be read.
    pub(crate) fn check_read(
        &self,
        kind: ItemKind,
        caller: &Caller,
        catalog: &Snapshot,
    ) -> Result<(), Failure> {
        let ViewId::Server(name) = &caller.view else {
            return Ok(());
        };
        let is_empty = catalog
            .part(name)
            .is_some_and(|it| it.items(kind).is_empty());
        let server = self.downstreams.get(name).filter(|_| is_empty);
        let failure = server.and_then(|server| list_failure(&server, kind, caller));
        failure.map_or(Ok(()), Err)
    }

    /// Returns whether the client's view shows a server.
    pub(crate) fn shows(&self, server: &Server, caller: &Caller) -> bool {
        let names = &server.settings().names;
        self.names_of(server, names, &caller.view).is_some()
    }
}

/// An item that no list contains.
enum NamedItem {
    /// A tool or prompt with this public name.
    Name(String),
    /// A resource or resource template.
    Uri,
}

fn named_item(request: &Request) -> Option<NamedItem> {
    match request.method {
        Method::ToolsCall | Method::PromptsGet => {
            Some(NamedItem::Name(request.name()?.into_owned()))
        }
        Method::ResourcesRead | Method::ResourcesSubscribe => request.uri().map(|_| NamedItem::Uri),
        Method::CompletionComplete => {
            let reference = request.member(request.params.reference.as_ref())?;
            let reference: Value = parse_bounded(str::from_utf8(&reference).ok()?)?;
            let name = reference.get("name").and_then(Value::as_str);
            match name {
                Some(name) => Some(NamedItem::Name(name.to_owned())),
                None => reference.get("uri").map(|_| NamedItem::Uri),
            }
        }
        _ => None,
    }
}

/// Returns the failure for a server that was never listed, with the reason.
fn not_listed(server: &Server, caller: &Caller) -> Failure {
    if server.is_halted() {
        return server.halted();
    }
    let own = server.find(&server.list_key_for(caller));
    let connection = own.unwrap_or_else(|| server.shared().clone());
    match connection.current() {
        Err(away) => server.away(&away),
        Ok(_) => retry_soon(server, "has not listed its items yet; retry shortly"),
    }
}

/// The failure of a list that the server failed to answer; `None` if it was read, or if the client
/// sees the list of another connection.
fn list_failure(server: &Server, kind: ItemKind, caller: &Caller) -> Option<Failure> {
    let is_shared = server.list_key_for(caller).is_shared();
    let why = server
        .spec
        .session
        .list_failure(kind)
        .filter(|_| is_shared)?;
    Some(retry_soon(server, &format!("is not listed: {why}")))
}

fn retry_soon(server: &Server, why: &str) -> Failure {
    let name = server.name();
    Failure::new(
        ErrorKind::ServerUnavailable,
        format!("server `{name}` {why}"),
    )
    .server(name.as_str())
    .retry_after_ms(LISTED_SOON_MS)
}
