//! The other tables that concern the whole gateway.

use std::time::Duration;

use crate::config::checks::is_at_least;
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{RangeKind, count, duration, factor, flag, size};
use crate::config::section::Section;
use crate::config::units::{DAY, GIB, HOUR, KIB, MIB, MILLI, MINUTE, SECOND};
use crate::supervision::{Settings as SupervisionSettings, Tuning};

fn any_duration() -> RangeKind<Duration> {
    duration(SupervisionSettings::DURATION_MIN..=SupervisionSettings::DURATION_MAX)
}

keys! {
    /// When and how a server that died comes back. Each key may be set again for one server, in
    /// [servers.NAME.supervision].
    struct SupervisionKeys, check_supervision {
        /// Delay before the first restart.
        backoff_initial: Duration = 500 * MILLI, any_duration();
        /// By how much each further delay is longer.
        backoff_factor: f64 = 2.0, factor(1.0..=100.0);
        /// The longest delay.
        backoff_max: Duration = 30 * SECOND, any_duration();
        /// Part of a delay that is left to chance, 0.0 to 1.0.
        jitter: f64 = 0.5, factor(0.0..=1.0);
        /// More failures than this in the time `within` make a server "broken": it is then tried
        /// only every so often (`reconnect_every`), and never given up.
        max_restarts: usize = 5, count(0..=10_000);
        /// The time in which failures are counted.
        within: Duration = MINUTE, any_duration();
        /// Time between two tries of a broken server.
        reconnect_every: Duration = 30 * SECOND, any_duration();
        /// Earlier failures are forgotten after so long without one.
        stable_after: Duration = MINUTE, any_duration();
        /// Time for a server to start and to answer its handshake.
        connect_timeout: Duration = 30 * SECOND, any_duration();
        /// Time for a server to stop. Two fifths of it are for leaving after stdin was closed, two
        /// for leaving after SIGTERM; then it is killed.
        shutdown_timeout: Duration = 5 * SECOND, any_duration();
    }
}

/// The keys as supervision takes them.
pub(crate) fn tuning(keys: &SupervisionKeys) -> Tuning {
    Tuning {
        backoff_initial: keys.backoff_initial,
        backoff_factor: keys.backoff_factor,
        backoff_max: keys.backoff_max,
        jitter: keys.jitter,
        max_restarts: u32::try_from(keys.max_restarts).unwrap_or(u32::MAX),
        within: keys.within,
        reconnect_every: keys.reconnect_every,
        stable_after: keys.stable_after,
        connect_timeout: keys.connect_timeout,
        shutdown_timeout: keys.shutdown_timeout,
    }
}

fn check_supervision(keys: &mut SupervisionKeys, section: &Section<'_>) {
    if let Err(error) = SupervisionSettings::try_new(tuning(keys)) {
        let message = format!("`{}` must be {}", section.path(error.key), error.must_be);
        section.refuse(&[error.key, "backoff_initial"], message, None);
        // Servers inherit these, and are not to be blamed.
        *keys = SupervisionKeys::default();
    }
}

keys! {
    /// When a server that fails is not asked for a while. Failures are calls that were lost, timed
    /// out, or were answered against the protocol; calls lost together are one. Each key may be
    /// set again for one server, in [servers.NAME.breaker].
    struct BreakerKeys {
        /// So many failures in a row (0: never) in the time `within` open the breaker: calls are
        /// refused at once.
        failures: usize = 5, count(0..=10_000);
        /// The time in which failures are counted.
        within: Duration = 30 * SECOND, duration(MILLI..=DAY);
        /// After so long one call is let through to try. A fresh connection is tried at once.
        open_for: Duration = 5 * SECOND, duration(MILLI..=HOUR);
        /// Whether each tool has a breaker of its own beside that of its server.
        tools: bool = true, flag();
        /// Whether a result with `isError` counts as a failure of the tool.
        tool_errors: bool = false, flag();
    }
}

keys! {
    /// Sessions of clients, and the requests of clients without one.
    struct SessionKeys {
        /// A session without a request or an open stream for so long is ended.
        idle_timeout: Duration = 30 * MINUTE, duration(SECOND..=30 * DAY);
        /// Sessions in all.
        max: usize = 100_000, count(1..=10_000_000);
        /// Events of one stream that are kept for a client that comes back with Last-Event-ID.
        events_per_stream: usize = 256, count(1..=100_000);
        /// Events that wait for a slow client; one more closes its stream, and the client resumes
        /// it.
        stream_queue: usize = 256, count(1..=100_000);
        /// How long a client may take to answer a question of a server (sampling, elicitation,
        /// roots).
        answer_timeout: Duration = 10 * MINUTE, duration(SECOND..=DAY);
        /// Calls of clients without a session (2026-07-28) that wait for their client to come back
        /// with answers, or that went on in a task of an older server, over all clients; one more
        /// is refused.
        parked_calls: usize = 1000, count(1..=1_000_000);
        /// Clients without a session that listen for changes (`subscriptions/listen`); one more is
        /// refused.
        listeners: usize = 1000, count(1..=1_000_000);
    }
}

keys! {
    /// How much of everything there may be.
    struct LimitKeys, check_limits {
        /// Largest body of a request or of an answer over HTTP.
        body: usize = 16 << 20, size(KIB..=GIB), ForHttpServers;
        /// Longest line of a server that speaks over stdin and stdout.
        line: usize = 16 << 20, size(KIB..=GIB), ForStdioServers;
        /// Largest event of a server's stream.
        event: usize = 16 << 20, size(KIB..=GIB), ForHttpServers;
        /// Events kept for Last-Event-ID, in bytes per session.
        events_bytes_per_session: usize = 1 << 20, size(KIB..=GIB);
        /// Request bodies under way, in all; a request beyond it is refused with 503.
        bytes_in_flight: usize = 256 << 20, size(MIB..=64 * GIB);
        /// Messages of one server outside of calls (log lines, updates) that wait to be brought to
        /// the clients, in bytes; more are lost.
        news_per_server: usize = 16 << 20, size(64 * KIB..=64 * GIB);
        /// Calls in flight of one session.
        calls_per_session: usize = 64, count(1..=100_000);
        /// Calls in flight at one server.
        calls_per_server: usize = 1024, count(1..=100_000), ForServers;
        /// Calls that wait at one server that has as many as it may, by turns of their sessions; 0
        /// refuses at once.
        queue_per_server: usize = 256, count(0..=100_000), ForServers;
        /// How long a call waits in that queue before it is refused.
        queue_wait: Duration = 5 * SECOND, duration(MILLI..=HOUR), ForServers;
        /// Calls of one server that the gateway sends once more (`retry`) within a minute.
        retries_per_minute: usize = 60, count(1..=100_000), ForServers;
        /// Items that are taken of one list of a server.
        list_items: usize = 10_000, count(1..=1_000_000), ForServers;
        /// Pages that are taken of one list of a server.
        list_pages: usize = 1000, count(1..=100_000), ForServers;
        /// Messages that wait for a server to read its stdin; a call beyond it is refused.
        write_queue: usize = 1024, count(1..=100_000), ForStdioServers;
        /// HTTP connections of one arbiter to one server.
        connections_per_server: usize = 1024, count(1..=100_000), ForHttpServers;
        /// Lines kept of each server's stderr.
        log_lines: usize = 200, count(1..=100_000), ForServers;
    }
}

fn check_limits(keys: &mut LimitKeys, section: &Section<'_>) {
    let help = "otherwise the largest request could never be taken";
    let (all, one) = (keys.bytes_in_flight, keys.body);
    is_at_least(section, ("bytes_in_flight", all), ("body", one), Some(help));
}

keys! {
    /// Records for the report of a crash: `mcpvisor servers crashes` shows the reports.
    struct RecorderKeys {
        /// The last messages of each connection; 0 keeps none.
        messages: usize = 64, count(0..=10_000), ForServers;
        /// How many bytes these messages may hold.
        bytes: usize = 64 << 10, size(KIB..=GIB), ForServers;
        /// How much of each message's body a report quotes. With 0 it tells direction, time,
        /// method, id and size. Values of `headers`, `env`, `args` and of a URL's query are masked
        /// wherever they appear.
        bodies: usize = 0, size(0..=64 * KIB), ForServers;
        /// Reports kept of each server, in the data directory; 0 writes none.
        reports: usize = 10, count(0..=1000), ForServers;
    }
}
