//! One call of a client without a session: sent, answered, and parked while the server waits for
//! something from the client.
//!
//! A temporary child that lives as long as its call. Its client is there while an HTTP request
//! waits; gone before the answer, the call is taken back (S-CANC-01). Between two requests of the
//! client, while it gathers what the server asked for, the call is parked.

use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle,
};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::super::SessionParts;
use super::super::actor::log_level;
use super::super::again::Again;
use super::super::dispatch::{Dispatch, Hold, Way, dispatch};
use super::super::message::ToFront;
use super::super::progress::Progress;
use super::super::route::Target;
use super::super::streams::message_event;
use super::inputs::{Inputs, invalid_state};
use super::parked::{Place, Resume};
use super::task::Standing;
use crate::downstream::{
    CallMessage, Caller, Callers, Cancel, Deadline, Delivered, Delivery, Exchange, Tasks, Wish,
};
use crate::protocol::{Failure, Method, Notification, Request, RequestId, Response, Revision};
use crate::telemetry::Counter;

pub(crate) struct ExchangeActor {
    /// That its server sees: another one each time that the call is sent.
    pub(super) number: u64,
    pub(super) parts: Arc<SessionParts>,
    pub(super) caller: Arc<Caller>,
    pub(super) arbiter: usize,
    pub(super) method: Method,
    pub(super) target: Target,
    /// The public name or URI that the client asks for, and the arguments that it gave.
    pub(super) item: String,
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
    pub(super) timer: Option<SpawnHandle>,
    /// The task that it stands for.
    pub(super) task: Option<Box<Standing>>,
    /// The answer, if it came while nobody waited for it.
    pub(super) finished: Option<Result<Response, Failure>>,
    /// Kept where and while the call may be sent again.
    pub(super) again: Option<Box<Again>>,
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

/// What an exchange starts with.
pub(super) struct Beginning {
    pub(super) number: u64,
    pub(super) parts: Arc<SessionParts>,
    pub(super) caller: Arc<Caller>,
    pub(super) arbiter: usize,
    pub(super) request: Request,
    pub(super) target: Target,
    pub(super) item: String,
    /// How often the client was asked already.
    pub(super) round: u8,
    pub(super) accepts_stream: bool,
    pub(super) reply: oneshot::Sender<ToFront>,
}

/// What becomes of a client's wait; means something only while the request of this number waits.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub(crate) enum ClientWait {
    /// It is long: it is to be answered as a stream.
    Upgrade(u64),
    /// The client closed its connection.
    Over(u64),
}

impl ExchangeActor {
    pub(super) fn new(beginning: Beginning) -> Self {
        let request = beginning.request;
        Self {
            number: beginning.number,
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
            timer: None,
            task: None,
            finished: None,
            again: None,
        }
    }

    fn dispatch(&mut self, ctx: &mut Context<Self>) {
        let downstreams = &self.parts.downstreams;
        let found = dispatch(downstreams, &self.target, &self.caller, self.arbiter, None);
        let found = match found {
            Ok(found) => found,
            Err(failure) => return self.on_answer(Err(failure), ctx),
        };
        if found.may_repeat {
            self.keep_for_again(found.deadline);
        }
        self.send_by(found, ctx);
    }

    /// Sends the call the way that was found for it.
    pub(super) fn send_by(&mut self, found: Dispatch, ctx: &mut Context<Self>) {
        let Dispatch {
            deadline,
            way,
            hold,
            ..
        } = found;
        self.hold = hold;
        match way {
            Way::Open(callers) => self.send(deadline, callers, ctx),
            Way::Opening(opening) => {
                let opening = wrap_future::<_, Self>(opening);
                ctx.spawn(opening.map(move |callers, exchange, ctx| match callers {
                    Ok(callers) => exchange.send(deadline, callers, ctx),
                    Err(failure) => exchange.on_answer(Err(failure), ctx),
                }));
            }
        }
    }

    fn send(&mut self, deadline: Deadline, callers: Callers, ctx: &mut Context<Self>) {
        let Some(request) = self.request.take() else {
            return;
        };
        self.callers = Some(callers.clone());
        if let Some(level) = self.caller.level {
            callers.wish(Wish::LevelAtLeast(level));
        }
        let answers_to = Arc::new(ctx.address().recipient());
        let exchange = Exchange {
            number: self.number,
            caller: self.caller.clone(),
            request,
            edits: std::mem::take(&mut self.target.edits),
            tasks: self.target.tasks,
            deadline,
            reply: self
                .hold
                .reply(self.number, self.target.server.clone(), answers_to),
        };
        callers.send(self.arbiter, CallMessage::Start(Box::new(exchange)));
    }

    /// Takes the call back from the server; nobody is answered.
    pub(super) fn take_back(&mut self, reason: &str, ctx: &mut Context<Self>) {
        self.parts.counters.add(Counter::CallsCancelled);
        let (number, reason) = (self.number, Some(reason.to_owned()));
        self.send_to_server(CallMessage::Cancel(Cancel { number, reason }));
        ctx.stop();
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

    fn resume(&mut self, resume: Resume, ctx: &mut Context<Self>) {
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
        self.turn = resume.number;
        self.go_on(&resume.request, ctx);
    }
}

impl Actor for ExchangeActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.dispatch(ctx);
    }
}

impl Handler<Delivery> for ExchangeActor {
    type Result = ();

    fn handle(&mut self, delivery: Delivery, ctx: &mut Self::Context) {
        match delivery.what {
            Delivered::Answer(Err(failure)) if self.goes_again(&failure, ctx) => {}
            Delivered::Answer(answer) => self.on_answer(answer, ctx),
            Delivered::Notification(news) if self.target.tasks == Tasks::Bridged => {
                self.on_bridged_news(&news, ctx);
            }
            Delivered::Notification(news) => self.on_news(&news),
            Delivered::Question(question) if self.task.is_some() => {
                self.on_task_question(question, ctx);
            }
            Delivered::Question(question) => self.on_question(question, ctx),
            Delivered::TaskCreated => self.again = None,
        }
    }
}

impl Handler<ClientWait> for ExchangeActor {
    type Result = ();

    fn handle(&mut self, wait: ClientWait, ctx: &mut Self::Context) {
        let waits = !matches!(self.client, Client::Gathers);
        match wait {
            ClientWait::Upgrade(number) if number == self.turn => self.upgrade(),
            ClientWait::Over(number) if waits && number == self.turn => {
                self.take_back("the client closed its request", ctx);
            }
            ClientWait::Upgrade(_) | ClientWait::Over(_) => {}
        }
    }
}

impl Handler<Resume> for ExchangeActor {
    type Result = ();

    fn handle(&mut self, resume: Resume, ctx: &mut Self::Context) {
        self.resume(resume, ctx);
    }
}
