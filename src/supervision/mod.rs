//! Supervision of actix actors, using OTP's terms. Independent of what its children do.
//!
//! `actix::Supervisor` restarts an actor that called `ctx.stop()`, immediately and with the same
//! value, but not one that panicked. Here a factory builds a new child after any kind of exit, with
//! growing delays, and callers hold a name instead of an address.
//!
//! - [`Supervisor::supervise`] keeps one child alive by its [`ChildSpec`]; callers get a
//!   [`ChildRef`].
//! - [`spawn_temporary`] starts a child that is never restarted; only its exit is reported.
//!   Designed for tens of thousands of children. [`spawn_temporary_here`] starts one on the
//!   caller's thread.
//! - [`Inbox`] holds messages that must outlive the incarnation that they were sent to.
//! - [`Arbiters`] are the threads that supervisors and children run on.
//!
//! # Example
//!
//! ```
//! use std::{num::NonZeroUsize, sync::mpsc, time::Duration};
//! use actix::prelude::{Actor, ActorContext, Addr, AsyncContext, Context, Handler};
//! use mcpvisor::supervision::{
//!     Arbiters, ChildSpec, Exit, SupervisorLink, Shutdown, Start, Supervisor, spawn_temporary,
//! };
//! use tokio::time::Instant;
//!
//! struct Peer(SupervisorLink<Addr<Peer>>);
//! impl Actor for Peer {
//!     type Context = Context<Self>;
//!     fn started(&mut self, ctx: &mut Self::Context) {
//! //         // After the handshake; a failed one calls `self.0.exit().fail(error)`, then stops.
//!         self.0.ready(ctx.address());
//!     }
//! }
//! impl Handler<Shutdown> for Peer {
//!     type Result = ();
//!     fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
//!         ctx.stop();
//!     }
//! }
//!
//! struct Visitor(Exit);
//! impl Actor for Visitor {
//!     type Context = Context<Self>;
//! }
//!
//! # actix::System::new().block_on(async {
//! let arbiters = Arbiters::start(NonZeroUsize::new(2).unwrap())?;
//!
//! let start = Start::new(|_ctx, link| Peer(link));
//! let peer = Supervisor::supervise(ChildSpec::new("git", &arbiters, start));
//! let up = peer.wait_up(Instant::now() + Duration::from_secs(30)).await?;
//! assert!(up.generation == 1 && up.value.connected());
//!
//! let (ended, ends) = mpsc::channel();
//! let visitor = spawn_temporary(
//!     &arbiters.site(42).arbiter,
//!     |_ctx, exit| Visitor(exit),
//!     move |reason| ended.send((42, reason.code())).unwrap(),
//! );
//! drop(visitor.addr); // The last address.
//! assert_eq!(ends.recv(), Ok((42, "normal")));
//!
//! peer.stop();
//! peer.stopped().await;
//! arbiters.stop(Duration::from_secs(5)).await?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Dependencies
//!
//! Actors that depend on each other start in order and restart together with a [`DependencyMachine`]. It
//! decides, and the owner of the children carries its orders out, here for a cache that needs a
//! database:
//!
//! ```
//! use actix::prelude::{Actor, ActorContext, Addr, AsyncContext, Context, Handler};
//! use mcpvisor::supervision::{
//!     Arbiters, ChildRef, ChildSpec, Member, Shutdown, Start, Supervisor, SupervisorLink,
//!     DependencyMachine, DependencyOrder,
//! };
//! use tokio::time::Instant;
//! # struct Worker(SupervisorLink<Addr<Worker>>);
//! # impl Actor for Worker {
//! #     type Context = Context<Self>;
//! #     fn started(&mut self, ctx: &mut Self::Context) {
//! #         self.0.ready(ctx.address());
//! #     }
//! # }
//! # impl Handler<Shutdown> for Worker {
//! #     type Result = ();
//! #     fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
//! #         ctx.stop();
//! #     }
//! # }
//!
//! fn carry_out(children: &[ChildRef<Addr<Worker>>], orders: Vec<DependencyOrder>) {
//!     for order in orders {
//!         match order {
//!             DependencyOrder::Block(place, why) => children[place].block(why),
//!             DependencyOrder::Unblock(place) => children[place].unblock(),
//!             DependencyOrder::Wake(place) => children[place].wake(),
//!             DependencyOrder::Leave(_) | DependencyOrder::Escalate(_) => {}
//!         }
//!     }
//! }
//!
//! # actix::System::new().block_on(async {
//! let member = |name: &str, depends_on: &[&str]| Member {
//!     name: name.into(),
//!     depends_on: depends_on.iter().map(|name| (*name).into()).collect(),
//!     group: None,
//!     blocked: true,
//! };
//! let members = vec![member("cache", &["database"]), member("database", &[])];
//! let mut dependencies = DependencyMachine::try_new(members, DependencyMachine::default()).unwrap();
//!
//! let arbiters = Arbiters::current().unwrap();
//! let children = ["cache", "database"].map(|name| {
//!     let mut spec = ChildSpec::new(name, &arbiters, Start::new(|_, link| Worker(link)));
//!     spec.blocked = true; // Until the machine unblocks it.
//!     Supervisor::supervise(spec)
//! });
//! // After each change of a child: see `ChildRef::subscribe`.
//! while children[0].current().is_err() {
//!     for (place, child) in children.iter().enumerate() {
//!         let orders = dependencies.observe(place, child.sighting(), Instant::now(), 0.5);
//!         carry_out(&children, orders);
//!     }
//!     tokio::task::yield_now().await;
//! }
//! assert!(children[1].current().is_ok(), "the database was up before");
//! # });
//! ```
//!
//! docs/supervision.md has the table of its decisions.
//!
//! # Guarantees
//!
//! Each with the tests that prove it, in `tests/parts/supervision/` unless the path starts with
//! `machine` (`machine/tests.rs`), `backoff` or `inbox` (unit tests here).
//!
//! 1. Every exit is detected, with its reason and the panic message: a stop, a failure, a kill, a
//!    panic in `started`, a handler, a spawned future, `stopping`, `stopped`, `Drop` or the
//!    factory, and the end of its thread. A fresh child follows.
//!    `deaths::a_death_of_any_kind_is_seen_and_a_fresh_child_comes`,
//!    `deaths::a_panic_at_birth_is_seen_and_tried_again`
//! 2. A panic at one point of a child's life does not abort the process, nor do successive panics
//!    in its handler, in `stopping` and in `Drop`.
//!    `deaths::a_death_of_any_kind_is_seen_and_a_fresh_child_comes`
//! 3. A panic in a `ResponseFuture` affects neither the child nor anything else: only its caller
//!    gets an error. `deaths::a_panic_in_a_response_future_is_its_callers_alone`
//! 4. An exit is reported exactly once, even for a child that never started.
//!    `temporary::ten_thousand_children_each_report_their_end_once`,
//!    `temporary::a_child_that_is_never_born_reports_its_end_once`
//! 5. A caller that sends a reply channel in its message gets exactly one response or error,
//!    whatever dies in the meantime, and memory stays flat.
//!    `storm::ten_thousand_failures_cost_no_caller_its_answer`
//! 6. A permanent child is never abandoned, and at most one incarnation of it runs, except for a
//!    blocked thread, as described below.
//!    `properties::no_order_of_events_loses_or_doubles_a_child`,
//!    `storm::ten_thousand_failures_cost_no_caller_its_answer`
//! 7. The delay before attempt n is `min(max, initial * factor^n)`, randomly shortened, never zero.
//!    `backoff::delays_grow_to_the_maximum`,
//!    `backoff::a_delay_is_never_zero_and_never_above_the_maximum`,
//!    `time::jitter_shortens_waits_within_its_share`
//! 8. More than `max_restarts` failures within `within` make a child broken, with one attempt every
//!    `reconnect_every`. `machine::failures_back_off_then_break_then_are_tried_periodically`,
//!    `time::attempts_back_off_and_a_broken_child_is_tried_periodically`
//! 9. Only uptime of `stable_after` or a new configuration forgets failures.
//!    `machine::stable_uptime_forgets_failures`, `time::stable_uptime_forgets_failures`,
//!    `machine::a_new_configuration_forgets_failures`
//! 10. Callers can skip a wait, and restart a child that is up.
//!     `machine::somebody_can_skip_the_wait`, `time::somebody_can_skip_the_wait`,
//!     `time::a_healthy_child_is_renewed_when_asked_for_or_when_its_spec_changed`
//! 11. A child is up once it reports ready; if it does not in time, it is killed and retried.
//!     `time::a_child_that_is_not_ready_in_time_is_killed_and_tried_again`
//! 12. A caller either fails immediately, with the reason and the time of the next attempt, or
//!     waits until a deadline if the child can be up by then.
//!     `waiting::a_caller_waits_for_a_restart_but_not_in_vain`,
//!     `waiting::a_wait_ends_at_its_deadline`,
//!     `waiting::an_idle_child_is_woken_by_who_waits_for_it`
//! 13. A stop is final, takes at most twice `shutdown_timeout`, and callers fail immediately.
//!     `machine::stop_is_final_and_bounded_from_every_state`,
//!     `stopping::a_child_that_leaves_is_awaited_and_callers_fail_at_once`,
//!     `stopping::a_child_that_ignores_shutdown_is_killed_when_its_time_is_up`
//! 14. Late events of an old incarnation change nothing.
//!     `stopping::a_blocked_thread_is_abandoned_and_its_late_messages_are_ignored`
//! 15. A child's failures do not affect its neighbours: each child has a separate supervisor and
//!     failure count. `waiting::panics_and_failures_of_a_child_leave_its_neighbour_alone`
//! 16. A supervisor that ends takes its child with it, and its callers are notified.
//!     `stopping::a_supervisor_that_goes_takes_its_child_along`,
//!     `stopping::a_supervisor_beside_its_child_ends_with_their_thread`
//! 17. A dead thread is replaced; a stopped or dropped pool leaves no threads.
//!     `deaths::a_death_of_any_kind_is_seen_and_a_fresh_child_comes`,
//!     `stopping::a_stopped_or_dropped_pool_leaves_no_thread`
//!
//! 18. An unused child can be stopped until it is woken, and a caller that registers itself before
//!     it looks up the child never gets one that is leaving.
//!     `machine::a_child_at_rest_is_idle_until_woken`,
//!     `idle::an_unused_child_leaves_and_comes_back_when_it_is_waited_for`
//! 19. A held child stays stopped, despite any wake, until it is released.
//!     `machine::a_held_child_comes_back_only_when_it_is_released`,
//!     `properties::a_held_child_is_gone_and_a_released_one_is_not_lost`,
//!     `idle::a_held_child_is_brought_back_by_its_release_only`,
//!     `idle::a_caller_that_waits_for_a_child_fails_at_once_when_the_child_is_held`
//! 20. A child whose failure is final stays stopped, despite any wake, until it is released or
//!     reconnected, or gets new settings.
//!     `machine::a_child_that_gave_up_comes_back_only_when_something_changes`
//! 21. No incarnation's death loses a message in an inbox; a message that kills two incarnations is
//!     dropped. `inbox::a_message_that_ended_an_incarnation_is_tried_once_more_and_then_given_up`
//!
//! 22. A blocked child does not run, and one that is needed starts when it is unblocked.
//!     `properties::a_held_child_is_gone_and_a_released_one_is_not_lost`
//! 23. A dependent child starts only after its dependencies are up, each strategy restarts exactly its
//!     members in order, and no storm exceeds a group's budget.
//!     `dependencies::properties::under_random_faults_the_order_and_the_budget_of_a_group_hold`
//!
//! # Limitations
//!
//! - **A child that blocks its thread cannot be killed** from within the process. This is detected
//!   when it was killed and is not gone after `shutdown_timeout`: it is counted (`stuck`), its
//!   arbiter is retired and the next incarnation gets a fresh one; the old thread ends when it is
//!   unblocked, and its other children move. Until a blocked child is stopped or restarted it
//!   appears to be up: callers must rely on their own deadlines.
//!   `stopping::a_blocked_thread_is_abandoned_and_its_late_messages_are_ignored`,
//!   `stopping::a_pool_with_a_blocked_thread_says_so_and_ends_later`
//! - If two fields of a dropped actor both panic, the process aborts: Rust allows nothing else.
//!   `Drop` must not panic, least of all in two fields.
//! - Between an exit and its report a child still appears to be up: senders get a closed mailbox or
//!   a dropped reply channel immediately.

mod arbiters;
mod backoff;
mod child;
mod child_ref;
mod dependencies;
mod exit;
mod inbox;
mod machine;
mod outlook;
mod policy;
mod pulse;
mod random;
mod rollout;
mod spec;
mod supervisor;
mod timer;
mod view;

pub use arbiters::{ArbiterSite, Arbiters, ArbitersStillRunning};
pub use backoff::Backoff;
pub use child::{Temporary, spawn_temporary, spawn_temporary_here};
pub use child_ref::{ChildRef, ChildSnapshot, ChildStatus, ChildUnavailable, ChildValue, Up};
pub use exit::{Exit, ExitReason};
pub use inbox::{Inbox, InboxItem};
pub use machine::FailureStreak;
pub use policy::{InvalidSettings, Settings, Tuning};
pub use pulse::{Pulse, probe_delays};
pub use random::{Random, SeededRandom, SystemRandom};

pub use dependencies::{
    Circle, DependencyMachine, DependencyOrder, GroupPolicy, GroupState, Member, Sighting,
    Strategy, Wait, start_order,
};
pub use rollout::{
    RolloutAction, RolloutEvent, RolloutMachine, RolloutPolicy, RolloutState, RolloutView, Sample,
    SideFigures,
};
pub use spec::{ChildSpec, Shutdown, Start, SupervisorLink};
pub use supervisor::Supervisor;
pub use view::{ChildPhase, ChildView};

pub(crate) use exit::catch_panic;
pub(crate) use timer::Timer;
