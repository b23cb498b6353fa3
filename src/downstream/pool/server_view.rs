//! The observable state of a server, used by status, logs and tests.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use url::Url;

use crate::downstream::pool::server::Server;
use crate::downstream::resilience::breakers::{BreakerState, BreakerView};
use crate::downstream::separation::SeparationReason;
use crate::downstream::starting::StartStage;
use crate::protocol::{Era, Revision};
use crate::supervision::{ChildPhase, ChildView, RolloutView};
use crate::telemetry::{LogCounters, LogLine};
use crate::transport::Pressure;

/// State of one server at one moment.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatusView {
    pub name: String,
    /// `stdio`, `http` or `memory`.
    pub transport: Cow<'static, str>,
    /// The proxy for the server's requests, without its password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// `legacy` or `modern`, if known.
    pub era: Option<Era>,
    /// The revision that the shared connection speaks while it is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Why the server takes long to start, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starting: Option<String>,
    /// The page for the sign-in that the start waits for. It can contain a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sign_in: Option<String>,
    /// Whether the start waits for an operator to sign in.
    pub needs_login: bool,
    /// The injected faults, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<String>,
    /// The servers that it depends on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// The name of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The reason why it does not start yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// The rollout of a new version that runs, or ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutView>,
    /// Calls in flight, over all connections.
    pub in_flight: usize,
    /// Queued calls, which wait because the maximum number of calls is in flight.
    pub queued: usize,
    /// Total number of calls that the gateway retried.
    pub repeated: u64,
    /// State of the server's breaker.
    pub breaker: BreakerView,
    /// Tools that failed recently or are switched off.
    pub tool_breakers: Vec<BreakerView>,
    /// The connection that clients share.
    pub shared: ChildView,
    /// Why clients cannot all share one process or connection, as far as that was seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub separation: Vec<SeparationReason>,
    /// Whether its lists are being compared with those that it shows without capabilities.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_comparing: bool,
    /// Connections that do not serve all clients.
    pub own: Vec<OwnConnectionView>,
    /// Idle sessions of individual clients at the server, without a connection.
    pub idle_sessions: usize,
    /// How often a client needed its own connection and none was free.
    pub own_refused: u64,
    /// Counters of stderr lines and stray output.
    pub log: LogCounters,
    /// The last lines of stderr and stray output.
    pub log_tail: Vec<LogLine>,
    /// Why the shared connection is open but not fully up.
    #[serde(skip)]
    pub trouble: Option<String>,
    /// How often the shared connection's session was lost and renewed.
    pub sessions_renewed: u64,
    /// Cookies that the server set, masked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cookies: Vec<String>,
    /// Pressure in the control groups of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Process groups of the server.
    #[serde(skip)]
    pub process_groups: Vec<u32>,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnConnectionView {
    /// `session` with the start of its id, `profile` for clients with equal capabilities, or `call`
    /// with a number for a connection that serves one of these clients' calls at a time; with
    /// `older era` if the server otherwise uses the newer one. `without capabilities` for all
    /// clients that declare none, or `checks whether its lists depend on the client` while they are
    /// compared. For one user's sign-in, the name of the user.
    pub owner: String,
    /// Why the connection takes long to start, for example because its user has to consent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starting: Option<String>,
    /// Whether the connection belongs to one user.
    pub is_of_user: bool,
    pub connection: ChildView,
}

/// Consecutive failed calls from which on a server counts as failing.
const FAILING: usize = 3;

impl ServerStatusView {
    /// The state and its reason as shown to operators. An open connection is up only after the
    /// server listed its items in a session that it knows.
    pub fn state(&self, reason: Option<String>) -> (String, Option<String>) {
        match &self.trouble {
            Some(trouble) if self.shared.phase == ChildPhase::Up => {
                (ChildPhase::Starting.to_string(), Some(trouble.clone()))
            }
            _ => (self.shared.phase.to_string(), reason),
        }
    }

    /// Breakers of the server and its tools that do not let all calls through.
    pub fn open_breakers(&self) -> impl Iterator<Item = &BreakerView> {
        let all = std::iter::once(&self.breaker).chain(&self.tool_breakers);
        all.filter(|breaker| !breaker.is_closed())
    }

    /// Why calls fail although the server is connected. Breakers that an operator opened do not
    /// count as a fault.
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
    /// Explains in sentences the next steps of the server's shared connection, and what its program
    /// can reach.
    pub async fn explain(&self) -> Vec<String> {
        let mut sentences = self.shared.explain().await;
        let settings = self.settings();
        let codes: Vec<String> = settings
            .limits
            .stop_on_exit
            .iter()
            .map(i32::to_string)
            .collect();
        if !codes.is_empty() {
            let codes = codes.join(", ");
            sentences.push(format!(
                "If its program exits with {codes}, it stays stopped (`stop_on_exit`)."
            ));
        }
        sentences.extend(self.parts.dependencies.explain(self.name()));
        sentences.extend(self.parts.connector.access());
        sentences
    }

    /// The connections that are not shared by all clients.
    fn own_views(&self, is_comparing: bool) -> Vec<OwnConnectionView> {
        let mut own = Vec::new();
        self.own.each_spec(|spec, child| {
            let stage = spec.progress.get();
            let user = spec.key.credentials.user();
            let credential = spec.of_server.connector.credential();
            let need = credential
                .filter(|_| user.is_some())
                .and_then(|it| it.refusals().need());
            let stage = || stage.map(|stage| stage.summary(self.name()));
            let starting = need.map(str::to_owned).or_else(stage);
            own.push(OwnConnectionView {
                owner: match is_comparing && spec.hides_lists() {
                    true => "checks whether its lists depend on the client".to_owned(),
                    false => spec.key.to_string(),
                },
                starting,
                is_of_user: user.is_some(),
                connection: child.view(),
            });
        });
        own
    }

    pub fn view(&self) -> ServerStatusView {
        let is_comparing = self.parts.separation.comparing_since().is_some();
        let stage = self.spec.progress.get();
        let settings = self.settings();
        let dependencies = &settings.dependencies;
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
            needs_login: stage.as_ref().is_some_and(StartStage::needs_login),
            faults: self.settings().faults.as_ref().map(ToString::to_string),
            depends_on: dependencies
                .depends_on
                .iter()
                .map(ToString::to_string)
                .collect(),
            group: dependencies
                .group
                .as_ref()
                .map(|group| group.name.to_string()),
            waits: self
                .parts
                .dependencies
                .awaited(self.name())
                .map(|awaited| awaited.text),
            rollout: self.rollout.view(),
            in_flight: self.parts.gate.running(),
            queued: self.parts.gate.waiting(),
            repeated: self.retries().taken(),
            breaker,
            tool_breakers,
            shared: self.shared.view(),
            separation: self.parts.separation.reasons().iter().collect(),
            is_comparing,
            own: self.own_views(is_comparing),
            idle_sessions: self.own.idle.len(),
            own_refused: self.own.refused(),
            log: self.parts.log.counters(),
            log_tail: self.parts.log.tail(LOG_TAIL),
            trouble: self.spec.session.trouble(),
            sessions_renewed: self.spec.session.renewals(),
            cookies: self.spec.session.cookies(),
            pressure: self.parts.connector.pressure(),
            process_groups: self.parts.connector.process_groups(),
        }
    }
}
