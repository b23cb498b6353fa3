//! Starts, stops and restarts servers on operators' orders, and stops unused servers.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, MessageResult};
use tokio::time::{Instant, timeout, timeout_at};

use crate::catalog::ItemKind;
use crate::downstream::connection::spec::{CallSenders, ConnectionCommand};
use crate::downstream::connection_key::ConnectionKey;
use crate::downstream::pool::Downstreams;
use crate::downstream::pool::closing::{close, end_idle, lists_outdated};
use crate::downstream::pool::connection_manager::{ConnectionManager, SWEEP_EVERY};
use crate::downstream::pool::rollout::RolloutOrigin;
use crate::downstream::pool::server::Server;
use crate::downstream::pool::usage::{IdleDecision, UsageSnapshot, idle_decision};
use crate::downstream::server_event::{RoutedServerEvent, ServerEvent};
use crate::downstream::settings::{ServerSettings, TransportSettings};
use crate::downstream::subscription_registry::SubscriptionRegistry;
use crate::downstream::version::change_of;
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
use crate::supervision::{ChildPhase, ChildRef};
use crate::telemetry::{Counter, LogSource};

/// How long an order waits for its outcome before it answers.
const ORDER_TIMEOUT: Duration = Duration::from_secs(8);
/// Minimum time between two sweeps.
const SWEEP_MIN: Duration = Duration::from_millis(50);
/// When a server that was just stopped as idle, or is watched, is checked again.
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

/// An operator's order for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerOrder {
    /// Reconnects now, even if the connection is up; skips a pending backoff.
    Restart,
    /// Takes the server out of service until [`ServerOrder::Start`], a change of its configuration,
    /// or a restart of the gateway.
    Stop,
    /// Puts the server back into service; skips a pending backoff.
    Start,
    /// Kills the server's processes, as if they had crashed.
    Kill,
    /// Opens the breaker of the server, or of the tool of this native name, until it is reset.
    Trip(Option<String>),
    /// Closes the breaker of this tool; without a name, all breakers of the server.
    Reset(Option<String>),
    /// Tries this version, or the newest one, beside the running one.
    Upgrade(Option<String>),
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerOrderError {
    #[error("server `{0}` is not running")]
    NotRunning(ServerName),
    #[error("the order for server `{0}` may not have been carried out; see `mcpvisor status`")]
    Lost(ServerName),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(Failure),
}

impl From<ServerOrderError> for Failure {
    fn from(error: ServerOrderError) -> Self {
        let message = error.to_string();
        match error {
            ServerOrderError::NotRunning(name) | ServerOrderError::Lost(name) => {
                Self::new(ErrorKind::ServerUnavailable, message).server(name.as_str())
            }
            ServerOrderError::Refused(_) => Self::new(ErrorKind::Conflict, message),
            ServerOrderError::Failed(failure) => failure,
        }
    }
}

/// The condition that completes an order.
pub(crate) enum OrderProgress {
    /// The next incarnation is up, or the current one if it is still starting.
    Up {
        generation: u64,
        is_starting: bool,
    },
    Gone(Vec<ChildRef<CallSenders>>),
    /// These connections have ended, each in the incarnation of this generation.
    Ended(Vec<(ChildRef<CallSenders>, u64)>),
    Nothing(Cow<'static, str>),
}

#[derive(Message, Clone)]
#[rtype(result = "Result<(Arc<Server>, OrderProgress), ServerOrderError>")]
pub(crate) struct OrderMessage(ServerName, ServerOrder);

impl Downstreams {
    /// Carries out an order and describes its outcome in a sentence, after 8 s at the latest.
    ///
    /// # Errors
    ///
    /// Returns [`ServerOrderError`] if the server does not exist, the order makes no sense in its
    /// present state, or the server did not come up.
    pub async fn order(
        &self,
        name: ServerName,
        order: ServerOrder,
    ) -> Result<String, ServerOrderError> {
        // Asked only once: a manager that died can have carried out the order already.
        let answer = self.ask(OrderMessage(name.clone(), order), 1).await;
        let (server, awaited) = answer.ok_or_else(|| ServerOrderError::Lost(name.clone()))??;
        match awaited {
            OrderProgress::Nothing(state) => Ok(format!("server `{name}` {state}")),
            OrderProgress::Gone(children) => {
                let ended = async {
                    for child in &children {
                        child.stopped().await;
                    }
                };
                let state = match timeout(ORDER_TIMEOUT, ended).await {
                    Ok(()) => "is stopped",
                    Err(_) => "is being stopped",
                };
                Ok(format!(
                    "server `{name}` {state}; its calls fail until `mcpvisor servers start {name}`"
                ))
            }
            OrderProgress::Ended(children) => {
                let ended = async {
                    for (child, generation) in &children {
                        ended(child, *generation).await;
                    }
                };
                let state = match timeout(ORDER_TIMEOUT, ended).await {
                    Ok(()) => "was killed",
                    Err(_) => "is being killed",
                };
                Ok(format!(
                    "server `{name}` {state}; `mcpvisor status` shows the restart"
                ))
            }
            OrderProgress::Up {
                generation,
                is_starting,
            } => wait_until_up(&server, generation, is_starting).await,
        }
    }
}

/// Waits until an incarnation of a connection is no longer up, so that the next status shows it.
async fn ended(child: &ChildRef<CallSenders>, generation: u64) {
    let mut changes = child.subscribe();
    let is_ended = changes.wait_for(|snapshot| {
        snapshot.generation > generation || snapshot.status.phase() != ChildPhase::Up
    });
    // Without its supervisor, the connection has ended as well.
    drop(is_ended.await);
}

async fn wait_until_up(
    server: &Server,
    generation: u64,
    is_starting: bool,
) -> Result<String, ServerOrderError> {
    let name = server.name();
    let mut changes = server.shared.subscribe();
    let settled = changes.wait_for(|snapshot| {
        let is_new = snapshot.generation > generation || is_starting;
        is_new && snapshot.status.phase() != ChildPhase::Starting
    });
    if timeout_at(Instant::now() + ORDER_TIMEOUT, settled)
        .await
        .is_err()
    {
        return Ok(format!(
            "server `{name}` is still starting; `mcpvisor status` shows its progress"
        ));
    }
    match server.shared.current() {
        Ok(_) => Ok(format!("server `{name}` is up")),
        Err(away) if matches!(away.phase, ChildPhase::Idle | ChildPhase::Starting) => {
            Ok(format!("server `{name}` is {}", away.phase))
        }
        Err(away) => Err(ServerOrderError::Failed(server.away_in_full(&away))),
    }
}

impl ConnectionManager {
    fn order(
        &self,
        name: &ServerName,
        order: ServerOrder,
    ) -> Result<(Arc<Server>, OrderProgress), ServerOrderError> {
        let server = self.servers.load().get(name).cloned();
        let server = server.ok_or_else(|| ServerOrderError::NotRunning(name.clone()))?;
        let snapshot = server.shared.snapshot();
        let phase = snapshot.status.phase();
        let up = OrderProgress::Up {
            generation: snapshot.generation,
            is_starting: phase == ChildPhase::Starting,
        };
        let is_halted = server.is_halted();
        let awaited = match order {
            ServerOrder::Stop if is_halted => OrderProgress::Nothing("was stopped already".into()),
            ServerOrder::Stop => OrderProgress::Gone(self.take_out_of_service(&server)),
            ServerOrder::Restart if is_halted => {
                return Err(ServerOrderError::Refused(server.halted().message));
            }
            ServerOrder::Restart => {
                log_remark(&server, "restarted by an operator");
                server.usage.wanted();
                lists_outdated(&self.parts.listener, &server);
                server.own.each(|_, child| child.reconnect_now("operator"));
                let child = server.shared.clone();
                (self.dependencies).leave(&server.spec.server, move || {
                    child.reconnect_now("operator");
                });
                up
            }
            ServerOrder::Start if is_halted => {
                log_remark(&server, "started by an operator");
                server.usage.wanted();
                server.halted.store(false, Ordering::SeqCst);
                server.shared.release();
                up
            }
            ServerOrder::Start if phase == ChildPhase::Up => {
                OrderProgress::Nothing("is up already".into())
            }
            ServerOrder::Start => {
                log_remark(&server, "started by an operator");
                server.usage.wanted();
                // It may have exited with a code of `stop_on_exit`.
                server.shared.release();
                server.shared.wake();
                up
            }
            ServerOrder::Kill => OrderProgress::Ended(kill(&server)?),
            ServerOrder::Trip(tool) => {
                OrderProgress::Nothing(trip(&server, tool.as_deref())?.into())
            }
            ServerOrder::Upgrade(to) => {
                OrderProgress::Nothing(self.upgrade(&server, to.as_deref())?.into())
            }
            ServerOrder::Reset(tool) => {
                OrderProgress::Nothing(reset(&server, tool.as_deref()).into())
            }
        };
        Ok((server, awaited))
    }

    /// Starts another version of a server beside the running one.
    fn upgrade(&self, server: &Arc<Server>, to: Option<&str>) -> Result<String, ServerOrderError> {
        let refused = ServerOrderError::Refused;
        if server.rollout.is_running() {
            let why = format!("a rollout of server `{}` is running", server.name());
            return Err(refused(why));
        }
        let mut settings = ServerSettings::clone(&server.settings());
        let TransportSettings::Stdio(stdio) = &mut settings.transport else {
            let why = "a server behind a URL has no version; change the URL in the configuration";
            return Err(refused(why.to_owned()));
        };
        let change = change_of(stdio, to).map_err(refused)?;
        stdio.args[change.place] = change.to.clone().into();
        let text = format!("starts {} beside {}", change.to, change.from);
        let origin = RolloutOrigin::Operator(change);
        self.begin_rollout(server, &settings, origin)
            .map_err(refused)?;
        Ok(text)
    }

    /// Takes a server out of service; returns the connections that are closing.
    fn take_out_of_service(&self, server: &Arc<Server>) -> Vec<ChildRef<CallSenders>> {
        log_remark(server, "stopped by an operator");
        server
            .rollout
            .abandon("the server was stopped by an operator");
        server.halted.store(true, Ordering::SeqCst);
        (self.parts.listener)(RoutedServerEvent {
            server: server.name().clone(),
            key: ConnectionKey::shared(),
            event: ServerEvent::Away,
        });
        let leaving = server.clone();
        self.dependencies.leave(server.name(), move || {
            // An operator can have started it meanwhile.
            if leaving.is_halted() {
                leaving.shared.hold();
            }
        });
        let own = server.own.take_out(|_| true);
        let mut children: Vec<_> = own.iter().map(|own| own.child.clone()).collect();
        close(&self.parts.listener, server, own);
        end_idle(&self.parts.listener, server, |_| true);
        children.push(server.shared.clone());
        children
    }

    /// Sweeps when the lists are read of a server that was started only to read them.
    pub(crate) fn sweep_when_listed(server: &Server, ctx: &mut Context<Self>) {
        if !server.usage.is_for_lists() {
            return;
        }
        let mut listed = server.spec.listed.subscribe();
        let listed = async move { listed.wait_for(|listed| *listed).await.is_ok() };
        let sweep = wrap_future::<_, Self>(listed).map(|_, manager, ctx| manager.sweep(ctx));
        ctx.spawn(sweep);
    }

    /// Stops unused servers, and schedules the next sweep for when one is due.
    pub(crate) fn sweep(&mut self, ctx: &mut Context<Self>) {
        let mut next = SWEEP_EVERY;
        for server in self.servers.load().values() {
            let again = match self.idle_decision(server) {
                IdleDecision::Now => {
                    self.stop_idle(server);
                    match server.parts.settings.load().limits.idle_stop {
                        Duration::ZERO => SWEEP_AGAIN,
                        idle_stop => idle_stop,
                    }
                }
                IdleDecision::In(left) => left,
                IdleDecision::Never => SWEEP_EVERY,
            };
            next = next.min(again);
        }
        if let Some(sweep) = self.sweep.take() {
            ctx.cancel_future(sweep);
        }
        self.sweep = Some(ctx.run_later(next.max(SWEEP_MIN), |manager, ctx| {
            manager.sweep = None;
            manager.sweep(ctx);
        }));
    }

    fn idle_decision(&self, server: &Server) -> IdleDecision {
        let idle_stop = server.parts.settings.load().limits.idle_stop;
        let snapshot = server.shared.snapshot();
        if snapshot.status.phase() != ChildPhase::Up {
            return if idle_stop.is_zero() {
                IdleDecision::Never
            } else {
                IdleDecision::In(idle_stop)
            };
        }
        let unused_since = server.usage.unused_since().max(snapshot.since);
        let usage = UsageSnapshot {
            is_listed: *server.spec.listed.borrow(),
            is_for_lists: server.usage.is_for_lists(),
            is_used: server.has_calls(),
            unused: unused_since.elapsed(),
        };
        match idle_decision(idle_stop, usage) {
            IdleDecision::Now if server.is_watched(&self.parts.subscription_registry) => {
                IdleDecision::In(SWEEP_AGAIN)
            }
            decision => decision,
        }
    }

    fn stop_idle(&self, server: &Arc<Server>) {
        let used = server.clone();
        let subscription_registry = self.parts.subscription_registry.clone();
        let (counters, listener) = (self.parts.counters.clone(), self.parts.listener.clone());
        server.shared.idle_if(move || {
            if used.has_calls() || used.is_watched(&subscription_registry) {
                return false;
            }
            used.usage.stopped_idle();
            counters.add(Counter::ServersIdleStopped);
            listener(RoutedServerEvent {
                server: used.name().clone(),
                key: ConnectionKey::shared(),
                event: ServerEvent::Idle,
            });
            log_remark(&used, "idle; will start on demand");
            true
        });
    }
}

impl Server {
    pub(super) fn has_calls(&self) -> bool {
        self.usage.is_used() || self.spec.load.calls_in_flight() > 0
    }

    /// Whether a client watches events or a running task of the server, or another server depends
    /// on it.
    fn is_watched(&self, subscription_registry: &SubscriptionRegistry) -> bool {
        self.has_subscriptions(subscription_registry, &self.spec.key)
            || self.spec.client_tasks.any(Instant::now())
            || self.parts.dependencies.is_needed(self.name().as_str())
    }
}

/// Kills the server's processes, which supervisors restart; returns their connections.
fn kill(server: &Server) -> Result<Vec<(ChildRef<CallSenders>, u64)>, ServerOrderError> {
    let name = server.name();
    if server.parts.connector.transport() != "stdio" {
        let why = format!("server `{name}` has no local process: it is reached by its URL");
        return Err(ServerOrderError::Refused(why));
    }
    let mut killed = Vec::new();
    server.each_connection(|_, child| {
        if let Ok(up) = child.current() {
            killed.push((child.clone(), child.snapshot().generation));
            up.value.command(ConnectionCommand::Kill);
        }
    });
    if killed.is_empty() {
        let phase = server.shared.phase();
        let why = format!("server `{name}` is {phase}; there is nothing to kill");
        return Err(ServerOrderError::Refused(why));
    }
    log_remark(server, "killed by an operator");
    Ok(killed)
}

/// Opens the breaker of a server or of one of its tools, so that calls are refused.
fn trip(server: &Server, tool: Option<&str>) -> Result<String, ServerOrderError> {
    let Some(tool) = tool else {
        server.parts.breakers.trip(None);
        log_remark(server, "switched off by an operator");
        let name = server.name();
        return Ok(format!(
            "is switched off: its calls are refused until `mcpvisor servers reset {name}`"
        ));
    };
    let part = server.spec.last_part.load_full();
    let is_there = part.is_none_or(|part| {
        let mut tools = part.items(ItemKind::Tools).iter();
        tools.any(|item| item.native() == tool)
    });
    if !is_there {
        let tool: String = tool.chars().take(64).collect();
        let why = format!(
            "server `{}` has no tool {tool:?}; the name is the server's own, without prefix",
            server.name()
        );
        return Err(ServerOrderError::Refused(why));
    }
    server.parts.breakers.trip(Some(tool));
    log_remark(
        server,
        &format!("tool {tool:?} switched off by an operator"),
    );
    Ok(format!("has its tool {tool:?} switched off until a reset"))
}

fn reset(server: &Server, tool: Option<&str>) -> String {
    server.parts.breakers.reset(tool);
    match tool {
        None => {
            log_remark(server, "all breakers closed by an operator");
            "has all its breakers closed".to_owned()
        }
        Some(tool) => {
            let text = format!("breaker of tool {tool:?} closed by an operator");
            log_remark(server, &text);
            format!("has the breaker of {tool:?} closed")
        }
    }
}

/// Writes a remark to the server's log and the gateway's.
fn log_remark(server: &Server, text: &str) {
    log::info!(server = server.name().as_str(); "{text}");
    server.parts.log.push(LogSource::Gateway, text);
}

impl Handler<OrderMessage> for ConnectionManager {
    type Result = MessageResult<OrderMessage>;

    fn handle(&mut self, ordered: OrderMessage, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.order(&ordered.0, ordered.1))
    }
}
