//! What a supervisor does next: a state machine without clock, randomness or actors.
//!
//! Events go in with the time and a random number, a [`Step`] comes out that the supervisor
//! carries out. There is one timer: [`Machine::deadline`] says when [`Event::Tick`] is due.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::{
    backoff,
    exit::ExitReason,
    policy::{RestartPolicy, Settings},
};

#[derive(Debug)]
pub(crate) enum Event {
    /// Somebody wants the child now: the first start, or an end of the waiting. A child that
    /// is up is left alone.
    Wake,
    /// As `Wake`, but a child that is up is renewed.
    Reconnect,
    /// The incarnation says that it can be used.
    Ready,
    /// The incarnation is gone.
    Exit(ExitReason),
    /// The deadline has come.
    Tick,
    /// New settings; earlier failures say nothing about them. With `renew` the child's spec
    /// changed, too: an incarnation of the old one must make way.
    Configure { settings: Settings, renew: bool },
    /// A child that is up and that nobody uses may leave until it is woken.
    Rest,
    /// The child is taken out of service: it leaves, and no wake brings it back.
    Hold,
    /// It is wanted again after a hold.
    Release,
    /// The child is no longer wanted.
    Stop,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Not running, by intent: not started yet, ended as it should, at rest or held.
    Idle,
    /// Born, or about to be; must be ready by the deadline.
    Starting {
        deadline: Instant,
    },
    Up {
        since: Instant,
    },
    Waiting {
        next_attempt: Instant,
        broken: bool,
    },
    /// Asked to leave, or killed, and not known to be gone.
    Ending {
        deadline: Instant,
        killed: bool,
        then: Then,
    },
    Stopped,
}

/// What follows when the incarnation is gone.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    Relaunch,
    /// It is left alone until it is woken.
    Rest,
    Stop,
    /// It counts as a failure.
    Fail(ExitReason),
}

/// What the supervisor has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    Launch,
    /// Ask the child to leave.
    Ask,
    Kill,
    /// The child is gone for good.
    Finish,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) action: Action,
    /// Panics within the window, when they have just become too many.
    pub(crate) escalate: Option<usize>,
    /// A killed child is not gone: its thread is blocked, and it is left behind.
    pub(crate) stuck: bool,
}

impl Step {
    const fn just(action: Action) -> Self {
        Self {
            action,
            escalate: None,
            stuck: false,
        }
    }

    const NOTHING: Self = Self::just(Action::Nothing);
}

#[derive(Debug)]
pub(crate) struct Machine {
    policy: RestartPolicy,
    settings: Settings,
    state: State,
    /// Failures since the child was last stable: the exponent of the backoff.
    attempt: u32,
    broken: bool,
    /// Out of service until it is released.
    held: bool,
    /// When the last failures happened, within the window.
    failures: VecDeque<Instant>,
    panics: VecDeque<Instant>,
}

impl Machine {
    pub(crate) fn new(policy: RestartPolicy, settings: Settings) -> Self {
        Self {
            policy,
            settings,
            state: State::Idle,
            attempt: 0,
            broken: false,
            held: false,
            failures: VecDeque::new(),
            panics: VecDeque::new(),
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// When [`Event::Tick`] is due, if ever.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Idle | State::Up { .. } | State::Stopped => None,
            State::Starting { deadline } | State::Ending { deadline, .. } => Some(deadline),
            State::Waiting { next_attempt, .. } => Some(next_attempt),
        }
    }

    pub(crate) fn decide(&mut self, event: Event, now: Instant, chance: f64) -> Step {
        match event {
            Event::Wake => self.wake(now),
            Event::Reconnect => self.reconnect(now),
            Event::Ready => self.ready(now),
            Event::Exit(reason) => self.exit(reason, now, chance),
            Event::Tick => self.tick(now, chance),
            Event::Configure { settings, renew } => self.configure(settings, renew, now),
            Event::Rest => self.rest(now),
            Event::Hold => self.hold(now),
            Event::Release => self.release(now),
            Event::Stop => self.stop(now),
        }
    }

    fn wake(&mut self, now: Instant) -> Step {
        match &mut self.state {
            _ if self.held => Step::NOTHING,
            State::Idle | State::Waiting { .. } => self.launch(now),
            State::Ending {
                then: then @ Then::Rest,
                ..
            } => {
                *then = Then::Relaunch;
                Step::NOTHING
            }
            State::Starting { .. } | State::Up { .. } | State::Ending { .. } | State::Stopped => {
                Step::NOTHING
            }
        }
    }

    fn reconnect(&mut self, now: Instant) -> Step {
        match self.state {
            State::Up { .. } => self.ask(now, Then::Relaunch),
            State::Idle
            | State::Waiting { .. }
            | State::Starting { .. }
            | State::Ending { .. }
            | State::Stopped => self.wake(now),
        }
    }

    fn rest(&mut self, now: Instant) -> Step {
        match self.state {
            State::Up { .. } => self.ask(now, Then::Rest),
            State::Idle
            | State::Waiting { .. }
            | State::Starting { .. }
            | State::Ending { .. }
            | State::Stopped => Step::NOTHING,
        }
    }

    fn hold(&mut self, now: Instant) -> Step {
        match &mut self.state {
            State::Stopped => return Step::NOTHING,
            State::Starting { .. } | State::Up { .. } => {
                self.held = true;
                return self.ask(now, Then::Rest);
            }
            State::Waiting { .. } => self.state = State::Idle,
            State::Ending {
                then: then @ (Then::Relaunch | Then::Fail(_)),
                ..
            } => *then = Then::Rest,
            State::Idle
            | State::Ending {
                then: Then::Rest | Then::Stop,
                ..
            } => {}
        }
        self.held = true;
        Step::NOTHING
    }

    fn release(&mut self, now: Instant) -> Step {
        if !self.held {
            return Step::NOTHING;
        }
        self.held = false;
        self.forget();
        self.wake(now)
    }

    fn ready(&mut self, now: Instant) -> Step {
        if let State::Starting { .. } = self.state {
            self.state = State::Up { since: now };
        }
        Step::NOTHING
    }

    fn exit(&mut self, reason: ExitReason, now: Instant, chance: f64) -> Step {
        let up_since = match &self.state {
            State::Starting { .. } => None,
            State::Up { since } => Some(*since),
            State::Ending { then, .. } => {
                let then = then.clone();
                let escalate = self.count_panic(&reason, now);
                return Step {
                    escalate,
                    ..self.conclude(then, now, chance)
                };
            }
            // News of an incarnation that was left behind.
            State::Idle | State::Waiting { .. } | State::Stopped => return Step::NOTHING,
        };
        if up_since.is_some_and(|since| now.duration_since(since) >= self.settings.stable_after) {
            self.forget();
        }
        let escalate = self.count_panic(&reason, now);
        Step {
            escalate,
            ..self.failed(&reason, now, chance)
        }
    }

    fn tick(&mut self, now: Instant, chance: f64) -> Step {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Step::NOTHING;
        }
        match &self.state {
            State::Waiting { .. } => self.launch(now),
            State::Starting { .. } => self.kill(now, Then::Fail(ExitReason::StartTimeout)),
            State::Ending {
                killed: false,
                then,
                ..
            } => {
                let then = then.clone();
                self.kill(now, then)
            }
            State::Ending {
                killed: true, then, ..
            } => {
                let then = then.clone();
                Step {
                    stuck: true,
                    ..self.conclude(then, now, chance)
                }
            }
            State::Idle | State::Up { .. } | State::Stopped => Step::NOTHING,
        }
    }

    fn configure(&mut self, settings: Settings, renew: bool, now: Instant) -> Step {
        self.settings = settings;
        self.forget();
        match &mut self.state {
            State::Waiting { .. } => self.launch(now),
            State::Starting { .. } | State::Up { .. } if renew => self.ask(now, Then::Relaunch),
            State::Starting { deadline } => {
                *deadline = now + self.settings.connect_timeout;
                Step::NOTHING
            }
            State::Ending {
                then: then @ Then::Fail(_),
                ..
            } => {
                *then = Then::Relaunch;
                Step::NOTHING
            }
            State::Ending {
                then: Then::Relaunch | Then::Rest | Then::Stop,
                ..
            }
            | State::Idle
            | State::Up { .. }
            | State::Stopped => Step::NOTHING,
        }
    }

    fn stop(&mut self, now: Instant) -> Step {
        match &mut self.state {
            State::Starting { .. } | State::Up { .. } => self.ask(now, Then::Stop),
            State::Ending { then, .. } => {
                *then = Then::Stop;
                Step::NOTHING
            }
            State::Idle | State::Waiting { .. } => self.finish(),
            State::Stopped => Step::NOTHING,
        }
    }

    fn launch(&mut self, now: Instant) -> Step {
        self.state = State::Starting {
            deadline: now + self.settings.connect_timeout,
        };
        Step::just(Action::Launch)
    }

    fn ask(&mut self, now: Instant, then: Then) -> Step {
        let deadline = now + self.settings.shutdown_timeout;
        self.state = State::Ending {
            deadline,
            killed: false,
            then,
        };
        Step::just(Action::Ask)
    }

    fn kill(&mut self, now: Instant, then: Then) -> Step {
        let deadline = now + self.settings.shutdown_timeout;
        self.state = State::Ending {
            deadline,
            killed: true,
            then,
        };
        Step::just(Action::Kill)
    }

    fn finish(&mut self) -> Step {
        self.state = State::Stopped;
        Step::just(Action::Finish)
    }

    fn conclude(&mut self, then: Then, now: Instant, chance: f64) -> Step {
        match then {
            Then::Relaunch => self.launch(now),
            Then::Rest => {
                self.state = State::Idle;
                Step::NOTHING
            }
            Then::Stop => self.finish(),
            Then::Fail(reason) => self.failed(&reason, now, chance),
        }
    }

    fn failed(&mut self, reason: &ExitReason, now: Instant, chance: f64) -> Step {
        if !self.policy.restarts(reason) {
            self.state = State::Idle;
            return Step::NOTHING;
        }
        let failures = count(&mut self.failures, &self.settings, now);
        self.broken |= failures > self.settings.max_restarts as usize;
        let wait = if self.broken {
            backoff::spread(self.settings.reconnect_every, self.settings.jitter, chance)
        } else {
            backoff::delay(&self.settings, self.attempt, chance)
        };
        self.attempt = self.attempt.saturating_add(1);
        self.state = State::Waiting {
            next_attempt: now + wait,
            broken: self.broken,
        };
        Step::NOTHING
    }

    fn forget(&mut self) {
        self.attempt = 0;
        self.broken = false;
        self.failures.clear();
        self.panics.clear();
    }

    /// Only panics escalate: a peer that is down is no reason to trouble the neighbours.
    fn count_panic(&mut self, reason: &ExitReason, now: Instant) -> Option<usize> {
        if !reason.is_panic() {
            return None;
        }
        let panics = count(&mut self.panics, &self.settings, now);
        if panics <= self.settings.max_restarts as usize {
            return None;
        }
        // The next storm is told again, not every panic of this one.
        self.panics.clear();
        Some(panics)
    }
}

/// Notes one more event and counts those of the window; remembers no more than it needs.
fn count(events: &mut VecDeque<Instant>, settings: &Settings, now: Instant) -> usize {
    events.push_back(now);
    let needed = settings.max_restarts as usize + 1;
    while events.len() > needed
        || events
            .front()
            .is_some_and(|first| now.duration_since(*first) > settings.within)
    {
        events.pop_front();
    }
    events.len()
}

#[cfg(test)]
mod proofs;
#[cfg(test)]
mod tests;
