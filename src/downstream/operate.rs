//! Taking servers in and out of service: by operators, and for want of use.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context, Handler, Message, MessageResult};
use tokio::time::{Instant, timeout, timeout_at};

use super::entry::{Callers, FromServer, News};
use super::keeper::{Keeper, SWEEP_EVERY, close};
use super::key::EntryKey;
use super::pool::Downstreams;
use super::server::Server;
use super::usage::{Rest, Use, rest};
use crate::catalog::ItemKind;
use crate::id::ServerName;
use crate::supervision::{ChildRef, Phase};
use crate::telemetry::{Counter, LogSource};

/// How long an operator waits for the outcome of an order.
const PATIENCE: Duration = Duration::from_secs(8);
/// Shortest time between two looks for unused connections.
const LOOK_MIN: Duration = Duration::from_millis(50);
/// When a server is looked at again that was told to rest, or is watched.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What an operator wants of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A fresh connection now: one that is up is renewed, a wait is skipped.
    Restart,
    /// Out of service until [`Order::Start`], a change of its configuration, or a restart of
    /// the gateway.
    Stop,
    /// In service again; one that waits for its next attempt is tried now.
    Start,
    /// The breaker of the server, or of the tool of this native name, open until it is reset.
    Trip(Option<String>),
    /// The breaker of this tool closed; without a name all of the server's.
    Reset(Option<String>),
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("server `{0}` does not run")]
    NotRunning(ServerName),
    #[error("the order for server `{0}` may not have been carried out; see `mcpvisor status`")]
    Lost(ServerName),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
}

/// What is to be waited for after an order.
pub(super) enum Awaited {
    /// An incarnation after this one, if it was not yet on its way.
    Up {
        generation: u64,
        is_starting: bool,
    },
    Gone(Vec<ChildRef<Callers>>),
    Nothing(Cow<'static, str>),
}

#[derive(Message, Clone)]
#[rtype(result = "Result<(Arc<Server>, Awaited), OrderError>")]
pub(super) struct Ordered(ServerName, Order);

impl Downstreams {
    /// Carries out an order and tells its outcome in a sentence, after 8 s at the latest.
    ///
    /// # Errors
    ///
    /// Returns [`OrderError`] when there is no such server, when the order makes no sense now,
    /// or when the server did not come up.
    pub async fn order(&self, name: ServerName, order: Order) -> Result<String, OrderError> {
        // Once: an order may have been carried out by a keeper that did not say so.
        let answer = self.ask(Ordered(name.clone(), order), 1).await;
        let (server, awaited) = answer.ok_or_else(|| OrderError::Lost(name.clone()))??;
        match awaited {
            Awaited::Nothing(state) => Ok(format!("server `{name}` {state}")),
            Awaited::Gone(children) => {
                let ended = async {
                    for child in &children {
                        child.stopped().await;
                    }
                };
                let state = match timeout(PATIENCE, ended).await {
                    Ok(()) => "is stopped",
                    Err(_) => "is being stopped",
                };
                Ok(format!(
                    "server `{name}` {state}; its calls fail until `mcpvisor servers start {name}`"
                ))
            }
            Awaited::Up {
                generation,
                is_starting,
            } => came_up(&server, generation, is_starting).await,
        }
    }
}

async fn came_up(
    server: &Server,
    generation: u64,
    is_starting: bool,
) -> Result<String, OrderError> {
    let name = &server.name;
    let mut changes = server.shared.subscribe();
    let settled = changes.wait_for(|snapshot| {
        let is_new = snapshot.generation > generation || is_starting;
        is_new && snapshot.status.phase() != Phase::Starting
    });
    if timeout_at(Instant::now() + PATIENCE, settled)
        .await
        .is_err()
    {
        return Ok(format!(
            "server `{name}` is starting and not up yet; `mcpvisor status` shows how it goes"
        ));
    }
    match server.shared.current() {
        Ok(_) => Ok(format!("server `{name}` is up")),
        Err(away) if matches!(away.phase, Phase::Idle | Phase::Starting) => {
            Ok(format!("server `{name}` is {}", away.phase))
        }
        Err(away) => Err(OrderError::Failed(server.away(&away).message)),
    }
}

impl Keeper {
    fn order(&self, name: &ServerName, order: Order) -> Result<(Arc<Server>, Awaited), OrderError> {
        let server = self.servers.load().get(name).cloned();
        let server = server.ok_or_else(|| OrderError::NotRunning(name.clone()))?;
        let snapshot = server.shared.snapshot();
        let phase = snapshot.status.phase();
        let up = Awaited::Up {
            generation: snapshot.generation,
            is_starting: phase == Phase::Starting,
        };
        let is_halted = server.is_halted();
        let awaited = match order {
            Order::Stop if is_halted => Awaited::Nothing("was stopped already".into()),
            Order::Stop => Awaited::Gone(self.halt(&server)),
            Order::Restart if is_halted => {
                return Err(OrderError::Refused(server.halted().message));
            }
            Order::Restart => {
                remark(&server, "restarted by an operator");
                server.usage.wanted();
                server.shared.reconnect_now();
                server.reconnect_own();
                up
            }
            Order::Start if is_halted => {
                remark(&server, "started by an operator");
                server.usage.wanted();
                server.halted.store(false, Ordering::SeqCst);
                server.shared.release();
                up
            }
            Order::Start if phase == Phase::Up => Awaited::Nothing("is up already".into()),
            Order::Start => {
                remark(&server, "started by an operator");
                server.usage.wanted();
                server.shared.wake();
                up
            }
            Order::Trip(tool) => Awaited::Nothing(trip(&server, tool.as_deref())?.into()),
            Order::Reset(tool) => Awaited::Nothing(reset(&server, tool.as_deref()).into()),
        };
        Ok((server, awaited))
    }

    /// Takes a server out of service; returns the connections that leave.
    fn halt(&self, server: &Server) -> Vec<ChildRef<Callers>> {
        remark(server, "stopped by an operator");
        server.halted.store(true, Ordering::SeqCst);
        (self.parts.listener)(FromServer {
            server: server.name.clone(),
            key: EntryKey::shared(),
            news: News::Away,
        });
        server.shared.hold();
        let own = server.take_out(|_, _| true);
        let mut children: Vec<_> = own.iter().map(|(_, child)| child.clone()).collect();
        close(&self.parts.listener, server, own);
        children.push(server.shared.clone());
        children
    }

    /// A server that was started for its lists may be closed as soon as they are read.
    pub(super) fn look_when_listed(server: &Server, ctx: &mut Context<Self>) {
        if !server.usage.is_for_lists() {
            return;
        }
        let mut listed = server.spec.listed.subscribe();
        let listed = async move { listed.wait_for(|listed| *listed).await.is_ok() };
        let look = wrap_future::<_, Self>(listed).map(|_, keeper, ctx| keeper.look(ctx));
        ctx.spawn(look);
    }

    /// Closes connections that nobody uses, and comes back when the next one is due.
    pub(super) fn look(&mut self, ctx: &mut Context<Self>) {
        let mut next = SWEEP_EVERY;
        for server in self.servers.load().values() {
            let again = match self.rest_of(server) {
                Rest::Now => {
                    self.rest(server);
                    match server.settings.load().limits.idle_stop {
                        Duration::ZERO => LOOK_AGAIN,
                        idle_stop => idle_stop,
                    }
                }
                Rest::In(left) => left,
                Rest::Never => SWEEP_EVERY,
            };
            next = next.min(again);
        }
        if let Some(look) = self.look.take() {
            ctx.cancel_future(look);
        }
        self.look = Some(ctx.run_later(next.max(LOOK_MIN), |keeper, ctx| {
            keeper.look = None;
            keeper.look(ctx);
        }));
    }

    fn rest_of(&self, server: &Server) -> Rest {
        let idle_stop = server.settings.load().limits.idle_stop;
        let snapshot = server.shared.snapshot();
        if snapshot.status.phase() != Phase::Up {
            return if idle_stop.is_zero() {
                Rest::Never
            } else {
                Rest::In(idle_stop)
            };
        }
        let unused_since = server.usage.unused_since().max(snapshot.since);
        let usage = Use {
            is_listed: *server.spec.listed.borrow(),
            is_for_lists: server.usage.is_for_lists(),
            is_used: server.usage.is_used() || server.spec.load.of_entry() > 0,
            unused: unused_since.elapsed(),
        };
        match rest(idle_stop, usage) {
            Rest::Now if self.is_watched(server) => Rest::In(LOOK_AGAIN),
            rest => rest,
        }
    }

    /// Whether somebody waits for news of it, or for a task that runs there.
    fn is_watched(&self, server: &Server) -> bool {
        let desired = &self.parts.desired;
        desired.has_subscriptions(&server.name, &EntryKey::shared())
            || server.spec.passed.any(Instant::now())
    }

    fn rest(&self, server: &Arc<Server>) {
        let (used, desired) = (server.clone(), self.parts.desired.clone());
        let counters = self.parts.counters.clone();
        server.shared.rest_if(move || {
            let is_used = used.usage.is_used()
                || used.spec.load.of_entry() > 0
                || desired.has_subscriptions(&used.name, &EntryKey::shared())
                || used.spec.passed.any(Instant::now());
            if is_used {
                return false;
            }
            used.usage.rested();
            counters.add(Counter::ServersRested);
            remark(&used, "at rest until it is needed");
            true
        });
    }
}

/// Switches calls to a server or a tool of it off.
fn trip(server: &Server, tool: Option<&str>) -> Result<String, OrderError> {
    let Some(tool) = tool else {
        server.breakers.trip(None);
        remark(server, "switched off by an operator");
        let name = &server.name;
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
            server.name
        );
        return Err(OrderError::Refused(why));
    }
    server.breakers.trip(Some(tool));
    remark(
        server,
        &format!("left without its tool {tool:?} by an operator"),
    );
    Ok(format!("is not called for its tool {tool:?} until a reset"))
}

fn reset(server: &Server, tool: Option<&str>) -> String {
    server.breakers.reset(tool);
    match tool {
        None => {
            remark(server, "trusted again by an operator: all breakers closed");
            "has all its breakers closed".to_owned()
        }
        Some(tool) => {
            let text = format!("called again for its tool {tool:?}, by an operator");
            remark(server, &text);
            format!("has the breaker of {tool:?} closed")
        }
    }
}

/// A remark in the server's log and in the gateway's.
fn remark(server: &Server, text: &str) {
    log::info!(server = server.name.as_str(); "server is {text}");
    server.log.push(LogSource::Gateway, text);
}

impl Handler<Ordered> for Keeper {
    type Result = MessageResult<Ordered>;

    fn handle(&mut self, ordered: Ordered, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.order(&ordered.0, ordered.1))
    }
}
