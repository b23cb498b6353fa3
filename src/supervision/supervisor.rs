//! The actor that keeps one child alive: it carries out what [`Machine`] decides.
//!
//! It lives on the arbiter that started it, the child on one of the pool. It knows nothing of
//! what the child does.

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle};
use tokio::sync::watch;
use tokio::time::Instant;

use super::arbiters::Site;
use super::exit::{Exit, ExitReason, caught};
use super::machine::{Action, Event, Machine, State, Step, Then};
use super::policy::Settings;
use super::roster::{ChildRef, Offer, Snapshot, Status};
use super::spec::{ChildSpec, Escalation, Link, Shutdown, Start};

/// Keeps one child alive.
pub struct Supervisor<T: Offer> {
    spec: ChildSpec<T>,
    machine: Machine,
    generation: u64,
    child: Option<Child>,
    /// What the current incarnation offers, once it is ready.
    value: Option<T>,
    timer: Option<SpawnHandle>,
    snapshot: watch::Sender<Snapshot<T>>,
}

/// The current incarnation.
struct Child {
    shutdown: Recipient<Shutdown>,
    exit: Exit,
    site: Site,
}

impl<T: Offer> Supervisor<T> {
    /// Starts a supervisor on the calling arbiter, and its child unless it is lazy.
    ///
    /// The supervisor runs until [`ChildRef::stop`], or until its arbiter ends; its child ends
    /// with it.
    pub fn supervise(spec: ChildSpec<T>) -> ChildRef<T> {
        let (snapshot, receiver) = watch::channel(Snapshot {
            status: if spec.lazy {
                Status::Idle
            } else {
                Status::Starting
            },
            last_exit: None,
            since: Instant::now(),
            generation: 0,
            panics: 0,
            stuck: 0,
        });
        let name = spec.name.clone();
        let machine = Machine::new(spec.policy, spec.settings.clone());
        let supervisor = Self {
            spec,
            machine,
            generation: 0,
            child: None,
            value: None,
            timer: None,
            snapshot,
        };
        ChildRef::new(name, receiver, supervisor.start())
    }

    fn handle_event(&mut self, event: Event, ctx: &mut Context<Self>) {
        let step = self
            .machine
            .decide(event, Instant::now(), self.spec.random.chance());
        if step.stuck {
            self.leave_behind();
        }
        self.publish();
        self.escalate(&step);
        match step.action {
            Action::Nothing => {}
            Action::Launch => self.launch(ctx),
            Action::Ask => self.ask(),
            Action::Kill => self.kill(),
            Action::Finish => ctx.stop(),
        }
        self.arm(ctx);
    }

    fn launch(&mut self, ctx: &mut Context<Self>) {
        self.generation += 1;
        self.value = None;
        let generation = self.generation;
        self.snapshot
            .send_modify(|snapshot| snapshot.generation = generation);
        let exit = Exit::new();
        let to_ready = ctx.address();
        let to_exit = ctx.address();
        let on_ready = move |value| to_ready.do_send(News::Ready { generation, value });
        let on_exit = move |reason| to_exit.do_send(News::Exit { generation, reason });
        let link = Link::new(generation, exit.clone(), on_ready);
        let site = self.spec.arbiters.site(self.spec.key);
        log::debug!(child = &*self.spec.name, generation, arbiter = site.index; "child starts");
        let shutdown = (self.spec.start.0)(&site, link, Box::new(on_exit));
        self.child = Some(Child {
            shutdown,
            exit,
            site,
        });
    }

    fn ask(&self) {
        if let Some(child) = &self.child {
            child.shutdown.do_send(Shutdown);
        }
    }

    fn kill(&self) {
        let Some(child) = &self.child else { return };
        let reason = match self.machine.state() {
            State::Ending {
                then: Then::Fail(reason),
                ..
            } => reason.clone(),
            _ => ExitReason::Killed,
        };
        log::warn!(child = &*self.spec.name, generation = self.generation, why:% = reason;
            "child is killed");
        child.exit.kill_because(reason);
    }

    /// Its thread is blocked, and nothing within the process can free it.
    fn leave_behind(&mut self) {
        let Some(child) = self.child.take() else {
            return;
        };
        log::error!(child = &*self.spec.name, generation = self.generation, arbiter = child.site.index;
            "child blocks its thread and is left behind");
        self.value = None;
        self.snapshot.send_modify(|snapshot| {
            snapshot.stuck += 1;
            snapshot.last_exit = child.exit.reason();
        });
        self.spec.arbiters.retire(&child.site);
    }

    fn arm(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(deadline) = self.machine.deadline() {
            let wait = deadline.saturating_duration_since(Instant::now());
            self.timer = Some(ctx.run_later(wait, |supervisor, ctx| {
                supervisor.timer = None;
                supervisor.handle_event(Event::Tick, ctx);
            }));
        }
    }

    fn status(&self) -> Status<T> {
        let is_held = self.machine.is_held();
        match self.machine.state() {
            State::Idle if is_held => Status::Stopped,
            State::Ending {
                then: Then::Rest, ..
            } if is_held => Status::Stopping,
            State::Idle
            | State::Ending {
                then: Then::Rest, ..
            } => Status::Idle,
            State::Starting { .. }
            | State::Ending {
                then: Then::Relaunch | Then::Fail(_),
                ..
            } => Status::Starting,
            State::Up { .. } => match &self.value {
                Some(value) => Status::Up {
                    value: value.clone(),
                    generation: self.generation,
                },
                None => Status::Starting,
            },
            State::Waiting {
                next_attempt,
                broken: false,
            } => Status::Backoff {
                next_attempt: *next_attempt,
            },
            State::Waiting {
                next_attempt,
                broken: true,
            } => Status::Broken {
                next_attempt: *next_attempt,
            },
            State::Ending {
                then: Then::Stop, ..
            } => Status::Stopping,
            State::Stopped => Status::Stopped,
        }
    }

    fn publish(&self) {
        let status = self.status();
        self.snapshot.send_modify(|snapshot| {
            if snapshot.status.phase() != status.phase() {
                snapshot.since = Instant::now();
            }
            snapshot.status = status;
        });
    }

    /// Callers see it idle before the question is asked: who comes in between is seen by it.
    fn rest_if(&mut self, is_unused: &dyn Fn() -> bool, ctx: &mut Context<Self>) {
        if !matches!(self.machine.state(), State::Up { .. }) {
            return;
        }
        let mut since = Instant::now();
        self.snapshot.send_modify(|snapshot| {
            snapshot.status = Status::Idle;
            std::mem::swap(&mut snapshot.since, &mut since);
        });
        if is_unused() {
            return self.handle_event(Event::Rest, ctx);
        }
        let status = self.status();
        self.snapshot.send_modify(|snapshot| {
            snapshot.status = status;
            snapshot.since = since;
        });
    }

    fn escalate(&self, step: &Step) {
        let (Some(panics), Some(escalate)) = (step.escalate, &self.spec.escalate) else {
            return;
        };
        let Some(why) = self.snapshot.borrow().last_exit.clone() else {
            return;
        };
        log::error!(child = &*self.spec.name, panics, why:%; "child panics too often");
        let escalation = Escalation {
            name: self.spec.name.clone(),
            panics,
            why,
        };
        if let Err(panic) = caught(|| escalate(escalation)) {
            log::error!(panic = &*panic; "an escalation was lost in a panic");
        }
    }

    fn child_exited(&mut self, reason: ExitReason, ctx: &mut Context<Self>) {
        let asked = matches!(self.machine.state(), State::Ending { .. });
        let reason = match reason {
            ExitReason::Normal if asked => ExitReason::Shutdown,
            other => other,
        };
        let level = match &reason {
            ExitReason::Normal | ExitReason::Shutdown => log::Level::Info,
            ExitReason::Panicked(_) | ExitReason::FactoryPanicked(_) => log::Level::Error,
            ExitReason::Failed(_)
            | ExitReason::LimitReached(_)
            | ExitReason::Killed
            | ExitReason::ArbiterDead
            | ExitReason::StartTimeout => log::Level::Warn,
        };
        log::log!(level, child = &*self.spec.name, generation = self.generation, why:% = reason;
            "child is gone");
        self.child = None;
        self.value = None;
        self.snapshot.send_modify(|snapshot| {
            snapshot.panics += u64::from(reason.is_panic());
            snapshot.last_exit = Some(reason.clone());
        });
        self.handle_event(Event::Exit(reason), ctx);
    }
}

impl<T: Offer> Actor for Supervisor<T> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if !self.spec.lazy {
            self.handle_event(Event::Wake, ctx);
        }
    }
}

impl<T: Offer> Drop for Supervisor<T> {
    /// However the supervisor ends, its child ends with it and callers are told.
    fn drop(&mut self) {
        if let Some(child) = &self.child {
            child.exit.kill();
        }
        self.snapshot.send_if_modified(|snapshot| {
            let news = !matches!(snapshot.status, Status::Stopped);
            snapshot.status = Status::Stopped;
            news
        });
    }
}

/// What a supervisor hears of its child.
#[derive(Debug)]
pub(crate) enum News<T> {
    Ready { generation: u64, value: T },
    Exit { generation: u64, reason: ExitReason },
}

impl<T> Message for News<T> {
    type Result = ();
}

impl<T: Offer> Handler<News<T>> for Supervisor<T> {
    type Result = ();

    fn handle(&mut self, news: News<T>, ctx: &mut Self::Context) {
        let (News::Ready { generation, .. } | News::Exit { generation, .. }) = &news;
        // Late news: of an old incarnation, or of one that was left behind.
        if *generation != self.generation || self.child.is_none() {
            return;
        }
        match news {
            News::Ready { value, .. } => {
                self.value = Some(value);
                self.handle_event(Event::Ready, ctx);
            }
            News::Exit { reason, .. } => self.child_exited(reason, ctx),
        }
    }
}

/// What those who hold a [`ChildRef`] want.
pub(crate) enum Control<T> {
    Wake,
    Reconnect,
    Configure(Settings, Option<Start<T>>),
    /// Rest, if this says that nobody uses the child.
    Rest(Box<dyn Fn() -> bool + Send>),
    Hold,
    Release,
    Stop,
}

impl<T> Message for Control<T> {
    type Result = ();
}

impl<T: Offer> Handler<Control<T>> for Supervisor<T> {
    type Result = ();

    fn handle(&mut self, control: Control<T>, ctx: &mut Self::Context) {
        match control {
            Control::Wake => self.handle_event(Event::Wake, ctx),
            Control::Reconnect => self.handle_event(Event::Reconnect, ctx),
            Control::Configure(settings, start) => {
                let renew = start.is_some();
                if let Some(start) = start {
                    self.spec.start = start;
                }
                self.handle_event(Event::Configure { settings, renew }, ctx);
            }
            Control::Rest(is_unused) => self.rest_if(&is_unused, ctx),
            Control::Hold => self.handle_event(Event::Hold, ctx),
            Control::Release => self.handle_event(Event::Release, ctx),
            Control::Stop => self.handle_event(Event::Stop, ctx),
        }
    }
}

/// Answered when everything sent before it has been heard.
pub(crate) struct Barrier;

impl Message for Barrier {
    type Result = ();
}

impl<T: Offer> Handler<Barrier> for Supervisor<T> {
    type Result = ();

    fn handle(&mut self, _: Barrier, _: &mut Self::Context) {}
}
