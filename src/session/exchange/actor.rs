//! The calls of clients without a session that came in on one worker. One actor has them all: that
//! costs a call less than an actor of its own. A call that panics ends alone.

use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Context, Handler, Message, Recipient};
use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::call::Call;
use super::parked::Resume;
use super::task::AboutTask;
use crate::downstream::{Callers, Deadline, Delivery, Timer};
use crate::id::QuickMap;
use crate::protocol::Failure;
use crate::supervision::caught;

#[derive(Default)]
pub(super) struct Calls {
    /// By their numbers.
    open: QuickMap<u64, Box<Call>>,
    /// Set to the earliest alarm.
    timer: Timer,
}

/// Begins a call.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Begin(pub(super) Box<Call>);

/// The connection of a call is open, or will not be.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Opened {
    pub(super) number: u64,
    pub(super) deadline: Deadline,
    pub(super) callers: Result<Callers, Failure>,
}

/// What becomes of the wait for one request of a client.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub(crate) struct ClientWait {
    /// The call, or 0 for what has an actor of its own.
    pub(super) call: u64,
    /// The number of the client's request: means something only while that waits.
    pub(super) turn: u64,
    pub(super) wait: Wait,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// It is long: it is to be answered as a stream.
    Upgrade,
    /// The client closed its connection.
    Over,
}

/// How to reach the calls of one worker.
pub(super) struct Worker {
    calls: Addr<Calls>,
    answers_to: Arc<Recipient<Delivery>>,
    waits: Arc<Recipient<ClientWait>>,
}

impl Worker {
    /// Starts it on the calling arbiter.
    fn start() -> Self {
        let calls = Calls::default().start();
        Self {
            answers_to: Arc::new(calls.clone().recipient()),
            waits: Arc::new(calls.clone().recipient()),
            calls,
        }
    }

    pub(super) fn tell<M>(&self, message: M)
    where
        M: Message<Result = ()> + Send + 'static,
        Calls: Handler<M>,
        Context<Calls>: ToEnvelope<Calls, M>,
    {
        self.calls.do_send(message);
    }

    pub(super) fn answers_to(&self) -> Arc<Recipient<Delivery>> {
        self.answers_to.clone()
    }

    pub(super) fn waits(&self) -> Arc<Recipient<ClientWait>> {
        self.waits.clone()
    }
}

/// The workers, by the indices of their arbiters.
pub(crate) struct Workers(Box<[ArcSwapOption<Worker>]>);

impl Workers {
    pub(crate) fn new(arbiters: usize) -> Self {
        let none = (0..arbiters.max(1)).map(|_| ArcSwapOption::empty());
        Self(none.collect())
    }

    /// That of the calling arbiter, whose index this is. It starts with the first call, and anew
    /// after its arbiter has died.
    pub(super) fn at(&self, arbiter: usize) -> Arc<Worker> {
        let place = &self.0[arbiter % self.0.len()];
        let worker = place.load_full();
        if let Some(worker) = worker.filter(|worker| worker.calls.connected()) {
            return worker;
        }
        let worker = Arc::new(Worker::start());
        place.store(Some(worker.clone()));
        worker
    }
}

impl Calls {
    /// Works on a call, if there still is one of this number.
    fn with(&mut self, number: u64, ctx: &mut Context<Self>, work: impl FnOnce(&mut Call)) {
        let Some(call) = self.open.get_mut(&number) else {
            return;
        };
        let done = caught(|| work(call));
        if let Err(text) = done {
            log::error!(panic = &*text, server = call.target.server.as_str(); "a bug ended a call");
            call.cancel("the gateway has failed");
            call.is_over = true;
        }
        if call.is_over {
            self.open.remove(&number);
            return;
        }
        self.timer.set(call.alarms.earliest(), ctx, Self::ring);
    }

    fn ring(&mut self, ctx: &mut Context<Self>) {
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
        self.timer.set(earliest.min(), ctx, Self::ring);
    }
}

impl Actor for Calls {
    type Context = Context<Self>;
}

impl Handler<Begin> for Calls {
    type Result = ();

    fn handle(&mut self, Begin(call): Begin, ctx: &mut Self::Context) {
        let number = call.number;
        self.open.insert(number, call);
        self.with(number, ctx, Call::dispatch);
    }
}

impl Handler<Opened> for Calls {
    type Result = ();

    fn handle(&mut self, opened: Opened, ctx: &mut Self::Context) {
        let Opened {
            number,
            deadline,
            callers,
        } = opened;
        self.with(number, ctx, |call| call.on_opened(deadline, callers));
    }
}

impl Handler<Delivery> for Calls {
    type Result = ();

    fn handle(&mut self, delivery: Delivery, ctx: &mut Self::Context) {
        let Delivery { number, what } = delivery;
        self.with(number, ctx, |call| call.on_delivered(what));
    }
}

impl Handler<ClientWait> for Calls {
    type Result = ();

    fn handle(&mut self, wait: ClientWait, ctx: &mut Self::Context) {
        let ClientWait { call, turn, wait } = wait;
        self.with(call, ctx, |call| call.on_wait(turn, wait));
    }
}

impl Handler<Resume> for Calls {
    type Result = ();

    fn handle(&mut self, resume: Resume, ctx: &mut Self::Context) {
        self.with(resume.call, ctx, |call| call.resume(resume));
    }
}

impl Handler<AboutTask> for Calls {
    type Result = ();

    fn handle(&mut self, about: AboutTask, ctx: &mut Self::Context) {
        self.with(about.call, ctx, |call| call.on_about_task(about));
    }
}
