//! The calls of clients without a session that came in on one worker. One actor has them all: that
//! costs a call less than an actor of its own. A call that panics ends alone.

use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Context, Handler, Message, Recipient};
use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::calls::call::Call;
use crate::calls::hosted_task::TaskRequest;
use crate::calls::parked_calls::ResumeCall;
use crate::calls::request_guard::ClientRequestEvent;
use crate::downstream::{CallSenders, Deadline, Delivery, Timer};
use crate::id::QuickMap;
use crate::protocol::Failure;
use crate::supervision::catch_panic;

#[derive(Default)]
pub(crate) struct SessionlessCalls {
    /// By their numbers.
    open: QuickMap<u64, Box<Call>>,
    /// Set to the earliest alarm.
    timer: Timer,
}

/// Begins a call.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct StartCall(pub(crate) Box<Call>);

/// The connection of a call is open, or will not be.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ConnectionOpened {
    pub(crate) number: u64,
    pub(crate) deadline: Deadline,
    pub(crate) senders: Result<CallSenders, Failure>,
}

/// How to reach the calls of one worker.
pub(crate) struct CallWorker {
    calls: Addr<SessionlessCalls>,
    reply_to: Arc<Recipient<Delivery>>,
    client_requests: Arc<Recipient<ClientRequestEvent>>,
}

impl CallWorker {
    /// Starts it on the calling arbiter.
    fn start() -> Self {
        let calls = SessionlessCalls::default().start();
        Self {
            reply_to: Arc::new(calls.clone().recipient()),
            client_requests: Arc::new(calls.clone().recipient()),
            calls,
        }
    }

    pub(crate) fn send<M>(&self, message: M)
    where
        M: Message<Result = ()> + Send + 'static,
        SessionlessCalls: Handler<M>,
        Context<SessionlessCalls>: ToEnvelope<SessionlessCalls, M>,
    {
        self.calls.do_send(message);
    }

    pub(crate) fn reply_to(&self) -> Arc<Recipient<Delivery>> {
        self.reply_to.clone()
    }

    pub(crate) fn client_requests(&self) -> Arc<Recipient<ClientRequestEvent>> {
        self.client_requests.clone()
    }
}

/// The workers, by the indices of their arbiters.
pub(crate) struct CallWorkers(Box<[ArcSwapOption<CallWorker>]>);

impl CallWorkers {
    pub(crate) fn new(arbiters: usize) -> Self {
        let none = (0..arbiters.max(1)).map(|_| ArcSwapOption::empty());
        Self(none.collect())
    }

    /// That of the calling arbiter, whose index this is. It starts with the first call, and anew
    /// after its arbiter has died.
    pub(crate) fn at(&self, arbiter: usize) -> Arc<CallWorker> {
        let place = &self.0[arbiter % self.0.len()];
        let worker = place.load_full();
        if let Some(worker) = worker.filter(|worker| worker.calls.connected()) {
            return worker;
        }
        let worker = Arc::new(CallWorker::start());
        place.store(Some(worker.clone()));
        worker
    }
}

impl SessionlessCalls {
    /// Works on a call, if there still is one of this number.
    fn with(&mut self, number: u64, ctx: &mut Context<Self>, work: impl FnOnce(&mut Call)) {
        let Some(call) = self.open.get_mut(&number) else {
            return;
        };
        let done = catch_panic(|| work(call));
        if let Err(text) = done {
            log::error!(panic = &*text, server = call.target.server.as_str(); "a bug ended a call");
            call.cancel("the gateway has failed");
            call.is_over = true;
        }
        if call.is_over {
            self.open.remove(&number);
            return;
        }
        self.timer.set(call.alarms.earliest(), ctx, Self::on_timer);
    }

    fn on_timer(&mut self, ctx: &mut Context<Self>) {
        self.timer.fired();
        let now = Instant::now();
        let is_due = |call: &Call| call.alarms.earliest().is_some_and(|at| at <= now);
        let due = self.open.iter().filter(|(_, call)| is_due(call));
        let mut due: Vec<u64> = due.map(|(number, _)| *number).collect();
        due.sort_unstable();
        for number in due {
            self.with(number, ctx, |call| {
                while let Some(alarm) = call.alarms.take_due(now) {
                    call.on_alarm(alarm);
                }
            });
        }
        let earliest = (self.open.values()).filter_map(|call| call.alarms.earliest());
        self.timer.set(earliest.min(), ctx, Self::on_timer);
    }
}

impl Actor for SessionlessCalls {
    type Context = Context<Self>;
}

impl Handler<StartCall> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, StartCall(call): StartCall, ctx: &mut Self::Context) {
        let number = call.number;
        self.open.insert(number, call);
        self.with(number, ctx, Call::dispatch);
    }
}

impl Handler<ConnectionOpened> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, opened: ConnectionOpened, ctx: &mut Self::Context) {
        let ConnectionOpened {
            number,
            deadline,
            senders,
        } = opened;
        self.with(number, ctx, |call| {
            call.on_connection_opened(deadline, senders)
        });
    }
}

impl Handler<Delivery> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, delivery: Delivery, ctx: &mut Self::Context) {
        let Delivery { number, what } = delivery;
        self.with(number, ctx, |call| call.on_delivered(what));
    }
}

impl Handler<ClientRequestEvent> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, wait: ClientRequestEvent, ctx: &mut Self::Context) {
        let ClientRequestEvent {
            call,
            request_number,
            wait,
        } = wait;
        self.with(call, ctx, |call| {
            call.on_client_request_event(request_number, wait)
        });
    }
}

impl Handler<ResumeCall> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, resume: ResumeCall, ctx: &mut Self::Context) {
        self.with(resume.call, ctx, |call| call.resume(resume));
    }
}

impl Handler<TaskRequest> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, about: TaskRequest, ctx: &mut Self::Context) {
        self.with(about.call, ctx, |call| call.on_task_request(about));
    }
}
