//! Runs one incarnation of a child and reports its exit exactly once.
//!
//! actix would run an actor's future as a bare task. Here it is wrapped: a panic is caught with its
//! message, and the actor is dropped after unwinding, so that a second panic in `stopping`,
//! `stopped` or `Drop` does not abort the process. If the wrapper itself is dropped, the thread is
//! ending, which is also reported.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use actix::dev::{ContextFut, channel};
use actix::{Actor, ActorContext, ActorState, Addr, Context};
use actix_rt::ArbiterHandle;

use super::exit::{Exit, ExitReason, catch_panic};

/// Mailbox capacity for senders that wait for room; admission is limited elsewhere, because actix
/// lets every clone of an address exceed the capacity.
const MAILBOX_CAPACITY: usize = 16;

/// Handle to a child that is never restarted.
///
/// The child stops when the last address to it is dropped and it has nothing left to do.
pub struct Temporary<A: Actor> {
    /// The child's address; messages sent before the child starts are queued.
    pub addr: Addr<A>,
    /// Kills the child. Remains valid after the child exits; killing a dead child does nothing.
    pub exit: Exit,
}

/// Starts a child that is never restarted, on the given arbiter.
///
/// `factory` runs on that arbiter. `on_exit` is called exactly once, after the child is gone: on
/// the child's arbiter, or on the calling thread if that arbiter is already dead. It must be short,
/// and captures what it needs, such as the child's key. No watcher task and no additional actor is
/// created.
pub fn spawn_temporary<A, F, R>(arbiter: &ArbiterHandle, factory: F, on_exit: R) -> Temporary<A>
where
    A: Actor<Context = Context<A>>,
    F: FnOnce(&mut Context<A>, Exit) -> A + Send + 'static,
    R: FnOnce(ExitReason) + Send + 'static,
{
    let exit = Exit::new();
    let addr = spawn(arbiter, exit.clone(), factory, on_exit);
    Temporary { addr, exit }
}

/// Like [`spawn_temporary`], but on the caller's arbiter, so that the child can share values with
/// the caller that cannot be sent to another thread.
pub fn spawn_temporary_here<A, F, R>(factory: F, on_exit: R) -> Temporary<A>
where
    A: Actor<Context = Context<A>>,
    F: FnOnce(&mut Context<A>, Exit) -> A,
    R: FnOnce(ExitReason) + 'static,
{
    let (sender, mailbox) = channel::channel(MAILBOX_CAPACITY);
    let exit = Exit::new();
    start_incarnation(mailbox, factory, ExitReport::new(exit.clone(), on_exit));
    let addr = Addr::new(sender);
    Temporary { addr, exit }
}

pub(crate) fn spawn<A, F, R>(arbiter: &ArbiterHandle, exit: Exit, factory: F, on_exit: R) -> Addr<A>
where
    A: Actor<Context = Context<A>>,
    F: FnOnce(&mut Context<A>, Exit) -> A + Send + 'static,
    R: FnOnce(ExitReason) + Send + 'static,
{
    let (sender, mailbox) = channel::channel(MAILBOX_CAPACITY);
    let report = ExitReport::new(exit, on_exit);
    // A dead arbiter drops the closure without running it, and the report with it.
    arbiter.spawn_fn(move || start_incarnation(mailbox, factory, report));
    Addr::new(sender)
}

fn start_incarnation<A, F, R>(
    mailbox: channel::AddressReceiver<A>,
    factory: F,
    report: ExitReport<R>,
) where
    A: Actor<Context = Context<A>>,
    F: FnOnce(&mut Context<A>, Exit) -> A,
    R: FnOnce(ExitReason) + 'static,
{
    if report.exit.is_killed() {
        report.send(ExitReason::Killed);
        return;
    }
    let mut ctx = Context::with_receiver(mailbox);
    let exit = report.exit.clone();
    match catch_panic(|| factory(&mut ctx, exit)) {
        Ok(actor) => {
            let run = ctx.into_future(actor);
            drop(actix_rt::spawn(Incarnation {
                run: Some(run),
                polled: false,
                report: Some(report),
            }));
        }
        Err(text) => {
            drop(catch_panic(|| drop(ctx)));
            report.send(ExitReason::FactoryPanicked(text));
        }
    }
}

/// Reports an exit when asked to, or when dropped because the thread ended.
struct ExitReport<R: FnOnce(ExitReason)> {
    exit: Exit,
    on_exit: Option<R>,
}

impl<R: FnOnce(ExitReason)> ExitReport<R> {
    fn new(exit: Exit, on_exit: R) -> Self {
        let on_exit = Some(on_exit);
        Self { exit, on_exit }
    }

    /// Reports the exit. The reason of a kill takes precedence over the observed one.
    fn send(mut self, observed: ExitReason) {
        self.deliver(observed);
    }

    fn deliver(&mut self, observed: ExitReason) {
        let Some(on_exit) = self.on_exit.take() else {
            return;
        };
        let reason = match observed {
            ExitReason::Normal | ExitReason::Killed => self.exit.reason().unwrap_or(observed),
            other => other,
        };
        if let Err(panic) = catch_panic(|| on_exit(reason)) {
            log::error!(panic = &*panic; "reporting a child's exit panicked");
        }
    }
}

impl<R: FnOnce(ExitReason)> Drop for ExitReport<R> {
    fn drop(&mut self) {
        self.deliver(ExitReason::ArbiterDead);
    }
}

struct Incarnation<A, R>
where
    A: Actor<Context = Context<A>>,
    R: FnOnce(ExitReason),
{
    run: Option<ContextFut<A, Context<A>>>,
    /// Whether `started` was called; if not, no other hook runs.
    polled: bool,
    report: Option<ExitReport<R>>,
}

impl<A, R> Incarnation<A, R>
where
    A: Actor<Context = Context<A>>,
    R: FnOnce(ExitReason),
{
    /// Drops the actor, then reports that it is gone.
    fn end(&mut self, observed: ExitReason) {
        let Some(run) = self.run.take() else { return };
        let reason = match run_last_hooks(run, self.polled) {
            Err(text) if !observed.is_panic() => ExitReason::Panicked(text),
            Err(_) | Ok(()) => observed,
        };
        if let Some(report) = self.report.take() {
            report.send(reason);
        }
    }
}

/// No field is pinned: the actor's future is movable.
impl<A, R> Unpin for Incarnation<A, R>
where
    A: Actor<Context = Context<A>>,
    R: FnOnce(ExitReason),
{
}

/// Runs the last hooks and drops the actor, each separately, so that panics cannot collide.
fn run_last_hooks<A>(mut run: ContextFut<A, Context<A>>, started: bool) -> Result<(), Arc<str>>
where
    A: Actor<Context = Context<A>>,
{
    let mut farewell = Ok(());
    if started && run.ctx().state() != ActorState::Stopped {
        run.ctx().stop();
        let mut task = TaskContext::from_waker(Waker::noop());
        farewell = catch_panic(|| {
            let _ = Pin::new(&mut run).poll(&mut task);
        });
    }
    // Otherwise dropping it would call the hooks again.
    run.ctx().terminate();
    let dropped = catch_panic(|| drop(run));
    farewell.and(dropped)
}

impl<A, R> Future for Incarnation<A, R>
where
    A: Actor<Context = Context<A>>,
    R: FnOnce(ExitReason),
{
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        let this = self.get_mut();
        let (Some(run), Some(report)) = (this.run.as_mut(), this.report.as_ref()) else {
            return Poll::Ready(());
        };
        report.exit.wake_on_kill(task.waker());
        if report.exit.is_killed() {
            this.end(ExitReason::Killed);
            return Poll::Ready(());
        }
        this.polled = true;
        match catch_panic(|| Pin::new(run).poll(task)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => this.end(ExitReason::Normal),
            Err(text) => this.end(ExitReason::Panicked(text)),
        }
        Poll::Ready(())
    }
}

impl<A, R> Drop for Incarnation<A, R>
where
    A: Actor<Context = Context<A>>,
    R: FnOnce(ExitReason),
{
    fn drop(&mut self) {
        self.end(ExitReason::ArbiterDead);
    }
}
