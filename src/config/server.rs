//! `[servers.NAME]`: how each downstream server is reached, named and limited.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use globset::Glob;
use secrecy::SecretString;
use url::Url;

use super::problem::Problem;
use super::raw::{Refusal, Section, Text};
use super::resilience;
use super::sections::{
    CallTimes, DAY, GIB, HOUR, Limits, MIB, MILLI, MINUTE, SECOND, call_times, supervision,
};
use crate::catalog::NameSettings;
use crate::downstream::{
    BreakerSettings, EraChoice, ServerLimits, ServerSettings, Sharing, StartMode, TransportSettings,
};
use crate::id::ServerName;
use crate::supervision::Settings as SupervisionSettings;
use crate::transport::{
    ChildLimits, FaultSettings, HttpKind, HttpSettings, RecorderSettings, StdioSettings,
};

/// Servers of one configuration.
const SERVERS_MAX: usize = 10_000;

/// Headers that the gateway or the connection sets itself.
const RESERVED_HEADERS: [&str; 14] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// One `[servers.NAME]` table.
#[derive(Clone, Debug)]
pub struct ServerEntry {
    pub name: ServerName,
    pub state: ServerState,
}

/// What the configuration makes of a server.
#[derive(Clone, Debug)]
pub enum ServerState {
    /// It is to run.
    Ready(Arc<ServerSettings>),
    /// `enabled = false`.
    Disabled,
    /// The environment lacks what it needs; the text says what, without any value.
    Misconfigured(String),
}

/// What the rest of the file says of every server.
pub(super) struct Shared<'a> {
    pub(super) limits: &'a Limits,
    pub(super) times: CallTimes,
    pub(super) supervision: &'a SupervisionSettings,
    pub(super) breaker: BreakerSettings,
    pub(super) recorder: RecorderSettings,
}

/// Reads all servers, in the order of the file.
pub(super) fn servers(section: &Section<'_>, shared: &Shared<'_>) -> Vec<ServerEntry> {
    let members = section.members("[servers.NAME]");
    if members.len() > SERVERS_MAX {
        let message = format!("`servers` holds more than {SERVERS_MAX} servers");
        section.reader.problem(Problem::new("servers", message));
        return Vec::new();
    }
    let mut entries = Vec::with_capacity(members.len());
    for (name, span, member) in members {
        match ServerName::try_new(name) {
            Ok(name) => entries.push(ServerEntry {
                state: server(&name, member, shared),
                name,
            }),
            Err(error) => {
                let path = format!("servers.{}", error.0);
                section
                    .reader
                    .problem(Problem::new(&path, error.to_string()).at(Some(span)));
            }
        }
    }
    entries
}

fn server(name: &ServerName, mut section: Section<'_>, shared: &Shared<'_>) -> ServerState {
    let reader = section.reader;
    let enabled = section.flag("enabled", true);
    let times = call_times(&mut section, shared.times);
    let supervision = {
        let own = section.section("supervision", "[servers.NAME.supervision]");
        supervision(own, shared.supervision)
    };
    let names = names(section.section("tools", "`tools` of a server"));
    let sharing = [
        ("auto", Sharing::Auto),
        ("shared", Sharing::Shared),
        ("principal", Sharing::Principal),
        ("session", Sharing::Session),
    ];
    let sharing = section.choice("sharing", Sharing::Auto, &sharing);
    let eras = [
        ("auto", EraChoice::Auto),
        ("legacy", EraChoice::Legacy),
        ("modern", EraChoice::Modern),
    ];
    let era = section.choice("era", EraChoice::Auto, &eras);
    let modes = [("eager", StartMode::Eager), ("lazy", StartMode::Lazy)];
    let start = section.choice("start", StartMode::Eager, &modes);
    let roots = roots(&mut section);
    let limits = server_limits(&mut section, times, shared.limits);
    let resilience = resilience::of_server(&mut section, shared.breaker, shared.limits);
    let faults = faults(section.section("faults", "[servers.NAME.faults]"));
    let transport = transport(&mut section, &supervision, shared.limits);
    section.finish();

    let unusable = reader.take_unusable();
    match transport {
        _ if !enabled => ServerState::Disabled,
        Some(transport) if unusable.is_empty() => ServerState::Ready(Arc::new(ServerSettings {
            name: name.clone(),
            transport,
            supervision,
            era,
            start,
            sharing,
            roots,
            names,
            limits,
            resilience,
            recorder: shared.recorder,
            faults,
        })),
        _ => ServerState::Misconfigured(unusable.join("; ")),
    }
}

fn server_limits(section: &mut Section<'_>, times: CallTimes, limits: &Limits) -> ServerLimits {
    ServerLimits {
        request_timeout: times.request_timeout,
        request_timeout_max: times.request_timeout_max,
        queue_while_restarting: times.queue_while_restarting,
        calls_max: limits.calls_per_server,
        list_items_max: limits.list_items,
        list_pages_max: limits.list_pages,
        refresh_every: section.duration("refresh_every", 5 * MINUTE, SECOND..=DAY),
        refresh_debounce: section.duration("refresh_debounce", 100 * MILLI, MILLI..=10 * SECOND),
        ping_every: section.duration("ping_every", 30 * SECOND, Duration::ZERO..=HOUR),
        ping_timeout: section.duration("ping_timeout", 10 * SECOND, 10 * MILLI..=10 * MINUTE),
        era_probe_timeout: section.duration("era_probe_timeout", 5 * SECOND, 10 * MILLI..=HOUR),
        era_remembered: section.duration("era_remembered", DAY, SECOND..=30 * DAY),
        entries_max: section.count("entries_max", 8, 1..=1000),
        entry_idle: section.duration("entry_idle", 5 * MINUTE, SECOND..=DAY),
        idle_stop: section.duration("idle_stop", Duration::ZERO, Duration::ZERO..=DAY),
        log_lines: limits.log_lines,
    }
}

fn faults(mut section: Section<'_>) -> Option<FaultSettings> {
    let calls = |section: &mut Section<'_>, key| {
        let is_written = section.has(key);
        let calls = section.count(key, 0, 0..=1_000_000_000);
        is_written.then_some(calls as u64)
    };
    let faults = FaultSettings {
        delay: section.duration("delay", Duration::ZERO, Duration::ZERO..=HOUR),
        drop: section.factor("drop", 0.0, 0.0..=1.0),
        garbage: section.factor("garbage", 0.0, 0.0..=1.0),
        refuse: section.factor("refuse", 0.0, 0.0..=1.0),
        half_open_after: calls(&mut section, "half_open_after"),
        crash_after: calls(&mut section, "crash_after"),
    };
    section.finish();
    faults.is_on().then_some(faults)
}

fn names(mut section: Section<'_>) -> NameSettings {
    let prefix = section.text("prefix");
    if let Some(text) = &prefix {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if text.value.len() > ServerName::LENGTH_MAX || !text.value.bytes().all(legal) {
            section.refuse_text(
                text,
                "at most 32 characters of A-Z, a-z, 0-9 and `-`; an empty text leaves the \
                 names unchanged",
            );
        }
    }
    let settings = NameSettings {
        prefix: prefix.map(|text| text.value),
        allow: globs(&mut section, "allow"),
        deny: globs(&mut section, "deny"),
    };
    section.finish();
    settings
}

fn globs(section: &mut Section<'_>, key: &'static str) -> Vec<String> {
    let texts = section.texts(key).unwrap_or_default();
    for text in &texts {
        if text.value.is_empty() || text.value.len() > 256 || Glob::new(&text.value).is_err() {
            section.refuse_text(
                text,
                "a glob over tool names, as `\"search*\"` or `\"{a,b}\"`",
            );
        }
    }
    texts.into_iter().map(|text| text.value).collect()
}

fn roots(section: &mut Section<'_>) -> Vec<String> {
    let texts = section.texts("roots").unwrap_or_default();
    for text in &texts {
        let is_file = Url::parse(&text.value).is_ok_and(|url| url.scheme() == "file");
        if !is_file || !text.value.starts_with("file://") {
            section.refuse_text(text, "a `file://` URI, as `\"file:///home/me/project\"`");
        }
    }
    texts.into_iter().map(|text| text.value).collect()
}

/// Which transport a server has, by its `transport` key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stdio,
    Http(HttpKind),
}

/// Reads the keys of both transports, so that none of them is unknown, and keeps what fits.
/// `None` when a problem was reported.
fn transport(
    section: &mut Section<'_>,
    supervision: &SupervisionSettings,
    limits: &Limits,
) -> Option<TransportSettings> {
    let kind = kind(section);
    let stdio = stdio(section, supervision, limits);
    let http = http(section, supervision, limits);
    let (own, other): (&str, &[&str]) = match kind? {
        Kind::Stdio => ("command", &["url", "headers", "stream_idle_timeout"]),
        Kind::Http(_) => (
            "url",
            &["command", "args", "env", "inherit_env", "cwd", "limits"],
        ),
    };
    let mut fits = true;
    for key in other.iter().filter(|key| section.has(key)) {
        let message = format!("`{}` does not go with `{own}`", section.path(key));
        section.refuse(
            &[*key],
            message,
            "a server has a `command` or a `url`".to_owned(),
        );
        fits = false;
    }
    match kind? {
        Kind::Stdio => stdio.filter(|_| fits).map(TransportSettings::Stdio),
        Kind::Http(kind) => http
            .filter(|_| fits)
            .map(|http| TransportSettings::Http(HttpSettings { kind, ..http })),
    }
}

fn kind(section: &mut Section<'_>) -> Option<Kind> {
    let spellings = [
        ("stdio", Some(Kind::Stdio)),
        ("auto", Some(Kind::Http(HttpKind::Auto))),
        ("http", Some(Kind::Http(HttpKind::Streamable))),
        ("streamable-http", Some(Kind::Http(HttpKind::Streamable))),
        ("streamableHttp", Some(Kind::Http(HttpKind::Streamable))),
        ("streamable_http", Some(Kind::Http(HttpKind::Streamable))),
        ("sse", Some(Kind::Http(HttpKind::Sse))),
    ];
    let written = section.choice("transport", None, &spellings);
    let missing = |key: &str| {
        let message = format!("`{}` is missing", section.path(key));
        section.refuse_table(message, None);
        None
    };
    match (written, section.has("command"), section.has("url")) {
        (Some(Kind::Stdio), false, _) => missing("command"),
        (Some(Kind::Http(_)), _, false) => missing("url"),
        (Some(kind), _, _) => Some(kind),
        (None, true, _) => Some(Kind::Stdio),
        (None, false, true) => Some(Kind::Http(HttpKind::Auto)),
        (None, false, false) => {
            let message = format!("`{}` has neither `command` nor `url`", section.name());
            let help = "write `command` for a program that the gateway starts, `url` for a server \
                        that runs by itself";
            section.refuse_table(message, help.to_owned());
            None
        }
    }
}

fn stdio(
    section: &mut Section<'_>,
    supervision: &SupervisionSettings,
    limits: &Limits,
) -> Option<StdioSettings> {
    let directory = section.reader.sources.directory;
    let command = section.text("command");
    let args = section.texts("args").unwrap_or_default();
    let env = env(section);
    let cwd = section.text("cwd");
    let inherit_env = section.flag("inherit_env", false);
    let own_limits = child_limits(section.section("limits", "[servers.NAME.limits]"));
    for text in command.iter().chain(&cwd) {
        if text.value.is_empty() || text.value.contains('\0') {
            section.refuse_text(text, "a text that is not empty");
        }
    }
    for text in args.iter().filter(|text| text.value.contains('\0')) {
        section.refuse_text(text, "a text without NUL characters");
    }
    Some(StdioSettings {
        command: program(&command?.value, directory),
        args: args
            .into_iter()
            .map(|text| SecretString::from(text.value))
            .collect(),
        env,
        inherit_env,
        cwd: cwd.map(|text| directory.join(text.value)),
        line_max: limits.line,
        write_queue_max: limits.write_queue,
        // Two steps, closing stdin and SIGTERM, and a little time for the end after SIGKILL.
        stop_grace: supervision.shutdown_timeout * 2 / 5,
        limits: own_limits,
    })
}

fn child_limits(mut section: Section<'_>) -> ChildLimits {
    let (any_size, any_time) = (16 * MIB..=1024 * GIB, SECOND..=365 * DAY);
    let memory = section.has("memory_max").then_some(0);
    let cpu = section.has("cpu_max").then_some(SECOND);
    let files = section.has("open_files_max").then_some(16);
    let limits = ChildLimits {
        memory_max: memory.map(|none| section.size("memory_max", none, any_size) as u64),
        // The system counts whole seconds.
        cpu_max: cpu.map(|none| {
            let time = section.duration("cpu_max", none, any_time);
            Duration::from_secs(time.as_millis().div_ceil(1000) as u64)
        }),
        open_files_max: files
            .map(|none| section.count("open_files_max", none, 16..=1_000_000) as u64),
    };
    section.finish();
    limits
}

/// A bare name is looked for in `PATH`; a relative path starts at the configuration, not at
/// whatever directory the gateway was started in.
fn program(command: &str, directory: &Path) -> String {
    let path = PathBuf::from(command);
    if path.is_absolute() || path.components().count() < 2 && !command.starts_with('.') {
        return command.to_owned();
    }
    directory.join(path).to_string_lossy().into_owned()
}

fn env(section: &mut Section<'_>) -> BTreeMap<String, SecretString> {
    let mut env = BTreeMap::new();
    for (name, value) in section.named_texts("env") {
        if name.value.is_empty() || name.value.contains(['=', '\0']) {
            section.refuse_text(&name, "the name of an environment variable");
        } else if value.value.contains('\0') {
            section.refuse_text(&value, "a text without NUL characters");
        } else {
            env.insert(name.value, SecretString::from(value.value));
        }
    }
    env
}

fn http(
    section: &mut Section<'_>,
    supervision: &SupervisionSettings,
    limits: &Limits,
) -> Option<HttpSettings> {
    let url = section.text("url");
    let headers = headers(section);
    let stream_idle_timeout = section.duration("stream_idle_timeout", 10 * MINUTE, SECOND..=DAY);
    Some(HttpSettings {
        url: http_url(section, &url?)?,
        kind: HttpKind::Auto,
        headers,
        connect_timeout: supervision.connect_timeout,
        body_max: limits.body,
        event_max: limits.event,
        stream_idle_timeout,
        connections_max: limits.connections_per_server,
    })
}

fn http_url(section: &Section<'_>, text: &Text) -> Option<Url> {
    let refuse = |why: Refusal| {
        section.refuse_text(text, why);
        None
    };
    let Ok(url) = Url::parse(&text.value) else {
        return refuse("a URL such as `\"https://example.com/mcp\"`".into());
    };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return refuse("a URL that begins with `http://` or `https://`".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let help = "send them as a header: `headers = { Authorization = \"Bearer ${TOKEN}\" }`";
        return refuse(Refusal::from("a URL without credentials").help(help));
    }
    if url.fragment().is_some() {
        return refuse("a URL without a fragment (`#…`)".into());
    }
    Some(url)
}

fn headers(section: &mut Section<'_>) -> Vec<(String, SecretString)> {
    let mut headers: Vec<(String, SecretString)> = Vec::new();
    for (name, value) in section.named_texts("headers") {
        if !is_header_name(&name.value) {
            section.refuse_text(&name, "named as an HTTP header: letters, digits and `-`");
        } else if RESERVED_HEADERS
            .iter()
            .any(|taken| name.value.eq_ignore_ascii_case(taken))
        {
            section.refuse_text(&name, "left out: the gateway sets this header itself");
        } else if headers
            .iter()
            .any(|(taken, _)| name.value.eq_ignore_ascii_case(taken))
        {
            section.refuse_text(&name, "given once: header names are equal in any case");
        } else if !value
            .value
            .bytes()
            .all(|b| matches!(b, b'\t' | 0x20..=0x7e))
        {
            section.refuse_text(
                &value,
                "a header value: visible ASCII characters and spaces",
            );
        } else {
            headers.push((name.value, SecretString::from(value.value)));
        }
    }
    headers
}

/// A token of RFC 9110, section 5.6.2.
fn is_header_name(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.len() <= 256 && name.bytes().all(token)
}
