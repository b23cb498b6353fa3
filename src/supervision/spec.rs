//! The child spec: how a supervisor starts a child, and what the child receives at its start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Handler, Message, Recipient};

use super::arbiters::{ArbiterSite, Arbiters};
use super::child;
use super::exit::{Exit, ExitReason};
use super::policy::Settings;
use super::random::{Random, SystemRandom};

/// Asks a child to leave: it cleans up, then calls `ctx.stop()`. After `shutdown_timeout` it is
/// killed.
#[derive(Clone, Copy, Debug)]
pub struct Shutdown;

impl Message for Shutdown {
    type Result = ();
}

/// Connects a new incarnation to its supervisor.
pub struct SupervisorLink<T> {
    generation: u64,
    exit: Exit,
    on_ready: Arc<dyn Fn(T) + Send + Sync>,
    on_start: Arc<dyn Fn(Duration) + Send + Sync>,
}

impl<T> Clone for SupervisorLink<T> {
    fn clone(&self) -> Self {
        Self {
            generation: self.generation,
            exit: self.exit.clone(),
            on_ready: self.on_ready.clone(),
            on_start: self.on_start.clone(),
        }
    }
}

impl<T> fmt::Debug for SupervisorLink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorLink")
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl<T> SupervisorLink<T> {
    /// A link without a supervisor, for callers that run a child themselves, such as tests.
    pub fn detached(generation: u64, on_ready: impl Fn(T) + Send + Sync + 'static) -> Self {
        Self::new(generation, Exit::new(), on_ready, |_| {})
    }

    pub(super) fn new(
        generation: u64,
        exit: Exit,
        on_ready: impl Fn(T) + Send + Sync + 'static,
        on_start: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Self {
        Self {
            generation,
            exit,
            on_ready: Arc::new(on_ready),
            on_start: Arc::new(on_start),
        }
    }

    /// Number of this incarnation, starting at 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Reports that the child is ready and offers this value. Calling it again replaces the value.
    /// Ignored if the incarnation is no longer the current one.
    pub fn ready(&self, value: T) {
        (self.on_ready)(value);
    }

    /// Extends the start: the child will be ready or fail within this time from now. Before the
    /// first call, `connect_timeout` applies. Has no effect once the child is ready.
    pub fn still_starting(&self, within: Duration) {
        (self.on_start)(within);
    }

    /// The cell through which the child states why it ends.
    pub fn exit(&self) -> &Exit {
        &self.exit
    }
}

/// Starts an incarnation: a factory with the actor's type erased.
pub struct Start<T>(pub(super) Arc<Launcher<T>>);

pub(super) type Launcher<T> =
    dyn Fn(&ArbiterSite, SupervisorLink<T>, OnExit) -> Recipient<Shutdown> + Send + Sync;
pub(super) type OnExit = Box<dyn FnOnce(ExitReason) + Send>;

impl<T> Clone for Start<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: 'static> Start<T> {
    /// The factory runs on the child's arbiter, once for each incarnation. It may panic.
    pub fn new<A, F>(factory: F) -> Self
    where
        A: Actor<Context = Context<A>> + Handler<Shutdown>,
        F: Fn(&mut Context<A>, SupervisorLink<T>) -> A + Send + Sync + 'static,
    {
        let factory = Arc::new(factory);
        Self(Arc::new(move |site, link, on_exit| {
            let factory = factory.clone();
            let exit = link.exit.clone();
            let build = move |ctx: &mut Context<A>, _: Exit| factory(ctx, link);
            child::spawn(&site.arbiter, exit, build, on_exit).recipient()
        }))
    }
}

/// Everything needed to keep a child alive.
pub struct ChildSpec<T> {
    pub name: Arc<str>,
    pub settings: Settings,
    pub start: Start<T>,
    pub arbiters: Arbiters,
    /// Selects the arbiter, together with the pool's placement.
    pub key: u64,
    pub random: Arc<dyn Random>,
    /// Whether the child stays idle until it is woken.
    pub lazy: bool,
    /// Whether the child waits for [`super::ChildRef::unblock`] before its first start.
    pub blocked: bool,
}

impl<T> ChildSpec<T> {
    /// A permanent child with the default settings that starts immediately.
    pub fn new(name: impl Into<Arc<str>>, arbiters: &Arbiters, start: Start<T>) -> Self {
        Self {
            name: name.into(),
            settings: Settings::default(),
            start,
            arbiters: arbiters.clone(),
            key: 0,
            random: Arc::new(SystemRandom::new()),
            lazy: false,
            blocked: false,
        }
    }
}
