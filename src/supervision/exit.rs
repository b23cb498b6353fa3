//! Exit reasons of a child, and the cell through which it states them.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use crate::telemetry::{Cause, Reason};

/// Why an incarnation of a child ended. `{:#}` is passed on to the child's error, whose alternate
/// form can show operators more.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExitReason {
    /// The child stopped itself, or the last address to it was dropped.
    #[error("ended on its own")]
    Normal,
    /// The child left when it was asked to.
    #[error("was asked to stop")]
    Shutdown,
    /// The child met an unrecoverable error and reported it with [`Exit::fail`].
    #[error(fmt = show_failure)]
    Failed(Arc<dyn Error + Send + Sync>),
    /// A resource of the child reached a configured limit, which the error names.
    #[error(fmt = show_limit)]
    LimitReached(Arc<dyn Error + Send + Sync>),
    /// A hook, handler, spawned future or `Drop` panicked: a bug. Contains the panic message.
    #[error("panicked: {0}")]
    Panicked(Arc<str>),
    /// The child was killed: it did not leave when asked to, or [`Exit::kill`] was called.
    #[error("was killed")]
    Killed,
    /// The child's thread ended, or was already gone at the start.
    #[error("its thread is gone")]
    ArbiterDead,
    /// The factory panicked, so the child never started.
    #[error("its factory panicked: {0}")]
    FactoryPanicked(Arc<str>),
    /// The child was not ready in time.
    #[error("did not become ready in time")]
    StartTimeout,
}

impl ExitReason {
    /// A failure described only by a message.
    pub fn failed(text: impl Into<String>) -> Self {
        let error: Box<dyn Error + Send + Sync> = text.into().into();
        Self::Failed(Arc::from(error))
    }

    /// Whether it is a bug in the program rather than a failure of something the child works with.
    pub fn is_panic(&self) -> bool {
        matches!(self, Self::Panicked(_) | Self::FactoryPanicked(_))
    }

    /// The reason for operators: its own message if it has one, without its kind.
    pub fn cause(&self) -> String {
        match self {
            Self::Failed(error) => format!("{error:#}"),
            other => format!("{other:#}"),
        }
    }

    /// The error of the child, if it ended with one.
    pub fn error(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(error) | Self::LimitReached(error) => Some(&**error),
            Self::Normal
            | Self::Shutdown
            | Self::Panicked(_)
            | Self::Killed
            | Self::ArbiterDead
            | Self::FactoryPanicked(_)
            | Self::StartTimeout => None,
        }
    }

    /// The cause, if it can be classified.
    pub fn known_cause(&self) -> Option<Cause> {
        match self {
            Self::StartTimeout => Some(Cause::TimedOut),
            _ => self.reason()?.cause(),
        }
    }

    /// Minimum wait before the next attempt, if the failure states one.
    pub fn retry_after(&self) -> Option<Duration> {
        self.reason()?.retry_after()
    }

    fn reason(&self) -> Option<&Reason> {
        self.error()?.downcast_ref()
    }

    /// Whether another attempt makes no sense until something changes.
    pub fn is_final(&self) -> bool {
        self.reason().is_some_and(Reason::is_final)
    }

    /// Whether the child ended as planned, so that its restart is not counted as a failure.
    pub fn is_planned(&self) -> bool {
        self.reason().is_some_and(Reason::is_planned)
    }

    /// The classified cause of a failure if known, else [`ExitReason::code`]: a stable word for
    /// counters.
    pub fn exact_code(&self) -> &'static str {
        match self {
            Self::LimitReached(_) => self.code(),
            _ => self
                .known_cause()
                .map_or_else(|| self.code(), Cause::as_str),
        }
    }

    /// A stable word for logs, counters and views.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Shutdown => "shutdown",
            Self::Failed(_) => "failed",
            Self::LimitReached(_) => "limit_reached",
            Self::Panicked(_) => "panicked",
            Self::Killed => "killed",
            Self::ArbiterDead => "arbiter_dead",
            Self::FactoryPanicked(_) => "factory_panicked",
            Self::StartTimeout => "start_timeout",
        }
    }
}

fn show_failure(error: &Arc<dyn Error + Send + Sync>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("failed: ")?;
    fmt::Display::fmt(error, f)
}

fn show_limit(error: &Arc<dyn Error + Send + Sync>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("reached a limit: ")?;
    fmt::Display::fmt(error, f)
}

/// Maximum length of a stored panic message, in characters.
const PANIC_TEXT_MAX: usize = 1_000;

/// Runs code that can panic; the error is the panic message.
pub(crate) fn catch_panic<T>(run: impl FnOnce() -> T) -> Result<T, Arc<str>> {
    catch_unwind(AssertUnwindSafe(run)).map_err(panic_text)
}

fn panic_text(payload: Box<dyn Any + Send>) -> Arc<str> {
    let text = if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).chars().take(PANIC_TEXT_MAX).collect()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.chars().take(PANIC_TEXT_MAX).collect()
    } else {
        String::from("(the panic has no message)")
    };
    // The payload has an unknown type: its `Drop` can panic as well.
    drop(catch_unwind(AssertUnwindSafe(move || drop(payload))));
    Arc::from(text)
}

/// Shared between a child, which states why it stops, and others, which kill it.
///
/// One cell per incarnation, cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Exit(Arc<ExitCell>);

#[derive(Debug, Default)]
struct ExitCell {
    stated_reason: Mutex<Option<ExitReason>>,
    killed: AtomicBool,
    task: AtomicWaker,
}

impl Exit {
    pub fn new() -> Self {
        Self::default()
    }

    /// For the child: call this before `ctx.stop()`, so that the exit counts as a failure. The
    /// first stated reason is kept.
    pub fn fail<E>(&self, error: E)
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.say(ExitReason::Failed(Arc::from(error.into())));
    }

    /// For the child: states any reason for the upcoming stop. The first stated reason is kept.
    pub fn say(&self, reason: ExitReason) {
        self.0.stated_reason.lock().get_or_insert(reason);
    }

    /// Ends the incarnation the next time its thread is free, without asking it: its `stopping` and
    /// `stopped` hooks and its `Drop` run, its queued messages are dropped.
    ///
    /// A child that blocks its thread cannot be ended, neither this way nor by any other means
    /// within the process.
    pub fn kill(&self) {
        self.kill_with_reason(ExitReason::Killed);
    }

    /// Like [`Exit::kill`], with a different reason in the exit event.
    pub(crate) fn kill_with_reason(&self, reason: ExitReason) {
        *self.0.stated_reason.lock() = Some(reason);
        self.0.killed.store(true, Ordering::Release);
        self.0.task.wake();
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.0.killed.load(Ordering::Acquire)
    }

    /// The stated reason, if there is one.
    pub(crate) fn reason(&self) -> Option<ExitReason> {
        self.0.stated_reason.lock().clone()
    }

    pub(crate) fn wake_on_kill(&self, waker: &Waker) {
        self.0.task.register(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_code_is_the_cause_where_that_is_known() {
        let crashed = Arc::new(Reason::from("ended").because(Cause::Crashed));
        let table = [
            (ExitReason::Failed(crashed.clone()), "process_crashed"),
            (ExitReason::LimitReached(crashed), "limit_reached"),
            (ExitReason::failed("a text"), "failed"),
            (ExitReason::StartTimeout, "connection_timeout"),
            (ExitReason::Normal, "normal"),
        ];
        for (reason, code) in table {
            assert_eq!(reason.exact_code(), code, "{reason}");
        }
    }
}
