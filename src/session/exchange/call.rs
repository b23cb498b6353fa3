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

use super::super::SessionParts;
use super::super::actor::log_level;
use super::super::again::Again;
use super::super::dispatch::{Dispatch, Hold, Way, dispatch};
use super::super::message::ToFront;
use super::super::progress::Progress;
use super::super::route::Target;
use super::super::streams::message_event;
use super::actor::{Opened, Wait, Worker};
use super::alarms::{Alarm, Alarms};
use super::inputs::{Inputs, invalid_state};
use super::parked::{Place, Resume};
use super::task::Standing;
use crate::downstream::{
    CallMessage, Caller, Callers, Cancel, Deadline, Delivered, Exchange, Tasks, Wish,
};
use crate::protocol::{Failure, Method, Notification, Request, RequestId, Response, Revision};
use crate::telemetry::Counter;

pub(super) struct Call {
    /// Names it among the calls of its worker.
    pub(super) number: u64,
    /// The number of it that its server sees: another one each time that it is sent.
    pub(super) sent_as: u64,
    pub(super) worker: Arc<Worker>,
    pub(super) parts: Arc<SessionParts>,
    pub(super) caller: Arc<Caller>,
    pub(super) arbiter: usize,
    pub(super) method: Method,
    pub(super) target: Target,
    /// The public name or URI that the client asks for, and the arguments that it gave.
    pub(super) item: ByteString,
    pub(super) arguments: Option<Bytes>,
    /// The id of the request that the client waits for, or waited for last.
    pub(super) id: RequestId,
    progress: Progress,
    accepts_stream: bool,
    pub(super) client: Client,
    /// Which of the client's requests it waits for: counts them.
    turn: u64,
    /// Taken when it is sent.
    pub(super) request: Option<Request>,
    pub(super) callers: Option<Callers>,
    pub(super) hold: Hold,
    pub(super) inputs: Inputs,
    pub(super) place: Option<Place>,
    pub(super) alarms: Alarms,
    /// While its connection is opened.
    opening: Option<AbortOnDropHandle<()>>,
    /// The task that it stands for.
    pub(super) task: Option<Box<Standing>>,
    /// The answer, if it came while nobody waited for it.
    pub(super) finished: Option<Box<Result<Response, Failure>>>,
    /// Kept where and while the call may be sent again.
    pub(super) again: Option<Box<Again>>,
    /// Nothing is left to be done for it.
    pub(super) is_over: bool,
}

/// How the client waits.
pub(super) enum Client {
    /// For one JSON answer, so far.
    Waits(oneshot::Sender<ToFront>),
    /// For the end of an event stream.
    Reads(mpsc::Sender<Bytes>),
    /// It gathers answers and is to come back.
    Gathers,
}

/// What a call starts with.
pub(super) struct Beginning {
    pub(super) number: u64,
    pub(super) worker: Arc<Worker>,
    pub(super) parts: Arc<SessionParts>,
    pub(super) caller: Arc<Caller>,
    pub(super) arbiter: usize,
    pub(super) request: Request,
    pub(super) target: Target,
    pub(super) item: ByteString,
    /// How often the client was asked already.
    pub(super) round: u8,
    pub(super) accepts_stream: bool,
    pub(super) reply: oneshot::Sender<ToFront>,
}

impl Call {
    pub(super) fn new(beginning: Beginning) -> Self {
        let request = beginning.request;
        Self {
            number: beginning.number,
            sent_as: beginning.number,
            worker: beginning.worker,
            parts: beginning.parts,
            caller: beginning.caller,
            arbiter: beginning.arbiter,
            method: request.method.clone(),
            target: beginning.target,
            item: beginning.item,
            arguments: request.member(request.params.arguments.as_ref()),
            id: request.id.clone(),
            progress: Progress::of(&request, Revision::NEWEST),
            accepts_stream: beginning.accepts_stream,
            client: Client::Waits(beginning.reply),
            turn: beginning.number,
            inputs: Inputs::of(&request, beginning.round),
            request: Some(request),
            callers: None,
            hold: Hold::default(),
            place: None,
            alarms: Alarms::default(),
            opening: None,
            task: None,
            finished: None,
            again: None,
            is_over: false,
        }
    }

    pub(super) fn dispatch(&mut self) {
        let downstreams = &self.parts.downstreams;
        let found = dispatch(downstreams, &self.target, &self.caller, self.arbiter, None);
        let found = match found {
            Ok(found) => found,
            Err(failure) => return self.on_answer(Err(failure)),
        };
        if found.may_repeat {
            self.keep_for_again(found.deadline);
        }
        self.send_by(found);
    }

    /// Sends the call the way that was found for it.
    pub(super) fn send_by(&mut self, found: Dispatch) {
        let Dispatch {
            deadline,
            way,
            hold,
            ..
        } = found;
        self.hold = hold;
        match way {
            Way::Open(callers) => self.send(deadline, callers),
            Way::Opening(opening) => {
                let (number, worker) = (self.number, self.worker.clone());
                let opening = async move {
                    let callers = opening.await;
                    worker.tell(Opened {
                        number,
                        deadline,
                        callers,
                    });
                };
                self.opening = Some(AbortOnDropHandle::new(actix_rt::spawn(opening)));
            }
        }
    }

    pub(super) fn on_opened(&mut self, deadline: Deadline, callers: Result<Callers, Failure>) {
        self.opening = None;
        match callers {
            Ok(callers) => self.send(deadline, callers),
            Err(failure) => self.on_answer(Err(failure)),
        }
    }

    fn send(&mut self, deadline: Deadline, callers: Callers) {
        let Some(request) = self.request.take() else {
            return;
        };
        self.callers = Some(callers.clone());
        if let Some(level) = self.caller.level {
            callers.wish(Wish::LevelAtLeast(level));
        }
        let (server, answers_to) = (self.target.server.clone(), self.worker.answers_to());
        let exchange = Exchange {
            number: self.sent_as,
            caller: self.caller.clone(),
            request,
            edits: std::mem::take(&mut self.target.edits),
            tasks: self.target.tasks,
            deadline,
            reply: self.hold.reply(self.number, server, answers_to),
        };
        callers.send(self.arbiter, CallMessage::Start(Box::new(exchange)));
    }

    /// Takes the call back from the server; nobody is answered.
    pub(super) fn take_back(&mut self, reason: &str) {
        self.parts.counters.add(Counter::CallsCancelled);
        self.cancel(reason);
        self.is_over = true;
    }

    /// Tells the server that nobody waits for the call any more.
    pub(super) fn cancel(&self, reason: &str) {
        let (number, reason) = (self.sent_as, Some(reason.to_owned()));
        self.send_to_server(CallMessage::Cancel(Cancel { number, reason }));
    }

    pub(super) fn send_to_server(&self, message: CallMessage) {
        if let Some(callers) = &self.callers {
            callers.send(self.arbiter, message);
        }
    }

    pub(super) fn on_news(&mut self, notification: &Notification) {
        let frame = match notification.method {
            Method::Progress => self.progress.frame(notification),
            // S-LOG-03: only who asks for log lines gets them.
            _ => {
                let wanted = self.caller.level.zip(log_level(notification));
                let wanted = wanted.is_some_and(|(threshold, level)| level >= threshold);
                wanted.then(|| notification.frame.as_bytes().clone())
            }
        };
        let Some(frame) = frame else { return };
        self.upgrade();
        // S-PROG-03, S-LOG-07: what comes faster than the client reads is left out; the last
        // place in the queue is for the answer.
        if let Client::Reads(events) = &self.client
            && events.capacity() > 1
        {
            let _ = events.try_send(message_event(&frame));
        }
    }

    /// Turns a waiting JSON answer into an event stream, if the client takes one.
    fn upgrade(&mut self) {
        if !self.accepts_stream || !matches!(self.client, Client::Waits(_)) {
            return;
        }
        let queue_max = self.parts.settings.load().stream_queue_max;
        let (events, stream) = mpsc::channel(queue_max.max(2));
        let before = std::mem::replace(&mut self.client, Client::Reads(events));
        if let Client::Waits(reply) = before {
            // A client that left is noticed by its guard.
            let _ = reply.send(ToFront::Stream(stream));
        }
    }

    /// The client is back.
    pub(super) fn resume(&mut self, resume: Resume) {
        let gathers = matches!(self.client, Client::Gathers);
        if !gathers || resume.round != self.inputs.round {
            // A state is good for one return (S-MRTR-09).
            let (method, id) = (&resume.request.method, &resume.request.id);
            let answer =
                self.parts
                    .dressing
                    .failed(method, id, &invalid_state(), self.caller.revision);
            let _ = resume.reply.send(answer);
            return;
        }
        self.id = resume.request.id.clone();
        self.progress = Progress::of(&resume.request, Revision::NEWEST);
        self.accepts_stream = resume.accepts_stream;
        self.client = Client::Waits(resume.reply);
        self.turn = resume.turn;
        self.go_on(&resume.request);
    }

    pub(super) fn on_delivered(&mut self, what: Delivered) {
        match what {
            Delivered::Answer(Err(failure)) if self.goes_again(&failure) => {}
            Delivered::Answer(answer) => self.on_answer(answer),
            Delivered::Notification(news) if self.target.tasks == Tasks::Bridged => {
                self.on_bridged_news(&news);
            }
            Delivered::Notification(news) => self.on_news(&news),
            Delivered::Question(question) if self.task.is_some() => {
                self.on_task_question(question);
            }
            Delivered::Question(question) => self.on_question(question),
            Delivered::TaskCreated => self.again = None,
        }
    }

    /// What becomes of the wait for the client's request of this number, if that still waits.
    pub(super) fn on_wait(&mut self, turn: u64, wait: Wait) {
        let waits = !matches!(self.client, Client::Gathers);
        match wait {
            Wait::Upgrade if turn == self.turn => self.upgrade(),
            Wait::Over if waits && turn == self.turn => {
                self.take_back("the client closed its request");
            }
            Wait::Upgrade | Wait::Over => {}
        }
    }

    pub(super) fn on_alarm(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Gathered => self.ask(),
            Alarm::NotBack => self.not_back(),
            Alarm::Again => self.send_again(),
            Alarm::TaskOver => self.forget_task(),
            Alarm::TaskSilent => self.tell_waiting(),
        }
    }
}
