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

fn any_duration() -> RangeKind<Duration> {
    duration(SupervisionSettings::DURATION_MIN..=SupervisionSettings::DURATION_MAX)
}

keys! {
    /// When and how a server that died comes back. Each key may be set again for one server, in
    /// [servers.NAME.supervision].
    SupervisionTable for Tuning, check_supervision {
        /// Delay before the first restart.
        backoff_initial: any_duration();
        /// By how much each further delay is longer.
        backoff_factor: factor(1.0..=100.0);
        /// The longest delay.
        backoff_max: any_duration();
        /// By which part of it chance shortens a delay at most, 0.0 to 1.0: 0.5 waits for 50 to
        /// 100 % of a delay. It holds for `reconnect_every` as well.
        jitter: factor(0.0..=1.0);
        /// More failures than this in the time `within` make a server "broken": it is then tried
        /// only every so often (`reconnect_every`), and never given up.
        max_restarts: count(0..=10_000);
        /// The time in which failures are counted.
        within: any_duration();
        /// Time between two tries of a broken server, shortened by `jitter`.
        reconnect_every: any_duration();
        /// Earlier failures are forgotten after so long without one.
        stable_after: any_duration();
        /// Time for a server to answer its handshake.
        connect_timeout: any_duration();
        /// Time for a server to stop. Two fifths of it are for leaving after stdin was closed, two
        /// for leaving after SIGTERM; then it is killed. Before, the calls of a server that is changed
        /// or removed get as long to end.
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
    /// When a server that fails is not asked for a while. Failures are calls that were lost, timed
    /// out, or were answered against the protocol; calls lost together are one. Each key may be
    /// set again for one server, in [servers.NAME.breaker].
    BreakerTable for BreakerSettings {
        /// So many failures in a row (0: never) in the time `within` open the breaker: calls are
        /// refused at once.
        failures: count(0..=10_000);
        /// The time in which failures are counted.
        within: duration(MILLI..=DAY);
        /// After so long one call is let through to try. A fresh connection is tried at once.
        open_for: duration(MILLI..=HOUR);
        /// Whether each tool has a breaker of its own beside that of its server.
        tools: flag();
        /// Whether a result with `isError` counts as a failure of the tool.
        tool_errors: flag();
    }
}

keys! {
    /// Sessions of clients, and the requests of clients without one.
    SessionsTable for Config {
        /// A session without a request or an open stream for so long is ended.
        idle_timeout in session.idle_timeout: duration(SECOND..=30 * DAY);
        /// Whether clients that begin with `initialize` must name their session in each request.
        /// Otherwise a request without `Mcp-Session-Id` is served as `gateway.stateless` does.
        require_id in front.requires_session: flag();
        /// Sessions in all.
        max in session.sessions_max: count(1..=10_000_000);
        /// Events of one stream that are kept for a client that comes back with Last-Event-ID.
        events_per_stream in session.events_per_stream: count(1..=100_000);
        /// Events that wait for a slow client; one more closes its stream, and the client resumes
        /// it.
        stream_queue in session.stream_queue_max: count(1..=100_000);
        /// Bytes of the events that wait for a slow client, beside one answer.
        stream_queue_bytes in session.stream_queue_bytes_max: size(KIB..=GIB);
        /// How long the events of a call's stream are kept after its answer, for a client that
        /// comes back with Last-Event-ID.
        keep_finished in session.finished_kept: duration(SECOND..=DAY);
        /// How long a client may take to answer a question of a server (sampling, elicitation,
        /// roots).
        answer_timeout in session.answer_timeout: duration(SECOND..=DAY);
        /// Calls of clients without a session (2026-07-28) that wait for their client to come back
        /// with answers, or that went on in a task of an older server, over all clients; one more
        /// is refused.
        parked_calls in session.parked_max: count(1..=1_000_000);
        /// States (`requestState`) of clients that came back with answers. Each is remembered until
        /// it expires (`answer_timeout`), so that none is taken twice; one more is refused.
        used_states in session.used_states_max: count(1..=10_000_000);
        /// How often the key changes with which such states are sealed, but not before all that it
        /// replaced have expired. The key before it still opens them.
        state_key_every in session.state_key_every: duration(SECOND..=30 * DAY);
        /// Clients without a session that listen for changes (`subscriptions/listen`); one more is
        /// refused.
        listeners in session.listeners_max: count(1..=1_000_000);
        /// Each client has a share of `max`, `parked_calls`, `listeners` and `limits.bytes_in_flight`, in percent: so many of
        /// the last places are kept for clients that have fewer. A client is an API key, the subject of a
        /// token or the name in a certificate, and without one an address (or IPv6 network of 64 bits).
        /// No share is kept from clients without a key while only this machine can connect.
        peer_share in session.peer_share: count(1..=100);
        /// Sessions of each such client (0: as many as its share allows); one more is refused.
        max_per_client in session.sessions_per_client: count(0..=10_000_000);
        /// The same for `listeners`.
        listeners_per_client in session.listeners_per_client: count(0..=1_000_000);
    }
}

keys! {
    /// How much of everything there may be.
    LimitsTable for Config, check_limits {
        /// Largest body of a request or of an answer over HTTP.
        body in front.body_max: size(KIB..=GIB), ForHttpServers;
        /// Longest line of a server that speaks over stdin and stdout.
        line in every_server.line_max: size(KIB..=GIB), ForStdioServers;
        /// Largest event of a server's stream.
        event in every_server.event_max: size(KIB..=GIB), ForHttpServers;
        /// Events kept for Last-Event-ID, in bytes per session. The newest is kept even if it alone
        /// is larger.
        events_bytes_per_session in session.events_bytes_max: size(KIB..=GIB);
        /// The same over all sessions: while it is reached, a session that is sent something keeps
        /// less.
        events_bytes in session.events_bytes_all_max: size(KIB..=64 * GIB);
        /// Resources that one session may be subscribed to, or one client without a session listen to;
        /// one more is refused. As many tasks may be listened to.
        subscriptions_per_session in session.subscriptions_max: count(1..=100_000);
        /// The subscriptions of one session, in bytes, or all that one client without a session listens
        /// to; one more is refused. A URI may have 4 KiB.
        subscriptions_bytes_per_session in session.subscriptions_bytes_max: size(KIB..=GIB);
        /// Request bodies under way, in all; a request beyond it is refused with 503.
        bytes_in_flight in front.bytes_in_flight_max: size(MIB..=64 * GIB);
        /// The same of each client (0: as many as its share allows, `sessions.peer_share`); a body that is
        /// larger is refused, too.
        bytes_per_client in front.bytes_per_client: size(0..=64 * GIB);
        /// Answers that clients do not read, in all; while there is more, a client that reads nothing
        /// for a second is disconnected, otherwise one that reads nothing for
        /// `gateway.body_timeout`.
        unread_bytes in front.unread_bytes_max: size(MIB..=64 * GIB);
        /// Messages of one server outside of calls (log lines, updates) that wait to be brought to
        /// the clients, in bytes; more are lost.
        events_per_server in session.server_events_max: size(64 * KIB..=64 * GIB);
        /// Progress and log lines of one server's calls that wait for the threads of the clients that
        /// they are for, in bytes; more are lost. Answers are not.
        undelivered_per_server in every_server.limits.undelivered_max:
            size(64 * KIB..=64 * GIB), ForServers;
        /// Calls in flight of one session.
        calls_per_session in session.calls_max: count(1..=100_000);
        /// Calls in flight of one client, over all its sessions (0: as many as they may have); one more
        /// is refused.
        calls_per_client in session.calls_per_client: count(0..=1_000_000);
        /// Calls in flight at one server.
        calls_per_server in every_server.limits.calls_max: count(1..=100_000), ForServers;
        /// Calls that wait at one server that has as many as it may, by turns of their sessions; 0
        /// refuses at once.
        queue_per_server in every_server.resilience.queue.max: count(0..=100_000), ForServers;
        /// How long a call waits in that queue before it is refused.
        queue_wait in every_server.resilience.queue.wait: duration(MILLI..=HOUR), ForServers;
        /// Calls of one server that the gateway sends once more (`retry`) within a minute.
        retries_per_minute in every_server.resilience.retry.per_minute:
            count(1..=100_000), ForServers;
        /// Items that are taken of one list of a server.
        list_items in every_server.limits.list_items_max: count(1..=1_000_000), ForServers;
        /// Pages that are taken of one list of a server.
        list_pages in every_server.limits.list_pages_max: count(1..=100_000), ForServers;
        /// Messages that wait for a server to read its stdin; a call beyond it is refused.
        write_queue in every_server.write_queue_max: count(1..=100_000), ForStdioServers;
        /// HTTP connections of one arbiter to one server.
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
    /// One record for each call, in `history.sqlite` in the data directory: `mcpvisor history`
    /// shows them.
    HistoryTable for HistorySettings {
        /// Whether calls are recorded. It costs each call about a third more processor time.
        enabled: flag();
        /// How much is kept of the parameters of a call, and of its result; 0 keeps neither.
        /// Secrets are replaced before: values of members such as `api_key` and `password`, tokens
        /// behind `Bearer`, secrets of this file, and tokens that the gateway got or was sent.
        bodies in body_max: size(0..=MIB);
        /// Records that are older are removed.
        max_age in age_max: duration(MINUTE..=3650 * DAY);
        /// How large all records may be; the oldest make room.
        max_bytes in bytes_max: size(MIB as u64..=64 * GIB as u64);
        /// Records that wait to be written, in bytes; more are lost, and counted. A call never
        /// waits for it.
        queue in queue_max: size(64 * KIB..=GIB);
    }
}

keys! {
    /// Records for the report of a crash: `mcpvisor servers crashes` shows the reports.
    RecorderTable for RecorderSettings {
        /// The last messages of each connection; 0 keeps none.
        messages in messages_max: count(0..=10_000), ForServers;
        /// How many bytes these messages may hold.
        bytes in bytes_max: size(KIB..=GIB), ForServers;
        /// How much of each message's body a report quotes. With 0 it tells direction, time,
        /// method, id and size. Secrets are masked as in `history.bodies`.
        bodies in body_max: size(0..=64 * KIB), ForServers;
        /// Reports kept of each server, in the data directory; 0 writes none.
        reports in reports_max: count(0..=1000), ForServers;
    }
}

keys! {
    /// Numbers for Prometheus, measured only where they are served: docs/metrics.md lists them.
    MetricsTable for Config, check_metrics {
        /// Address and port of the listener that serves `/metrics`, only to this machine. Without it,
        /// there is none.
        listen in metrics_listen:
            optional(text(address::MUST_BE, address::listen_address), "\"127.0.0.1:12007\""),
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
