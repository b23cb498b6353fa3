//! Finding the connection that serves a caller, at once or when it is there, and how a call ended.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::time::{Instant, timeout_at};

use super::route::Target;
use crate::downstream::{
    Caller, Callers, Deadline, Delivery, Downstreams, InUse, Lease, Pass, Reply, Server,
};
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure, Response};
use crate::supervision::{Away, ChildRef, Phase, Up};
use crate::telemetry::Counter;

/// How a request gets to its server.
pub(crate) struct Dispatch {
    pub(crate) deadline: Deadline,
    pub(crate) way: Way,
    pub(crate) hold: Hold,
    /// Its server is one whose calls may be sent once more.
    pub(crate) may_repeat: bool,
}

/// Kept until the request is answered.
#[derive(Default)]
pub(crate) struct Hold {
    /// Keeps the server's shared connection from being closed as unused.
    _in_use: Option<InUse>,
    /// Keeps a connection from serving anybody else.
    _lease: Option<Lease>,
    /// Of the breakers, until the request is sent.
    pass: Option<Pass>,
}

impl Hold {
    /// The way back for the request, through which the breakers learn how it went.
    pub(crate) fn reply(
        &mut self,
        number: u64,
        server: ServerName,
        caller: Arc<Recipient<Delivery>>,
    ) -> Reply {
        Reply::new(number, server, caller).with_pass(self.pass.take())
    }
}

pub(crate) enum Way {
    Open(Callers),
    Opening(LocalBoxFuture<'static, Result<Callers, Failure>>),
}

/// Finds the way to a server for one request of a caller that lives on the arbiter of this index.
/// A request that was sent before keeps its deadline; its server may be on its way back, and is
/// waited for so long.
///
/// # Errors
///
/// Returns why the request cannot be sent now; nothing was sent.
pub(crate) fn dispatch(
    downstreams: &Downstreams,
    target: &Target,
    caller: &Caller,
    arbiter: usize,
    sent_before: Option<Deadline>,
) -> Result<Dispatch, Failure> {
    let name = &target.server;
    let server = downstreams.get(name).ok_or_else(|| removed(name))?;
    let now = Instant::now();
    let (deadline, patience) = if let Some(deadline) = sent_before {
        (deadline, deadline.from(now) - now)
    } else {
        let limits = &server.settings().limits;
        let deadline = Deadline {
            idle: limits.request_timeout,
            latest: now + limits.request_timeout_max,
        };
        (deadline, limits.queue_while_restarting)
    };
    find(
        downstreams,
        server,
        target,
        caller,
        arbiter,
        deadline,
        patience,
    )
}

fn find(
    downstreams: &Downstreams,
    server: Arc<Server>,
    target: &Target,
    caller: &Caller,
    arbiter: usize,
    deadline: Deadline,
    patience: Duration,
) -> Result<Dispatch, Failure> {
    let name = &target.server;
    if server.is_halted() {
        return Err(server.halted());
    }
    let pass = Some(server.pass(target.tool.as_ref().map(|tool| &tool.native))?);
    let settings = server.settings();
    let now = Instant::now();
    let (key, lease) = server.reserve(caller);
    let own = if key.is_shared() {
        None
    } else {
        server.find(&key)
    };
    let hold = Hold {
        _in_use: own.is_none().then(|| server.enter()),
        _lease: lease,
        pass,
    };
    // Its supervisor gives an attempt up after `connect_timeout`.
    let opened_by = deadline.from(now);
    let way = match own.or_else(|| server.find(&key)) {
        Some(child) => match child.current() {
            Ok(up) => Way::Open(up.value),
            Err(away) => {
                let by_need = !key.is_shared() || settings.may_rest();
                let opening = away.phase == Phase::Idle || by_need && away.phase == Phase::Starting;
                if patience.is_zero() && !opening {
                    return Err(server.away(&away));
                }
                let opened_by = if opening { opened_by } else { now };
                Way::Opening(opened(server, child, opened_by, patience).boxed_local())
            }
        },
        None => {
            let (downstreams, name) = (downstreams.clone(), name.clone());
            let opening = async move {
                let child = downstreams.open(name.clone(), key, arbiter).await;
                let child = child.ok_or_else(|| removed(&name))?;
                opened(server, child, opened_by, patience).await
            };
            Way::Opening(opening.boxed_local())
        }
    };
    Ok(Dispatch {
        deadline,
        way,
        hold,
        may_repeat: settings.resilience.retry.is_allowed,
    })
}

/// As what the end of a call is counted.
pub(super) const fn counted_as(answer: &Result<Response, Failure>) -> Counter {
    match answer {
        Ok(_) => Counter::CallsAnswered,
        Err(failure) => match failure.kind {
            ErrorKind::Cancelled => Counter::CallsCancelled,
            ErrorKind::Overloaded => Counter::CallsShed,
            ErrorKind::BreakerOpen => Counter::CallsBarred,
            _ => Counter::CallsFailed,
        },
    }
}

fn removed(name: &ServerName) -> Failure {
    let message = format!("server `{name}` was removed");
    Failure::new(ErrorKind::ServerUnavailable, message).server(name.as_str())
}

async fn opened(
    server: Arc<Server>,
    child: ChildRef<Callers>,
    opened_by: Instant,
    patience: Duration,
) -> Result<Callers, Failure> {
    let up = wait_up(child, opened_by, patience).await;
    up.map(|up| up.value).map_err(|away| server.away(&away))
}

/// Waits for a connection that is being opened, and opens one that is at rest; one that is away
/// is waited for only as long as its configuration allows.
async fn wait_up(
    child: ChildRef<Callers>,
    opened_by: Instant,
    patience: Duration,
) -> Result<Up<Callers>, Away> {
    let mut changes = child.subscribe();
    if (child.current()).is_err_and(|away| away.phase == Phase::Idle) {
        child.wake();
    }
    let starting = |phase| matches!(phase, Phase::Idle | Phase::Starting);
    let opened = changes.wait_for(|snapshot| !starting(snapshot.status.phase()));
    // Too late, or its supervisor is gone: what it is now tells.
    drop(timeout_at(opened_by, opened).await);
    if patience.is_zero() {
        return child.current();
    }
    child.wait_up(Instant::now() + patience).await
}
