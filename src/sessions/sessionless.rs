//! Requests without a session: answered by the gateway, or sent to a server.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture, Ready, ready};
use tokio::sync::oneshot;

use crate::auth::{GrantedScopes, Policies};
use crate::bridge::headers::{ClientHeaders, McpHeaders};
use crate::calls::{
    CallAddress, CallClient, CallTelemetry, CallWorker, ClientAction, ClientReply, ClientRequest,
    ListWait, NewCall, OrphanedTask, RequestGuard, RunningRequest, TaskLookup, WaitingList, tasks,
};
use crate::catalog::Snapshot;
use crate::cluster::ReplicaNumber;
use crate::downstream::{Caller, ClientInfo};
use crate::history::CallEnding;
use crate::id::{Holder, Peer, Principal, ViewId};
use crate::protocol::{DeclaredCapabilities, ErrorKind, Failure, Method, Request, Revision};
use crate::sessions::all_sessions::Sessions;
use crate::sessions::dispatch::Dispatch;
use crate::sessions::listen_stream::{ListenFilter, ListenStream};
use crate::telemetry::Counter;

/// A request without a session. The front has made all checks that need no catalog.
pub struct SessionlessRequest<'h> {
    pub request: Request,
    pub caller: Arc<Caller>,
    pub peer: Peer,
    /// HTTP headers to compare with the tool's arguments.
    pub headers: Option<McpHeaders<'h>>,
    /// Headers that servers are allowed to read.
    pub forwarded: Option<Arc<ClientHeaders>>,
    /// Index of the arbiter on which the request arrived.
    pub arbiter: usize,
    pub accepts_stream: bool,
}

/// The operator as a client.
fn operator(view: ViewId, revision: Revision) -> Caller {
    Caller {
        principal: Principal::default(),
        scopes: None,
        view,
        session: None,
        revision,
        profile: DeclaredCapabilities::default(),
        level: None,
        client: Some("mcpvisor".into()),
        info: ClientInfo::default(),
    }
}

/// The outcome of serving a request.
pub enum ServeOutcome {
    Done(ClientReply),
    Running(RunningRequest),
}

impl Sessions {
    /// Returns the other replica that the state or task id in a request names, if there is one.
    pub fn elsewhere(&self, sessionless: &SessionlessRequest<'_>) -> Option<ReplicaNumber> {
        let calls = &self.context().calls;
        calls.elsewhere(&sessionless.request, &sessionless.caller)
    }

    /// Serves one request of a client without a session. Must be called on the arbiter on which the
    /// request arrived. A request whose lists are not available yet waits for them.
    pub fn serve<'a>(
        &'a self,
        sessionless: SessionlessRequest<'a>,
    ) -> Either<Ready<ServeOutcome>, LocalBoxFuture<'a, ServeOutcome>> {
        let calls = &self.context().calls;
        let (request, caller) = (&sessionless.request, &sessionless.caller);
        let call_telemetry = calls.observe(
            request,
            caller.revision,
            sessionless.arbiter,
            sessionless.forwarded.as_ref(),
        );
        let Some(wait) = ListWait::of(calls, request, caller, sessionless.arbiter) else {
            return Either::Left(ready(self.start_serving(sessionless, call_telemetry)));
        };
        let (request, to) = (&sessionless.request, sessionless.caller.revision);
        if let Some(open) = WaitingList::open(request, sessionless.accepts_stream, to) {
            let stream = self.answer_later(open, (sessionless, call_telemetry), wait);
            return Either::Left(ready(ServeOutcome::Done(stream)));
        }
        let listed = async move {
            wait.end().await;
            self.start_serving(sessionless, call_telemetry)
        };
        Either::Right(listed.boxed_local())
    }

    /// Answers a list request on its stream once the lists are available.
    fn answer_later(
        &self,
        (mut list, stream): (WaitingList, ClientReply),
        (sessionless, call_telemetry): (SessionlessRequest<'_>, Option<Box<CallTelemetry>>),
        wait: ListWait,
    ) -> ClientReply {
        let sessions = self.clone();
        // Only tool calls have arguments to compare with headers.
        let sessionless = SessionlessRequest {
            headers: None,
            ..sessionless
        };
        actix_rt::spawn(async move {
            list.wait(&wait).await;
            if let ServeOutcome::Done(answer) = sessions.start_serving(sessionless, call_telemetry)
            {
                list.answer(answer);
            }
        });
        stream
    }

    fn start_serving(
        &self,
        sessionless: SessionlessRequest<'_>,
        mut call_telemetry: Option<Box<CallTelemetry>>,
    ) -> ServeOutcome {
        let _log = CallTelemetry::log_scope(call_telemetry.as_deref());
        let (id, method) = (
            sessionless.request.id.clone(),
            sessionless.request.method.clone(),
        );
        let caller = sessionless.caller.clone();
        match self.try_serve(sessionless, &mut call_telemetry) {
            Ok(outcome) => {
                // The request did not become a call.
                if let (ServeOutcome::Done(reply), Some(call_telemetry)) =
                    (&outcome, call_telemetry)
                {
                    call_telemetry.end(CallEnding::Done, reply.size());
                }
                outcome
            }
            Err(failure) => {
                let decorator = self.context().calls.decorator(&caller);
                let reply = decorator.failed(&method, &id, &failure, caller.revision);
                if let Some(call_telemetry) = call_telemetry {
                    call_telemetry.end(CallEnding::Failed(&failure), reply.size());
                }
                ServeOutcome::Done(reply)
            }
        }
    }

    fn try_serve(
        &self,
        mut sessionless: SessionlessRequest<'_>,
        call_telemetry: &mut Option<Box<CallTelemetry>>,
    ) -> Result<ServeOutcome, Failure> {
        let calls = &self.context().calls;
        let catalog = calls.catalog.of(&sessionless.caller);
        let (request, caller) = (&sessionless.request, &sessionless.caller);
        let answer = match self.context().dispatch(request, caller, &catalog)? {
            Dispatch::Answer(answer) => answer,
            // There is no session in which the level could be stored.
            Dispatch::SetLevel => calls.decorator(caller).empty(&request.id, caller.revision),
            Dispatch::Listen => self.listen(&sessionless)?,
            Dispatch::Task(task) => {
                *call_telemetry = calls.observe_call(call_telemetry.take(), request, caller);
                return Ok(self.serve_task(sessionless, task, call_telemetry.take()));
            }
            Dispatch::Call(named) => {
                if let Some(named) = named {
                    sessionless.request = named;
                    // The headers describe the static tool, not the tool that it calls.
                    sessionless.headers = None;
                }
                let (request, caller) = (&sessionless.request, &sessionless.caller);
                *call_telemetry = calls.observe_call(call_telemetry.take(), request, caller);
                return self.call(sessionless, &catalog, call_telemetry);
            }
        };
        Ok(ServeOutcome::Done(answer))
    }

    fn serve_task(
        &self,
        sessionless: SessionlessRequest<'_>,
        task: TaskLookup,
        call_telemetry: Option<Box<CallTelemetry>>,
    ) -> ServeOutcome {
        match task {
            TaskLookup::Hosted(task) => {
                let SessionlessRequest {
                    request,
                    accepts_stream,
                    ..
                } = sessionless;
                let (request, answer) =
                    self.client_request(request, accepts_stream, call_telemetry);
                let number = request.number;
                task.send(ClientAction::Task(request));
                running(answer, task, number)
            }
            TaskLookup::Orphaned(task) => self.adopt_task(sessionless, task, call_telemetry),
        }
    }

    /// Serves a request of an operator in this view, and waits for the answer. An operator has no
    /// session and cannot be asked for input. Must be called on the arbiter with this index.
    /// Returns `None` if the gateway stops first.
    pub async fn answer_operator(
        &self,
        request: Request,
        (view, revision): (ViewId, Revision),
        arbiter: usize,
    ) -> Option<Bytes> {
        let served = self.serve(SessionlessRequest {
            request,
            caller: Arc::new(operator(view, revision)),
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

    /// How policies would decide on a request of a client with this principal and these scopes, in
    /// this view. The request is not made.
    ///
    /// # Errors
    ///
    /// Returns the denial, or why the request has no target.
    pub fn try_policies(
        &self,
        policies: &Policies,
        request: &Request,
        (principal, scopes): (&Principal, &GrantedScopes),
        view: ViewId,
    ) -> Result<(), Failure> {
        let caller = Caller {
            principal: principal.clone(),
            scopes: scopes.clone(),
            ..operator(view, Revision::NEWEST)
        };
        let calls = &self.context().calls;
        calls.try_policies(policies, request, &caller)
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
        call_telemetry: &mut Option<Box<CallTelemetry>>,
    ) -> Result<ServeOutcome, Failure> {
        let calls = &self.context().calls;
        let (request, caller, peer) = (sessionless.request, sessionless.caller, sessionless.peer);
        let client = CallClient {
            caller: &caller,
            holder: Holder::of(&caller.principal, peer),
            catalog,
            linked: None,
            headers: sessionless.headers.as_ref(),
        };
        let admitted = client.admit(&request, calls)?;
        let request = admitted.rewritten.unwrap_or(request);
        let (mut request, answer) =
            self.client_request(request, sessionless.accepts_stream, call_telemetry.take());
        let (number, round) = (request.number, admitted.round);
        if let Some(parked) = admitted.parked {
            parked.send(ClientAction::Resume { request, round });
            return Ok(running(answer, parked, number));
        }
        let worker = self.context().workers.at(sessionless.arbiter);
        let inbox = worker.inbox().clone();
        request.forwarded = sessionless.forwarded;
        let new_call = NewCall {
            context: calls.clone(),
            caller: caller_of(caller, &request.request.method),
            arbiter: sessionless.arbiter,
            request,
            target: admitted.target,
            reply_to: inbox.deliveries(),
            place: admitted.place,
            sessionless: Some((inbox.clone(), peer, round)),
        };
        match admitted.state_used_up {
            Some(used_up) => {
                actix_rt::spawn(start_once_kept(used_up, new_call, worker));
            }
            None => worker.start_call(new_call),
        }
        Ok(running(answer, CallAddress { inbox, number }, number))
    }

    /// Serves a request for a task of an earlier process: polls the task's server first.
    fn adopt_task(
        &self,
        sessionless: SessionlessRequest<'_>,
        task: Box<OrphanedTask>,
        call_telemetry: Option<Box<CallTelemetry>>,
    ) -> ServeOutcome {
        let look = task.look(&sessionless.request);
        let (asked, answer) = self.client_request(
            sessionless.request,
            sessionless.accepts_stream,
            call_telemetry,
        );
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
        call_telemetry: Option<Box<CallTelemetry>>,
    ) -> (ClientRequest, oneshot::Receiver<ClientReply>) {
        let (reply, answer) = oneshot::channel();
        let request = ClientRequest {
            request,
            number: self.numbers().next(),
            accepts_stream,
            reply,
            forwarded: None,
            call_telemetry,
        };
        (request, answer)
    }
}

/// Starts a call once the state that its client returned is stored as used, unless the client has
/// disconnected.
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

/// Returns the caller of a call. During a completion it has no capabilities, so that the client is
/// not asked for input (S-MRTR-02).
fn caller_of(caller: Arc<Caller>, method: &Method) -> Arc<Caller> {
    if *method != Method::CompletionComplete {
        return caller;
    }
    Arc::new(Caller {
        profile: DeclaredCapabilities::default(),
        ..Caller::clone(&caller)
    })
}
