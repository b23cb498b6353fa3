//! Probes of a server: a request at intervals, which decides whether the server is ready at its
//! start, and alive afterwards.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::catalog::ItemKind;
use crate::downstream::connection::control::{Control, Due};
use crate::downstream::connection::list_refresh::ServerLists;
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::connection::spec::CallSenders;
use crate::downstream::settings::ProbeSettings;
use crate::protocol::{Method, Outcome, Response};
use crate::telemetry::{Cause, Reason};

/// Longest interval of probes before the server is ready.
const START_EVERY: Duration = Duration::from_secs(1);

/// How soon a probe is tried again that could not be sent yet.
const SEND_AGAIN: Duration = Duration::from_millis(100);

/// The probes of one connection.
#[derive(Default)]
pub(super) struct Probing {
    /// The senders that the connection offers once the first probe passes.
    held: Option<Held>,
    /// Probes that failed in a row.
    failures: u32,
}

struct Held {
    senders: CallSenders,
    /// When the start counts as failed.
    until: Instant,
}

impl Probing {
    /// Offers the connection to callers: at once, or after its first probe.
    pub(super) fn offer(&mut self, senders: CallSenders, is_first: bool, control: &mut Control) {
        let settings = control.spec.settings();
        let is_probed = control.spec.key.is_shared() && settings.limits.probe.is_some();
        if is_probed && (is_first || self.held.is_some()) {
            let within = settings.limits.start_timeout;
            let until = Instant::now() + within;
            self.held = Some(Held { senders, until });
            control.still_starting(within);
        } else {
            control.birth.ready(senders);
        }
        if is_probed {
            control.due.set(Due::Probe, Instant::now());
        }
    }

    /// Sends a probe, if the settings have one.
    pub(super) fn send(&mut self, lists: &ServerLists, control: &mut Control) {
        let settings = control.spec.settings();
        let is_shared = control.spec.key.is_shared();
        let Some(probe) = settings.limits.probe.as_ref().filter(|_| is_shared) else {
            return self.passed(control);
        };
        let is_listed = probe.tool.is_none() || probe.allow_effects || lists.has_read_tools();
        let is_late = self
            .held
            .as_ref()
            .is_some_and(|it| it.until <= Instant::now());
        if !control.state.is_ready() || !is_listed && !is_late {
            // Nothing is answered during a renewal of the session.
            return control.due.set(Due::Probe, Instant::now() + SEND_AGAIN);
        }
        if let Err(why) = check_tool(probe, lists) {
            return control.fail(Reason::from(why).without_retry());
        }
        let (method, params) = request(probe, control.is_modern());
        // Replaced by the answer; an answer that gets lost with a session must not end the probes.
        let next = Instant::now() + probe.timeout + probe.every;
        control.due.set(Due::Probe, next);
        control.ask_server(&method, &params, OwnRequest::Health);
    }

    /// Handles the outcome of a probe.
    pub(super) fn on_outcome(&mut self, outcome: Result<(), String>, control: &mut Control) {
        let settings = control.spec.settings();
        let Some(probe) = &settings.limits.probe else {
            return self.passed(control);
        };
        let now = Instant::now();
        let Err(why) = outcome else {
            self.passed(control);
            return control.due.set(Due::Probe, now + probe.every);
        };
        self.failures += 1;
        let (is_over, every) = match &self.held {
            Some(held) => (held.until <= now, probe.every.min(START_EVERY)),
            None => (self.failures >= probe.failures, probe.every),
        };
        if is_over {
            let failures = self.failures;
            let sentence = format!("{probe} failed {failures} times in a row");
            let reason = Reason::quoting(sentence, &control.spec.masked(&why));
            return control.fail(reason.because(Cause::Unresponsive));
        }
        control.due.set(Due::Probe, now + every);
    }

    fn passed(&mut self, control: &Control) {
        self.failures = 0;
        if let Some(held) = self.held.take() {
            control.birth.ready(held.senders);
        }
    }
}

/// Checks that a probe calls only a tool that changes nothing, unless that is allowed.
fn check_tool(probe: &ProbeSettings, lists: &ServerLists) -> Result<(), String> {
    let Some(tool) = probe.tool.as_ref().filter(|_| !probe.allow_effects) else {
        return Ok(());
    };
    let mut tools = lists.part.items(ItemKind::Tools).iter();
    let Some(item) = tools.find(|item| item.native() == tool) else {
        return Err(format!(
            "{probe} cannot be sent: the server lists no such tool"
        ));
    };
    match item.hints().read_only {
        true => Ok(()),
        false => Err(format!(
            "{probe} was not sent: the server does not mark the tool with `readOnlyHint`; set \
             `allow_effects = true` in `probe` if calling it is harmless"
        )),
    }
}

fn request(probe: &ProbeSettings, is_modern: bool) -> (Method, Value) {
    match (&probe.tool, &probe.resource) {
        (Some(tool), _) => {
            let params = json!({ "name": tool, "arguments": probe.arguments });
            (Method::ToolsCall, params)
        }
        (None, Some(uri)) => (Method::ResourcesRead, json!({ "uri": uri })),
        (None, None) if is_modern => (Method::Discover, json!({})),
        (None, None) => (Method::Ping, json!({})),
    }
}

/// Whether the answer to a probe shows a working server.
pub(super) fn outcome_of(response: &Response) -> Result<(), String> {
    #[derive(Deserialize)]
    struct ToolResult {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    match &response.outcome {
        Outcome::Error(error) => Err(format!("error {}", error.as_str())),
        Outcome::Result(result) => match result.parse::<ToolResult>() {
            Ok(result) if result.is_error => Err("the tool reports an error".to_owned()),
            _ => Ok(()),
        },
    }
}
