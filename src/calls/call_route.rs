//! Finds the connection that serves a caller, waiting for it if necessary, and classifies how calls
//! end.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::time::{Instant, timeout_at};

use crate::bridge::headers::ClientHeaders;
use crate::calls::call_target::CallTarget;
use crate::calls::{consent, tasks};
use crate::credentials::Credential;
use crate::downstream::{
    BreakerPermit, CallSenders, Caller, Canary, ConnectionKey, Deadline, Delivery, Downstreams,
    Lease, Reply, Reservation, Server, UseGuard, server_removed,
};
use crate::id::{ServerName, SessionId};
use crate::protocol::{ErrorKind, Failure, Response};
use crate::supervision::{ChildPhase, ChildRef};
use crate::telemetry::Counter;

/// The connection for a request, with its deadline and permits.
pub(crate) struct CallRoute {
    pub(crate) deadline: Deadline,
    pub(crate) access: ConnectionAccess,
    pub(crate) permit: CallPermit,
    /// Whether the server's calls can be retried.
    pub(crate) may_retry: bool,
}

/// Resources that a call holds until it is answered.
#[derive(Default)]
pub(crate) struct CallPermit {
    /// Keeps the server's shared connection from being closed as unused.
    _in_use: Option<UseGuard>,
    /// Reserves the connection for this call, until the request is sent.
    lease: Option<Lease>,
    /// The permit of the circuit breakers, until the request is sent.
    permit: Option<BreakerPermit>,
    /// A new version of the server that gets the call as well, until the request is sent.
    canary: Option<Arc<Canary>>,
}

impl CallPermit {
    /// Takes the lease, to hold it until the server has finished with the call.
    pub(crate) fn take_lease(&mut self) -> Option<Lease> {
        self.lease.take()
    }

    /// Takes the new version of the server that gets the call as well.
    pub(crate) fn take_canary(&mut self) -> Option<Arc<Canary>> {
        self.canary.take()
    }

    /// Returns the reply channel for the request. The breakers observe the outcome through it.
    pub(crate) fn reply(
        &mut self,
        number: u64,
        server: ServerName,
        caller: Arc<Recipient<Delivery>>,
    ) -> Reply {
        Reply::new(number, server, caller).with_permit(self.permit.take())
    }
}

/// A search for a connection to a server.
#[derive(Clone)]
struct ConnectionSearch {
    downstreams: Downstreams,
    server: Arc<Server>,
    /// Index of the arbiter on which a connection is opened.
    arbiter: usize,
    /// The client's session, if it has one.
    session: Option<SessionId>,
    /// The name that the client reports.
    client: Option<Arc<str>>,
    /// The request headers that servers are allowed to read.
    said: Option<Arc<ClientHeaders>>,
    /// When the supervisor stops opening the connection, because `connect_timeout` has passed.
    opened_by: Instant,
    /// Maximum time to wait for a connection that is down.
    max_wait: Duration,
}

pub(crate) enum ConnectionAccess {
    Open(CallSenders),
    Opening(LocalBoxFuture<'static, Result<CallSenders, Failure>>),
}

/// Finds the connection to a server for one request of a caller on the arbiter with this index. A
/// retried request keeps its deadline, and waits until then for a server that is restarting.
///
/// # Errors
///
/// Returns the reason why the request cannot be sent now. Nothing was sent.
pub(crate) fn find_route(
    downstreams: &Downstreams,
    target: &CallTarget,
    caller: &Caller,
    arbiter: usize,
    sent_before: Option<Deadline>,
) -> Result<CallRoute, Failure> {
    let name = &target.server;
    let server = downstreams.get(name).ok_or_else(|| server_removed(name))?;
    let settings = server.settings();
    let is_another = |declaration| declaration != settings.declaration();
    if target.declaration.is_some_and(is_another) {
        return Err(tasks::replaced_server(name));
    }
    let now = Instant::now();
    let (deadline, max_wait) = if let Some(deadline) = sent_before {
        (deadline, deadline.from(now) - now)
    } else {
        let deadline = Deadline {
            idle: settings.limits.request_timeout,
            latest: now + settings.limits.request_timeout_max,
        };
        (deadline, settings.limits.queue_while_restarting)
    };
    if server.is_halted() {
        return Err(server.halted());
    }
    settings.check_user(target.forwarded.as_deref())?;
    consent::check_known(&settings, caller)?;
    let permit = Some(server.permit(target.listed_tool().map(|tool| &tool.native))?);
    let read_only = target.listed_tool().filter(|tool| tool.hints.read_only);
    let canary = read_only.and_then(|tool| server.rollout.picks(&tool.native));
    let awaits_era = server.awaits_era(caller);
    let Reservation { key, lease, better } = server.reserve(caller)?;
    let wanted = better.as_ref().unwrap_or(&key);
    let own = (!wanted.is_shared()).then(|| server.find(wanted)).flatten();
    let is_own = own.is_some_and(|own| better.is_none() || own.current().is_ok());
    let permit = CallPermit {
        _in_use: (!is_own).then(|| server.enter()),
        lease,
        permit,
        canary,
    };
    let search = ConnectionSearch {
        downstreams: downstreams.clone(),
        server,
        arbiter,
        session: caller.session,
        client: caller.client.clone(),
        said: target.forwarded.clone(),
        opened_by: deadline.from(now),
        max_wait,
    };
    Ok(CallRoute {
        deadline,
        access: match better {
            _ if awaits_era => search.find_in_era(caller.clone()),
            Some(better) => search.find_or_else(better, key)?,
            None => search.find(key)?,
        },
        permit,
        may_retry: settings.resilience.retry.is_allowed,
    })
}

impl ConnectionSearch {
    fn find(self, key: ConnectionKey) -> Result<ConnectionAccess, Failure> {
        let Some(child) = self.server.find(&key) else {
            let opening = async move {
                let name = self.server.name().clone();
                let (opened_as, session) = (key.clone(), self.session);
                let opening = (self.downstreams).open(name, opened_as, self.arbiter, session);
                let child = opening.await?;
                self.opened(child, &key, self.opened_by).await
            };
            return Ok(ConnectionAccess::Opening(opening.boxed_local()));
        };
        let credential = self.server.user_credential(&key);
        credential.as_ref().inspect(|it| it.look_again());
        if let Some(credential) = credential.filter(|it| it.refusals().needs_login()) {
            let asking = async move { Err(self.consent_failure(&credential).await) };
            return Ok(ConnectionAccess::Opening(asking.boxed_local()));
        }
        match child.current() {
            Ok(up) => Ok(ConnectionAccess::Open(up.value)),
            Err(away) => {
                if let Some(failure) = self.server.needs_login(&key) {
                    return Err(failure);
                }
                // If nothing failed before, this is the first start, and calls wait for it.
                let is_first = away.why.is_none();
                let by_need = is_first || !key.is_shared() || self.server.settings().can_restart();
                let opening = match away.phase {
                    ChildPhase::Idle => true,
                    ChildPhase::Starting => by_need,
                    ChildPhase::Waiting => {
                        by_need && self.server.parts.dependencies.is_coming(self.server.name())
                    }
                    _ => false,
                };
                if self.max_wait.is_zero() && !opening {
                    return Err(self.server.away(&away));
                }
                let opened_by = if opening {
                    self.opened_by
                } else {
                    Instant::now()
                };
                let opened = async move { self.opened(child, &key, opened_by).await };
                Ok(ConnectionAccess::Opening(opened.boxed_local()))
            }
        }
    }

    /// Returns the connection of `key`, or of `other` if the first is unavailable after half of the
    /// time.
    fn find_or_else(
        self,
        key: ConnectionKey,
        other: ConnectionKey,
    ) -> Result<ConnectionAccess, Failure> {
        let now = Instant::now();
        let first = Self {
            opened_by: now + self.opened_by.saturating_duration_since(now) / 2,
            max_wait: Duration::ZERO,
            ..self.clone()
        };
        match first.find(key) {
            Ok(ConnectionAccess::Open(senders)) => Ok(ConnectionAccess::Open(senders)),
            Ok(ConnectionAccess::Opening(opening)) => {
                let opening = async move {
                    match opening.await {
                        Ok(senders) => Ok(senders),
                        Err(_) => match self.find(other)? {
                            ConnectionAccess::Open(senders) => Ok(senders),
                            ConnectionAccess::Opening(opening) => opening.await,
                        },
                    }
                };
                Ok(ConnectionAccess::Opening(opening.boxed_local()))
            }
            Err(_) => self.find(other),
        }
    }

    /// Returns the connection that serves a caller, once the first handshake has revealed the
    /// server's era. All calls of a client must use the same server session, because the server
    /// keeps state in it.
    fn find_in_era(self, caller: Caller) -> ConnectionAccess {
        let opening = async move {
            let shared = self.server.shared().clone();
            // If this connection fails, the failure of the connection that serves the caller
            // explains why.
            let first = ConnectionKey::shared();
            drop(self.opened(shared, &first, self.opened_by).await);
            let Reservation { key, better, .. } = self.server.reserve(&caller)?;
            let access = match better {
                Some(better) => self.find_or_else(better, key)?,
                None => self.find(key)?,
            };
            match access {
                ConnectionAccess::Open(senders) => Ok(senders),
                ConnectionAccess::Opening(opening) => opening.await,
            }
        };
        ConnectionAccess::Opening(opening.boxed_local())
    }

    /// Waits for a connection that is opening, and opens an idle one. Waits for a connection that
    /// is down only within the configured limit.
    async fn opened(
        &self,
        child: ChildRef<CallSenders>,
        key: &ConnectionKey,
        opened_by: Instant,
    ) -> Result<CallSenders, Failure> {
        let mut changes = child.subscribe();
        if (child.current()).is_err_and(|away| away.phase == ChildPhase::Idle) {
            child.wake();
        }
        let starting = |phase| {
            matches!(
                phase,
                ChildPhase::Idle | ChildPhase::Waiting | ChildPhase::Starting
            )
        };
        let opened = changes.wait_for(|snapshot| !starting(snapshot.status.phase()));
        let credential = self.server.user_credential(key);
        tokio::select! {
            // On a timeout or a dead supervisor, the connection's current phase decides.
            _ = timeout_at(opened_by, opened) => {}
            () = consent::needed(credential.as_ref()) => {}
            () = consent::needed(self.server.gateway_credential(key)) => {}
        }
        if let Some(failure) = self.server.needs_login(key) {
            return Err(failure);
        }
        if let Some(credential) = credential.filter(|it| it.refusals().needs_login()) {
            return Err(self.consent_failure(&credential).await);
        }
        let up = if self.max_wait.is_zero() {
            child.current()
        } else {
            child.wait_up(Instant::now() + self.max_wait).await
        };
        let up = up.map_err(|away| {
            let failure = self.server.away(&away);
            let is_late = failure.cause == Some(ErrorKind::ConnectionTimeout);
            if is_late || Instant::now() >= opened_by {
                self.downstreams.counters().add(Counter::LateConnections);
            }
            failure
        });
        let senders = up?.value;
        // Another server may have taken the name in the meantime.
        senders.settings().check_user(self.said.as_deref())?;
        Ok(senders)
    }

    async fn consent_failure(&self, credential: &Credential) -> Failure {
        consent::failure(self.server.name(), credential, self.client.as_deref()).await
    }
}

/// Returns the counter for the outcome of a call.
pub(crate) const fn outcome_counter(answer: &Result<Response, Failure>) -> Counter {
    match answer {
        Ok(_) => Counter::CallsAnswered,
        Err(failure) => match failure.kind {
            ErrorKind::Cancelled => Counter::CallsCancelled,
            ErrorKind::Overloaded => Counter::ShedForServer,
            ErrorKind::BreakerOpen => Counter::BreakerRefusals,
            _ => Counter::CallsFailed,
        },
    }
}
