//! The counters of the gateway.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// At most one label, with its value.
pub type CounterLabels = &'static [(&'static str, &'static str)];

macro_rules! counters {
    ($(
        $(#[$doc:meta])*
        $counter:ident = $name:literal $(($label:ident = $value:literal))?,
    )*) => {
        /// A counter. Counts only increase, starting at zero in each process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $counter,)*
        }

        impl Counter {
            /// Names in the status, which include the value of a label.
            const NAMES: &[&str] = &[$(concat!($name $(, "_", $value)?),)*];

            const METRICS: &[(&str, CounterLabels)] =
                &[$(($name, &[$((stringify!($label), $value))?]),)*];
        }
    };
}

counters! {
    /// HTTP requests that were refused before they reached a session.
    RequestsRefused = "requests_refused",
    /// Requests, calls and logins that were denied; each leaves an audit record.
    Denials = "denials",
    /// Requests whose handling panicked.
    RequestsPanicked = "requests_panicked",
    /// Client connections that sent no request head in time, or did not read.
    ClientsTooSlow = "clients_too_slow",
    /// Client connections whose TLS handshake failed.
    HandshakesFailed = "tls_handshakes_failed",
    SessionsOpened = "sessions_opened",
    /// Sessions ended by their client or by an operator.
    SessionsDeleted = "sessions_deleted",
    /// Sessions ended because they were idle.
    SessionsExpired = "sessions_expired",
    /// Unused sessions ended to make room.
    SessionsUnused = "sessions_unused",
    /// Sessions rebuilt from their record after their actor died.
    SessionsRebuilt = "sessions_rebuilt",
    /// Sessions taken over from another replica of the cluster.
    SessionsTaken = "sessions_taken",
    SessionsRefused = "sessions_refused",
    /// Streams of clients without a session that were refused because of a limit.
    ListenersRefused = "listeners_refused",
    /// Session records that could not be written.
    SessionsUnsaved = "sessions_unsaved",
    CallsStarted = "calls_started",
    CallsAnswered = "calls_answered",
    /// Calls failed by the gateway because the server could not respond.
    CallsFailed = "calls_failed",
    /// Tool calls whose result says that the tool failed; they are answered calls as well.
    ToolErrors = "tool_errors",
    CallsCancelled = "calls_cancelled",
    /// Calls refused because their session reached its limit of calls in flight.
    ShedForSession = "calls_shed"(reason = "session"),
    /// Calls refused because their client reached its limit of calls in flight.
    ShedForClient = "calls_shed"(reason = "client"),
    /// Calls refused because their client exceeded its rate limit.
    ShedForRate = "calls_shed"(reason = "rate"),
    /// Calls refused because their server is overloaded.
    ShedForServer = "calls_shed"(reason = "server"),
    /// Calls refused by a policy, or because the tool is suspended.
    CallsDenied = "calls_denied",
    /// Calls that were refused because a breaker was open.
    BreakerRefusals = "breaker_refusals",
    /// Calls that the gateway retried.
    CallsRepeated = "calls_repeated",
    /// Breakers of servers and tools that opened.
    BreakersOpened = "breaker_transitions"(state = "open"),
    BreakersClosed = "breaker_transitions"(state = "closed"),
    /// Client requests whose body did not arrive in time.
    LateBodies = "deadline_exceeded"(hop = "body"),
    /// Requests that timed out waiting for server lists.
    LateLists = "deadline_exceeded"(hop = "lists"),
    /// Calls that timed out waiting for a connection to their server.
    LateConnections = "deadline_exceeded"(hop = "connection"),
    /// Calls that timed out in the queue of their server.
    LateTurns = "deadline_exceeded"(hop = "queue"),
    /// Calls that their server did not answer in time.
    LateAnswers = "deadline_exceeded"(hop = "server"),
    /// Questions of servers that their client did not answer in time.
    LateClients = "deadline_exceeded"(hop = "client"),
    /// Questions of servers that reached a client.
    QuestionsAsked = "questions_asked",
    /// Connections to servers that became ready.
    ServersConnected = "servers_connected",
    /// Connections to servers that ended, for whatever reason.
    ServersLost = "servers_lost",
    /// Idle connections to servers that were closed.
    ServersIdleStopped = "servers_idle_stopped",
    /// New handshakes because a server forgot the gateway's session.
    ServersRenewed = "servers_renewed",
    /// Processes that were probed for their era.
    EraInquiries = "era_inquiries",
    /// Streams from HTTP servers that ended and were reopened.
    StreamsReopened = "streams_reopened",
    /// Times that a server's change stream was opened.
    ServersListened = "servers_listened",
    /// Large answers of servers that waited for room (`limits.answer_bytes`).
    AnswersWaited = "answers_waited",
    /// Large answers that were discarded because no room became free in time.
    AnswersDiscarded = "answers_discarded",
    /// Rounds of input that a server requested during a call and that the client provided.
    InputRounds = "input_rounds",
    /// Calls that their server continued in a task, which the gateway followed.
    TasksFollowed = "tasks_followed",
    /// Changes of the merged lists.
    ListChanged = "list_changed",
    /// Tokens for servers that the authorization server renewed.
    TokensRenewed = "oauth_refresh"(outcome = "renewed"),
    /// Token renewals that failed, but may succeed later.
    RenewalsFailed = "oauth_refresh"(outcome = "failed"),
    /// Token renewals that cannot succeed without user action.
    RenewalsRefused = "oauth_refresh"(outcome = "refused"),
    /// Server messages outside of calls that were dropped because there were too many.
    ServerEventsLost = "server_events_lost",
    /// Progress and log notifications of calls that were dropped because there were too many.
    CallNotificationsLost = "call_notifications_lost",
    /// Times that the machine had slept, or the process had been suspended.
    ClockJumps = "clock_jumps",
    /// Messages that fault injection dropped or garbled, and connections that it refused, silenced
    /// or broke.
    FaultsInjected = "faults_injected",
    CrashesReported = "crashes_reported",
    /// Crash reports that were lost: the disk refused them, or there were too many at once.
    CrashesUnreported = "crashes_unreported",
    /// Call records that were lost: the disk refused them, or there were too many at once.
    HistoryLost = "history_lost",
    /// Spans that were lost: the collector did not accept them, or there were too many at once.
    SpansLost = "spans_lost",
    /// Log lines that were lost because stderr was not read.
    LogLinesLost = "log_lines_lost",
    ConfigApplied = "config_reload"(outcome = "applied"),
    ConfigRefused = "config_reload"(outcome = "refused"),
}

/// All counters. Clones share them.
#[derive(Clone, Debug)]
pub struct Counters(Arc<[AtomicU64]>);

impl Default for Counters {
    fn default() -> Self {
        Self(Counter::NAMES.iter().map(|_| AtomicU64::new(0)).collect())
    }
}

impl Counters {
    pub fn add(&self, counter: Counter) {
        self.add_many(counter, 1);
    }

    pub fn add_many(&self, counter: Counter, many: usize) {
        if let Some(count) = self.0.get(counter as usize) {
            count.fetch_add(many as u64, Ordering::Relaxed);
        }
    }

    /// Every counter as a metric: its name and labels.
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, CounterLabels, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let metrics = Counter::METRICS.iter().zip(counts);
        metrics.map(|((name, labels), count)| (*name, *labels, count))
    }

    /// Every counter by its name in the status.
    pub fn view(&self) -> BTreeMap<Cow<'static, str>, u64> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Counter::NAMES
            .iter()
            .map(|name| Cow::Borrowed(*name))
            .zip(counts)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_under_their_names() {
        let counters = Counters::default();
        counters.add(Counter::RequestsRefused);
        counters.add(Counter::ConfigRefused);
        counters.add(Counter::ConfigRefused);
        let view = counters.view();
        assert_eq!(view["requests_refused"], 1);
        assert_eq!(view["config_reload_refused"], 2);
        assert_eq!(view.values().sum::<u64>(), 3);
        let metrics = counters.metrics().filter(|(.., count)| *count > 0);
        let expected: [(_, CounterLabels, _); 2] = [
            ("requests_refused", &[], 1),
            ("config_reload", &[("outcome", "refused")], 2),
        ];
        assert_eq!(metrics.collect::<Vec<_>>(), expected);
    }
}
