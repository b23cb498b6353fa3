//! `[servers.NAME]`.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::checks::{
    GLOB, NO_NUL, NOT_EMPTY, PREFIX, ROOT, URL, glob, header_name, header_value, is_at_least,
    no_nul, not_empty, prefix, root, secret_no_nul, url, variable_name,
};
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{
    ChoiceKind, choice, count, duration, factor, flag, optional, size, table,
};
use crate::config::declaration::texts::{NamedSecrets, SecretText, named_texts, text, texts};
use crate::config::section::Section;
use crate::config::units::{DAY, GIB, HOUR, MIB, MILLI, MINUTE, SECOND};
use crate::downstream::{EraChoice, Sharing, StartMode};
use crate::transport::HttpKind;

use super::gateway::{queue_while_restarting, request_timeout, request_timeout_max};
use super::tables::{BreakerKeys, SupervisionKeys};

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportKind {
    Stdio,
    Http(HttpKind),
}

fn transport() -> ChoiceKind<TransportKind> {
    choice(&[
        ("stdio", TransportKind::Stdio),
        ("auto", TransportKind::Http(HttpKind::Auto)),
        ("http", TransportKind::Http(HttpKind::Streamable)),
        ("streamable-http", TransportKind::Http(HttpKind::Streamable)),
        ("streamableHttp", TransportKind::Http(HttpKind::Streamable)),
        ("streamable_http", TransportKind::Http(HttpKind::Streamable)),
        ("sse", TransportKind::Http(HttpKind::Sse)),
    ])
}

fn start() -> ChoiceKind<StartMode> {
    choice(&[("eager", StartMode::Eager), ("lazy", StartMode::Lazy)])
}

fn sharing() -> ChoiceKind<Sharing> {
    choice(&[
        ("auto", Sharing::Auto),
        ("shared", Sharing::Shared),
        ("principal", Sharing::Principal),
        ("session", Sharing::Session),
    ])
}

fn era() -> ChoiceKind<EraChoice> {
    choice(&[
        ("auto", EraChoice::Auto),
        ("legacy", EraChoice::Legacy),
        ("modern", EraChoice::Modern),
    ])
}

keys! {
    /// A server behind the gateway: a program that it starts, or a URL. NAME is 1 to 32 characters
    /// of A-Z, a-z, 0-9 and "-".
    struct ServerKeys, check {
        /// The program. A bare name is looked for in PATH; a relative path starts at the directory
        /// of this file.
        command: Option<String> = None, optional(text(NOT_EMPTY, not_empty), "\"npx\""),
            Reconnects;
        /// Arguments of the program.
        args: Vec<SecretText> = Vec::new(),
            texts(NO_NUL, secret_no_nul).such_as(
                "[\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/home/me/project\"]"),
            Reconnects, Secret;
        /// Variables that are added to the environment of the program.
        env: NamedSecrets = Vec::new(),
            named_texts(variable_name, no_nul, "{ TOKEN = \"${FILES_TOKEN}\" }"),
            Reconnects, Secret;
        /// Whether the program gets the gateway's whole environment, instead of the variables that
        /// any program needs to run.
        inherit_env: bool = false, flag(), Reconnects;
        /// Working directory of the program; without it, that of the gateway.
        cwd: Option<PathBuf> = None,
            optional(text(NOT_EMPTY, |text| not_empty(text).map(PathBuf::from)), "\".\""),
            Reconnects;
        /// The URL of a server that runs by itself.
        url: Option<SecretText> = None,
            optional(text(URL, url), "\"https://docs.example.com/mcp\""), Reconnects, Secret;
        /// "http" (Streamable HTTP), "sse" (HTTP+SSE of 2024-11-05), or "auto": the first, and the
        /// second if that is refused. A program has "stdio".
        transport: Option<TransportKind> = None, optional(transport(), "\"auto\""), Reconnects;
        /// Headers that are sent with every request.
        headers: NamedSecrets = Vec::new(),
            named_texts(header_name, header_value, "{ Authorization = \"Bearer ${DOCS_TOKEN}\" }"),
            Reconnects, Secret;
        /// A stream that is silent for longer counts as broken.
        stream_idle_timeout: Duration = 10 * MINUTE, duration(SECOND..=DAY);
        /// With false there is no process and no connection.
        enabled: bool = true, flag();
        /// With the gateway ("eager"), or with the first call ("lazy"). A lazy server of which
        /// nothing is known yet is started once for its lists and stopped again. Its tools are
        /// listed all the while.
        start: StartMode = StartMode::Eager, start();
        /// Stopped when it had no call and no subscription for so long, and started by the next
        /// call; "0s" never. Changes of its lists are seen when it runs again. Clients with a
        /// connection of their own have `entry_idle`.
        idle_stop: Duration = Duration::ZERO, duration(Duration::ZERO..=DAY);
        /// Whose calls share a connection: all that can ("auto"), "shared", "principal" or
        /// "session".
        sharing: Sharing = Sharing::Auto, sharing(), Reconnects;
        /// Whether what it says of its tools (readOnlyHint, idempotentHint) can be relied on.
        trusted: bool = false, flag();
        /// With `trusted`: calls that were lost are sent once more, if they were not yet sent, or
        /// if their tool is read-only or idempotent.
        retry: bool = false, flag();
        /// "file://" URIs told to the server.
        roots: Vec<String> = Vec::new(), texts(ROOT, root);
        /// As in [gateway], for this server only.
        request_timeout: Duration = MINUTE, request_timeout();
        /// As in [gateway], for this server only.
        request_timeout_max: Duration = 10 * MINUTE, request_timeout_max();
        /// As in [gateway], for this server only.
        queue_while_restarting: Duration = Duration::ZERO, queue_while_restarting();
        /// Time between two full readings of its lists.
        refresh_every: Duration = 5 * MINUTE, duration(SECOND..=DAY);
        /// Changes of its lists within this time are read once.
        refresh_debounce: Duration = 100 * MILLI, duration(MILLI..=10 * SECOND);
        /// An idle connection is pinged so often; "0s" never.
        ping_every: Duration = 30 * SECOND, duration(Duration::ZERO..=HOUR);
        /// A ping without answer for so long is a dead connection.
        ping_timeout: Duration = 10 * SECOND, duration(10 * MILLI..=10 * MINUTE);
        /// The era of the protocol in which it is spoken to: "modern" (from 2026-07-28 on),
        /// "legacy" (before), or what it answers when asked ("auto").
        era: EraChoice = EraChoice::Auto, era(), Reconnects;
        /// A process that is started only to be asked for its era has so long to answer.
        era_probe_timeout: Duration = 5 * SECOND, duration(10 * MILLI..=HOUR);
        /// How long the era that it answered is remembered.
        era_remembered: Duration = DAY, duration(SECOND..=30 * DAY);
        /// Connections of their own that clients may have to it.
        entries_max: usize = 8, count(1..=1000);
        /// Such a connection is closed when it is unused for so long.
        entry_idle: Duration = 5 * MINUTE, duration(SECOND..=DAY);
        /// Which of its tools clients see, and under which names.
        tools: ToolKeys = ToolKeys::default(), table("`tools` of a server");
        /// Any key of [supervision], for this server only.
        supervision: SupervisionKeys = SupervisionKeys::default(),
            table("[servers.NAME.supervision]").such_as("max_restarts = 10");
        /// Any key of [breaker], for this server only.
        breaker: BreakerKeys = BreakerKeys::default(),
            table("[servers.NAME.breaker]").such_as("failures = 3");
        /// Limits of each process of a program.
        limits: ChildLimitKeys = ChildLimitKeys::default(), table("[servers.NAME.limits]"),
            Reconnects;
        /// Misbehaviour on purpose, to see how clients take it.
        faults: FaultKeys = FaultKeys::default(), table("[servers.NAME.faults]"), Reconnects;
    }
}

fn check(keys: &mut ServerKeys, section: &Section<'_>) {
    let (time, longest) = (keys.request_timeout, keys.request_timeout_max);
    is_at_least(
        section,
        ("request_timeout_max", longest),
        ("request_timeout", time),
        None,
    );
    if keys.retry && !keys.trusted {
        let (retry, trusted) = (section.path("retry"), section.path("trusted"));
        let help = "set `trusted = true` if what this server says of its tools (`readOnlyHint`, \
                    `idempotentHint`) can be relied on";
        let message = format!("`{retry}` needs `{trusted}`");
        section.refuse(&["retry"], message, help.to_owned());
    }
    // The order of variables means nothing; a file in which only that changed is the same.
    keys.env.sort_by(|one, other| one.0.cmp(&other.0));
}

keys! {
    /// Which of its tools clients see, and under which names.
    struct ToolKeys {
        /// Globs over the tools that are listed; none allows all.
        allow: Vec<String> = Vec::new(), texts(GLOB, glob);
        /// Globs over the tools that are not listed; wins over `allow`.
        deny: Vec<String> = Vec::new(), texts(GLOB, glob);
        /// Stands before the names of its tools; without it, the server's name. "" leaves names
        /// unchanged.
        prefix: Option<String> = None, optional(text(PREFIX, prefix), "\"files\"");
    }
}

keys! {
    /// Limits of each process of a server with a `command`; none by default. A process that
    /// reaches a limit ends, and is started again.
    struct ChildLimitKeys {
        /// Private writable memory; leave room for the stacks of threads.
        memory_max: Option<usize> = None, optional(size(16 * MIB..=1024 * GIB), "\"512MiB\"");
        /// CPU time from its start, all in all.
        cpu_max: Option<Duration> = None, optional(duration(SECOND..=365 * DAY), "\"10m\"");
        /// Files, sockets and pipes.
        open_files_max: Option<usize> = None, optional(count(16..=1_000_000), "256");
    }
}

keys! {
    /// Misbehaviour on purpose, to see how clients take it; loud in `status`. Shares are 0.0 to
    /// 1.0. All off by default.
    struct FaultKeys {
        /// Each message of the server comes so much later.
        delay: Duration = Duration::ZERO, duration(Duration::ZERO..=HOUR);
        /// Share of messages that are lost, both ways.
        drop: f64 = 0.0, factor(0.0..=1.0);
        /// Share of the server's messages that arrive as garbage.
        garbage: f64 = 0.0, factor(0.0..=1.0);
        /// Share of connections that are refused.
        refuse: f64 = 0.0, factor(0.0..=1.0);
        /// After so many calls a connection stays open and is silent.
        half_open_after: Option<usize> = None, optional(count(0..=1_000_000_000), "3");
        /// After so many calls a connection breaks.
        crash_after: Option<usize> = None, optional(count(0..=1_000_000_000), "3");
    }
}
