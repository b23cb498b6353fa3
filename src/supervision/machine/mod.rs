//! The decisions of a supervisor: a state machine without clock, randomness or actors.
//!
//! Each event, with the time and a random number, produces a [`Decision`] that the supervisor
//! carries out. There is one timer: [`RestartMachine::deadline`] returns when [`ChildEvent::Tick`]
//! is due.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::{backoff, exit::ExitReason, policy::Settings};

mod event;

/// Uptime after which a planned exit is no failure.
const PLANNED_AFTER: Duration = Duration::from_secs(10);

pub(crate) use event::{Action, AfterExit, ChildEvent, ChildState, Decision};

/// Failures since the child was last stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureStreak {
    /// Time of the first failure.
    pub since: Instant,
    pub failures: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct RestartMachine {
    settings: Settings,
    state: ChildState,
    /// Failures since the child was last stable; their number is the exponent of the backoff.
    streak: Option<FailureStreak>,
    broken: bool,
    /// Out of service until it is released.
    held: bool,
    /// Not started again until something changes.
    gave_up: bool,
    /// Not started until it is unblocked.
    blocked: bool,
    /// Failures since the machine was created.
    failures_total: u64,
    /// Times of the recent failures within the window.
    failures: VecDeque<Instant>,
    /// Earliest time of the next attempt.
    not_before: Option<Instant>,
}

impl RestartMachine {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: ChildState::Idle,
            streak: None,
            broken: false,
            held: false,
            gave_up: false,
            blocked: false,
            failures_total: 0,
            failures: VecDeque::new(),
            not_before: None,
        }
    }

    pub(crate) fn state(&self) -> &ChildState {
        &self.state
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Blocks the child before its first start.
    pub(crate) fn blocked(mut self) -> Self {
        self.blocked = true;
        self
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Failures since the machine was created, counted or not.
    pub(crate) fn failures_total(&self) -> u64 {
        self.failures_total
    }

    pub(crate) fn streak(&self) -> Option<FailureStreak> {
        self.streak
    }

    /// Sets the earliest time of the next attempt, stated by the failure that is about to be
    /// handled.
    pub(crate) fn wait_until(&mut self, not_before: Instant) {
        self.not_before = Some(not_before);
    }

    /// When [`ChildEvent::Tick`] is due, if at all.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.state {
            ChildState::Idle
            | ChildState::Blocked
            | ChildState::Up { .. }
            | ChildState::Stopped => None,
            ChildState::Starting { deadline } | ChildState::Ending { deadline, .. } => {
                Some(deadline)
            }
            ChildState::Waiting { next_attempt, .. } => Some(next_attempt),
        }
    }

    pub(crate) fn decide(&mut self, event: ChildEvent, now: Instant, chance: f64) -> Decision {
        match event {
            ChildEvent::Wake => self.wake(now),
            ChildEvent::Reconnect(_) => self.reconnect(now),
            ChildEvent::Ready => self.ready(now),
            ChildEvent::StillStarting(within) => self.still_starting(within, now),
            ChildEvent::Exit => self.exit(now, chance),
            ChildEvent::PlannedExit => self.planned_exit(now, chance),
            ChildEvent::GiveUp => self.give_up(now, chance),
            ChildEvent::Tick => self.tick(now, chance),
            ChildEvent::Configure { settings, renew } => self.configure(settings, renew, now),
            ChildEvent::Idle => self.idle(now),
            ChildEvent::Hold => self.hold(now),
            ChildEvent::Release => self.release(now),
            ChildEvent::Block(_) => self.block(now),
            ChildEvent::Unblock => self.unblock(now),
            ChildEvent::Stop => self.stop(now),
        }
    }

    fn wake(&mut self, now: Instant) -> Decision {
        match &mut self.state {
            _ if self.held || self.gave_up => Decision::NOTHING,
            ChildState::Idle | ChildState::Waiting { .. } => self.launch(now),
            ChildState::Ending {
                then: then @ AfterExit::Idle,
                ..
            } => {
                *then = AfterExit::Relaunch;
                Decision::NOTHING
            }
            ChildState::Blocked
            | ChildState::Starting { .. }
            | ChildState::Up { .. }
            | ChildState::Ending { .. }
            | ChildState::Stopped => Decision::NOTHING,
        }
    }

    fn reconnect(&mut self, now: Instant) -> Decision {
        self.gave_up = false;
        if let ChildState::Up { .. } = self.state {
            return self.end(Action::Ask, AfterExit::Relaunch, now);
        }
        self.wake(now)
    }

    fn idle(&mut self, now: Instant) -> Decision {
        if let ChildState::Up { .. } = self.state {
            return self.end(Action::Ask, AfterExit::Idle, now);
        }
        Decision::NOTHING
    }

    fn hold(&mut self, now: Instant) -> Decision {
        match &mut self.state {
            ChildState::Stopped => return Decision::NOTHING,
            ChildState::Starting { .. } | ChildState::Up { .. } => {
                self.held = true;
                return self.end(Action::Ask, AfterExit::Idle, now);
            }
            ChildState::Blocked | ChildState::Waiting { .. } => self.state = ChildState::Idle,
            ChildState::Ending {
                then: then @ (AfterExit::Relaunch | AfterExit::Fail(_)),
                ..
            } => *then = AfterExit::Idle,
            ChildState::Idle
            | ChildState::Ending {
                then: AfterExit::Idle | AfterExit::Stop,
                ..
            } => {}
        }
        self.held = true;
        Decision::NOTHING
    }

    fn release(&mut self, now: Instant) -> Decision {
        if !self.held && !self.gave_up {
            return Decision::NOTHING;
        }
        self.held = false;
        self.gave_up = false;
        self.reset_failures();
        self.wake(now)
    }

    fn block(&mut self, now: Instant) -> Decision {
        self.blocked = true;
        match self.state {
            ChildState::Starting { .. } | ChildState::Up { .. } => {
                self.end(Action::Ask, AfterExit::Relaunch, now)
            }
            ChildState::Idle
            | ChildState::Blocked
            | ChildState::Waiting { .. }
            | ChildState::Ending { .. }
            | ChildState::Stopped => Decision::NOTHING,
        }
    }

    fn unblock(&mut self, now: Instant) -> Decision {
        self.blocked = false;
        match self.state {
            ChildState::Blocked => self.launch(now),
            _ => Decision::NOTHING,
        }
    }

    fn ready(&mut self, now: Instant) -> Decision {
        if let ChildState::Starting { .. } = self.state {
            self.state = ChildState::Up { since: now };
        }
        Decision::NOTHING
    }

    fn still_starting(&mut self, within: Duration, now: Instant) -> Decision {
        if let ChildState::Starting { deadline } = &mut self.state {
            *deadline = now + within.min(Settings::DURATION_MAX);
        }
        Decision::NOTHING
    }

    fn exit(&mut self, now: Instant, chance: f64) -> Decision {
        match &self.state {
            ChildState::Starting { .. } | ChildState::Up { .. } => {}
            ChildState::Ending { then, .. } => {
                let then = then.clone();
                return self.after_exit(then, now, chance);
            }
            // A late message from an abandoned incarnation.
            ChildState::Idle
            | ChildState::Blocked
            | ChildState::Waiting { .. }
            | ChildState::Stopped => {
                return Decision::NOTHING;
            }
        }
        self.forget_failures_if_stable(now);
        self.failed(now, chance)
    }

    /// An end soon after the start is a failure, whatever was planned: otherwise restarts had no
    /// budget.
    fn planned_exit(&mut self, now: Instant, chance: f64) -> Decision {
        match self.state {
            ChildState::Up { since } if now.duration_since(since) >= PLANNED_AFTER => {
                self.forget_failures_if_stable(now);
                self.launch(now)
            }
            _ => self.exit(now, chance),
        }
    }

    fn give_up(&mut self, now: Instant, chance: f64) -> Decision {
        let is_running = matches!(
            self.state,
            ChildState::Starting { .. } | ChildState::Up { .. }
        );
        if !is_running {
            return self.exit(now, chance);
        }
        self.gave_up = true;
        self.failures_total += 1;
        self.state = ChildState::Idle;
        Decision::NOTHING
    }

    fn tick(&mut self, now: Instant, chance: f64) -> Decision {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Decision::NOTHING;
        }
        match &self.state {
            ChildState::Waiting { .. } => self.launch(now),
            ChildState::Starting { .. } => {
                let then = AfterExit::Fail(ExitReason::StartTimeout);
                self.end(Action::Kill, then, now)
            }
            ChildState::Ending { killed, then, .. } => {
                let (killed, then) = (*killed, then.clone());
                if !killed {
                    return self.end(Action::Kill, then, now);
                }
                Decision {
                    stuck: true,
                    ..self.after_exit(then, now, chance)
                }
            }
            ChildState::Idle
            | ChildState::Blocked
            | ChildState::Up { .. }
            | ChildState::Stopped => Decision::NOTHING,
        }
    }

    fn configure(&mut self, settings: Settings, renew: bool, now: Instant) -> Decision {
        self.settings = settings;
        self.reset_failures();
        let gave_up = std::mem::take(&mut self.gave_up);
        match &mut self.state {
            ChildState::Waiting { .. } => self.launch(now),
            ChildState::Idle if gave_up && !self.held => self.launch(now),
            ChildState::Starting { .. } | ChildState::Up { .. } if renew => {
                self.end(Action::Ask, AfterExit::Relaunch, now)
            }
            ChildState::Starting { deadline } => {
                *deadline = (*deadline).max(now + self.settings.connect_timeout);
                Decision::NOTHING
            }
            ChildState::Ending {
                then: then @ AfterExit::Fail(_),
                ..
            } => {
                *then = AfterExit::Relaunch;
                Decision::NOTHING
            }
            ChildState::Ending {
                then: AfterExit::Relaunch | AfterExit::Idle | AfterExit::Stop,
                ..
            }
            | ChildState::Idle
            | ChildState::Blocked
            | ChildState::Up { .. }
            | ChildState::Stopped => Decision::NOTHING,
        }
    }

    fn stop(&mut self, now: Instant) -> Decision {
        match &mut self.state {
            ChildState::Starting { .. } | ChildState::Up { .. } => {
                self.end(Action::Ask, AfterExit::Stop, now)
            }
            ChildState::Ending { then, .. } => {
                *then = AfterExit::Stop;
                Decision::NOTHING
            }
            ChildState::Idle | ChildState::Blocked | ChildState::Waiting { .. } => self.finish(),
            ChildState::Stopped => Decision::NOTHING,
        }
    }

    /// Every start passes here, so that no blocked child starts.
    fn launch(&mut self, now: Instant) -> Decision {
        if self.blocked {
            self.state = ChildState::Blocked;
            return Decision::NOTHING;
        }
        self.not_before = None;
        self.state = ChildState::Starting {
            deadline: now + self.settings.connect_timeout,
        };
        Decision::just(Action::Launch)
    }

    /// Asks the child to leave, or kills it.
    fn end(&mut self, action: Action, then: AfterExit, now: Instant) -> Decision {
        self.forget_failures_if_stable(now);
        self.state = ChildState::Ending {
            deadline: now + self.settings.shutdown_timeout,
            killed: action == Action::Kill,
            then,
        };
        Decision::just(action)
    }

    fn finish(&mut self) -> Decision {
        self.state = ChildState::Stopped;
        Decision::just(Action::Finish)
    }

    fn after_exit(&mut self, then: AfterExit, now: Instant, chance: f64) -> Decision {
        match then {
            AfterExit::Relaunch => self.launch(now),
            AfterExit::Idle => {
                self.state = ChildState::Idle;
                Decision::NOTHING
            }
            AfterExit::Stop => self.finish(),
            AfterExit::Fail(_) => self.failed(now, chance),
        }
    }

    fn failed(&mut self, now: Instant, chance: f64) -> Decision {
        let failures = count(&mut self.failures, &self.settings, now);
        self.broken |= failures > self.settings.max_restarts as usize;
        let wait = if self.broken {
            backoff::with_jitter(self.settings.reconnect_every, self.settings.jitter, chance)
        } else {
            let failures = self.streak.map_or(0, |streak| streak.failures);
            backoff::delay(&self.settings, failures, chance)
        };
        let streak = self.streak.get_or_insert(FailureStreak {
            since: now,
            failures: 0,
        });
        streak.failures = streak.failures.saturating_add(1);
        self.failures_total += 1;
        self.state = ChildState::Waiting {
            next_attempt: self.not_before.take().max(Some(now + wait)).unwrap_or(now),
            broken: self.broken,
        };
        Decision::NOTHING
    }

    fn forget_failures_if_stable(&mut self, now: Instant) {
        if let ChildState::Up { since } = self.state
            && now.duration_since(since) >= self.settings.stable_after
        {
            self.reset_failures();
        }
    }

    fn reset_failures(&mut self) {
        self.streak = None;
        self.broken = false;
        self.failures.clear();
    }
}

/// Records an event and counts the events within the window; keeps no more than needed.
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
mod properties;
#[cfg(test)]
mod tests;
