//! Tries a new version of a server beside the old one, and carries out what
//! [`RolloutMachine`] decides.
//!
//! The new version is a complete server that is not in the table of servers: no client sees its
//! lists or events until it takes the place of the old one.
//!
//! - `answers`: compares the answers of both versions
//! - `definitions`: compares the tools of both versions

mod answers;
mod definitions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::downstream::call_request::{CallEvent, Delivery};
use crate::downstream::connection::spec::ConnectionCommand;
use crate::downstream::parts::PoolParts;
use crate::downstream::pool::Servers;
use crate::downstream::pool::canary::{Abandon, Answered, Canary, Pair};
use crate::downstream::pool::recycling::memory;
use crate::downstream::pool::server::Server;
use crate::downstream::pool::server_builder::ServerBuilder;
use crate::downstream::server_event::{RoutedServerEvent, ServerEvent, ServerEventListener};
use crate::downstream::settings::{
    AnswerComparison, CredentialsChoice, ServerSettings, ServerTies, StartMode,
};
use crate::downstream::version::VersionChange;
use crate::id::ServerName;
use crate::supervision::{
    ChildPhase, RolloutAction, RolloutEvent, RolloutMachine, RolloutState, RolloutView, Sample,
};
use crate::telemetry::{EventFeed, EventKind, LogSource, unix_millis};
use crate::transport::process_usage;

/// How often both versions are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often memory is measured, at least; often enough for short windows.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// Parts of a window in which memory is measured once.
const MEASUREMENTS: u32 = 10;

/// Who asked for a new version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RolloutOrigin {
    /// The configuration, which names it already.
    File,
    /// An operator; the configuration is changed once it is promoted.
    Operator(VersionChange),
}

/// A new version that passed its gates.
#[derive(Clone)]
pub(crate) struct Promotion {
    old: Arc<Server>,
    candidate: Arc<Server>,
    settings: Arc<ServerSettings>,
    door: Arc<Door>,
}

impl Promotion {
    pub(super) fn server(&self) -> &ServerName {
        self.old.name()
    }
}

pub(super) type Promote = Box<dyn Fn(Promotion) -> bool>;

/// Holds the events of a new version back until it serves clients.
pub(super) struct Door {
    is_open: Arc<AtomicBool>,
    /// The newest lists, which clients see once it opens.
    listed: Mutex<Option<RoutedServerEvent>>,
    listener: ServerEventListener,
}

impl Door {
    fn pass(&self, event: RoutedServerEvent) {
        if !self.is_open.load(Ordering::Acquire) {
            let mut listed = self.listed.lock();
            // It can have been opened before the lock.
            if !self.is_open.load(Ordering::Acquire) {
                if matches!(event.event, ServerEvent::Listed(..)) {
                    *listed = Some(event);
                }
                return;
            }
        }
        (self.listener)(event);
    }

    fn open(&self) {
        let mut listed = self.listed.lock();
        self.is_open.store(true, Ordering::Release);
        listed
            .take()
            .into_iter()
            .for_each(|event| (self.listener)(event));
    }
}

/// Starts a new version beside the old one.
///
/// # Errors
///
/// Returns why there is nothing that it could be compared with.
pub(super) fn begin(
    builder: &ServerBuilder,
    old: &Arc<Server>,
    settings: &ServerSettings,
    origin: RolloutOrigin,
    promote: Promote,
) -> Result<(), String> {
    let name = old.name().clone();
    let phase = old.shared.phase();
    if old.is_halted() || !matches!(phase, ChildPhase::Up | ChildPhase::Idle) || !old.was_listed() {
        return Err(format!(
            "server `{name}` is not up, so that a new version has nothing to be compared with"
        ));
    }
    let (candidate, door) = start_behind_door(builder, settings);
    let rollout = settings.rollout.clone().unwrap_or_default();
    let limits = &settings.limits;
    let starts_within = limits.start_timeout + settings.supervision.connect_timeout;
    let (of_old, settings) = (old.clone(), Arc::new(settings.clone()));
    let actor = Rollout::create(|ctx| {
        let change = match &origin {
            RolloutOrigin::File => None,
            RolloutOrigin::Operator(change) => Some(change.clone()),
        };
        let canary = Arc::new(Canary {
            server: name,
            child: candidate.shared.clone(),
            numbers: builder.parts.numbers.clone(),
            answers: Arc::new(ctx.address().recipient()),
            ends: ctx.address().recipient(),
            share: rollout.policy.share,
            change,
            tools: Default::default(),
            wants_calls: AtomicBool::new(false),
            offered: AtomicU64::new(0),
            pairs: Mutex::default(),
        });
        of_old.rollout.begin(canary.clone());
        Rollout {
            every: MEASURE_EVERY
                .min(rollout.policy.window / MEASUREMENTS)
                .max(LOOK_EVERY),
            machine: RolloutMachine::new(rollout.policy, Instant::now() + starts_within),
            compare: rollout.compare,
            promotion: Promotion {
                old: of_old,
                candidate,
                settings,
                door,
            },
            canary,
            origin,
            promote,
            events: builder.parts.events.clone(),
            measured: None,
        }
    });
    drop(actor);
    Ok(())
}

/// Starts a server whose events no client sees yet.
pub(super) fn start_behind_door(
    builder: &ServerBuilder,
    settings: &ServerSettings,
) -> (Arc<Server>, Arc<Door>) {
    let door = Arc::new(Door {
        is_open: Arc::default(),
        listed: Mutex::default(),
        listener: builder.parts.listener.clone(),
    });
    let of_listener = door.clone();
    let parts = PoolParts {
        listener: Arc::new(move |event| of_listener.pass(event)),
        list_changes: builder.parts.list_changes.counting_if(door.is_open.clone()),
        ..builder.parts.clone()
    };
    let beside = ServerBuilder {
        parts,
        ..builder.clone()
    };
    // Dependencies and idle stops apply to servers in the table.
    let alone = ServerSettings {
        dependencies: ServerTies::default(),
        start: StartMode::Eager,
        ..settings.clone()
    };
    (beside.start_server(alone, None), door)
}

/// Lets a new version take the place of the old one. Returns the old one, which has to end.
pub(super) fn promote(builder: &ServerBuilder, promotion: &Promotion) -> Option<Arc<Server>> {
    let Promotion {
        old,
        candidate,
        settings,
        door,
    } = promotion;
    let servers = builder.servers.load_full();
    let current = servers.get(old.name());
    if current.is_some_and(|current| Arc::ptr_eq(current, candidate)) {
        return None;
    }
    if !current.is_some_and(|current| Arc::ptr_eq(current, old)) {
        candidate.shared.stop();
        return None;
    }
    // Other settings can have changed since.
    let settings = ServerSettings::clone(&old.settings()).over(settings);
    candidate.parts.settings.store(Arc::new(settings));
    let mut servers = Servers::clone(&servers);
    servers.insert(old.name().clone(), candidate.clone());
    builder.servers.store(Arc::new(servers));
    builder.announce(candidate);
    door.open();
    if let Ok(up) = candidate.shared.current() {
        let registry = &builder.parts.subscription_registry;
        for uri in registry.subscriptions(candidate.name(), &candidate.spec.key) {
            up.value.command(ConnectionCommand::Subscribe(uri, None));
        }
        up.value.command(ConnectionCommand::Retune);
    }
    Some(old.clone())
}

/// One rollout; receives the answers of both versions.
struct Rollout {
    machine: RolloutMachine,
    compare: AnswerComparison,
    promotion: Promotion,
    canary: Arc<Canary>,
    origin: RolloutOrigin,
    promote: Promote,
    events: EventFeed,
    /// How often memory is measured.
    every: Duration,
    /// When memory was measured last.
    measured: Option<Instant>,
}

impl Rollout {
    fn look(&mut self, ctx: &mut Context<Self>) {
        let event = self.sighting();
        self.on(event, ctx);
        let waiting = self.canary.pairs.lock().len();
        self.on(Some(RolloutEvent::Tick { waiting }), ctx);
        let wants_calls = self.machine.wants_calls(Instant::now());
        self.canary
            .wants_calls
            .store(wants_calls, Ordering::Release);
        let is_due = self
            .measured
            .is_none_or(|last| last.elapsed() >= self.every);
        if is_due && self.machine.state() == RolloutState::Watching {
            self.measured = Some(Instant::now());
            let usage = wrap_future::<_, Self>(process_usage());
            ctx.spawn(usage.map(|usage, rollout, ctx| {
                let Promotion { old, candidate, .. } = &rollout.promotion;
                let measured = RolloutEvent::Measured {
                    old: memory(old, &usage),
                    candidate: memory(candidate, &usage),
                };
                rollout.on(Some(measured), ctx);
            }));
        }
    }

    /// Ends the sharing of calls, unless another rollout has begun after this one was abandoned.
    fn leave_slot(&self) {
        let rollout = &self.promotion.old.rollout;
        if rollout.is_of(&self.canary) {
            rollout.end();
        }
    }

    /// Translates the state of the new version into an event.
    fn sighting(&self) -> Option<RolloutEvent> {
        let Promotion { old, candidate, .. } = &self.promotion;
        let snapshot = candidate.shared.snapshot();
        let phase = snapshot.status.phase();
        let is_watched = self.machine.state() == RolloutState::Watching;
        let is_starting = matches!(
            phase,
            ChildPhase::Idle | ChildPhase::Waiting | ChildPhase::Starting
        );
        if snapshot.generation > 1 || phase != ChildPhase::Up && (is_watched || !is_starting) {
            let why = snapshot
                .last_exit
                .map_or_else(|| phase.to_string(), |exit| exit.to_string());
            let what = if is_watched {
                "it ended"
            } else {
                "it did not start"
            };
            return Some(RolloutEvent::Failed(format!("{what}: {why}")));
        }
        let is_listed =
            *candidate.spec.listed.borrow() && candidate.spec.session.trouble().is_none();
        if is_watched || phase != ChildPhase::Up || !is_listed {
            return None;
        }
        let parts = old
            .spec
            .last_part
            .load_full()
            .zip(candidate.spec.last_part.load_full());
        let (old_part, new_part) = parts?;
        if let Some(why) = definitions::incompatibility(&old_part, &new_part) {
            return Some(RolloutEvent::Failed(why));
        }
        // With sign-ins of users, the new version's own connection would call for the wrong account.
        if old.settings().credentials == CredentialsChoice::Shared {
            let tools = definitions::read_only_in_both(&old_part, &new_part);
            let _ = self.canary.tools.set(tools);
        }
        Some(RolloutEvent::Ready)
    }

    fn compared(&self, pair: Pair) -> Option<RolloutEvent> {
        let (old, candidate) = (pair.old?, pair.candidate?);
        let sample = |answered: &Answered| {
            let sent = answered.sent.unwrap_or(answered.at);
            Some(Sample {
                took: answered.at.saturating_duration_since(sent),
                is_error: answers::is_error(&answered.answer)?,
            })
        };
        let (old_sample, new_sample) = (sample(&old)?, sample(&candidate)?);
        let differs = !old_sample.is_error
            && !new_sample.is_error
            && answers::differ(&old.answer, &candidate.answer, self.compare);
        let tool: String = pair.tool.parse().unwrap_or_default();
        Some(RolloutEvent::Compared {
            old: old_sample,
            candidate: new_sample,
            difference: differs.then(|| format!("its answer to a call of `{tool}` differs")),
        })
    }

    fn on(&mut self, event: Option<RolloutEvent>, ctx: &mut Context<Self>) {
        let Some(event) = event else { return };
        let action = self.machine.on(event, Instant::now());
        match action {
            None => return self.show(),
            Some(RolloutAction::Watch) => {}
            Some(RolloutAction::Promote) => {
                self.leave_slot();
                self.promotion.candidate.rollout.set_view(self.view());
                if !(self.promote)(self.promotion.clone()) {
                    self.promotion.candidate.shared.stop();
                }
                ctx.stop();
            }
            Some(RolloutAction::RollBack) => {
                self.leave_slot();
                self.promotion.candidate.shared.stop();
                ctx.stop();
            }
        }
        self.show();
        self.report();
    }

    fn view(&self) -> RolloutView {
        let mut view = self.machine.view(Instant::now());
        if let RolloutOrigin::Operator(change) = &self.origin {
            view.version = Some(change.to.clone());
        }
        let is_held = view.state == RolloutState::RolledBack;
        view.note = is_held.then(|| match self.origin {
            RolloutOrigin::File => "the configuration names the new version, and the old one is \
                                    served until the configuration changes again"
                .to_owned(),
            RolloutOrigin::Operator(_) => "the configuration was not changed".to_owned(),
        });
        view
    }

    fn show(&self) {
        let rollout = &self.promotion.old.rollout;
        // Another rollout can have begun after this one was abandoned.
        if rollout.is_of(&self.canary) || self.machine.state().is_final() && !rollout.is_running() {
            rollout.set_view(self.view());
        }
    }

    /// Reports the state in the logs and as an event.
    fn report(&self) {
        let Promotion { old, candidate, .. } = &self.promotion;
        let (server, view) = (old.name().as_str(), self.view());
        let text = format!("rollout: {view}");
        match view.state {
            RolloutState::RolledBack => log::warn!(server; "{text}"),
            _ => log::info!(server; "{text}"),
        }
        old.parts.log.push(LogSource::Gateway, &text);
        if view.state == RolloutState::Promoted {
            candidate.parts.log.push(LogSource::Gateway, &text);
        }
        self.events.publish(EventKind::Server, || {
            json!({
                "timestamp": unix_millis(),
                "serverId": server,
                "state": old.shared.phase(),
                "generation": old.shared.sighting().generation,
                "rollout": view,
            })
        });
    }
}

impl Actor for Rollout {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.show();
        self.report();
        ctx.run_interval(LOOK_EVERY, Self::look);
    }
}

/// A rollout that panicked ends like one that was rolled back.
impl Drop for Rollout {
    fn drop(&mut self) {
        if self.machine.state() != RolloutState::Promoted {
            self.promotion.candidate.shared.stop();
        }
        self.leave_slot();
    }
}

impl Handler<Delivery> for Rollout {
    type Result = ();

    fn handle(&mut self, delivery: Delivery, ctx: &mut Self::Context) {
        // The new version's questions and notifications reach no client.
        let CallEvent::Answer(answer) = delivery.what else {
            return;
        };
        let answered = Answered {
            answer,
            sent: delivery.sent,
            at: Instant::now(),
        };
        let pair = self.canary.answered(delivery.number, answered);
        let event = pair.and_then(|pair| self.compared(pair));
        self.on(event, ctx);
    }
}

impl Handler<Abandon> for Rollout {
    type Result = ();

    fn handle(&mut self, Abandon(why): Abandon, ctx: &mut Self::Context) {
        self.on(Some(RolloutEvent::Failed(why)), ctx);
    }
}
