//! The observable state of a server: the same for the status, logs and tests.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::downstream::pool::server::Server;
use crate::downstream::resilience::breakers::{BreakerState, BreakerView};
use crate::protocol::{Era, Revision};
use crate::supervision::{ChildPhase, ChildView};
use crate::telemetry::{LogCounters, LogLine};

/// One server at one moment.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatusView {
    pub name: String,
    /// `stdio`, `http` or `memory`.
    pub transport: Cow<'static, str>,
    /// The proxy that its requests go through, without a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// `legacy` or `modern`, once it is known.
    pub era: Option<Era>,
    /// The revision that the shared connection speaks, while it is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// The reason why its start takes long, if there is one to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starting: Option<String>,
    /// The page on which its start waits for somebody to sign in. A secret may be in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<String>,
    /// The faults that are injected, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<String>,
    /// Calls in flight, over all connections.
    pub in_flight: usize,
    /// Calls that wait because there are as many in flight as there may be.
    pub queued: usize,
    /// Calls that the gateway sent once more, in all.
    pub repeated: u64,
    /// Whether calls are let through to it.
    pub breaker: BreakerView,
    /// Tools that failed lately, or are switched off.
    pub tool_breakers: Vec<BreakerView>,
    /// The connection that serves lists and every client that cannot be asked.
    pub shared: ChildView,
    /// Connections that do not belong to everybody.
    pub own: Vec<OwnConnectionView>,
    /// Idle sessions of single clients at the server, without a connection.
    pub idle_sessions: usize,
    /// How often a client wanted a connection of its own and none was free.
    pub own_refused: u64,
    /// Lines of stderr and stray output, counted.
    pub log: LogCounters,
    /// The last of these lines.
    pub log_tail: Vec<LogLine>,
    /// Why the shared connection is not simply up, though it is open.
    #[serde(skip)]
    pub trouble: Option<String>,
    /// How often the server lost the session of the shared connection, and got another one.
    pub sessions_renewed: u64,
    /// The cookies that the server set, masked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cookies: Vec<String>,
    /// The groups of its processes.
    #[serde(skip)]
    pub process_groups: Vec<u32>,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnConnectionView {
    /// `session` with the beginning of its id, or `profile` for clients with equal capabilities,
    /// `call` with a number where each serves one call of these at a time; and `older era` where
    /// the server is spoken to in the newer one otherwise.
    /// For one user's sign-in it is the name of the user.
    pub owner: String,
    /// The reason why its start takes long: its user has to consent, for example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starting: Option<String>,
    /// Whether it is one user's.
    pub is_of_user: bool,
    pub connection: ChildView,
}

/// So many calls of a server that fail, one after the other, are no accident.
const FAILING: usize = 3;

impl ServerStatusView {
    /// The state as operators read it, and why: a connection that is open is not up before the
    /// server listed its items in a session that it knows.
    pub fn state(&self, reason: Option<String>) -> (String, Option<String>) {
        match &self.trouble {
            Some(trouble) if self.shared.phase == ChildPhase::Up => {
                (ChildPhase::Starting.to_string(), Some(trouble.clone()))
            }
            _ => (self.shared.phase.to_string(), reason),
        }
    }

    /// The breakers of the server and its tools that do not let all calls through.
    pub fn open_breakers(&self) -> impl Iterator<Item = &BreakerView> {
        let all = std::iter::once(&self.breaker).chain(&self.tool_breakers);
        all.filter(|breaker| !breaker.is_closed())
    }

    /// Why calls of the server fail though it is connected. What an operator switched off is as it
    /// should be.
    pub fn failing(&self) -> Option<String> {
        let is_open = |breaker: &BreakerView| {
            matches!(breaker.state, BreakerState::Open | BreakerState::HalfOpen)
        };
        let tools = self.tool_breakers.iter().filter(|tool| is_open(tool));
        if is_open(&self.breaker) {
            Some("it failed several times in a row and is not called now".to_owned())
        } else if self.breaker.in_a_row >= FAILING {
            Some(format!("its last {} calls failed", self.breaker.in_a_row))
        } else {
            let tools = tools.count();
            (tools > 0).then(|| format!("{tools} of its tools failed and are not called now"))
        }
    }
}

/// Lines of a server's log in its view.
const LOG_TAIL: usize = 5;

impl Server {
    pub fn view(&self) -> ServerStatusView {
        let mut own = Vec::new();
        self.own.each_spec(|spec, child| {
            let stage = spec.progress.get();
            let user = spec.key.credentials.user();
            let credential = spec.of_server.connector.credential();
            let need = credential
                .filter(|_| user.is_some())
                .and_then(|it| it.need());
            let stage = || stage.map(|stage| stage.summary(self.name()));
            let starting = need.map(str::to_owned).or_else(stage);
            own.push(OwnConnectionView {
                owner: spec.key.to_string(),
                starting,
                is_of_user: user.is_some(),
                connection: child.view(),
            });
        });
        let stage = self.spec.progress.get();
        let (breaker, tool_breakers) = self.parts.breakers.view();
        ServerStatusView {
            name: self.name().to_string(),
            transport: self.parts.connector.transport().into(),
            proxy: self.settings().proxy().map(|proxy| proxy.to_string()),
            era: self.era(),
            revision: self.shared.current().ok().map(|up| up.value.revision()),
            starting: stage.as_ref().map(|stage| stage.summary(self.name())),
            sign_in: stage
                .as_ref()
                .and_then(|stage| stage.page().map(Url::to_string)),
            faults: self.settings().faults.as_ref().map(ToString::to_string),
            in_flight: self.parts.gate.running(),
            queued: self.parts.gate.waiting(),
            repeated: self.retries().taken(),
            breaker,
            tool_breakers,
            shared: self.shared.view(),
            own,
            idle_sessions: self.own.idle.len(),
            own_refused: self.own.refused(),
            log: self.parts.log.counters(),
            log_tail: self.parts.log.tail(LOG_TAIL),
            trouble: self.spec.session.trouble(),
            sessions_renewed: self.spec.session.renewals(),
            cookies: self.spec.session.cookies(),
            process_groups: self.parts.connector.process_groups(),
        }
    }
}
