//! A reference for callers: a name that outlives every incarnation, never an address.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::exit::ExitReason;
use super::machine::ChildEvent;
use super::policy::Settings;
use super::spec::Start;
use super::view::{ChildPhase, ChildView};

/// A value that a ready child offers to its callers, such as a struct of recipients.
pub trait ChildValue: Clone + Send + Sync + Unpin + 'static {}

impl<T: Clone + Send + Sync + Unpin + 'static> ChildValue for T {}

/// The state of a child as callers see it. `T` is what a ready child offers, such as its
/// recipients.
#[derive(Clone, Debug)]
pub enum ChildStatus<T> {
    /// Not running by intent, or on its way there; [`ChildRef::wake`] starts it.
    Idle,
    Starting,
    Up {
        value: T,
        generation: u64,
    },
    Backoff {
        next_attempt: Instant,
    },
    /// It failed more than `max_restarts` times within `within`.
    Broken {
        next_attempt: Instant,
    },
    /// AccessRequest to leave for good, or held and asked to leave.
    Stopping,
    /// Gone for good, or held: nothing but [`ChildRef::release`] brings it back.
    Stopped,
}

impl<T> ChildStatus<T> {
    pub fn phase(&self) -> ChildPhase {
        match self {
            Self::Idle => ChildPhase::Idle,
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
            Self::Idle | Self::Starting | Self::Up { .. } | Self::Stopping | Self::Stopped => None,
        }
    }
}

/// The child's state, published by its supervisor after each change.
#[derive(Clone, Debug)]
pub struct ChildSnapshot<T> {
    pub status: ChildStatus<T>,
    /// How the incarnation before ended.
    pub last_exit: Option<ExitReason>,
    /// When the phase was entered.
    pub since: Instant,
    /// Number of the current or last incarnation, from 1; 0 before the first.
    pub generation: u64,
    /// Incarnations after the first, by why the one before ended.
    pub restarts: BTreeMap<&'static str, u64>,
    /// Times that it became broken.
    pub escalations: u64,
    /// Ends by panic, all in all.
    pub panics: u64,
    /// Killed incarnations whose thread was blocked.
    pub stuck: u64,
}

/// The child cannot be used now.
#[derive(Clone, Debug)]
pub struct ChildUnavailable {
    pub name: Arc<str>,
    pub phase: ChildPhase,
    /// How its last incarnation ended.
    pub why: Option<ExitReason>,
    /// How long until the next attempt, when one is due.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for ChildUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}", self.name, self.phase)?;
        if let Some(why) = &self.why {
            write!(f, " (last end: {why})")?;
        }
        match self.retry_after {
            Some(after) => write!(f, "; next attempt in {} ms", after.as_millis()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ChildUnavailable {}

/// The value of a ready child, with the incarnation that offers it.
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
    /// Rest, if this says that nobody uses the child.
    RestIf(Box<dyn Fn() -> bool + Send>),
    /// Answered when everything sent before it has been handled.
    Barrier(oneshot::Sender<()>),
}

impl<T> Message for Control<T> {
    type Result = ();
}

/// A child by name. Cheap to clone; may be used from any thread.
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
        let phase = self.0.snapshot.borrow().status.phase();
        f.debug_struct("ChildRef")
            .field("name", &self.0.name)
            .field("phase", &phase)
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

    /// The child's value now, without waiting.
    ///
    /// # Errors
    ///
    /// Returns [`ChildUnavailable`] unless the child is up. A child that died a moment ago may
    /// still look up: whoever sends to it gets a closed mailbox.
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

    /// Waits until the child is up; an idle one is woken.
    ///
    /// # Errors
    ///
    /// Returns [`ChildUnavailable`] at the deadline; earlier when the child is stopping or stopped,
    /// and when its next attempt is due only after the deadline.
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
                // Once: a child that is put to sleep again is not wanted.
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
                        // The wait may have been skipped a moment ago: let that arrive first.
                        let (reached, barrier) = oneshot::channel();
                        self.send(Control::Barrier(reached));
                        let _ = timeout_at(deadline, barrier).await;
                        confirmed = true;
                        continue;
                    }
                }
                ChildPhase::Starting | ChildPhase::Up => {}
            }
            confirmed = false;
            match timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                // The supervisor is gone; its last word was published.
                Ok(Err(_)) | Err(_) => return self.current(),
            }
        }
    }

    /// The whole state of the child.
    pub fn snapshot(&self) -> ChildSnapshot<T> {
        self.0.snapshot.borrow().clone()
    }

    /// A receiver that wakes at each change.
    pub fn subscribe(&self) -> watch::Receiver<ChildSnapshot<T>> {
        self.0.snapshot.clone()
    }

    pub fn view(&self) -> ChildView {
        let snapshot = self.0.snapshot.borrow();
        let now = Instant::now();
        ChildView {
            name: self.0.name.clone(),
            phase: snapshot.status.phase(),
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

    /// Starts an idle child, and skips the wait of one that failed. One that is up is left
    /// alone.
    pub fn wake(&self) {
        self.send(Control::Event(ChildEvent::Wake));
    }

    /// As [`ChildRef::wake`]; a child that is up is asked to leave and built anew. The reason, one of
    /// few words, is counted.
    pub fn reconnect_now(&self, reason: &'static str) {
        self.send(Control::Event(ChildEvent::Reconnect(reason)));
    }

    /// Gives the supervisor other settings, and another factory if the child's spec changed:
    /// then a child that runs is renewed. Earlier failures are forgotten and a wait is over.
    pub fn configure(&self, settings: Settings, start: Option<Start<T>>) {
        self.send(Control::Configure(settings, start));
    }

    /// Asks a child that is up to leave until it is woken, if `is_unused` says so. Callers see
    /// it idle while that is asked: one that counts itself before it looks at
    /// [`ChildRef::current`] is either counted, or sees the child idle and wakes it.
    pub fn rest_if(&self, is_unused: impl Fn() -> bool + Send + 'static) {
        self.send(Control::RestIf(Box::new(is_unused)));
    }

    /// Takes the child out of service: it is asked to leave, and nothing wakes it but
    /// [`ChildRef::release`]. Callers fail from now on.
    pub fn hold(&self) {
        self.send(Control::Event(ChildEvent::Hold));
    }

    /// Ends a hold: the child is started, and its earlier failures are forgotten.
    pub fn release(&self) {
        self.send(Control::Event(ChildEvent::Release));
    }

    /// Asks the child to leave for good. Callers fail from now on.
    pub fn stop(&self) {
        self.send(Control::Event(ChildEvent::Stop));
    }

    /// Waits until a child that was asked to stop, or is held, is gone: at most twice
    /// `shutdown_timeout`.
    pub async fn stopped(&self) {
        let mut changes = self.0.snapshot.clone();
        // An error means that the supervisor is gone, and its child with it.
        drop(
            changes
                .wait_for(|snapshot| matches!(snapshot.status, ChildStatus::Stopped))
                .await
                .map(drop),
        );
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
