//! The sections that concern the whole gateway, with their defaults and allowed ranges.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::address;
use super::raw::Section;
use crate::calls::SessionSettings;
use crate::catalog::CatalogSettings;
use crate::downstream::QueueSettings;
use crate::front::FrontSettings;
use crate::supervision::{Settings as SupervisionSettings, Tuning};
use crate::transport::RecorderSettings;

pub(super) const MILLI: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people on a terminal, JSON lines otherwise.
    #[default]
    Auto,
    Human,
    Json,
}

/// `[limits]`.
pub(super) struct Limits {
    pub(super) body: usize,
    pub(super) line: usize,
    pub(super) event: usize,
    events_bytes_per_session: usize,
    bytes_in_flight: usize,
    news_per_server: usize,
    calls_per_session: usize,
    pub(super) calls_per_server: usize,
    pub(super) queue: QueueSettings,
    pub(super) retries_per_minute: usize,
    pub(super) list_items: usize,
    pub(super) list_pages: usize,
    pub(super) write_queue: usize,
    pub(super) connections_per_server: usize,
    pub(super) log_lines: usize,
}

pub(super) fn limits(mut section: Section<'_>) -> Limits {
    let payload = KIB..=GIB;
    let payload_default = 16 << 20;
    let limits = Limits {
        body: section.size("body", payload_default, payload.clone()),
        line: section.size("line", payload_default, payload.clone()),
        event: section.size("event", payload_default, payload),
        events_bytes_per_session: section.size("events_bytes_per_session", 1 << 20, KIB..=GIB),
        bytes_in_flight: section.size("bytes_in_flight", 256 << 20, MIB..=64 * GIB),
        news_per_server: section.size("news_per_server", 16 << 20, 64 * KIB..=64 * GIB),
        calls_per_session: section.count("calls_per_session", 64, 1..=100_000),
        calls_per_server: section.count("calls_per_server", 1024, 1..=100_000),
        queue: QueueSettings {
            max: section.count("queue_per_server", 256, 0..=100_000),
            wait: section.duration("queue_wait", 5 * SECOND, MILLI..=HOUR),
        },
        retries_per_minute: section.count("retries_per_minute", 60, 1..=100_000),
        list_items: section.count("list_items", 10_000, 1..=1_000_000),
        list_pages: section.count("list_pages", 1000, 1..=100_000),
        write_queue: section.count("write_queue", 1024, 1..=100_000),
        connections_per_server: section.count("connections_per_server", 1024, 1..=100_000),
        log_lines: section.count("log_lines", 200, 1..=100_000),
    };
    if limits.bytes_in_flight < limits.body {
        let message = "`limits.bytes_in_flight` must be at least `limits.body`";
        let help = "otherwise the largest request could never be taken".to_owned();
        section.refuse(&["bytes_in_flight", "body"], message.to_owned(), help);
    }
    section.finish();
    limits
}

/// `[recorder]`.
pub(super) fn recorder(mut section: Section<'_>) -> RecorderSettings {
    let default = RecorderSettings::default();
    let settings = RecorderSettings {
        messages_max: section.count("messages", default.messages_max, 0..=10_000),
        bytes_max: section.size("bytes", default.bytes_max, KIB..=GIB),
        body_max: section.size("bodies", default.body_max, 0..=64 * KIB),
        reports_max: section.count("reports", default.reports_max, 0..=1000),
    };
    section.finish();
    settings
}

/// `[sessions]`, with what other sections say of sessions.
pub(super) fn sessions(
    mut section: Section<'_>,
    limits: &Limits,
    first_list_wait: Duration,
) -> SessionSettings {
    let settings = SessionSettings {
        idle_timeout: section.duration("idle_timeout", 30 * MINUTE, SECOND..=30 * DAY),
        sessions_max: section.count("max", 100_000, 1..=10_000_000),
        calls_max: limits.calls_per_session,
        events_per_stream: section.count("events_per_stream", 256, 1..=100_000),
        events_bytes_max: limits.events_bytes_per_session,
        stream_queue_max: section.count("stream_queue", 256, 1..=100_000),
        answer_timeout: section.duration("answer_timeout", 10 * MINUTE, SECOND..=DAY),
        parked_max: section.count("parked_calls", 1000, 1..=1_000_000),
        listeners_max: section.count("listeners", 1000, 1..=1_000_000),
        server_events_max: limits.news_per_server,
        first_list_wait,
    };
    section.finish();
    settings
}

/// How long a call may take, unless its server says otherwise.
#[derive(Clone, Copy)]
pub(super) struct CallTimes {
    pub(super) request_timeout: Duration,
    pub(super) request_timeout_max: Duration,
    pub(super) queue_while_restarting: Duration,
}

/// The same keys stand in `[gateway]` and in `[servers.NAME]`.
pub(super) fn call_times(section: &mut Section<'_>, default: CallTimes) -> CallTimes {
    let queue = "queue_while_restarting";
    let times = CallTimes {
        request_timeout: section.duration(
            "request_timeout",
            default.request_timeout,
            100 * MILLI..=DAY,
        ),
        request_timeout_max: section.duration(
            "request_timeout_max",
            default.request_timeout_max,
            100 * MILLI..=7 * DAY,
        ),
        queue_while_restarting: section.duration(
            queue,
            default.queue_while_restarting,
            Duration::ZERO..=10 * MINUTE,
        ),
    };
    if times.request_timeout_max < times.request_timeout {
        let longer = section.path("request_timeout_max");
        let message = format!(
            "`{longer}` must be at least `{}`",
            section.path("request_timeout")
        );
        section.refuse(&["request_timeout_max", "request_timeout"], message, None);
    }
    times
}

/// `[gateway]`, apart from where its settings belong.
pub(super) struct Gateway {
    pub(super) front: FrontSettings,
    pub(super) catalog: CatalogSettings,
    pub(super) times: CallTimes,
    pub(super) first_list_wait: Duration,
    pub(super) shutdown_grace: Duration,
    pub(super) orphan_grace: Duration,
    pub(super) data_dir: PathBuf,
    pub(super) log: LogFormat,
}

pub(super) fn gateway(mut section: Section<'_>, limits: &Limits) -> Gateway {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let log = [
        ("auto", LogFormat::Auto),
        ("human", LogFormat::Human),
        ("json", LogFormat::Json),
    ];
    let default_times = CallTimes {
        request_timeout: MINUTE,
        request_timeout_max: 10 * MINUTE,
        queue_while_restarting: Duration::ZERO,
    };
    let gateway = Gateway {
        front: front(&mut section, limits, threads),
        catalog: CatalogSettings {
            name_max: section.count("name_max", 45, 16..=128),
            page_items: section.count("page_items", 1000, 1..=100_000),
            instructions_max: section.size("instructions_max", 8 << 10, 0..=MIB),
            tree_resource: section.flag("tree_resource", false),
        },
        times: call_times(&mut section, default_times),
        first_list_wait: section.duration(
            "first_list_wait",
            2 * SECOND,
            Duration::ZERO..=10 * MINUTE,
        ),
        shutdown_grace: section.duration("shutdown_grace", 10 * SECOND, 100 * MILLI..=HOUR),
        orphan_grace: section.duration("orphan_grace", SECOND, Duration::ZERO..=MINUTE),
        data_dir: data_dir(&mut section),
        log: section.choice("log", LogFormat::Auto, &log),
    };
    section.finish();
    gateway
}

fn front(section: &mut Section<'_>, limits: &Limits, threads: usize) -> FrontSettings {
    let allow_unauthenticated = section.flag("allow_unauthenticated", false);
    let listen = address::listen(section, allow_unauthenticated);
    let allowed_hosts = allowed_hosts(section);
    if !listen.ip().is_loopback() && allow_unauthenticated && allowed_hosts.is_empty() {
        section.reader.warn(
            "`gateway.allowed_hosts` is empty, so any `Host` is accepted on a public address; \
             name the hosts that clients use"
                .to_owned(),
        );
    }
    FrontSettings {
        listen,
        endpoint: endpoint(section),
        allowed_origins: allowed_origins(section),
        allowed_hosts,
        workers: section.count("workers", threads, 1..=1024),
        body_max: limits.body,
        bytes_in_flight_max: limits.bytes_in_flight,
        head_timeout: section.duration("head_timeout", 10 * SECOND, 100 * MILLI..=10 * MINUTE),
        body_timeout: section.duration("body_timeout", 30 * SECOND, 100 * MILLI..=HOUR),
        keep_alive: section.duration("keep_alive", 75 * SECOND, SECOND..=HOUR),
        sse_after: section.duration("sse_after", SECOND, 10 * MILLI..=10 * MINUTE),
        legacy_sse: section.flag("legacy_sse", true),
        stateless: section.flag("stateless", false),
        sse_comment_every: section.duration("sse_comment_every", 15 * SECOND, SECOND..=10 * MINUTE),
        connections_max: section.count("connections_max", 25_000, 1..=1_000_000),
    }
}

fn endpoint(section: &mut Section<'_>) -> String {
    const TAKEN: [&str; 3] = ["/health", "/healthz", "/readyz"];
    let default = "/mcp".to_owned();
    let Some(text) = section.text("endpoint") else {
        return default;
    };
    let path = text.value.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '~');
    let well_formed = path.starts_with('/')
        && path.len() <= 256
        && path.chars().all(plain)
        && !path.contains("//")
        && !path.contains("/.")
        && (path == "/" || !path.ends_with('/'));
    if !well_formed || TAKEN.contains(&path) {
        section.refuse_text(
            &text,
            "a path such as `\"/mcp\"`: letters, digits and `-_.~/`, no slash at its end, and \
             none of `/health`, `/healthz`, `/readyz`",
        );
        return default;
    }
    text.value
}

fn allowed_origins(section: &mut Section<'_>) -> Vec<String> {
    let Some(texts) = section.texts("allowed_origins") else {
        return vec![
            "http://localhost:*".to_owned(),
            "http://127.0.0.1:*".to_owned(),
        ];
    };
    for text in &texts {
        if text.value == "*" {
            section.reader.warn(
                "`gateway.allowed_origins` holds `*`: every web page that a user opens may use \
                 this gateway"
                    .to_owned(),
            );
        } else if !is_origin(&text.value) {
            section.refuse_text(
                text,
                "an origin such as `\"https://app.example.com\"`, no path",
            );
        }
    }
    texts.into_iter().map(|text| text.value).collect()
}

fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else {
        return false;
    };
    let scheme_is_plain = scheme
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    !scheme.is_empty() && scheme_is_plain && is_host(host)
}

fn is_host(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-._:*[]".contains(&b);
    !text.is_empty() && text.len() <= 256 && text.bytes().all(legal)
}

fn allowed_hosts(section: &mut Section<'_>) -> Vec<String> {
    let texts = section.texts("allowed_hosts").unwrap_or_default();
    for text in texts.iter().filter(|text| !is_host(&text.value)) {
        section.refuse_text(
            text,
            "a host such as `\"mcp.example.com\"`, no scheme and no path",
        );
    }
    texts.into_iter().map(|text| text.value).collect()
}

fn data_dir(section: &mut Section<'_>) -> PathBuf {
    let sources = section.reader.sources;
    let named = match section.text("data_dir") {
        Some(text) if text.value.is_empty() || text.value.contains('\0') => {
            section.refuse_text(&text, "the path of a directory");
            None
        }
        Some(text) => Some(PathBuf::from(text.value)),
        // A variable of this name that is empty counts as unset, as in `${VAR:-default}`.
        None => {
            let variable = sources.environment.var("MCPVISOR_DATA");
            variable
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        }
    };
    sources
        .directory
        .join(named.unwrap_or_else(|| PathBuf::from(".mcpvisor")))
}

/// `[supervision]`, or the keys of it that a server sets again over `base`.
pub(super) fn supervision(
    mut section: Section<'_>,
    base: &SupervisionSettings,
) -> SupervisionSettings {
    let any = MILLI..=365 * DAY;
    let max_restarts = usize::try_from(base.max_restarts).unwrap_or(usize::MAX);
    let max_restarts = section.count("max_restarts", max_restarts, 0..=10_000);
    let tuning = Tuning {
        backoff_initial: section.duration("backoff_initial", base.backoff_initial, any.clone()),
        backoff_factor: section.factor("backoff_factor", base.backoff_factor, 1.0..=100.0),
        backoff_max: section.duration("backoff_max", base.backoff_max, any.clone()),
        jitter: section.factor("jitter", base.jitter, 0.0..=1.0),
        max_restarts: u32::try_from(max_restarts).unwrap_or(base.max_restarts),
        within: section.duration("within", base.within, any.clone()),
        reconnect_every: section.duration("reconnect_every", base.reconnect_every, any.clone()),
        stable_after: section.duration("stable_after", base.stable_after, any.clone()),
        connect_timeout: section.duration("connect_timeout", base.connect_timeout, any.clone()),
        shutdown_timeout: section.duration("shutdown_timeout", base.shutdown_timeout, any),
    };
    // Each key was checked for itself; what they must be together is checked here.
    let settings = SupervisionSettings::try_new(tuning).unwrap_or_else(|error| {
        let message = format!("`{}` must be {}", section.path(error.key), error.must_be);
        section.refuse(&[error.key, "backoff_initial"], message, None);
        base.clone()
    });
    section.finish();
    settings
}

/// The built-in `[supervision]`.
pub(super) fn supervision_default() -> SupervisionSettings {
    SupervisionSettings::default()
}
