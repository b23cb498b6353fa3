//! What becomes of a request without a session: answered from here, or sent to a server.

use std::sync::Arc;

use actix::Recipient;
use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, Ready, ready};
use serde_json::json;
use tokio::sync::oneshot;

use super::super::SessionContext;
use super::super::message::ClientReply;
use super::super::route::{self, CallTarget};
use super::super::sessions::Sessions;
use super::super::tasks;
use super::actor::{ClientRequestChange, ClientRequestEvent, StartCall};
use super::answers;
use super::call::{Call, NewCall};
use super::inputs::IncomingCall;
use super::listen::{ListenFilter, ListenStream};
use super::parked::ResumeCall;
use super::task::{self, TaskLookup};
use crate::bridge::headers::McpHeaders;
use crate::catalog::{ItemKind, Snapshot};
use crate::downstream::Caller;
use crate::id::SessionId;
use crate::protocol::{DeclaredCapabilities, Era, ErrorKind, Failure, Method, RawJson, Request};
use crate::telemetry::Counter;

/// A request without a session, checked by the front as far as it can be without a catalog.
pub struct SessionlessRequest<'h> {
    pub request: Request,
    pub caller: Arc<Caller>,
    /// Those of HTTP, to be compared with the arguments of a tool.
    pub headers: Option<McpHeaders<'h>>,
    /// Index of the arbiter that it came in on.
    pub arbiter: usize,
    pub accepts_stream: bool,
}

/// What became of it.
pub enum ServeOutcome {
    Done(ClientReply),
    Running(RunningRequest),
}

/// A request that is worked on.
pub struct RunningRequest {
    pub answer: oneshot::Receiver<ClientReply>,
    pub waiting: RequestGuard,
}

/// Held as long as the client waits: dropped before the answer, it takes the request back.
pub struct RequestGuard {
    call: u64,
    request_number: u64,
    /// Whom to tell; `None` once there is nothing to tell.
    worker: Option<Arc<Recipient<ClientRequestEvent>>>,
}

impl RequestGuard {
    /// `request_number` is the number of the client's request, `call` that of the call.
    pub(super) fn new(
        call: u64,
        request_number: u64,
        worker: Arc<Recipient<ClientRequestEvent>>,
    ) -> Self {
        let worker = Some(worker);
        Self {
            call,
            request_number,
            worker,
        }
    }

    /// Asks for the answer as a stream, if it can be one and is none yet.
    pub fn upgrade(&self) {
        self.notify(ClientRequestChange::Upgrade);
    }

    /// What is still waited for once an answer is there: the rest of it, if it is a stream.
    pub fn for_rest_of(mut self, answer: &ClientReply) -> Option<Self> {
        if matches!(answer, ClientReply::Stream(_)) {
            return Some(self);
        }
        self.worker = None;
        None
    }

    fn notify(&self, wait: ClientRequestChange) {
        if let Some(worker) = &self.worker {
            let Self {
                call,
                request_number,
                ..
            } = *self;
            worker.do_send(ClientRequestEvent {
                call,
                request_number,
                wait,
            });
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.notify(ClientRequestChange::Closed);
    }
}

impl Sessions {
    /// Serves one request of a client without a session. Must be called on the arbiter that it
    /// came in on. Right after the start, what needs the lists waits for them.
    pub fn serve<'a>(
        &'a self,
        sessionless: SessionlessRequest<'a>,
    ) -> Either<Ready<ServeOutcome>, LocalBoxFuture<'a, ServeOutcome>> {
        let catalog = &self.parts().catalog;
        if catalog.is_listed() || !self.needs_lists(&sessionless) {
            return Either::Left(ready(self.start_serving(sessionless)));
        }
        let mut catalog = catalog.clone();
        let listed = async move {
            catalog.wait_listed().await;
            self.start_serving(sessionless)
        };
        Either::Right(listed.boxed_local())
    }

    fn start_serving(&self, sessionless: SessionlessRequest<'_>) -> ServeOutcome {
        let id = sessionless.request.id.clone();
        let method = sessionless.request.method.clone();
        let to = sessionless.caller.revision;
        match self.try_serve(sessionless) {
            Ok(started) => started,
            Err(failure) => ServeOutcome::Done(
                self.parts()
                    .answer_decorator
                    .failed(&method, &id, &failure, to),
            ),
        }
    }

    fn try_serve(&self, sessionless: SessionlessRequest<'_>) -> Result<ServeOutcome, Failure> {
        let parts = self.parts();
        let request = &sessionless.request;
        let catalog = catalog_of(parts, &sessionless.caller);
        let to = sessionless.caller.revision;
        if let Some(tree) = parts.tree.read(request) {
            return Ok(ServeOutcome::Done(parts.answer_decorator.tree(
                &request.id,
                &tree,
                to,
            )));
        }
        match &request.method {
            Method::Discover | Method::Listen if to.era() == Era::Legacy => Err(unknown(request)),
            // There is nothing that a level could be kept in.
            Method::Ping | Method::LoggingSetLevel if to.era() == Era::Legacy => {
                let done = parts
                    .answer_decorator
                    .own(&request.id, &json!({}), None, to);
                Ok(ServeOutcome::Done(ClientReply::Json(done)))
            }
            Method::Discover => Ok(ServeOutcome::Done(
                parts.answer_decorator.discovery(&request.id, &catalog),
            )),
            Method::Listen => self.listen(sessionless),
            Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::CompletionComplete => self.call(sessionless, &catalog),
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                match task::find(&sessionless, parts)? {
                    Some(TaskLookup::HostedTask(task)) => Ok(task::ask(task, sessionless, parts)),
                    Some(TaskLookup::Lost(answer)) => Ok(ServeOutcome::Done(answer)),
                    None => self.call(sessionless, &catalog),
                }
            }
            method => match ItemKind::listed_by(method) {
                Some(kind) => {
                    let stale = parts.catalog.stale();
                    let list =
                        parts
                            .answer_decorator
                            .list(kind, request, &catalog, stale.as_deref(), to);
                    list.map(ServeOutcome::Done)
                }
                None => match catalog.extension_owner(method.as_str()) {
                    Some(_) => self.call(sessionless, &catalog),
                    None => Err(unknown(request)),
                },
            },
        }
    }

    fn needs_lists(&self, sessionless: &SessionlessRequest<'_>) -> bool {
        let request = &sessionless.request;
        if request.method == Method::Discover || ItemKind::listed_by(&request.method).is_some() {
            return true;
        }
        let catalog = catalog_of(self.parts(), &sessionless.caller);
        request.method == Method::Listen || route::target(request, &catalog).is_err()
    }

    fn listen(&self, sessionless: SessionlessRequest<'_>) -> Result<ServeOutcome, Failure> {
        let parts = self.parts();
        let request = &sessionless.request;
        let filter = ListenFilter::of(request)
            .map_err(|why| Failure::new(ErrorKind::InvalidParams, format!("`params`: {why}")))?;
        tasks::check_listening(request, &sessionless.caller)?;
        if !sessionless.accepts_stream {
            let message = "`Accept` must allow text/event-stream: the answer is a stream";
            return Err(Failure::new(ErrorKind::NotAcceptable, message));
        }
        let max = parts.settings.load().listeners_max;
        if parts.listeners.len() >= max {
            let message =
                format!("{max} clients listen, the limit (`sessions.listeners`); try again later");
            return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000));
        }
        let name = SessionId::new((parts.mint)());
        let (reply, answer) = oneshot::channel();
        let caller = (sessionless.caller.clone(), sessionless.arbiter);
        let address = ListenStream::start(name, parts.clone(), caller, request, filter, reply);
        Ok(ServeOutcome::Running(RunningRequest {
            answer,
            waiting: RequestGuard::new(0, 0, Arc::new(address.recipient())),
        }))
    }

    fn call(
        &self,
        sessionless: SessionlessRequest<'_>,
        catalog: &Snapshot,
    ) -> Result<ServeOutcome, Failure> {
        let parts = self.parts();
        let SessionlessRequest {
            request,
            mut caller,
            headers,
            arbiter,
            accepts_stream,
        } = sessionless;
        let target = tasks::target(&request, catalog, &caller, &parts.sealing)?;
        if let Some(headers) = headers {
            check_params(&headers, &request, &target)?;
        }
        let item = request.item().map(|item| request.frame.share(item));
        let item = item.unwrap_or_default();
        parts
            .policy
            .may_call(&caller.principal, &target.server, &item)?;
        let number = parts.numbers.next();
        let (reply, answer) = oneshot::channel();
        let given = IncomingCall::read(request, &caller, &target.server, &item, &parts.sealing)?;
        let (worker, call) = match given {
            IncomingCall::Parked {
                request,
                handle,
                round,
            } => {
                let Some((worker, call)) = parts.parked.find(handle) else {
                    return Err(answers::call_lost(&target.server));
                };
                worker.send(ResumeCall {
                    call,
                    request,
                    round,
                    request_number: number,
                    accepts_stream,
                    reply,
                });
                (worker, call)
            }
            IncomingCall::Fresh { request, round } => {
                if request.method == Method::CompletionComplete {
                    // Nothing is asked while an argument is completed (S-MRTR-02).
                    caller = Arc::new(Caller {
                        profile: DeclaredCapabilities::default(),
                        ..Caller::clone(&caller)
                    });
                }
                parts.counters.add(Counter::CallsStarted);
                // A request that came with a state is written otherwise than it came.
                let target = match round {
                    0 => target,
                    _ => tasks::target(&request, catalog, &caller, &parts.sealing)?,
                };
                let worker = parts.workers.at(arbiter);
                let new_call = NewCall {
                    number,
                    worker: worker.clone(),
                    parts: parts.clone(),
                    caller,
                    arbiter,
                    request,
                    target,
                    item,
                    round,
                    accepts_stream,
                    reply,
                };
                worker.send(StartCall(Box::new(Call::new(new_call))));
                (worker, number)
            }
        };
        let waiting = RequestGuard::new(call, number, worker.client_requests());
        Ok(ServeOutcome::Running(RunningRequest { answer, waiting }))
    }
}

/// Arguments that a tool wants repeated in headers must be the same there (S-HDR-08).
fn check_params(
    headers: &McpHeaders<'_>,
    request: &Request,
    target: &CallTarget,
) -> Result<(), Failure> {
    let tool = target.tool.as_ref();
    let Some(tool) = tool.filter(|tool| !tool.headers.is_empty()) else {
        return Ok(());
    };
    let arguments = request.member(request.params.arguments.as_ref());
    let arguments = arguments.and_then(|bytes| RawJson::try_new(bytes).ok());
    tool.headers
        .check(headers, arguments.as_ref())
        .map_err(|error| Failure::new(ErrorKind::HeaderMismatch, error.to_string()))
}

fn unknown(request: &Request) -> Failure {
    let message = format!("method `{}` does not exist here", request.method);
    Failure::new(ErrorKind::MethodNotFound, message)
}

fn catalog_of(parts: &SessionContext, caller: &Caller) -> Arc<Snapshot> {
    let own = parts.catalog.own(caller);
    own.unwrap_or_else(|| parts.catalog.snapshot())
}
