//! Calls of the client: sent on, answered, reported on, taken back.

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::bridge::error::TranslatedError;
use crate::calls::ClientReply;
use crate::calls::Progress;
use crate::calls::RetryState;
use crate::calls::call_target::CallTarget;
use crate::calls::tasks;
use crate::calls::{CallPermit, CallRoute, ConnectionAccess, find_route, outcome_counter};
use crate::calls::{ResponseTranslator, revisions};
use crate::downstream::{
    CallMessage, CallRequest, CallSenders, CancelCall, Deadline, SubscriptionKey, TaskMode,
};
use crate::id::ServerName;
use crate::protocol::{
    ErrorKind, Failure, LogLevel, Method, Notification, Outcome, RawJson, Request, RequestId,
    Response, error_frame, result_frame,
};
use crate::sessions::session::Session;
use crate::sessions::session::requests::failure_frame;
use crate::telemetry::Counter;

/// A call of the client that is not answered yet.
pub(super) struct SessionCall {
    /// The client's own id of it.
    pub(super) id: RequestId,
    pub(super) method: Method,
    pub(super) server: ServerName,
    /// The public name or URI that it asks for, if its server speaks another revision.
    item: Option<Box<str>>,
    pub(super) progress: Progress,
    /// What becomes of a task.
    pub(super) tasks: TaskMode,
    pub(super) accepts_stream: bool,
    pub(super) destination: AnswerDestination,
    /// What a subscription is to, if this is one.
    watches: Option<(SubscriptionKey, String)>,
    /// Where it was sent; absent while it waits for a connection.
    pub(super) senders: Option<CallSenders>,
    pub(super) permit: CallPermit,
    /// The number of it that its server sees: another one each time that it is sent.
    pub(super) sent_as: u64,
    /// Kept where calls may be sent again.
    pub(super) retry: Option<Box<RetryState>>,
}

/// How a call's answer leaves.
pub(super) enum AnswerDestination {
    /// The HTTP request waits for one JSON answer, so far.
    Direct(oneshot::Sender<ClientReply>),
    /// The event stream that is named after the call.
    Stream,
    /// The client left without a stream that it could resume.
    Dropped,
}

impl Session {
    pub(super) fn call(
        &mut self,
        request: Request,
        number: u64,
        accepts_stream: bool,
        reply: oneshot::Sender<ClientReply>,
        ctx: &mut Context<Self>,
    ) {
        let (target, item) = match self.admit(&request) {
            Ok(admitted) => admitted,
            Err(failure) => {
                let frame = failure_frame(&request.method, request.id.as_str(), &failure);
                let _ = reply.send(ClientReply::Json(frame));
                return;
            }
        };
        if let Some(answer) = self.subscribe(&request, &target) {
            let _ = reply.send(answer);
            return;
        }
        let watches = (request.method == Method::ResourcesSubscribe)
            .then(|| Some((self.watched(&target)?, request.uri()?.into_owned())));
        let pending = SessionCall {
            id: request.id.clone(),
            method: request.method.clone(),
            server: target.server.clone(),
            item,
            progress: Progress::of(&request, self.record.revision),
            tasks: target.tasks,
            accepts_stream,
            destination: AnswerDestination::Direct(reply),
            watches: watches.flatten(),
            senders: None,
            permit: CallPermit::default(),
            sent_as: number,
            retry: None,
        };
        self.pending.insert(number, pending);
        self.parts.calls.counters.add(Counter::CallsStarted);
        self.dispatch(number, request, target, ctx);
    }

    /// Checks limits and policy, and finds the server, and what its answer must be read with.
    fn admit(&self, request: &Request) -> Result<(CallTarget, Option<Box<str>>), Failure> {
        let calls_max = self.parts.calls.settings.load().calls_max;
        if self.pending.len() >= calls_max {
            let message = format!(
                "this session has {calls_max} calls in flight, its limit (`calls_per_session`); try again later"
            );
            self.parts.calls.counters.add(Counter::CallsShed);
            return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(100));
        }
        if self
            .pending
            .values()
            .any(|pending| pending.id == request.id)
        {
            let message = "a request with this id is in flight already";
            return Err(Failure::new(ErrorKind::InvalidRequest, message));
        }
        let catalog = self.catalog();
        let target = tasks::target(request, &catalog, &self.caller, &self.parts.calls.sealing)?;
        let item = request.item();
        self.parts.calls.policy.may_call(
            &self.record.principal,
            &target.server,
            item.as_deref().unwrap_or_default(),
        )?;
        let revisions = revisions(&catalog, &target.server, self.record.revision);
        let item = item
            .filter(|_| revisions.from != revisions.to)
            .map(Into::into);
        Ok((target, item))
    }

    /// Sends a call to the connection that serves this session, now or when it is there.
    fn dispatch(
        &mut self,
        number: u64,
        request: Request,
        target: CallTarget,
        ctx: &mut Context<Self>,
    ) {
        let downstreams = &self.parts.calls.downstreams;
        let found = find_route(downstreams, &target, &self.caller, self.arbiter, None);
        let CallRoute {
            deadline,
            way,
            permit,
            may_retry,
        } = match found {
            Ok(found) => found,
            Err(failure) => return self.on_answer(number, Err(failure)),
        };
        let again = may_retry.then(|| Box::new(RetryState::new(&request, &target, deadline)));
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.permit = permit;
            pending.retry = again;
        }
        self.send_by(way, number, request, target, deadline, ctx);
    }

    /// Sends a call the way that was found for it.
    pub(super) fn send_by(
        &mut self,
        way: ConnectionAccess,
        number: u64,
        request: Request,
        target: CallTarget,
        deadline: Deadline,
        ctx: &mut Context<Self>,
    ) {
        match way {
            ConnectionAccess::Open(senders) => {
                self.send(number, request, target, deadline, senders, ctx)
            }
            ConnectionAccess::Opening(opening) => {
                let opening = wrap_future::<_, Self>(opening);
                ctx.spawn(opening.map(move |senders, session, ctx| match senders {
                    Ok(senders) => session.send(number, request, target, deadline, senders, ctx),
                    Err(failure) => session.on_answer(number, Err(failure)),
                }));
            }
        }
    }

    fn send(
        &mut self,
        number: u64,
        request: Request,
        target: CallTarget,
        deadline: Deadline,
        senders: CallSenders,
        ctx: &mut Context<Self>,
    ) {
        // Taken back while it waited for the connection.
        let Some(pending) = self.pending.get_mut(&number) else {
            return;
        };
        pending.senders = Some(senders.clone());
        let reply_to = self
            .reply_to
            .get_or_insert_with(|| Arc::new(ctx.address().recipient()));
        let reply = pending
            .permit
            .reply(number, target.server, reply_to.clone());
        let exchange = CallRequest {
            number: pending.sent_as,
            caller: self.caller.clone(),
            request,
            edits: target.edits,
            tasks: target.tasks,
            deadline,
            reply,
        };
        senders.send(self.arbiter, CallMessage::Start(Box::new(exchange)));
    }

    /// The one answer to a call, from the server or from whoever knows that there will be none.
    pub(super) fn on_answer(&mut self, number: u64, answer: Result<Response, Failure>) {
        let Some(pending) = self.pending.remove(&number) else {
            return;
        };
        self.drop_questions(number, &pending.server);
        if pending.tasks == TaskMode::FollowedByClient {
            self.record_task(number, &pending, &answer);
        }
        if let Some((watched, public)) = &pending.watches
            && !is_success(&answer)
        {
            self.end_subscription(watched, public);
        }
        self.parts.calls.counters.add(outcome_counter(&answer));
        let frame = match answer {
            Ok(response) => Some(self.public_answer(&pending, &response)),
            Err(failure) if failure.kind == ErrorKind::Cancelled => None,
            Err(failure) => Some(failure_frame(
                &pending.method,
                pending.id.as_str(),
                &failure,
            )),
        };
        match pending.destination {
            AnswerDestination::Direct(reply) => {
                let answer = frame.map_or(ClientReply::Accepted, ClientReply::Json);
                // Without a stream, a client that left cannot come back for its answer.
                let _ = reply.send(answer);
            }
            AnswerDestination::Stream => {
                let streams = self.event_log();
                match frame {
                    Some(frame) => streams.answer(number, &frame),
                    None => streams.end(number),
                }
            }
            AnswerDestination::Dropped => {}
        }
    }

    /// The server's answer with the client's id, as the client can read it.
    fn public_answer(&self, pending: &SessionCall, response: &Response) -> Bytes {
        let catalog = self.catalog();
        let translator = ResponseTranslator {
            catalog: &catalog,
            server: &pending.server,
            method: match pending.method {
                // It is what the tool says.
                Method::TasksResult => &Method::ToolsCall,
                ref method => method,
            },
            item: pending.item.as_deref(),
            to: self.record.revision,
        };
        let shown = match &response.outcome {
            Outcome::Result(result) => self
                .public_result(translator, result)
                .map(TranslatedError::Result),
            Outcome::Error(error) => translator.error(error),
        };
        let id = &pending.id;
        match shown {
            None => response.with_id(id),
            Some(TranslatedError::Result(result)) => result_frame(id, &result),
            Some(TranslatedError::Error(error)) => error_frame(id, &error),
        }
    }

    fn public_result(
        &self,
        translator: ResponseTranslator<'_>,
        result: &RawJson,
    ) -> Option<RawJson> {
        let read = translator.result(result);
        let sealing = &self.parts.calls.sealing;
        let named = tasks::public(
            translator,
            read.as_ref().unwrap_or(result),
            &self.caller,
            sealing,
        );
        named.or(read)
    }

    /// Progress and log lines of a call go out on its own stream.
    pub(super) fn on_call_notification(&mut self, number: u64, notification: &Notification) {
        let Some(pending) = self.pending.get_mut(&number) else {
            return;
        };
        let frame = match notification.method {
            Method::Progress => pending.progress.frame(notification),
            _ => {
                let wanted = is_wanted(self.record.level, LogLevel::of(notification));
                wanted.then(|| notification.frame.as_bytes().clone())
            }
        };
        let Some(frame) = frame else { return };
        if self.upgrade(number) {
            // S-PROG-03, S-LOG-07: what comes faster than the client reads is left out.
            self.event_log().send_if_room(number, &frame);
        }
    }

    /// S-CANC-01, S-CANC-02: what is unknown or malformed is ignored.
    pub(super) fn on_cancelled(&mut self, notification: &Notification) {
        #[derive(Deserialize)]
        struct CancelledParams {
            reason: Option<String>,
        }
        let Some(id) = notification.member(notification.params.request_id.as_ref()) else {
            return;
        };
        let found = self
            .pending
            .iter()
            .find(|(_, pending)| *pending.id.as_bytes() == id);
        let Some((number, pending)) = found else {
            return;
        };
        let (number, there) = (*number, pending.sent_as);
        let params: Option<CancelledParams> = notification.params_as().ok();
        let reason = params.and_then(|params| params.reason);
        match pending.senders.clone() {
            Some(senders) => {
                let cancel = CancelCall {
                    number: there,
                    reason,
                };
                senders.send(self.arbiter, CallMessage::CancelCall(cancel));
            }
            None => {
                let failure = Failure::new(ErrorKind::Cancelled, "the client cancelled this call");
                self.on_answer(number, Err(failure));
            }
        }
    }
}

fn is_success(answer: &Result<Response, Failure>) -> bool {
    matches!(answer, Ok(response) if matches!(response.outcome, Outcome::Result(_)))
}

/// Whether a client that set `threshold` wants a line of this level; one that set none gets all.
pub(super) fn is_wanted(threshold: Option<LogLevel>, level: Option<LogLevel>) -> bool {
    match (threshold, level) {
        (Some(threshold), Some(level)) => level >= threshold,
        (None, _) | (_, None) => true,
    }
}
