//! The circuit breakers of one server: one for the server, and one for each tool that failed
//! recently.
//!
//! A request is checked before it is sent and gets a [`BreakerPermit`], which reports the outcome.
//! Neither step takes a lock until a call fails.

mod breaker;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use breaker::BreakerSettings;
use breaker::{Breaker, BreakerRefusal, BreakerSnapshot, BreakerTransition, CallVerdict, Ticket};

use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure, Outcome, RawJson, Response};
use crate::telemetry::{Counter, Counters, LogRing, LogSource, millis};

/// Maximum tools per server whose failures are tracked.
const TOOLS_MAX: usize = 1000;

/// The breakers of one server. Shared by all threads.
pub(crate) struct Breakers {
    server: ServerName,
    settings: ArcSwap<BreakerSettings>,
    log: LogRing,
    counters: Counters,
    /// Whether any breaker differs from its initial state.
    is_troubled: AtomicBool,
    /// Number of the newest event: a counted failure, or a breaker that closed.
    event_number: AtomicU64,
    known: Mutex<KnownBreakers>,
    /// Checks the server when a breaker opens.
    on_opened: OnceLock<OnOpened>,
}

type OnOpened = Box<dyn Fn() + Send + Sync>;

#[derive(Debug, Default)]
struct KnownBreakers {
    server: Option<Breaker>,
    /// Breakers by native tool name; those in the initial state are removed.
    tools: HashMap<String, Breaker>,
}

/// A breaker that changed state with an answer: the breaker of a tool, by native name, or of the
/// server.
type BreakerEvent = (Option<String>, BreakerTransition);

/// Permission for one request. If it is dropped without an answer, nothing is counted.
pub struct BreakerPermit {
    breakers: Arc<Breakers>,
    /// Native name of the tool, as JSON.
    tool: Option<RawJson>,
    event_number: u64,
    is_server_trial: bool,
    is_tool_trial: bool,
    is_reported: bool,
}

/// State of a breaker.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BreakerState {
    /// All calls are let through.
    #[default]
    Closed,
    /// Calls are refused until the time of the next attempt.
    Open,
    /// One trial call checks whether the server works again.
    HalfOpen,
    /// An operator opened the breaker.
    Tripped,
}

impl BreakerState {
    /// Name of the state, also its serialized form.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
            Self::Tripped => "tripped",
        }
    }
}

impl BreakerView {
    pub fn is_closed(&self) -> bool {
        self.state == BreakerState::Closed
    }
}

/// A breaker as shown to operators.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BreakerView {
    /// Native name of the tool; absent for the server's own breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub state: BreakerState,
    /// Consecutive failures while the breaker is closed.
    pub failures: usize,
    /// Failures since the last success, however long ago; used for health.
    #[serde(skip)]
    pub in_a_row: usize,
    /// When the next call is let through, while the breaker is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_ms: Option<u64>,
}

impl Breakers {
    /// Creates the breakers of a server; transitions are counted and logged.
    pub(crate) fn new(
        server: ServerName,
        settings: BreakerSettings,
        log: LogRing,
        counters: Counters,
    ) -> Self {
        Self {
            server,
            settings: ArcSwap::from_pointee(settings),
            log,
            counters,
            is_troubled: AtomicBool::new(false),
            event_number: AtomicU64::new(0),
            known: Mutex::default(),
            on_opened: OnceLock::new(),
        }
    }

    /// Sets the callback for breakers that open; only the first one is used.
    pub(crate) fn when_opened(&self, look: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_opened.set(Box::new(look));
    }

    /// Applies other settings; open breakers keep their time.
    pub(crate) fn configure(&self, settings: BreakerSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Lets a request through or refuses it.
    ///
    /// # Errors
    ///
    /// Returns `breaker_open` with the time of the next attempt.
    pub(crate) fn ask(self: &Arc<Self>, tool: Option<&RawJson>) -> Result<BreakerPermit, Failure> {
        let mut permit = BreakerPermit {
            breakers: self.clone(),
            tool: tool.cloned(),
            event_number: self.event_number.load(Ordering::Acquire),
            is_server_trial: false,
            is_tool_trial: false,
            is_reported: false,
        };
        if !self.is_troubled.load(Ordering::Acquire) {
            return Ok(permit);
        }
        let (now, settings) = (Instant::now(), self.settings.load());
        let server = self.server.as_str();
        let name = tool.and_then(text_of);
        let asked = self.known.lock().ask_server(now, &settings);
        permit.is_server_trial = asked.map_err(|why| refused(server, None, why))?;
        if let Some(name) = name {
            // If the tool's breaker refuses, dropping the permit returns the server's trial.
            let asked = self.known.lock().ask_tool(&name, now, &settings);
            permit.is_tool_trial = asked.map_err(|why| refused(server, Some(&name), why))?;
        }
        Ok(permit)
    }

    /// Allows a trial for the server and each tool, because a new connection is ready and earlier
    /// faults may be gone.
    pub(crate) fn renewed(&self) {
        if !self.is_troubled.load(Ordering::Acquire) {
            return;
        }
        let now = Instant::now();
        let mut known = self.known.lock();
        let KnownBreakers { server, tools } = &mut *known;
        for breaker in server.iter_mut().chain(tools.values_mut()) {
            breaker.retry_now(now);
        }
    }

    /// Opens a breaker until it is reset.
    pub(crate) fn trip(&self, tool: Option<&str>) {
        let event_number = self.event_number.load(Ordering::Acquire);
        let mut known = self.known.lock();
        match tool {
            None => known.server_breaker(event_number).trip(),
            Some(tool) => {
                let tools = &mut known.tools;
                tools
                    .entry(tool.to_owned())
                    .or_insert_with(|| Breaker::new(event_number))
                    .trip();
            }
        }
        self.is_troubled.store(true, Ordering::Release);
    }

    /// Closes a breaker; without a name, all breakers.
    pub(crate) fn reset(&self, tool: Option<&str>) {
        let mut known = self.known.lock();
        let event_number = self.event_number.fetch_add(1, Ordering::AcqRel) + 1;
        match tool {
            None => {
                known.server = Some(Breaker::new(event_number));
                known.tools.clear();
            }
            Some(tool) => {
                known.tools.remove(tool);
            }
        }
        self.settle(&known);
    }

    /// The server's breaker, and the tools' breakers that are not in their initial state, by name.
    pub(crate) fn view(&self) -> (BreakerView, Vec<BreakerView>) {
        let now = Instant::now();
        let known = self.known.lock();
        let healthy = Breaker::new(0);
        let server = known.server.as_ref().unwrap_or(&healthy);
        let tools = known.tools.iter();
        let tools = tools.map(|(name, breaker)| view(Some(name.clone()), breaker, now));
        let mut tools: Vec<_> = tools.collect();
        tools.sort_by(|one, other| one.tool.cmp(&other.tool));
        (view(None, server, now), tools)
    }

    fn record(
        &self,
        permit: &BreakerPermit,
        verdict: CallVerdict,
        of_tool: CallVerdict,
    ) -> Vec<BreakerEvent> {
        let is_quiet = !self.is_troubled.load(Ordering::Acquire);
        let says_nothing = |verdict| matches!(verdict, CallVerdict::Success | CallVerdict::Nothing);
        if is_quiet && says_nothing(verdict) && says_nothing(of_tool) {
            return Vec::new();
        }
        let (now, settings) = (Instant::now(), self.settings.load());
        let mut known = self.known.lock();
        let event_number = self.event_number.fetch_add(1, Ordering::AcqRel) + 1;
        let ticket = |is_trial| Ticket {
            event_number: permit.event_number,
            is_trial,
        };
        let server = known.server_breaker(0);
        let turn = server.record(
            ticket(permit.is_server_trial),
            verdict,
            event_number,
            now,
            &settings,
        );
        let mut turned: Vec<BreakerEvent> = turn.map(|turn| (None, turn)).into_iter().collect();
        if let Some(name) = permit.tool.as_ref().and_then(text_of)
            && let Some(breaker) = known.tool_breaker(&name, of_tool, &settings)
        {
            let turn = breaker.record(
                ticket(permit.is_tool_trial),
                of_tool,
                event_number,
                now,
                &settings,
            );
            if breaker.is_healthy() {
                known.tools.remove(&name);
            }
            turned.extend(turn.map(|turn| (Some(name), turn)));
        }
        self.settle(&known);
        turned
    }

    fn report(&self, tool: Option<&str>, transition: BreakerTransition) {
        let (counter, state) = match transition {
            BreakerTransition::Opened => (Counter::BreakersOpened, "open"),
            BreakerTransition::Closed => (Counter::BreakersClosed, "closed"),
        };
        self.counters.add(counter);
        let whose = tool.map(|tool| format!(" of tool {tool:?}"));
        let whose = whose.unwrap_or_default();
        let remark = format!("breaker{whose} is {state}");
        log::warn!(server = self.server.as_str(); "{remark}");
        self.log.push(LogSource::Gateway, &remark);
        if let Some(look) = self.on_opened.get().filter(|_| state == "open") {
            look();
        }
    }

    fn settle(&self, known: &KnownBreakers) {
        let server = known.server.as_ref();
        let is_troubled =
            server.is_some_and(|server| !server.is_healthy()) || !known.tools.is_empty();
        self.is_troubled.store(is_troubled, Ordering::Release);
    }
}

impl KnownBreakers {
    fn server_breaker(&mut self, event_number: u64) -> &mut Breaker {
        self.server
            .get_or_insert_with(|| Breaker::new(event_number))
    }

    fn ask_server(
        &mut self,
        now: Instant,
        settings: &BreakerSettings,
    ) -> Result<bool, BreakerRefusal> {
        let server = self.server.as_mut();
        server.map_or(Ok(false), |server| server.ask(now, settings))
    }

    fn ask_tool(
        &mut self,
        name: &str,
        now: Instant,
        settings: &BreakerSettings,
    ) -> Result<bool, BreakerRefusal> {
        let tool = self.tools.get_mut(name);
        tool.map_or(Ok(false), |tool| tool.ask(now, settings))
    }

    /// The breaker of a tool, created when the tool fails. Over the limit, a closed breaker is
    /// evicted.
    fn tool_breaker(
        &mut self,
        name: &str,
        verdict: CallVerdict,
        settings: &BreakerSettings,
    ) -> Option<&mut Breaker> {
        let fails = matches!(verdict, CallVerdict::Failure | CallVerdict::Loss) && settings.tools;
        if fails && !self.tools.contains_key(name) {
            if self.tools.len() >= TOOLS_MAX {
                let mut tools = self.tools.iter();
                let closed = tools.find(|(_, breaker)| breaker.is_closed());
                let closed = closed.map(|(name, _)| name.clone())?;
                self.tools.remove(&closed);
            }
            self.tools.insert(name.to_owned(), Breaker::new(0));
        }
        self.tools.get_mut(name)
    }
}

impl BreakerPermit {
    /// Records the answer of a request.
    pub(crate) fn record(mut self, answer: &Result<Response, Failure>) {
        let verdict = verdict(answer);
        let mut of_tool = verdict;
        // Checked only if the setting requires it, because most results are not parsed at all.
        let counts_errors = self.tool.is_some() && self.breakers.settings.load().tool_errors;
        if verdict == CallVerdict::Success && counts_errors && is_tool_error(answer) {
            of_tool = CallVerdict::Failure;
        }
        self.report(verdict, of_tool);
    }

    fn report(&mut self, verdict: CallVerdict, of_tool: CallVerdict) {
        self.is_reported = true;
        for (tool, transition) in self.breakers.record(self, verdict, of_tool) {
            self.breakers.report(tool.as_deref(), transition);
        }
    }
}

impl Drop for BreakerPermit {
    fn drop(&mut self) {
        if !self.is_reported && (self.is_server_trial || self.is_tool_trial) {
            self.report(CallVerdict::Nothing, CallVerdict::Nothing);
        }
    }
}

/// An answer's verdict on the server. An error that the server itself returned shows that it works.
fn verdict(answer: &Result<Response, Failure>) -> CallVerdict {
    let Err(failure) = answer else {
        return CallVerdict::Success;
    };
    match failure.kind {
        ErrorKind::Timeout | ErrorKind::ServerProtocol | ErrorKind::ServerBusy => {
            CallVerdict::Failure
        }
        ErrorKind::ServerLost | ErrorKind::ServerUnavailable => CallVerdict::Loss,
        _ => CallVerdict::Nothing,
    }
}

fn is_tool_error(answer: &Result<Response, Failure>) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ToolResult {
        #[serde(default)]
        is_error: bool,
    }
    match answer.as_ref().map(|response| &response.outcome) {
        Ok(Outcome::Result(value)) => value
            .parse::<ToolResult>()
            .is_ok_and(|result| result.is_error),
        Ok(Outcome::Error(_)) => true,
        Err(_) => false,
    }
}

fn text_of(name: &RawJson) -> Option<String> {
    name.parse().ok()
}

fn refused(server: &str, tool: Option<&str>, why: BreakerRefusal) -> Failure {
    let (what, name) = match tool {
        Some(tool) => (format!("tool `{tool}` of server `{server}`"), tool),
        None => (format!("server `{server}`"), ""),
    };
    let failure = match why {
        BreakerRefusal::For(time) => {
            let message = format!(
                "{what} failed several times in a row and is not called now (its breaker is open); it is retried automatically"
            );
            // Rounded up, so that a call after this time is let through.
            Failure::new(ErrorKind::BreakerOpen, message).retry_after_ms(millis(time) + 1)
        }
        BreakerRefusal::Tripped => {
            let command = format!("mcpvisor servers reset {server} {name}");
            let message = format!(
                "{what} was switched off by an operator; `{}` switches it on",
                command.trim_end()
            );
            Failure::new(ErrorKind::BreakerOpen, message)
        }
    };
    failure.server(server)
}

fn view(tool: Option<String>, breaker: &Breaker, now: Instant) -> BreakerView {
    let (state, failures, next_try) = match breaker.seen(now) {
        BreakerSnapshot::Closed { failures } => (BreakerState::Closed, failures, None),
        BreakerSnapshot::Open { next_try } => (BreakerState::Open, 0, Some(next_try)),
        BreakerSnapshot::HalfOpen => (BreakerState::HalfOpen, 0, None),
        BreakerSnapshot::Tripped => (BreakerState::Tripped, 0, None),
    };
    BreakerView {
        tool,
        state,
        failures,
        in_a_row: breaker.in_a_row(),
        next_try_ms: next_try.map(millis),
    }
}
