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

/// A child is asked to leave: it ends what it must end, then calls `ctx.stop()`. After
/// `shutdown_timeout` it is killed.
#[derive(Clone, Copy, Debug)]
pub struct Shutdown;

impl Message for Shutdown {
    type Result = ();
}

/// The arguments of a new incarnation.
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
    /// A link to no supervisor: for those who run a child by themselves, such as tests.
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

    /// Which incarnation this is, from 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The child can be used, by means of this value. Said again, the value is replaced. From
    /// an incarnation that is no longer the current one it is ignored.
    pub fn ready(&self, value: T) {
        (self.on_ready)(value);
    }

    /// The child is still on its way, and is ready within this time from now or has failed by
    /// itself; until it says so for the first time it has `connect_timeout`. A child that is ready
    /// says it in vain.
    pub fn still_starting(&self, within: Duration) {
        (self.on_start)(within);
    }

    /// Through which the child says why it ends.
    pub fn exit(&self) -> &Exit {
        &self.exit
    }
}

/// Starts an incarnation: a factory with the type of its actor hidden.
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

/// Everything that is needed to keep a child alive.
pub struct ChildSpec<T> {
    pub name: Arc<str>,
    pub settings: Settings,
    pub start: Start<T>,
    pub arbiters: Arbiters,
    /// Decides with the pool's placement on which arbiter the child lives.
    pub key: u64,
    pub random: Arc<dyn Random>,
    /// Whether the child stays idle until somebody wakes it.
    pub lazy: bool,
}

impl<T> ChildSpec<T> {
    /// A permanent child with the default settings that starts at once.
    pub fn new(name: impl Into<Arc<str>>, arbiters: &Arbiters, start: Start<T>) -> Self {
        Self {
            name: name.into(),
            settings: Settings::default(),
            start,
            arbiters: arbiters.clone(),
            key: 0,
            random: Arc::new(SystemRandom::new()),
            lazy: false,
        }
    }
}
