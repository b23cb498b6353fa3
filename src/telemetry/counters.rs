//! The counters of the gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $counter:ident = $name:literal,)*) => {
        /// A counter. Counts only grow, from the start of the process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter {
            $($(#[$doc])* $counter,)*
        }

        impl Counter {
            const NAMES: &[&str] = &[$($name,)*];
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
    /// Refused because a limit was reached.
    CallsShed = "calls_shed",
    /// Refused because a policy forbids it, or the tool is suspended.
    CallsDenied = "calls_denied",
    /// Refused because a breaker was open.
    CallsRejected = "calls_barred",
    /// Sent to their server once more by the gateway.
    CallsRepeated = "calls_repeated",
    /// Breakers of servers and tools that opened.
    BreakersOpened = "breakers_opened",
    BreakersClosed = "breakers_closed",
    /// Questions of servers that reached a client.
    QuestionsAsked = "questions_asked",
    QuestionsUnanswered = "questions_unanswered",
    /// Connections to servers that became ready.
    ServersConnected = "servers_connected",
    /// Connections to servers that ended, for whatever reason.
    ServersLost = "servers_lost",
    /// Connections to servers that were closed because nobody used them.
    ServersRested = "servers_rested",
    /// New handshakes because a server forgot our session.
    ServersRenewed = "servers_renewed",
    /// Processes that were asked which era they speak.
    ErasProbed = "eras_probed",
    /// Streams of servers over HTTP that ended and were opened again.
    StreamsReopened = "streams_reopened",
    /// Times that a server's stream of changes was opened.
    ServersListened = "servers_listened",
    /// Calls that a server asked for more input for, which was fetched from the client.
    InputRounds = "input_rounds",
    /// Calls that their server went on with in a task, which the gateway followed.
    TasksFollowed = "tasks_followed",
    /// Times that the merged lists changed.
    CatalogChanged = "catalog_changed",
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
    ConfigReloaded = "config_reloaded",
    ConfigRefused = "config_refused",
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

    /// Every count by name.
    pub fn view(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Counter::NAMES.iter().copied().zip(counts).collect()
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
        assert_eq!((view["requests_refused"], view["config_refused"]), (1, 2));
        assert_eq!(view.values().sum::<u64>(), 3);
    }
}
