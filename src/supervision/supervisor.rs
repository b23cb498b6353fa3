//! The actor that keeps one child alive by carrying out the decisions of [`RestartMachine`].
//!
//! It runs on the arbiter that started it or beside the child; the child runs on one of the pool. It
//! is independent of what the child does.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, Recipient};
use tokio::sync::watch;
use tokio::time::Instant;

use super::arbiters::ArbiterSite;
use super::child_ref::{ChildRef, ChildSnapshot, ChildStatus, ChildValue, Control};
use super::exit::{Exit, ExitReason};
use super::machine::{Action, AfterExit, ChildEvent, ChildState, RestartMachine};
use super::outlook;
use super::spec::{ChildSpec, Shutdown, SupervisorLink};
use super::timer::Timer;

/// Keeps one child alive.
pub struct Supervisor<T: ChildValue> {
    spec: ChildSpec<T>,
    machine: RestartMachine,
    generation: u64,
    child: Option<RunningChild>,
    /// The value that the current incarnation offers; `None` until it is ready.
    value: Option<T>,
    /// Why the child was asked to leave, until it is started again.
    leave_reason: Option<&'static str>,
    /// The previous exit as it was logged; `None` once an incarnation was ready.
    logged: Option<LoggedExit>,
    timer: Timer,
    snapshot: watch::Sender<ChildSnapshot<T>>,
}

/// The current incarnation.
struct RunningChild {
    shutdown: Recipient<Shutdown>,
    exit: Exit,
    site: ArbiterSite,
}

impl<T: ChildValue> Supervisor<T> {
    /// Starts a supervisor on the calling arbiter, and its child unless it is lazy.
    ///
    /// The supervisor runs until [`ChildRef::stop`], or until its arbiter ends; the child ends with
    /// it.
    pub fn supervise(spec: ChildSpec<T>) -> ChildRef<T> {
        Self::supervise_on(spec, Actor::start)
    }

    /// Starts a supervisor on its child's arbiter, so that their messages wake no other thread.
    ///
    /// If that thread is blocked, the supervisor cannot notice it, and if it ends, the supervisor
    /// ends with the child. So this is for a child that only callers on the same thread use.
    pub fn supervise_beside_child(spec: ChildSpec<T>) -> ChildRef<T> {
        let site = spec.arbiters.site(spec.key);
        Self::supervise_on(spec, |supervisor| {
            Self::start_in_arbiter(&site.arbiter, |_| supervisor)
        })
    }

    fn supervise_on(spec: ChildSpec<T>, start: impl FnOnce(Self) -> Addr<Self>) -> ChildRef<T> {
        let (snapshot, receiver) = watch::channel(ChildSnapshot {
            status: match (spec.lazy, spec.blocked) {
                (true, _) => ChildStatus::Idle,
                (false, true) => ChildStatus::Waiting,
                (false, false) => ChildStatus::Starting,
            },
            last_exit: None,
            since: Instant::now(),
            generation: 0,
            restarts: BTreeMap::new(),
            streak: None,
            escalations: 0,
            panics: 0,
            stuck: 0,
            is_running: false,
            is_blocked: spec.blocked,
            failures_total: 0,
        });
        let name = spec.name.clone();
        let machine = RestartMachine::new(spec.settings.clone());
        let machine = match spec.blocked {
            true => machine.blocked(),
            false => machine,
        };
        let supervisor = Self {
            spec,
            machine,
            generation: 0,
            child: None,
            value: None,
            leave_reason: None,
            timer: Timer::default(),
            logged: None,
            snapshot,
        };
        ChildRef::new(name, receiver, start(supervisor).recipient())
    }

    fn handle_event(&mut self, event: ChildEvent, ctx: &mut Context<Self>) {
        let (reason, was_broken) = (event.reason(), self.machine.is_broken());
        let step = self
            .machine
            .decide(event, Instant::now(), self.spec.random.chance());
        if self.machine.is_broken() && !was_broken {
            self.snapshot
                .send_modify(|snapshot| snapshot.escalations += 1);
        }
        if step.stuck {
            self.abandon_blocked_child();
        }
        self.publish();
        match step.action {
            Action::Nothing => {}
            Action::Launch => self.launch(ctx),
            Action::Ask => {
                self.leave_reason = reason;
                self.ask();
            }
            Action::Kill => self.kill(),
            Action::Finish => ctx.stop(),
        }
        self.schedule_tick(ctx);
    }

    fn launch(&mut self, ctx: &mut Context<Self>) {
        self.generation += 1;
        self.value = None;
        let generation = self.generation;
        let leave_reason = self.leave_reason.take();
        self.snapshot.send_modify(|snapshot| {
            snapshot.generation = generation;
            let ended = snapshot.last_exit.as_ref().map(ExitReason::exact_code);
            if let Some(reason) = leave_reason.or(ended) {
                *snapshot.restarts.entry(reason).or_default() += 1;
            }
        });
        let exit = Exit::new();
        let to_ready = ctx.address();
        let to_start = ctx.address();
        let to_exit = ctx.address();
        let on_ready = move |value| to_ready.do_send(IncarnationEvent::Ready { generation, value });
        let on_start = move |within| {
            to_start.do_send(IncarnationEvent::StillStarting { generation, within });
        };
        let on_exit = move |reason| to_exit.do_send(IncarnationEvent::Exit { generation, reason });
        let link = SupervisorLink::new(generation, exit.clone(), on_ready, on_start);
        let site = self.spec.arbiters.site(self.spec.key);
        log::debug!(child = &*self.spec.name, generation, arbiter = site.index; "starts");
        let shutdown = (self.spec.start.0)(&site, link, Box::new(on_exit));
        self.snapshot.send_modify(|it| it.is_running = true);
        self.child = Some(RunningChild {
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
            ChildState::Ending {
                then: AfterExit::Fail(reason),
                ..
            } => reason.clone(),
            _ => ExitReason::Killed,
        };
        log::debug!(child = &*self.spec.name, generation = self.generation, why = reason.cause().as_str();
            "killed");
        child.exit.kill_with_reason(reason);
    }

    /// The thread is blocked, and nothing within the process can unblock it.
    fn abandon_blocked_child(&mut self) {
        let Some(child) = self.child.take() else {
            return;
        };
        log::error!(child = &*self.spec.name, generation = self.generation, arbiter = child.site.index;
            "child blocks its thread; abandoning it");
        self.value = None;
        self.snapshot.send_modify(|snapshot| {
            snapshot.stuck += 1;
            snapshot.last_exit = child.exit.reason();
        });
        self.spec.arbiters.retire(&child.site);
    }

    fn schedule_tick(&mut self, ctx: &mut Context<Self>) {
        let deadline = self.machine.deadline();
        self.timer.set(deadline, ctx, |supervisor, ctx| {
            supervisor.timer.fired();
            supervisor.handle_event(ChildEvent::Tick, ctx);
        });
    }

    fn status(&self) -> ChildStatus<T> {
        let is_held = self.machine.is_held() || self.machine.gave_up();
        match self.machine.state() {
            ChildState::Idle if is_held => ChildStatus::Stopped,
            ChildState::Idle => ChildStatus::Idle,
            ChildState::Blocked => ChildStatus::Waiting,
            ChildState::Starting { .. } => ChildStatus::Starting,
            ChildState::Up { .. } => match self.value.clone() {
                Some(value) => ChildStatus::Up {
                    value,
                    generation: self.generation,
                },
                None => ChildStatus::Starting,
            },
            &ChildState::Waiting {
                next_attempt,
                broken,
            } if broken => ChildStatus::Broken { next_attempt },
            &ChildState::Waiting { next_attempt, .. } => ChildStatus::Backoff { next_attempt },
            ChildState::Ending { then, .. } => match then {
                AfterExit::Idle if !is_held => ChildStatus::Idle,
                AfterExit::Idle | AfterExit::Stop => ChildStatus::Stopping,
                AfterExit::Relaunch if self.machine.is_blocked() => ChildStatus::Waiting,
                AfterExit::Relaunch | AfterExit::Fail(_) => ChildStatus::Starting,
            },
            ChildState::Stopped => ChildStatus::Stopped,
        }
    }

    fn publish(&self) {
        let status = self.status();
        self.snapshot.send_modify(|snapshot| {
            if snapshot.status.phase() != status.phase() {
                snapshot.since = Instant::now();
            }
            snapshot.status = status;
            snapshot.streak = self.machine.streak();
            snapshot.failures_total = self.machine.failures_total();
            snapshot.is_running = self.child.is_some();
            snapshot.is_blocked = self.machine.is_blocked();
        });
    }

    /// Callers see the child idle before the check runs, so the check sees every caller that
    /// arrives in between.
    fn leave_if(
        &mut self,
        is_unused: &dyn Fn() -> bool,
        event: ChildEvent,
        ctx: &mut Context<Self>,
    ) {
        if !matches!(self.machine.state(), ChildState::Up { .. }) {
            return;
        }
        let mut since = Instant::now();
        self.snapshot.send_modify(|snapshot| {
            snapshot.status = ChildStatus::Idle;
            std::mem::swap(&mut snapshot.since, &mut since);
        });
        if is_unused() {
            return self.handle_event(event, ctx);
        }
        let status = self.status();
        self.snapshot.send_modify(|snapshot| {
            snapshot.status = status;
            snapshot.since = since;
        });
    }

    fn child_exited(&mut self, reason: ExitReason, ctx: &mut Context<Self>) {
        let asked = matches!(self.machine.state(), ChildState::Ending { .. });
        let reason = match reason {
            ExitReason::Normal if asked => ExitReason::Shutdown,
            other => other,
        };
        let level = match &reason {
            // The requester has already logged the reason.
            ExitReason::Shutdown => log::Level::Debug,
            ExitReason::Normal => log::Level::Info,
            ExitReason::Panicked(_) | ExitReason::FactoryPanicked(_) => log::Level::Error,
            ExitReason::Failed(_)
            | ExitReason::LimitReached(_)
            | ExitReason::Killed
            | ExitReason::ArbiterDead
            | ExitReason::StartTimeout => log::Level::Warn,
        };
        let generation = self.generation;
        self.child = None;
        self.value = None;
        self.snapshot.send_modify(|snapshot| {
            snapshot.panics += u64::from(reason.is_panic());
            snapshot.last_exit = Some(reason.clone());
        });
        if let Some(wait) = reason.retry_after() {
            self.machine.wait_until(Instant::now() + wait);
        }
        let event = match (reason.is_final(), reason.is_planned()) {
            (true, _) => ChildEvent::GiveUp,
            (false, true) => ChildEvent::PlannedExit,
            (false, false) => ChildEvent::Exit,
        };
        self.handle_event(event, ctx);
        let state = self.machine.state();
        let cause = reason.cause();
        let is_broken = matches!(state, ChildState::Waiting { broken: true, .. });
        let logged = LoggedExit { cause, is_broken };
        let (child, why) = (&*self.spec.name, logged.cause.as_str());
        let then = describe_next_step(state, Instant::now());
        match logged.repeats(self.logged.as_ref()) {
            Repetition::None => log::log!(level, child, generation, why; "{then}"),
            Repetition::Cause => {
                log::log!(level, child, generation, why, repeated = true; "{then}");
            }
            Repetition::Whole => log::debug!(child, generation, why; "{then}"),
        }
        self.logged = Some(logged);
    }
}

/// An exit as it was logged.
struct LoggedExit {
    cause: String,
    is_broken: bool,
}

/// How much of an exit's log line repeats the previous exit's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repetition {
    None,
    Cause,
    /// Everything: a broken child is still broken, and further attempts add no information.
    Whole,
}

impl LoggedExit {
    fn repeats(&self, before: Option<&Self>) -> Repetition {
        match before {
            Some(before) if before.cause == self.cause => {
                match self.is_broken && before.is_broken {
                    true => Repetition::Whole,
                    false => Repetition::Cause,
                }
            }
            Some(_) | None => Repetition::None,
        }
    }
}

/// Describes the next step for a child that has ended, for the log.
fn describe_next_step(state: &ChildState, now: Instant) -> String {
    match state {
        ChildState::Waiting {
            next_attempt,
            broken,
        } => {
            let left = next_attempt.saturating_duration_since(now).as_millis();
            let word = if *broken { "broken" } else { "down" };
            format!("{word}, next attempt in {:.1}s", left as f64 / 1000.0)
        }
        ChildState::Starting { .. } | ChildState::Up { .. } | ChildState::Ending { .. } => {
            "ended and is being restarted".to_owned()
        }
        ChildState::Idle => "idle".to_owned(),
        ChildState::Blocked => "waits for others".to_owned(),
        ChildState::Stopped => "stopped".to_owned(),
    }
}

impl<T: ChildValue> Actor for Supervisor<T> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if !self.spec.lazy {
            self.handle_event(ChildEvent::Wake, ctx);
        }
    }
}

impl<T: ChildValue> Drop for Supervisor<T> {
    /// However the supervisor ends, its child ends with it and callers are notified.
    fn drop(&mut self) {
        if let Some(child) = &self.child {
            child.exit.kill();
        }
        self.snapshot.send_if_modified(|snapshot| {
            let is_new = !matches!(snapshot.status, ChildStatus::Stopped);
            snapshot.status = ChildStatus::Stopped;
            is_new
        });
    }
}

/// Events from the child's current incarnation.
#[derive(Debug)]
pub(crate) enum IncarnationEvent<T> {
    Ready { generation: u64, value: T },
    StillStarting { generation: u64, within: Duration },
    Exit { generation: u64, reason: ExitReason },
}

impl<T> Message for IncarnationEvent<T> {
    type Result = ();
}

impl<T: ChildValue> Handler<IncarnationEvent<T>> for Supervisor<T> {
    type Result = ();

    fn handle(&mut self, event: IncarnationEvent<T>, ctx: &mut Self::Context) {
        let (IncarnationEvent::Ready { generation, .. }
        | IncarnationEvent::StillStarting { generation, .. }
        | IncarnationEvent::Exit { generation, .. }) = &event;
        // A late event from an old or abandoned incarnation.
        if *generation != self.generation || self.child.is_none() {
            return;
        }
        match event {
            IncarnationEvent::Ready { value, .. } => {
                self.value = Some(value);
                self.logged = None;
                self.handle_event(ChildEvent::Ready, ctx);
            }
            IncarnationEvent::StillStarting { within, .. } => {
                self.handle_event(ChildEvent::StillStarting(within), ctx);
            }
            IncarnationEvent::Exit { reason, .. } => self.child_exited(reason, ctx),
        }
    }
}

impl<T: ChildValue> Handler<Control<T>> for Supervisor<T> {
    type Result = ();

    fn handle(&mut self, control: Control<T>, ctx: &mut Self::Context) {
        match control {
            Control::Event(event) => self.handle_event(event, ctx),
            Control::Configure(settings, start) => {
                let renew = start.is_some();
                if let Some(start) = start {
                    self.spec.start = start;
                }
                self.handle_event(ChildEvent::Configure { settings, renew }, ctx);
            }
            Control::LeaveIf(is_unused, event) => self.leave_if(&is_unused, event, ctx),
            // Ignore an error: the requester no longer waits.
            Control::Explain(explained) => {
                drop(explained.send(outlook::explain(&self.machine, Instant::now())));
            }
            Control::Barrier(reached) => drop(reached.send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_was_just_logged_is_not_logged_again() {
        let logged = |cause: &str, is_broken| LoggedExit {
            cause: cause.to_owned(),
            is_broken,
        };
        let table = [
            (None, logged("a", false), Repetition::None),
            (
                Some(logged("a", false)),
                logged("b", false),
                Repetition::None,
            ),
            (
                Some(logged("a", false)),
                logged("a", false),
                Repetition::Cause,
            ),
            (
                Some(logged("a", false)),
                logged("a", true),
                Repetition::Cause,
            ),
            (
                Some(logged("a", true)),
                logged("a", true),
                Repetition::Whole,
            ),
            (Some(logged("a", true)), logged("b", true), Repetition::None),
        ];
        for (before, now, expected) in table {
            assert_eq!(now.repeats(before.as_ref()), expected);
        }
    }
}
