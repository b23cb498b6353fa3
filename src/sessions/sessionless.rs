//! Requests without a session: answered from here, or sent to a server.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, Ready, ready};
use serde_json::json;
use tokio::sync::oneshot;

use crate::bridge::headers::McpHeaders;
use crate::calls::call_target::{self, CallTarget};
use crate::calls::{
    ClientEnd, ClientReply, IncomingCall, NewCall, RequestGuard, ResumeCall, RunningRequest,
    TaskLookup, call_lost, find_task, send_task_request, tasks,
};
use crate::catalog::{ItemKind, Snapshot};
use crate::downstream::Caller;
use crate::id::SessionId;
use crate::protocol::{DeclaredCapabilities, Era, ErrorKind, Failure, Method, RawJson, Request};
use crate::sessions::all_sessions::Sessions;
use crate::sessions::handshake;
use crate::sessions::listen_stream::{ListenFilter, ListenStream};
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

/// The outcome of a request.
pub enum ServeOutcome {
    Done(ClientReply),
    Running(RunningRequest),
}

impl Sessions {
    /// Serves one request of a client without a session. Must be called on the arbiter that it
    /// came in on. Right after the start, what needs the lists waits for them.
    pub fn serve<'a>(
        &'a self,
        sessionless: SessionlessRequest<'a>,
    ) -> Either<Ready<ServeOutcome>, LocalBoxFuture<'a, ServeOutcome>> {
        let catalog = &self.parts().calls.catalog;
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
                    .calls
                    .answer_decorator
                    .failed(&method, &id, &failure, to),
            ),
        }
    }

    fn try_serve(&self, sessionless: SessionlessRequest<'_>) -> Result<ServeOutcome, Failure> {
        let parts = self.parts();
        let request = &sessionless.request;
        let catalog = parts.calls.catalog_of(&sessionless.caller);
        let to = sessionless.caller.revision;
        if let Some(tree) = parts.tree.read(request) {
            return Ok(ServeOutcome::Done(parts.calls.answer_decorator.tree(
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
                    .calls
                    .answer_decorator
                    .own(&request.id, &json!({}), None, to);
                Ok(ServeOutcome::Done(ClientReply::Json(done)))
            }
            Method::Discover => {
                let discovery = handshake::discovery(&catalog);
                let decorator = &parts.calls.answer_decorator;
                Ok(ServeOutcome::Done(
                    decorator.discovery(&request.id, &discovery),
                ))
            }
            Method::Listen => self.listen(sessionless),
            Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::CompletionComplete => self.call(sessionless, &catalog),
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                let calls = &parts.calls;
                match find_task(request, &sessionless.caller, calls)? {
                    Some(TaskLookup::Hosted(task)) => {
                        let running = send_task_request(task, sessionless.request, calls);
                        Ok(ServeOutcome::Running(running))
                    }
                    Some(TaskLookup::Lost(answer)) => Ok(ServeOutcome::Done(answer)),
                    None => self.call(sessionless, &catalog),
                }
            }
            method => match ItemKind::listed_by(method) {
                Some(kind) => {
                    let stale = parts.calls.catalog.stale();
                    let list = parts.calls.answer_decorator.list(
                        kind,
                        request,
                        &catalog,
                        stale.as_deref(),
                        to,
                    );
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
        let catalog = self.parts().calls.catalog_of(&sessionless.caller);
        request.method == Method::Listen || call_target::target(request, &catalog).is_err()
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
        let max = parts.calls.settings.load().listeners_max;
        if parts.listeners.len() >= max {
            let message =
                format!("{max} clients listen, the limit (`sessions.listeners`); try again later");
            return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000));
        }
        let name = SessionId::new((parts.calls.mint)());
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
        let calls = &self.parts().calls;
        let (request, caller) = (&sessionless.request, &sessionless.caller);
        let target = tasks::target(request, catalog, caller, &calls.sealing)?;
        if let Some(headers) = &sessionless.headers {
            check_params(headers, request, &target)?;
        }
        let item = request.item().map(|item| request.frame.share(item));
        let item = item.unwrap_or_default();
        let (principal, server) = (&caller.principal, &target.server);
        calls.policy.may_call(principal, server, &item)?;
        let (caller, arbiter) = (caller.clone(), sessionless.arbiter);
        let accepts_stream = sessionless.accepts_stream;
        let request = sessionless.request;
        let incoming = IncomingCall::read(request, &caller, server, &item, &calls.sealing)?;
        let number = calls.numbers.next();
        let (reply, answer) = oneshot::channel();
        let (inbox, call) = match incoming {
            IncomingCall::Parked {
                request,
                handle,
                round,
            } => {
                let parked = calls.parked.find(handle);
                let parked = parked.ok_or_else(|| call_lost(server))?;
                parked.inbox.resume(ResumeCall {
                    call: parked.number,
                    request,
                    round,
                    request_number: number,
                    accepts_stream,
                    reply,
                });
                (parked.inbox, parked.number)
            }
            IncomingCall::Fresh { request, round } => {
                // A request that came with a state is written otherwise than it came.
                let target = match round {
                    0 => target,
                    _ => tasks::target(&request, catalog, &caller, &calls.sealing)?,
                };
                let worker = self.parts().workers.at(arbiter);
                let inbox = worker.inbox().clone();
                calls.counters.add(Counter::CallsStarted);
                worker.start_call(NewCall {
                    number,
                    context: calls.clone(),
                    caller: caller_of(caller, &request.method),
                    arbiter,
                    request,
                    target,
                    item,
                    client: ClientEnd::Reply {
                        reply,
                        accepts_stream,
                    },
                    reply_to: inbox.deliveries(),
                    sessionless: Some((inbox.clone(), round)),
                });
                (inbox, number)
            }
        };
        let waiting = RequestGuard::new(call, number, inbox.client_requests());
        Ok(ServeOutcome::Running(RunningRequest { answer, waiting }))
    }
}

/// The caller of a call; nothing is asked while an argument is completed (S-MRTR-02).
fn caller_of(caller: Arc<Caller>, method: &Method) -> Arc<Caller> {
    if *method != Method::CompletionComplete {
        return caller;
    }
    Arc::new(Caller {
        profile: DeclaredCapabilities::default(),
        ..Caller::clone(&caller)
    })
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
