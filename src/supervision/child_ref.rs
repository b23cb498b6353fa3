//! A reference to a child for its callers: a name that outlives every incarnation, not an address.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::dependencies::Sighting;
use super::exit::ExitReason;
use super::machine::{ChildEvent, FailureStreak};
use super::policy::Settings;
use super::spec::Start;
use super::view::{ChildPhase, ChildView};
use crate::telemetry::millis;

/// The value that a ready child offers to its callers, such as a struct of recipients.
pub trait ChildValue: Clone + Send + Sync + Unpin + 'static {}

impl<T: Clone + Send + Sync + Unpin + 'static> ChildValue for T {}

/// The state of a child as callers see it. `T` is the value that a ready child offers.
#[derive(Clone, Debug)]
pub enum ChildStatus<T> {
    /// Stopped on purpose, or about to be; [`ChildRef::wake`] starts it.
    Idle,
    /// Needed, but blocked: it starts once [`ChildRef::unblock`] is called.
    Waiting,
    Starting,
    Up {
        value: T,
        generation: u64,
    },
    Backoff {
        next_attempt: Instant,
    },
    /// The child failed more than `max_restarts` times within `within`.
    Broken {
        next_attempt: Instant,
    },
    /// Asked to leave, permanently or because it is held.
    Stopping,
    /// Gone permanently, or held: only [`ChildRef::release`] restarts it.
    Stopped,
}

impl<T> ChildStatus<T> {
    pub fn phase(&self) -> ChildPhase {
        match self {
            Self::Idle => ChildPhase::Idle,
            Self::Waiting => ChildPhase::Waiting,
            Self::Starting => ChildPhase::Starting,
            Self::Up { .. } => ChildPhase::Up,
            Self::Backoff { .. } => ChildPhase::Backoff,
            Self::Broken { .. } => ChildPhase::Broken,
            Self::Stopping => ChildPhase::Stopping,
            Self::Stopped => ChildPhase::Stopped,
        }
    }

    pub fn next_attempt(&self) -> Option<Instant> {
        match self {
            Self::Backoff { next_attempt } | Self::Broken { next_attempt } => Some(*next_attempt),
            Self::Idle
            | Self::Waiting
            | Self::Starting
            | Self::Up { .. }
            | Self::Stopping
            | Self::Stopped => None,
        }
    }
}

/// The child's state, published by its supervisor after each change.
#[derive(Clone, Debug)]
pub struct ChildSnapshot<T> {
    pub status: ChildStatus<T>,
    /// How the previous incarnation ended.
    pub last_exit: Option<ExitReason>,
    /// When the phase was entered.
    pub since: Instant,
    /// Failures since the child was last stable.
    pub streak: Option<FailureStreak>,
    /// Number of the current or last incarnation, from 1; 0 before the first.
    pub generation: u64,
    /// Restarts by the reason for which the previous incarnation ended.
    pub restarts: BTreeMap<&'static str, u64>,
    /// Number of times that the child became broken.
    pub escalations: u64,
    /// Total number of exits by panic.
    pub panics: u64,
    /// Number of killed incarnations whose thread was blocked.
    pub stuck: u64,
    /// Whether an incarnation exists, even if it is leaving.
    pub is_running: bool,
    pub is_blocked: bool,
    /// Number of failures since the supervisor started.
    pub failures_total: u64,
}

/// The child is currently unavailable.
#[derive(Clone, Debug)]
pub struct ChildUnavailable {
    pub name: Arc<str>,
    pub phase: ChildPhase,
    /// How the last incarnation ended.
    pub why: Option<ExitReason>,
    /// Time until the next attempt, if one is scheduled.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for ChildUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}", self.name, self.phase)?;
        if let Some(why) = &self.why {
            write!(f, " (last exit: {why})")?;
        }
        match self.retry_after {
            Some(after) => write!(f, "; next attempt in {} ms", after.as_millis()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ChildUnavailable {}

/// The value of a ready child, with the generation that offers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Up<T> {
    pub value: T,
    pub generation: u64,
}

/// Commands to a supervisor.
pub(crate) enum Control<T> {
    Event(ChildEvent),
    /// Settings, and the factory if the child's spec changed.
    Configure(Settings, Option<Start<T>>),
    /// Let a child that is up leave for this event, if the closure confirms that it is unused.
    LeaveIf(Box<dyn Fn() -> bool + Send>, ChildEvent),
    /// Answered with what happens next, in sentences.
    Explain(oneshot::Sender<Vec<String>>),
    /// Acknowledged once all earlier commands have been handled.
    Barrier(oneshot::Sender<()>),
}

impl<T> Message for Control<T> {
    type Result = ();
}

/// A child by name. Cheap to clone; usable from any thread.
pub struct ChildRef<T: ChildValue>(Arc<ChildHandle<T>>);

struct ChildHandle<T: ChildValue> {
    name: Arc<str>,
    snapshot: watch::Receiver<ChildSnapshot<T>>,
    supervisor: Recipient<Control<T>>,
}

impl<T: ChildValue> Clone for ChildRef<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ChildValue> fmt::Debug for ChildRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildRef")
            .field("name", &self.0.name)
            .field("phase", &self.phase())
            .finish()
    }
}

impl<T: ChildValue> ChildRef<T> {
    pub(crate) fn new(
        name: Arc<str>,
        snapshot: watch::Receiver<ChildSnapshot<T>>,
        supervisor: Recipient<Control<T>>,
    ) -> Self {
        Self(Arc::new(ChildHandle {
            name,
            snapshot,
            supervisor,
        }))
    }

    fn send(&self, control: Control<T>) {
        self.0.supervisor.do_send(control);
    }

    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The child's current value, without waiting.
    ///
    /// # Errors
    ///
    /// Returns [`ChildUnavailable`] unless the child is up. A child that has just died can still
    /// look up: messages to it then reach a closed mailbox.
    pub fn current(&self) -> Result<Up<T>, ChildUnavailable> {
        let snapshot = self.0.snapshot.borrow();
        match &snapshot.status {
            ChildStatus::Up { value, generation } => Ok(Up {
                value: value.clone(),
                generation: *generation,
            }),
            other => Err(ChildUnavailable {
                name: self.0.name.clone(),
                phase: other.phase(),
                why: snapshot.last_exit.clone(),
                retry_after: other
                    .next_attempt()
                    .map(|at| at.saturating_duration_since(Instant::now())),
            }),
        }
    }

    /// How long the child has been up; `None` unless it is.
    pub fn up_for(&self) -> Option<Duration> {
        let snapshot = self.0.snapshot.borrow();
        matches!(snapshot.status, ChildStatus::Up { .. }).then(|| snapshot.since.elapsed())
    }

    /// Waits until the child is up; an idle one is woken.
    ///
    /// # Errors
    ///
    /// Returns [`ChildUnavailable`] at the deadline, or earlier if the child is stopping or
    /// stopped, or if its next attempt is due only after the deadline.
    pub async fn wait_up(&self, deadline: Instant) -> Result<Up<T>, ChildUnavailable> {
        let mut changes = self.0.snapshot.clone();
        let mut woken = false;
        let mut confirmed = false;
        loop {
            changes.mark_unchanged();
            let away = match self.current() {
                Ok(up) => return Ok(up),
                Err(away) => away,
            };
            match away.phase {
                ChildPhase::Stopping | ChildPhase::Stopped => return Err(away),
                // Wakes the child once: if it is stopped again, it is no longer needed.
                ChildPhase::Idle if woken => return Err(away),
                ChildPhase::Idle => {
                    self.wake();
                    woken = true;
                }
                ChildPhase::Backoff | ChildPhase::Broken => {
                    let too_late = |after| Instant::now() + after > deadline;
                    if away.retry_after.is_some_and(too_late) {
                        if confirmed {
                            return Err(away);
                        }
                        // The wait can have been skipped a moment ago: let that command take effect
                        // first.
                        let (reached, barrier) = oneshot::channel();
                        self.send(Control::Barrier(reached));
                        let _ = timeout_at(deadline, barrier).await;
                        confirmed = true;
                        continue;
                    }
                }
                ChildPhase::Waiting | ChildPhase::Starting | ChildPhase::Up => {}
            }
            confirmed = false;
            match timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                // The supervisor is gone; its final state was published.
                Ok(Err(_)) | Err(_) => return self.current(),
            }
        }
    }

    pub fn phase(&self) -> ChildPhase {
        self.0.snapshot.borrow().status.phase()
    }

    /// The complete state of the child.
    pub fn snapshot(&self) -> ChildSnapshot<T> {
        self.0.snapshot.borrow().clone()
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.0.snapshot.borrow().is_blocked
    }

    /// The state of the child on which its dependants and its group decide.
    pub fn sighting(&self) -> Sighting {
        let snapshot = self.0.snapshot.borrow();
        Sighting {
            phase: snapshot.status.phase(),
            is_running: snapshot.is_running,
            generation: snapshot.generation,
            failures: snapshot.failures_total,
        }
    }

    /// A receiver that is notified of each change.
    pub fn subscribe(&self) -> watch::Receiver<ChildSnapshot<T>> {
        self.0.snapshot.clone()
    }

    pub fn view(&self) -> ChildView {
        let snapshot = self.0.snapshot.borrow();
        let now = Instant::now();
        let phase = snapshot.status.phase();
        let is_failing = matches!(
            phase,
            ChildPhase::Starting | ChildPhase::Backoff | ChildPhase::Broken
        );
        let streak = snapshot.streak.filter(|_| is_failing);
        ChildView {
            name: self.0.name.clone(),
            phase,
            failing_ms: streak.map(|streak| millis(now.saturating_duration_since(streak.since))),
            failures: streak.map_or(0, |streak| streak.failures),
            phase_ms: millis(now.saturating_duration_since(snapshot.since)),
            generation: snapshot.generation,
            restarts: snapshot.generation.saturating_sub(1),
            restart_reasons: snapshot.restarts.clone(),
            escalations: snapshot.escalations,
            panics: snapshot.panics,
            stuck: snapshot.stuck,
            last_exit: snapshot.last_exit.as_ref().map(|exit| format!("{exit:#}")),
            last_exit_sentence: snapshot.last_exit.as_ref().map(ToString::to_string),
            last_exit_code: snapshot.last_exit.as_ref().map(|exit| exit.code().into()),
            next_attempt_ms: snapshot
                .status
                .next_attempt()
                .map(|at| millis(at.saturating_duration_since(now))),
            waiting: 0,
        }
    }

    /// Explains the next steps of the child in sentences.
    pub async fn explain(&self) -> Vec<String> {
        let (explained, sentences) = oneshot::channel();
        self.send(Control::Explain(explained));
        let gone = || vec!["It is gone.".to_owned()];
        sentences.await.unwrap_or_else(|_| gone())
    }

    /// Starts an idle child, and skips the wait of a failed one. A child that is up is not
    /// affected.
    pub fn wake(&self) {
        self.send(Control::Event(ChildEvent::Wake));
    }

    /// Like [`ChildRef::wake`], but a child that is up is asked to leave and is restarted. Restarts
    /// are counted by `reason`, which must come from a small set.
    pub fn reconnect_now(&self, reason: &'static str) {
        self.send(Control::Event(ChildEvent::Reconnect(reason)));
    }

    /// Replaces the supervisor's settings and, if the child's spec changed, the factory: a running
    /// child is then restarted. Earlier failures are forgotten, and any wait ends.
    pub fn configure(&self, settings: Settings, start: Option<Start<T>>) {
        self.send(Control::Configure(settings, start));
    }

    /// Stops a child that is up until it is woken, if `is_unused` confirms that it can. Callers see
    /// it idle during the check, so a caller that registers itself before [`ChildRef::current`] is
    /// either seen by the check, or sees the child idle and wakes it.
    pub fn idle_if(&self, is_unused: impl Fn() -> bool + Send + 'static) {
        self.send(Control::LeaveIf(Box::new(is_unused), ChildEvent::Idle));
    }

    /// Like [`ChildRef::idle_if`], but restarts the child.
    pub fn recycle_if(&self, is_unused: impl Fn() -> bool + Send + 'static) {
        let event = ChildEvent::Reconnect("recycled");
        self.send(Control::LeaveIf(Box::new(is_unused), event));
    }

    /// Takes the child out of service: it is asked to leave, and only [`ChildRef::release`]
    /// restarts it. Callers fail from now on.
    pub fn hold(&self) {
        self.send(Control::Event(ChildEvent::Hold));
    }

    /// Ends a hold: the child is started, and its earlier failures are forgotten.
    pub fn release(&self) {
        self.send(Control::Event(ChildEvent::Release));
    }

    /// Keeps the child from running until [`ChildRef::unblock`]. A child that runs is asked to leave,
    /// which is no failure; one that is needed waits. Restarts are counted by `reason`, which must
    /// come from a small set.
    pub fn block(&self, reason: &'static str) {
        self.send(Control::Event(ChildEvent::Block(reason)));
    }

    /// Ends a block: a child that is needed is started.
    pub fn unblock(&self) {
        self.send(Control::Event(ChildEvent::Unblock));
    }

    /// Asks the child to leave permanently. Callers fail from now on.
    pub fn stop(&self) {
        self.send(Control::Event(ChildEvent::Stop));
    }

    /// Waits until a stopped or held child is gone: at most twice `shutdown_timeout`.
    pub async fn stopped(&self) {
        let mut changes = self.0.snapshot.clone();
        // Ignore an error: the supervisor is gone, together with its child.
        drop(
            changes
                .wait_for(|snapshot| matches!(snapshot.status, ChildStatus::Stopped))
                .await
                .map(drop),
        );
    }
}
