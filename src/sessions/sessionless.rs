//! Requests without a session: answered from here, or sent to a server.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, Ready, ready};
use tokio::sync::oneshot;

use crate::bridge::headers::{
    ClientHeaders, HeaderMismatch, McpHeaders, ParamHeaders, PassedHeaders,
};
use crate::calls::call_target::CallTarget;
use crate::calls::{
    CallAddress, CallWorker, ClientAction, ClientReply, ClientRequest, Discovered, IncomingCall,
    ListWait, NewCall, Observation, OrphanedTask, RequestGuard, RunningRequest, TaskLookup,
    WaitingList, call_lost, find_task, tasks,
};
use crate::catalog::{ItemKind, Snapshot};
use crate::downstream::{Caller, ClientInfo};
use crate::history::CallEnding;
use crate::id::{Holder, Peer, Principal, ViewId};
use crate::protocol::{
    DeclaredCapabilities, Era, ErrorKind, Failure, Method, RawJson, Request, Revision,
};
use crate::sessions::all_sessions::Sessions;
use crate::sessions::handshake;
use crate::sessions::listen_stream::{ListenFilter, ListenStream};
use crate::telemetry::Counter;

/// A request without a session, checked by the front as far as it can be without a catalog.
pub struct SessionlessRequest<'h> {
    pub request: Request,
    pub caller: Arc<Caller>,
    pub peer: Peer,
    /// Those of HTTP, to be compared with the arguments of a tool.
    pub headers: Option<McpHeaders<'h>>,
    /// Those that servers are to read.
    pub forwarded: Option<Arc<ClientHeaders>>,
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
    /// came in on. What needs lists that are not there yet waits for them.
    pub fn serve<'a>(
        &'a self,
        sessionless: SessionlessRequest<'a>,
    ) -> Either<Ready<ServeOutcome>, LocalBoxFuture<'a, ServeOutcome>> {
        let calls = &self.context().calls;
        let (request, caller) = (&sessionless.request, &sessionless.caller);
        let observation = calls.observe(
            request,
            caller.revision,
            sessionless.arbiter,
            sessionless.forwarded.as_ref(),
        );
        let Some(wait) = ListWait::of(calls, request, caller, sessionless.arbiter) else {
            return Either::Left(ready(self.start_serving(sessionless, observation)));
        };
        let (request, to) = (&sessionless.request, sessionless.caller.revision);
        if let Some(open) = WaitingList::open(request, sessionless.accepts_stream, to) {
            let stream = self.answer_later(open, (sessionless, observation), wait);
            return Either::Left(ready(ServeOutcome::Done(stream)));
        }
        let listed = async move {
            wait.end().await;
            self.start_serving(sessionless, observation)
        };
        Either::Right(listed.boxed_local())
    }

    /// Answers a list on its stream, when there is something to list.
    fn answer_later(
        &self,
        (mut list, stream): (WaitingList, ClientReply),
        (sessionless, observation): (SessionlessRequest<'_>, Option<Box<Observation>>),
        wait: ListWait,
    ) -> ClientReply {
        let sessions = self.clone();
        // Only calls of tools have arguments to compare.
        let sessionless = SessionlessRequest {
            headers: None,
            ..sessionless
        };
        actix_rt::spawn(async move {
            list.wait(&wait).await;
            if let ServeOutcome::Done(answer) = sessions.start_serving(sessionless, observation) {
                list.answer(answer);
            }
        });
        stream
    }

    fn start_serving(
        &self,
        mut sessionless: SessionlessRequest<'_>,
        mut observation: Option<Box<Observation>>,
    ) -> ServeOutcome {
        let calls = &self.context().calls;
        let _log = Observation::log_scope(observation.as_deref());
        match calls.discover(&sessionless.request, &sessionless.caller) {
            Some(Discovered::Call(request)) => {
                sessionless.request = request;
                // Those are about the static tool, which has been found.
                sessionless.headers = None;
            }
            Some(Discovered::Answer(result)) => {
                let (id, to) = (&sessionless.request.id, sessionless.caller.revision);
                let decorator = calls.decorator(&sessionless.caller);
                let reply = decorator.discovered(id, &result, to);
                if let Some(observation) = observation {
                    observation.end(CallEnding::Done, reply.size());
                }
                return ServeOutcome::Done(reply);
            }
            None => {}
        }
        let id = sessionless.request.id.clone();
        let method = sessionless.request.method.clone();
        let (caller, to) = (sessionless.caller.clone(), sessionless.caller.revision);
        if is_call(&method) {
            let (request, caller) = (&sessionless.request, &sessionless.caller);
            observation = calls.observe_call(observation, request, caller);
        }
        let outcome = self.try_serve(sessionless, &mut observation);
        let outcome = outcome.map_err(|failure| {
            let reply = calls.decorator(&caller).failed(&method, &id, &failure, to);
            if let Some(observation) = observation.take() {
                observation.end(CallEnding::Failed(&failure), reply.size());
            }
            ServeOutcome::Done(reply)
        });
        let outcome = outcome.unwrap_or_else(|failed| failed);
        // No call was made of it.
        if let (ServeOutcome::Done(reply), Some(observation)) = (&outcome, observation) {
            observation.end(CallEnding::Done, reply.size());
        }
        outcome
    }

    fn try_serve(
        &self,
        sessionless: SessionlessRequest<'_>,
        observation: &mut Option<Box<Observation>>,
    ) -> Result<ServeOutcome, Failure> {
        let calls = &self.context().calls;
        let decorator = || calls.decorator(&sessionless.caller);
        let request = &sessionless.request;
        let catalog = calls.catalog.of(&sessionless.caller);
        let (to, accepts_stream) = (sessionless.caller.revision, sessionless.accepts_stream);
        if let Some(tree) = self.context().tree.read(request) {
            return Ok(ServeOutcome::Done(decorator().tree(&request.id, &tree, to)));
        }
        if to.era() == Era::Modern
            && calls.is_for_only_server(&request.method, &sessionless.caller, &catalog)
        {
            return self.call(sessionless, &catalog, observation);
        }
        let answer = match &request.method {
            Method::Discover | Method::Listen if to.era() == Era::Legacy => {
                return Err(unknown(request));
            }
            // There is nothing that a level could be kept in.
            Method::Ping | Method::LoggingSetLevel if to.era() == Era::Legacy => {
                decorator().empty(&request.id, to)
            }
            Method::Discover => {
                let discovery = handshake::discovery(&catalog);
                decorator().discovery(&request.id, &discovery, &calls.catalog)
            }
            Method::Listen => self.listen(&sessionless)?,
            Method::ToolsCall
            | Method::PromptsGet
            | Method::ResourcesRead
            | Method::CompletionComplete => return self.call(sessionless, &catalog, observation),
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                match find_task(request, &sessionless.caller, calls)? {
                    Some(TaskLookup::Hosted(task)) => {
                        let (request, answer) = self.client_request(
                            sessionless.request,
                            accepts_stream,
                            observation.take(),
                        );
                        let number = request.number;
                        task.send(ClientAction::Task(request));
                        return Ok(running(answer, task, number));
                    }
                    Some(TaskLookup::Orphaned(task)) => {
                        return Ok(self.adopt_task(sessionless, task, observation.take()));
                    }
                    None => return self.call(sessionless, &catalog, observation),
                }
            }
            method => match ItemKind::listed_by(method) {
                Some(kind) => calls.list(kind, request, &sessionless.caller, &catalog)?,
                None if matches!(method, Method::Other(_)) => {
                    return self.call(sessionless, &catalog, observation);
                }
                None => return Err(unknown(request)),
            },
        };
        Ok(ServeOutcome::Done(answer))
    }

    /// Serves a request of an operator to this view, who has no session and cannot be asked, and
    /// waits for its answer. Must be called on the arbiter of this index. `None` when the gateway
    /// stops before.
    pub async fn answer_operator(
        &self,
        request: Request,
        (view, revision): (ViewId, Revision),
        arbiter: usize,
    ) -> Option<Bytes> {
        let caller = Caller {
            principal: Principal::default(),
            scopes: None,
            view,
            session: None,
            revision,
            profile: DeclaredCapabilities::default(),
            level: None,
            client: Some("mcpvisor".into()),
            info: ClientInfo::default(),
        };
        let served = self.serve(SessionlessRequest {
            request,
            caller: Arc::new(caller),
            peer: Peer::Local,
            headers: None,
            forwarded: None,
            arbiter,
            accepts_stream: false,
        });
        let reply = match served.await {
            ServeOutcome::Done(reply) => reply,
            ServeOutcome::Running(RunningRequest { answer, waiting }) => {
                let reply = answer.await.ok()?;
                drop(waiting.for_rest_of(&reply));
                reply
            }
        };
        reply.into_frame()
    }

    fn listen(&self, sessionless: &SessionlessRequest<'_>) -> Result<ClientReply, Failure> {
        let (context, request) = (self.context(), &sessionless.request);
        let settings = context.calls.settings.load();
        let filter = ListenFilter::of(request, &settings)
            .map_err(|why| Failure::new(ErrorKind::InvalidParams, format!("`params`: {why}")))?;
        tasks::check_listening(request, &sessionless.caller)?;
        let holder = Holder::of(&sessionless.caller.principal, sessionless.peer);
        let limit = settings.listeners(&holder);
        let place = context.listeners.places.take(holder, &limit);
        let place = place.map_err(|why| {
            context.calls.counters.add(Counter::ListenersRefused);
            limit.failure(why)
        })?;
        let (caller, arbiter) = (sessionless.caller.clone(), sessionless.arbiter);
        let events = ListenStream::start(context, place, caller, arbiter, request, filter);
        Ok(ClientReply::Stream(events))
    }

    fn call(
        &self,
        sessionless: SessionlessRequest<'_>,
        catalog: &Snapshot,
        observation: &mut Option<Box<Observation>>,
    ) -> Result<ServeOutcome, Failure> {
        let calls = &self.context().calls;
        let (request, caller, peer) = (sessionless.request, sessionless.caller, sessionless.peer);
        let mut target = calls.allowed_target(&request, &caller, catalog, None)?;
        if let Some(headers) = &sessionless.headers {
            target.headers = check_params(headers, &request, &target)?;
        }
        let item = request.item().map(|item| request.frame.share(item));
        let (item, server) = (item.unwrap_or_default(), &target.server);
        let mut incoming = IncomingCall::read(request, &caller, server, &item, &calls.sealing)?;
        let holder = Holder::of(&caller.principal, peer);
        // A parked call has its place.
        let place = match incoming.parked {
            Some(_) => None,
            None => calls.place_of_call(holder.clone())?,
        };
        // A later round continues a call that was counted already.
        if incoming.round == 0 {
            let (method, counted) = (&incoming.request.method, target.counted_as(&item));
            calls.count_call(method, &holder, server, counted)?;
        }
        let used_up = incoming.use_up_state(calls)?;
        let (mut request, answer) =
            self.client_request(incoming.request, sessionless.accepts_stream, None);
        let (number, round) = (request.number, incoming.round);
        if let Some(handle) = incoming.parked {
            let parked = calls.parked.find(handle).ok_or_else(|| call_lost(server))?;
            request.observation = observation.take();
            parked.send(ClientAction::Resume { request, round });
            return Ok(running(answer, parked, number));
        }
        // A request that came with a state is written otherwise than it came.
        let target = match round {
            0 => target,
            _ => CallTarget {
                headers: target.headers,
                ..tasks::target(&request.request, catalog, &caller, &calls.sealing, None)?
            },
        };
        let worker = self.context().workers.at(sessionless.arbiter);
        let inbox = worker.inbox().clone();
        request.observation = observation.take();
        request.forwarded = sessionless.forwarded;
        let new_call = NewCall {
            context: calls.clone(),
            caller: caller_of(caller, &request.request.method),
            arbiter: sessionless.arbiter,
            request,
            target,
            reply_to: inbox.deliveries(),
            place,
            sessionless: Some((inbox.clone(), peer, round)),
        };
        match used_up {
            Some(used_up) => {
                actix_rt::spawn(start_once_kept(used_up, new_call, worker));
            }
            None => worker.start_call(new_call),
        }
        Ok(running(answer, CallAddress { inbox, number }, number))
    }

    /// Serves a request for a task of an earlier process, whose server is asked for it first.
    fn adopt_task(
        &self,
        sessionless: SessionlessRequest<'_>,
        task: Box<OrphanedTask>,
        observation: Option<Box<Observation>>,
    ) -> ServeOutcome {
        let look = task.look(&sessionless.request);
        let (asked, answer) =
            self.client_request(sessionless.request, sessionless.accepts_stream, observation);
        let (mut request, _) = self.client_request(look, false, None);
        request.forwarded = sessionless.forwarded;
        let (number, asked_number) = (request.number, asked.number);
        let worker = self.context().workers.at(sessionless.arbiter);
        let inbox = worker.inbox().clone();
        let new_call = NewCall {
            request,
            context: self.context().calls.clone(),
            caller: sessionless.caller,
            arbiter: sessionless.arbiter,
            target: task.target(),
            reply_to: inbox.deliveries(),
            place: None,
            sessionless: Some((inbox.clone(), sessionless.peer, 0)),
        };
        worker.adopt(new_call, task, asked);
        running(answer, CallAddress { inbox, number }, asked_number)
    }

    fn client_request(
        &self,
        request: Request,
        accepts_stream: bool,
        observation: Option<Box<Observation>>,
    ) -> (ClientRequest, oneshot::Receiver<ClientReply>) {
        let (reply, answer) = oneshot::channel();
        let request = ClientRequest {
            request,
            number: self.numbers().next(),
            accepts_stream,
            reply,
            forwarded: None,
            observation,
        };
        (request, answer)
    }
}

/// Whether the history has requests of this method: those that servers answer.
fn is_call(method: &Method) -> bool {
    let is_own = matches!(
        method,
        Method::Initialize
            | Method::Discover
            | Method::Listen
            | Method::Ping
            | Method::LoggingSetLevel
    );
    !is_own && ItemKind::listed_by(method).is_none()
}

/// Starts a call when the state that its client came back with cannot be used again, unless the
/// client is gone by then.
async fn start_once_kept(
    kept: impl Future<Output = Result<(), Failure>>,
    new_call: NewCall,
    worker: Arc<CallWorker>,
) {
    let kept = kept.await;
    let request = &new_call.request;
    if request.reply.is_closed() {
        return;
    }
    match kept {
        Ok(()) => worker.start_call(new_call),
        Err(failure) => {
            let (method, id) = (&request.request.method, &request.request.id);
            let decorator = new_call.context.decorator(&new_call.caller);
            let refusal = decorator.failed(method, id, &failure, new_call.caller.revision);
            new_call
                .request
                .answer(refusal, CallEnding::Failed(&failure));
        }
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

/// Arguments that a tool wants repeated in headers must be the same there (S-HDR-08); the others go
/// on to its server.
fn check_params(
    headers: &McpHeaders<'_>,
    request: &Request,
    target: &CallTarget,
) -> Result<PassedHeaders, Failure> {
    let mismatch =
        |error: HeaderMismatch| Failure::new(ErrorKind::HeaderMismatch, error.to_string());
    let none = ParamHeaders::default();
    let known = target.tool.as_ref().map_or(&none, |tool| &tool.headers);
    if !known.is_empty() {
        let arguments = request.member(request.params.arguments.as_ref());
        let arguments = arguments.and_then(|bytes| RawJson::try_new(bytes).ok());
        known.check(headers, arguments.as_ref()).map_err(mismatch)?;
    }
    headers.unknown_params(known).map_err(mismatch)
}

fn unknown(request: &Request) -> Failure {
    let message = format!("method `{}` does not exist here", request.method);
    Failure::new(ErrorKind::MethodNotFound, message)
}
