//! The other tables that concern the whole gateway.

use std::time::Duration;

use crate::config::Config;
use crate::config::address;
use crate::config::checks::is_at_least;
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{RangeKind, count, duration, factor, flag, optional, size};
use crate::config::declaration::texts::text;
use crate::config::section::Section;
use crate::config::units::{DAY, GIB, HOUR, KIB, MIB, MILLI, MINUTE, SECOND, show_size};
use crate::downstream::BreakerSettings;
use crate::history::HistorySettings;
use crate::supervision::{Settings as SupervisionSettings, Tuning};
use crate::transport::RecorderSettings;

pub(super) fn any_duration() -> RangeKind<Duration> {
    duration(SupervisionSettings::DURATION_MIN..=SupervisionSettings::DURATION_MAX)
}

keys! {
    /// How a server that died is restarted. Overridable per server in [servers.NAME.supervision].
    SupervisionTable for Tuning, check_supervision {
        /// Delay before the first restart.
        backoff_initial: any_duration();
        /// Factor by which each further delay grows.
        backoff_factor: factor(1.0..=100.0);
        /// Longest delay.
        backoff_max: any_duration();
        /// Random part of a delay: with 0.5, a wait takes 50 to 100 % of it. Also applies to
        /// `reconnect_every`.
        jitter: factor(0.0..=1.0);
        /// More failures than this in `within` make a server "broken": it is retried only every
        /// `reconnect_every`, forever.
        max_restarts: count(0..=10_000);
        /// Period in which failures are counted.
        within: any_duration();
        /// Interval between attempts to start a broken server.
        reconnect_every: any_duration();
        /// Time without a failure after which earlier failures are forgotten.
        stable_after: any_duration();
        /// Time for a server to answer the handshake.
        connect_timeout: any_duration();
        /// Time for a server to stop after its stdin is closed: SIGTERM after two fifths, SIGKILL
        /// after four. Calls of a changed server first get the same time to finish.
        shutdown_timeout: any_duration();
    }
}

fn check_supervision(tuning: &mut Tuning, section: &Section<'_>) {
    if let Err(error) = SupervisionSettings::try_new(tuning.clone()) {
        let message = format!("`{}` must be {}", section.path(error.key), error.must_be);
        section.refuse(&[error.key, "backoff_initial"], message, None);
        // Servers inherit these, and are not to be blamed.
        *tuning = Tuning::default();
    }
}

keys! {
    /// Circuit breaker: pauses calls to a failing server. Failures are calls that were lost, timed
    /// out or got a malformed answer. Overridable per server in [servers.NAME.breaker].
    BreakerTable for BreakerSettings {
        /// Consecutive failures in `within` that open the breaker, so that calls are refused
        /// immediately; 0 never opens it.
        failures: count(0..=10_000);
        /// Period in which failures are counted.
        within: duration(MILLI..=DAY);
        /// Time until one call probes the server. A new connection is probed immediately.
        open_for: duration(MILLI..=HOUR);
        /// Give each tool its own breaker in addition.
        tools: flag();
        /// Count a result with `isError` as a failure of the tool.
        tool_errors: flag();
    }
}

keys! {
    /// Sessions of clients, and requests of clients without a session. Above a limit, more are
    /// refused.
    SessionsTable for Config {
        /// Time without a request or open stream after which a session ends.
        idle_timeout in session.idle_timeout: duration(SECOND..=30 * DAY);
        /// Require `Mcp-Session-Id` from clients that use `initialize`; otherwise requests without
        /// it are served as with `gateway.stateless`.
        require_id in front.requires_session: flag();
        /// Sessions in total.
        max in session.sessions_max: count(1..=10_000_000);
        /// Events kept per stream for resumption with Last-Event-ID.
        events_per_stream in session.events_per_stream: count(1..=100_000);
        /// Events queued for a slow client; one more closes its stream, which the client resumes.
        stream_queue in session.stream_queue_max: count(1..=100_000);
        /// Bytes of events queued for a slow client, in addition to one answer.
        stream_queue_bytes in session.stream_queue_bytes_max: size(KIB..=GIB);
        /// How long the events of a call's stream are kept after its answer.
        keep_finished in session.finished_kept: duration(SECOND..=DAY);
        /// Time for a client to answer a server's request (sampling, elicitation, roots).
        answer_timeout in session.answer_timeout: duration(SECOND..=DAY);
        /// Calls without a session (2026-07-28) that wait for their client's input, or continue as
        /// a task of an older server.
        parked_calls in session.parked_max: count(1..=1_000_000);
        /// Used `requestState` values that are remembered, so that they cannot be replayed.
        used_states in session.used_states_max: count(1..=10_000_000);
        /// Rotation interval of the key that seals `requestState`.
        state_key_every in session.state_key_every: duration(SECOND..=30 * DAY);
        /// Clients without a session that listen for changes (`subscriptions/listen`).
        listeners in session.listeners_max: count(1..=1_000_000);
        /// Percentage of `max`, `parked_calls`, `listeners` and `limits.bytes_in_flight` that is
        /// reserved for clients that hold fewer (docs/auth.md). While only this machine can
        /// connect, clients without a key are not limited by this.
        peer_share in session.peer_share: count(1..=100);
        /// Sessions per client (0: up to its share).
        max_per_client in session.sessions_per_client: count(0..=10_000_000);
        /// The same for `listeners`.
        listeners_per_client in session.listeners_per_client: count(0..=1_000_000);
    }
}

keys! {
    /// Sizes, queues and concurrency. Unless stated otherwise, more is refused.
    LimitsTable for Config, check_limits {
        /// Largest body of an HTTP request or answer.
        body in front.body_max: size(KIB..=GIB), ForHttpServers;
        /// Longest line from a stdio server.
        line in every_server.line_max: size(KIB..=GIB), ForStdioServers;
        /// Largest event of a server's stream.
        event in every_server.event_max: size(KIB..=GIB), ForHttpServers;
        /// Bytes of events kept per session for Last-Event-ID.
        events_bytes_per_session in session.events_bytes_max: size(KIB..=GIB);
        /// The same over all sessions.
        events_bytes in session.events_bytes_all_max: size(KIB..=64 * GIB);
        /// Resources, and likewise tasks, that a session (or a client without one) can subscribe or
        /// listen to.
        subscriptions_per_session in session.subscriptions_max: count(1..=100_000);
        /// Bytes of these. A URI is limited to 4 KiB.
        subscriptions_bytes_per_session in session.subscriptions_bytes_max: size(KIB..=GIB);
        /// Request bodies in flight in total.
        bytes_in_flight in front.bytes_in_flight_max: size(MIB..=64 * GIB);
        /// The same per client (0: up to `sessions.peer_share`). A larger body is always refused.
        bytes_per_client in front.bytes_per_client: size(0..=64 * GIB);
        /// Answers over 256 KiB in transit, in total. At the limit, the next one waits until
        /// another was sent; after 30 s (5 s for a stdio server) its call fails.
        answer_bytes in answer_bytes_max: size(MIB..=64 * GIB), NeedsRestart;
        /// Unread answers in total. Above it, a client that reads nothing for a second is
        /// disconnected, instead of after `gateway.body_timeout`.
        unread_bytes in front.unread_bytes_max: size(MIB..=64 * GIB);
        /// Bytes of a server's messages outside of calls (log lines, updates) that wait for
        /// delivery; more are dropped.
        events_per_server in session.server_events_max: size(64 * KIB..=64 * GIB);
        /// Bytes of progress and log lines of a server's calls that wait for delivery; more are
        /// dropped.
        undelivered_per_server in every_server.limits.undelivered_max:
            size(64 * KIB..=64 * GIB), ForServers;
        /// Calls in flight per session.
        calls_per_session in session.calls_max: count(1..=100_000);
        /// Calls in flight per client over all its sessions (0: no limit).
        calls_per_client in session.calls_per_client: count(0..=1_000_000);
        /// Calls in flight per server.
        calls_per_server in every_server.limits.calls_max: count(1..=100_000), ForServers;
        /// Calls queued for a server at `calls_per_server`, served round-robin by session; 0 queues
        /// none.
        queue_per_server in every_server.resilience.queue.max: count(0..=100_000), ForServers;
        /// How long a call waits in that queue.
        queue_wait in every_server.resilience.queue.wait: duration(MILLI..=HOUR), ForServers;
        /// Retried calls per server and minute (`retry`).
        retries_per_minute in every_server.resilience.retry.per_minute:
            count(1..=100_000), ForServers;
        /// Items read from one list of a server.
        list_items in every_server.limits.list_items_max: count(1..=1_000_000), ForServers;
        /// Pages read from one list of a server.
        list_pages in every_server.limits.list_pages_max: count(1..=100_000), ForServers;
        /// Messages that wait for a server to read its stdin.
        write_queue in every_server.write_queue_max: count(1..=100_000), ForStdioServers;
        /// HTTP connections to one server per worker.
        connections_per_server in every_server.connections_max: count(1..=100_000), ForHttpServers;
        /// Lines kept of each server's stderr.
        log_lines in every_server.limits.log_lines: count(1..=100_000), ForServers;
    }
}

/// The keys that limit the request bodies of one client, with their values.
fn bytes_of_clients(config: &Config) -> Vec<(String, usize)> {
    let front = &config.front;
    let own = front.auth.keys.iter().filter_map(|key| {
        let bytes = key.limits.as_ref()?.bytes_in_flight?;
        let limit = format!("auth.keys.{}.limits.bytes_in_flight", key.name);
        Some((limit, bytes))
    });
    let all = ("limits.bytes_per_client".to_owned(), front.bytes_per_client);
    std::iter::once(all).chain(own).collect()
}

fn check_limits(config: &mut Config, section: &Section<'_>) {
    let help = "otherwise the largest request could never be taken";
    let front = &config.front;
    let (all, one) = (front.bytes_in_flight_max, front.body_max);
    is_at_least(section, ("bytes_in_flight", all), ("body", one), Some(help));
    for (limit, bytes) in bytes_of_clients(config) {
        if bytes > 0 && bytes < one {
            section.reader.warn(&format!(
                "`{limit}` ({}) is less than `limits.body` ({}): a body between the two is always refused",
                show_size(bytes as u64),
                show_size(one as u64)
            ));
        }
    }
    config.every_server.body_max = one;
}

keys! {
    /// One record per call; `mcpvisor history` shows them.
    HistoryTable for HistorySettings, check_history {
        /// Record calls: the last 1,000, or 16 MiB of them, in memory.
        enabled: flag();
        /// Record calls in `history.sqlite` in the data directory instead; costs about a third more
        /// CPU per call.
        file: flag();
        /// Bytes kept of a call's parameters and of its result, with masked secrets
        /// (docs/security.md).
        bodies in body_max: size(0..=MIB);
        /// Age at which records are removed.
        max_age in age_max: duration(MINUTE..=3650 * DAY);
        /// Size of the file; the oldest records are removed first.
        max_bytes in bytes_max: size(MIB as u64..=64 * GIB as u64);
        /// Bytes of records that wait to be written; more are dropped and counted.
        queue in queue_max: size(64 * KIB..=GIB);
    }
}

fn check_history(history: &mut HistorySettings, section: &Section<'_>) {
    if history.enabled && section.has("enabled") && !section.has("file") {
        section.reader.warn(
            "`history.enabled = true` is the default and keeps the last calls in memory; `history.file = true` writes them to the disk",
        );
    }
}

keys! {
    /// Messages kept for crash reports, which `mcpvisor servers crashes` shows.
    RecorderTable for RecorderSettings {
        /// Messages kept per connection.
        messages in messages_max: count(0..=10_000), ForServers;
        /// Bytes of these messages.
        bytes in bytes_max: size(KIB..=GIB), ForServers;
        /// Bytes of each message's body that a report quotes, with masked secrets. With 0 it lists
        /// only direction, time, method, id and size.
        bodies in body_max: size(0..=64 * KIB), ForServers;
        /// Reports kept per server in the data directory.
        reports in reports_max: count(0..=1000), ForServers;
    }
}

keys! {
    /// Prometheus metrics (docs/metrics.md).
    MetricsTable for Config, check_metrics {
        /// Loopback address and port of `/metrics`. Default: not served.
        listen in metrics_listen:
            optional(text(address::MUST_BE, address::tcp_address), "\"127.0.0.1:12007\""),
            NeedsRestart;
    }
}

/// Metrics tell the names of servers, and scrapers are not asked who they are.
fn check_metrics(config: &mut Config, section: &Section<'_>) {
    let is_public = |address: &std::net::SocketAddr| !address.ip().is_loopback();
    if config.metrics_listen.as_ref().is_some_and(is_public) {
        let message = "`metrics.listen` is an address that others can reach, and scrapers are not \
                       authenticated";
        let help = "listen on `127.0.0.1`, and put a proxy with authentication in front";
        section.refuse(&["listen"], message.to_owned(), help.to_owned());
        config.metrics_listen = None;
    }
}
