//! The method table: decides how each client request is handled, with and without a session.

use crate::calls::{ClientReply, Discovered, TaskLookup, call_target, find_task};
use crate::catalog::{ItemKind, Snapshot};
use crate::downstream::Caller;
use crate::protocol::{Era, ErrorKind, Failure, Method, Request, SKILLS_EXTENSION};
use crate::sessions::{SessionContext, handshake};

/// How a request is handled.
pub(super) enum Dispatch {
    /// The gateway has answered the request without a server.
    Answer(ClientReply),
    /// A server answers the request. If a static tool named another tool, the contained request
    /// calls that tool and replaces the client's request.
    Call(Option<Request>),
    /// The request is about a task that a call of this gateway bridges.
    Task(TaskLookup),
    /// The request opens a stream of events.
    Listen,
    /// The request sets the client's log level.
    SetLevel,
}

impl SessionContext {
    /// Decides how a request is handled, and answers it if no server is needed.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads.
    pub(super) fn dispatch(
        &self,
        request: &Request,
        caller: &Caller,
        catalog: &Snapshot,
    ) -> Result<Dispatch, Failure> {
        let calls = &self.calls;
        let (id, to) = (&request.id, caller.revision);
        let (has_session, is_legacy) = (caller.session.is_some(), to.era() == Era::Legacy);
        if let Some(kept) = calls.kept_results.read(request, caller) {
            let answer = calls.decorator(caller).uncached(id, &kept?, to);
            return Ok(Dispatch::Answer(answer));
        }
        match Discovered::of(calls, request, caller) {
            Some(Discovered::Call(named)) => return Ok(Dispatch::Call(Some(named))),
            Some(Discovered::Answer(result)) => {
                let answer = calls.decorator(caller).discovered(id, &result, to);
                return Ok(Dispatch::Answer(answer));
            }
            None => {}
        }
        // A single-server view also forwards requests that the server does not declare.
        if (has_session || !is_legacy) && calls.is_for_only_server(&request.method, caller, catalog)
        {
            return Ok(Dispatch::Call(None));
        }
        if let Some(kind) = ItemKind::listed_by(&request.method) {
            let mut skilled = catalog.declaring(SKILLS_EXTENSION, None);
            if kind == ItemKind::Skills && skilled.next().is_none() {
                return Err(call_target::unsupported(&request.method));
            }
            let list = calls.list(kind, request, caller, catalog)?;
            return Ok(Dispatch::Answer(list));
        }
        Ok(match &request.method {
            Method::Ping if is_legacy => Dispatch::Answer(calls.decorator(caller).empty(id, to)),
            Method::LoggingSetLevel if is_legacy => Dispatch::SetLevel,
            Method::Listen if !is_legacy => Dispatch::Listen,
            Method::Discover if !is_legacy => {
                let discovery = handshake::discovery(catalog);
                let decorator = calls.decorator(caller);
                Dispatch::Answer(decorator.discovery(id, &discovery, &calls.catalog))
            }
            Method::Initialize if has_session => {
                let message = "this session is already initialized; send `initialize` without a session id to start another";
                return Err(Failure::new(ErrorKind::InvalidRequest, message));
            }
            Method::ResourcesRead => match self.tree.read(request) {
                Some(tree) => Dispatch::Answer(calls.decorator(caller).uncached(id, &tree, to)),
                None => Dispatch::Call(None),
            },
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                find_task(request, caller, calls)?.map_or(Dispatch::Call(None), Dispatch::Task)
            }
            Method::ToolsCall
            | Method::PromptsGet
            | Method::CompletionComplete
            | Method::Other(_) => Dispatch::Call(None),
            // Sessions handle subscriptions, and pass unknown methods to servers that may know
            // them.
            _ if has_session => Dispatch::Call(None),
            method => return Err(call_target::unsupported(method)),
        })
    }
}
