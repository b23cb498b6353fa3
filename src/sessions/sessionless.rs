//! Requests without a session: answered from here, or sent to a server.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, Ready, ready};
use tokio::sync::oneshot;

use crate::bridge::headers::McpHeaders;
use crate::calls::call_target::CallTarget;
use crate::calls::{
    CallAddress, ClientAction, ClientReply, ClientRequest, IncomingCall, NewCall, RequestGuard,
    RunningRequest, TaskLookup, WaitingList, call_lost, find_task, tasks,
};
use crate::catalog::{ItemKind, Snapshot};
use crate::downstream::Caller;
use crate::protocol::{DeclaredCapabilities, Era, ErrorKind, Failure, Method, RawJson, Request};
use crate::publisher::CatalogView;
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
        let calls = &self.context().calls;
        if !calls.must_wait_for_lists(&sessionless.request, &sessionless.caller) {
            return Either::Left(ready(self.start_serving(sessionless)));
        }
        let mut catalog = calls.catalog.clone();
        let (request, to) = (&sessionless.request, sessionless.caller.revision);
        if let Some(open) = WaitingList::open(request, sessionless.accepts_stream, to) {
            let stream = self.answer_later(open, sessionless, catalog);
            return Either::Left(ready(ServeOutcome::Done(stream)));
        }
        let listed = async move {
            catalog.wait_listed().await;
            self.start_serving(sessionless)
        };
        Either::Right(listed.boxed_local())
    }

    /// Answers a list on its stream, when there is something to list.
    fn answer_later(
        &self,
        (mut list, stream): (WaitingList, ClientReply),
        sessionless: SessionlessRequest<'_>,
        mut catalog: CatalogView,
    ) -> ClientReply {
        let sessions = self.clone();
        // Only calls of tools have arguments to compare.
        let sessionless = SessionlessRequest {
            headers: None,
            ..sessionless
        };
        actix_rt::spawn(async move {
            list.wait(&mut catalog).await;
            if let ServeOutcome::Done(answer) = sessions.start_serving(sessionless) {
                list.answer(answer);
            }
        });
        stream
    }

    fn start_serving(&self, sessionless: SessionlessRequest<'_>) -> ServeOutcome {
        let id = sessionless.request.id.clone();
        let method = sessionless.request.method.clone();
        let to = sessionless.caller.revision;
        self.try_serve(sessionless).unwrap_or_else(|failure| {
            let decorator = &self.context().calls.answer_decorator;
            ServeOutcome::Done(decorator.failed(&method, &id, &failure, to))
        })
    }

    fn try_serve(&self, sessionless: SessionlessRequest<'_>) -> Result<ServeOutcome, Failure> {
        let calls = &self.context().calls;
        let decorator = &calls.answer_decorator;
        let request = &sessionless.request;
        let catalog = calls.catalog_of(&sessionless.caller);
        let (to, accepts_stream) = (sessionless.caller.revision, sessionless.accepts_stream);
        if let Some(tree) = self.context().tree.read(request) {
            return Ok(ServeOutcome::Done(decorator.tree(&request.id, &tree, to)));
        }
        let answer = match &request.method {
            Method::Discover | Method::Listen if to.era() == Era::Legacy => {
                return Err(unknown(request));
            }
            // There is nothing that a level could be kept in.
            Method::Ping | Method::LoggingSetLevel if to.era() == Era::Legacy => {
                decorator.empty(&request.id, to)
            }
            Method::Discover => decorator.discovery(&request.id, &handshake::discovery(&catalog)),
            Method::Listen => self.listen(&sessionless)?,
            Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::CompletionComplete => return self.call(sessionless, &catalog),
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                match find_task(request, &sessionless.caller, calls)? {
                    Some(TaskLookup::Hosted(task)) => {
                        let (request, answer) =
                            self.client_request(sessionless.request, accepts_stream);
                        let number = request.number;
                        task.send(ClientAction::Task(request));
                        return Ok(running(answer, task, number));
                    }
                    Some(TaskLookup::Lost(answer)) => answer,
                    None => return self.call(sessionless, &catalog),
                }
            }
            method => match ItemKind::listed_by(method) {
                Some(kind) => {
                    let stale = calls.catalog.stale();
                    let age = (stale.as_deref(), calls.catalog.is_same_for_all());
                    decorator.list(kind, request, &catalog, age, to)?
                }
                None if catalog.extension_owner(method.as_str()).is_some() => {
                    return self.call(sessionless, &catalog);
                }
                None => return Err(unknown(request)),
            },
        };
        Ok(ServeOutcome::Done(answer))
    }

    fn listen(&self, sessionless: &SessionlessRequest<'_>) -> Result<ClientReply, Failure> {
        let (context, request) = (self.context(), &sessionless.request);
        let filter = ListenFilter::of(request)
            .map_err(|why| Failure::new(ErrorKind::InvalidParams, format!("`params`: {why}")))?;
        tasks::check_listening(request, &sessionless.caller)?;
        let max = context.calls.settings.load().listeners_max;
        if context.listeners.len() >= max {
            let message =
                format!("{max} clients listen, the limit (`sessions.listeners`); try again later");
            return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000));
        }
        let (caller, arbiter) = (sessionless.caller.clone(), sessionless.arbiter);
        let events = ListenStream::start(context, caller, arbiter, request, filter);
        Ok(ClientReply::Stream(events))
    }

    fn call(
        &self,
        sessionless: SessionlessRequest<'_>,
        catalog: &Snapshot,
    ) -> Result<ServeOutcome, Failure> {
        let calls = &self.context().calls;
        let SessionlessRequest {
            request,
            caller,
            headers,
            arbiter,
            accepts_stream,
        } = sessionless;
        let target = tasks::target(&request, catalog, &caller, &calls.sealing)?;
        if let Some(headers) = &headers {
            check_params(headers, &request, &target)?;
        }
        let item = request.item().map(|item| request.frame.share(item));
        let (item, server) = (item.unwrap_or_default(), &target.server);
        calls.policy.may_call(&caller.principal, server, &item)?;
        let incoming = IncomingCall::read(request, &caller, server, &item, &calls.sealing)?;
        let (request, answer) = self.client_request(incoming.request, accepts_stream);
        let (number, round) = (request.number, incoming.round);
        if let Some(handle) = incoming.parked {
            let parked = calls.parked.find(handle);
            let parked = parked.ok_or_else(|| call_lost(server))?;
            parked.send(ClientAction::Resume { request, round });
            return Ok(running(answer, parked, number));
        }
        // A request that came with a state is written otherwise than it came.
        let target = match round {
            0 => target,
            _ => tasks::target(&request.request, catalog, &caller, &calls.sealing)?,
        };
        let worker = self.context().workers.at(arbiter);
        let inbox = worker.inbox().clone();
        calls.counters.add(Counter::CallsStarted);
        worker.start_call(NewCall {
            context: calls.clone(),
            caller: caller_of(caller, &request.request.method),
            arbiter,
            request,
            target,
            reply_to: inbox.deliveries(),
            sessionless: Some((inbox.clone(), round)),
        });
        Ok(running(answer, CallAddress { inbox, number }, number))
    }

    fn client_request(
        &self,
        request: Request,
        accepts_stream: bool,
    ) -> (ClientRequest, oneshot::Receiver<ClientReply>) {
        let (reply, answer) = oneshot::channel();
        let request = ClientRequest {
            request,
            number: self.numbers().next(),
            accepts_stream,
            reply,
        };
        (request, answer)
    }
}

fn running(
    answer: oneshot::Receiver<ClientReply>,
    call: CallAddress,
    request_number: u64,
) -> ServeOutcome {
    let waiting = RequestGuard::new(call, request_number);
    ServeOutcome::Running(RunningRequest { answer, waiting })
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
