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
        /// A counter. Counts only grow, from the start of the process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $counter,)*
        }

        impl Counter {
            /// In the status: the value of a label is a part of the name there.
            const NAMES: &[&str] = &[$(concat!($name $(, "_", $value)?),)*];

            const METRICS: &[(&str, CounterLabels)] =
                &[$(($name, &[$((stringify!($label), $value))?]),)*];
        }
    };
}

counters! {
    /// HTTP requests that were refused before they reached a session.
    RequestsRefused = "requests_refused",
    /// Requests, calls and logins that were denied to whoever asked; each leaves a record in the log.
    Denials = "denials",
    /// Requests whose handling panicked.
    RequestsPanicked = "requests_panicked",
    /// Connections of clients that sent no head in time, or did not read.
    ClientsTooSlow = "clients_too_slow",
    /// Connections whose client did not come to speak TLS with us.
    HandshakesFailed = "tls_handshakes_failed",
    SessionsOpened = "sessions_opened",
    /// Ended by their client, or by an operator.
    SessionsDeleted = "sessions_deleted",
    /// Ended because nobody used them.
    SessionsExpired = "sessions_expired",
    /// Ended to make room, since they were never used.
    SessionsUnused = "sessions_unused",
    /// Rebuilt from their record after their actor died.
    SessionsRebuilt = "sessions_rebuilt",
    SessionsRefused = "sessions_refused",
    /// Streams of clients without a session that were refused, since there was no place.
    ListenersRefused = "listeners_refused",
    /// Records of sessions that could not be written.
    SessionsUnsaved = "sessions_unsaved",
    CallsStarted = "calls_started",
    CallsAnswered = "calls_answered",
    /// Answered by the gateway, since the server could not.
    CallsFailed = "calls_failed",
    CallsCancelled = "calls_cancelled",
    /// Refused because their session has as many in flight as it may.
    ShedForSession = "calls_shed"(reason = "session"),
    /// Refused because their client has as many in flight as it may.
    ShedForClient = "calls_shed"(reason = "client"),
    /// Refused because their client calls too often.
    ShedForRate = "calls_shed"(reason = "rate"),
    /// Refused because their server has too much to do.
    ShedForServer = "calls_shed"(reason = "server"),
    /// Refused because a policy forbids it, or the tool is suspended.
    CallsDenied = "calls_denied",
    /// Calls that were refused because a breaker was open.
    BreakerRefusals = "breaker_refusals",
    /// Sent to their server once more by the gateway.
    CallsRepeated = "calls_repeated",
    /// Breakers of servers and tools that opened.
    BreakersOpened = "breaker_transitions"(state = "open"),
    BreakersClosed = "breaker_transitions"(state = "closed"),
    /// Requests of clients whose body did not come in time.
    LateBodies = "deadline_exceeded"(hop = "body"),
    /// Requests that waited in vain for the lists of servers.
    LateLists = "deadline_exceeded"(hop = "lists"),
    /// Calls that waited in vain for a connection to their server.
    LateConnections = "deadline_exceeded"(hop = "connection"),
    /// Calls that waited in vain for their turn at their server.
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
    /// Connections to servers that were closed because nobody used them.
    ServersIdleStopped = "servers_idle_stopped",
    /// New handshakes because a server forgot our session.
    ServersRenewed = "servers_renewed",
    /// Processes that were asked which era they speak.
    EraInquiries = "era_inquiries",
    /// Streams of servers over HTTP that ended and were opened again.
    StreamsReopened = "streams_reopened",
    /// Times that a server's stream of changes was opened.
    ServersListened = "servers_listened",
    /// Large answers of servers that waited for room among others (`limits.answer_bytes`).
    AnswersWaited = "answers_waited",
    /// Those of them that were discarded because there was none in time.
    AnswersDiscarded = "answers_discarded",
    /// Calls that a server asked for more input for, which was fetched from the client.
    InputRounds = "input_rounds",
    /// Calls that their server went on with in a task, which the gateway followed.
    TasksFollowed = "tasks_followed",
    /// Times that the merged lists changed.
    ListChanged = "list_changed",
    /// Tokens for servers that the authorization server renewed.
    TokensRenewed = "oauth_refresh"(outcome = "renewed"),
    /// Attempts to renew one that failed, and may succeed later.
    RenewalsFailed = "oauth_refresh"(outcome = "failed"),
    /// Tokens that are not renewed before somebody does something about it.
    RenewalsRefused = "oauth_refresh"(outcome = "refused"),
    /// Messages of servers outside of calls that were lost, since there were too many.
    ServerEventsLost = "server_events_lost",
    /// Progress and log lines of calls that were lost, since there were too many.
    CallNotificationsLost = "call_notifications_lost",
    /// Times that the machine had slept, or the process was stopped.
    ClockJumps = "clock_jumps",
    /// Messages that fault injection lost or garbled, and connections that it refused, silenced
    /// or broke.
    FaultsInjected = "faults_injected",
    CrashesReported = "crashes_reported",
    /// Crashes whose report was lost: the disk refused it, or there were too many at once.
    CrashesUnreported = "crashes_unreported",
    /// Calls whose record was lost: the disk refused it, or there were too many at once.
    HistoryLost = "history_lost",
    /// Spans that were lost: the collector did not take them, or there were too many at once.
    SpansLost = "spans_lost",
    /// Lines of the log that were lost, since stderr was not read.
    LogLinesLost = "log_lines_lost",
    ConfigApplied = "config_reload"(outcome = "applied"),
    ConfigRefused = "config_reload"(outcome = "refused"),
}

/// All counts. Clones are handles to the same ones.
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

    /// Every count as a metric: its name, its labels.
    pub fn metrics(&self) -> impl Iterator<Item = (&'static str, CounterLabels, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        let metrics = Counter::METRICS.iter().zip(counts);
        metrics.map(|((name, labels), count)| (*name, *labels, count))
    }

    /// Every count by its name in the status.
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
