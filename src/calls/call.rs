//! One call of a client without a session: sent, answered, and parked while the server waits for
//! something from the client.
//!
//! Its client is there while an HTTP request waits; gone before the answer, the call is taken back
//! (S-CANC-01). Between two requests of the client, while it gathers what the server asked for, the
//! call is parked.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::calls::alarms::{Alarm, Alarms};
use crate::calls::call_context::CallContext;
use crate::calls::call_route::{CallPermit, CallRoute, ConnectionAccess, find_route};
use crate::calls::call_target::CallTarget;
use crate::calls::call_worker::{CallWorker, ConnectionOpened};
use crate::calls::client_reply::ClientReply;
use crate::calls::hosted_task::HostedTask;
use crate::calls::input_requests::{InputRequests, invalid_state};
use crate::calls::parked_calls::{ParkedPermit, ResumeCall};
use crate::calls::progress::Progress;
use crate::calls::request_guard::ClientRequestChange;
use crate::calls::retry::RetryState;
use crate::calls::stream_event::StreamEvent;
use crate::downstream::{
    CallEvent, CallMessage, CallRequest, CallSenders, Caller, CancelCall, ConnectionCommand,
    Deadline, TaskMode,
};
use crate::protocol::{
    Failure, LogLevel, Method, Notification, Request, RequestId, Response, Revision,
};
use crate::telemetry::Counter;

pub(crate) struct Call {
    /// Names it among the calls of its worker.
    pub(crate) number: u64,
    /// The number of it that its server sees: another one each time that it is sent.
    pub(crate) sent_as: u64,
    pub(crate) worker: Arc<CallWorker>,
    pub(crate) parts: Arc<CallContext>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) arbiter: usize,
    pub(crate) method: Method,
    pub(crate) target: CallTarget,
    /// The public name or URI that the client asks for, and the arguments that it gave.
    pub(crate) item: ByteString,
    pub(crate) arguments: Option<Bytes>,
    /// The id of the request that the client waits for, or waited for last.
    pub(crate) id: RequestId,
    progress: Progress,
    accepts_stream: bool,
    pub(crate) client: ClientState,
    /// Which of the client's requests it waits for: counts them.
    request_number: u64,
    /// Taken when it is sent.
    pub(crate) request: Option<Request>,
    pub(crate) senders: Option<CallSenders>,
    pub(crate) permit: CallPermit,
    pub(crate) inputs: InputRequests,
    pub(crate) parked_permit: Option<ParkedPermit>,
    pub(crate) alarms: Alarms,
    /// While its connection is opened.
    opening: Option<AbortOnDropHandle<()>>,
    /// The task that it stands for.
    pub(crate) task: Option<Box<HostedTask>>,
    /// The answer, if it came while nobody waited for it.
    pub(crate) finished: Option<Box<Result<Response, Failure>>>,
    /// Kept where and while the call may be sent again.
    pub(crate) retry: Option<Box<RetryState>>,
    /// Nothing is left to be done for it.
    pub(crate) is_over: bool,
}

/// How the client waits.
pub(crate) enum ClientState {
    /// For one JSON answer, so far.
    AwaitsAnswer(oneshot::Sender<ClientReply>),
    /// For the end of an event stream.
    ReadsStream(mpsc::Sender<StreamEvent>),
    /// It gathers answers and is to come back.
    Away,
}

/// What a call starts with.
pub(crate) struct NewCall {
    pub(crate) number: u64,
    pub(crate) worker: Arc<CallWorker>,
    pub(crate) parts: Arc<CallContext>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) arbiter: usize,
    pub(crate) request: Request,
    pub(crate) target: CallTarget,
    pub(crate) item: ByteString,
    /// How often the client was asked already.
    pub(crate) round: u8,
    pub(crate) accepts_stream: bool,
    pub(crate) reply: oneshot::Sender<ClientReply>,
}

impl Call {
    pub(crate) fn new(new_call: NewCall) -> Self {
        let request = new_call.request;
        Self {
            number: new_call.number,
            sent_as: new_call.number,
            worker: new_call.worker,
            parts: new_call.parts,
            caller: new_call.caller,
            arbiter: new_call.arbiter,
            method: request.method.clone(),
            target: new_call.target,
            item: new_call.item,
            arguments: request.member(request.params.arguments.as_ref()),
            id: request.id.clone(),
            progress: Progress::of(&request, Revision::NEWEST),
            accepts_stream: new_call.accepts_stream,
            client: ClientState::AwaitsAnswer(new_call.reply),
            request_number: new_call.number,
            inputs: InputRequests::of(new_call.round),
            request: Some(request),
            senders: None,
            permit: CallPermit::default(),
            parked_permit: None,
            alarms: Alarms::default(),
            opening: None,
            task: None,
            finished: None,
            retry: None,
            is_over: false,
        }
    }

    pub(crate) fn dispatch(&mut self) {
        let downstreams = &self.parts.downstreams;
        let found = find_route(downstreams, &self.target, &self.caller, self.arbiter, None);
        let found = match found {
            Ok(found) => found,
            Err(failure) => return self.on_answer(Err(failure)),
        };
        if found.may_retry {
            self.prepare_retry(found.deadline);
        }
        self.send_by(found);
    }

    /// Sends the call the way that was found for it.
    pub(crate) fn send_by(&mut self, found: CallRoute) {
        let CallRoute {
            deadline,
            way,
            permit,
            ..
        } = found;
        self.permit = permit;
        match way {
            ConnectionAccess::Open(senders) => self.send(deadline, senders),
            ConnectionAccess::Opening(opening) => {
                let (number, worker) = (self.number, self.worker.clone());
                let opening = async move {
                    let senders = opening.await;
                    worker.send(ConnectionOpened {
                        number,
                        deadline,
                        senders,
                    });
                };
                self.opening = Some(AbortOnDropHandle::new(actix_rt::spawn(opening)));
            }
        }
    }

    pub(crate) fn on_connection_opened(
        &mut self,
        deadline: Deadline,
        senders: Result<CallSenders, Failure>,
    ) {
        self.opening = None;
        match senders {
            Ok(senders) => self.send(deadline, senders),
            Err(failure) => self.on_answer(Err(failure)),
        }
    }

    fn send(&mut self, deadline: Deadline, senders: CallSenders) {
        let Some(request) = self.request.take() else {
            return;
        };
        self.senders = Some(senders.clone());
        if let Some(level) = self.caller.level {
            senders.command(ConnectionCommand::LevelAtLeast(level));
        }
        let (server, reply_to) = (self.target.server.clone(), self.worker.reply_to());
        let exchange = CallRequest {
            number: self.sent_as,
            caller: self.caller.clone(),
            request,
            edits: std::mem::take(&mut self.target.edits),
            tasks: self.target.tasks,
            deadline,
            reply: self.permit.reply(self.number, server, reply_to),
        };
        senders.send(self.arbiter, CallMessage::Start(Box::new(exchange)));
    }

    /// Takes the call back from the server; nobody is answered.
    pub(crate) fn cancel_and_end(&mut self, reason: &str) {
        self.parts.counters.add(Counter::CallsCancelled);
        self.cancel(reason);
        self.is_over = true;
    }

    /// Tells the server that nobody waits for the call any more.
    pub(crate) fn cancel(&self, reason: &str) {
        let (number, reason) = (self.sent_as, Some(reason.to_owned()));
        self.send_to_server(CallMessage::CancelCall(CancelCall { number, reason }));
    }

    pub(crate) fn send_to_server(&self, message: CallMessage) {
        if let Some(senders) = &self.senders {
            senders.send(self.arbiter, message);
        }
    }

    pub(crate) fn on_notification(&mut self, notification: &Notification) {
        let frame = match notification.method {
            Method::Progress => self.progress.frame(notification),
            // S-LOG-03: only who asks for log lines gets them.
            _ => {
                let wanted = self.caller.level.zip(LogLevel::of(notification));
                let wanted = wanted.is_some_and(|(threshold, level)| level >= threshold);
                wanted.then(|| notification.frame.as_bytes().clone())
            }
        };
        let Some(frame) = frame else { return };
        self.upgrade();
        // S-PROG-03, S-LOG-07: what comes faster than the client reads is left out; the last
        // place in the queue is for the answer.
        if let ClientState::ReadsStream(events) = &self.client
            && events.capacity() > 1
        {
            let _ = events.try_send(StreamEvent::message(frame));
        }
    }

    /// Turns a waiting JSON answer into an event stream, if the client takes one.
    fn upgrade(&mut self) {
        if !self.accepts_stream || !matches!(self.client, ClientState::AwaitsAnswer(_)) {
            return;
        }
        let queue_max = self.parts.settings.load().stream_queue_max;
        let (events, stream) = mpsc::channel(queue_max.max(2));
        let before = std::mem::replace(&mut self.client, ClientState::ReadsStream(events));
        if let ClientState::AwaitsAnswer(reply) = before {
            // A client that left is noticed by its guard.
            let _ = reply.send(ClientReply::Stream(stream));
        }
    }

    /// The client is back.
    pub(crate) fn resume(&mut self, resume: ResumeCall) {
        let gathers = matches!(self.client, ClientState::Away);
        if !gathers || resume.round != self.inputs.round {
            // A state is good for one return (S-MRTR-09).
            let (method, id) = (&resume.request.method, &resume.request.id);
            let answer = self.parts.answer_decorator.failed(
                method,
                id,
                &invalid_state(),
                self.caller.revision,
            );
            let _ = resume.reply.send(answer);
            return;
        }
        self.id = resume.request.id.clone();
        self.progress = Progress::of(&resume.request, Revision::NEWEST);
        self.accepts_stream = resume.accepts_stream;
        self.client = ClientState::AwaitsAnswer(resume.reply);
        self.request_number = resume.request_number;
        self.continue_with_answers(&resume.request);
    }

    pub(crate) fn on_delivered(&mut self, what: CallEvent) {
        match what {
            CallEvent::Answer(Err(failure)) if self.schedule_retry(&failure) => {}
            CallEvent::Answer(answer) => self.on_answer(answer),
            CallEvent::Notification(notification) if self.target.tasks == TaskMode::Bridged => {
                self.on_bridged_notification(&notification);
            }
            CallEvent::Notification(notification) => self.on_notification(&notification),
            CallEvent::Question(question) if self.task.is_some() => {
                self.on_task_question(question);
            }
            CallEvent::Question(question) => self.on_question(question),
            CallEvent::TaskCreated => self.retry = None,
        }
    }

    /// What becomes of the wait for the client's request of this number, if that still waits.
    pub(crate) fn on_client_request_event(
        &mut self,
        request_number: u64,
        wait: ClientRequestChange,
    ) {
        let waits = !matches!(self.client, ClientState::Away);
        match wait {
            ClientRequestChange::Upgrade if request_number == self.request_number => self.upgrade(),
            ClientRequestChange::Closed if waits && request_number == self.request_number => {
                self.cancel_and_end("the client closed its request");
            }
            ClientRequestChange::Upgrade | ClientRequestChange::Closed => {}
        }
    }

    pub(crate) fn on_alarm(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::QuestionsGathered => self.ask(),
            Alarm::ClientAbsent => self.on_client_absent(),
            Alarm::Retry => self.resend(),
            Alarm::TaskExpired => self.forget_task(),
            Alarm::TaskQuiet => self.answer_waiting_requests(),
        }
    }
}
