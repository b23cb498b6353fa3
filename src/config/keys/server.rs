//! `[servers.NAME]`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::catalog::{NameSettings, Wrap};
use crate::config::checks::{
    DIRECTORY, FILE, GLOB, ID, NO_NUL, NOT_EMPTY, PREFIX, PROXY, ROOT, URL, directory, file,
    forwarded_name, forwarded_to, glob, header_name, header_value, id, no_nul, not_empty, prefix,
    proxy, root, secret_no_nul, url, user_claim, variable_name,
};
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{
    ChoiceKind, InheritEnvKind, choice, count, duration, factor, flag, optional, size, table,
};
use crate::config::declaration::texts::{NamedSecrets, SecretText, named_texts, text, texts};
use crate::config::programs::{check_command, warn_of_home};
use crate::config::section::Section;
use crate::config::units::{DAY, GIB, HOUR, MIB, MILLI, MINUTE, SECOND};
use crate::downstream::{
    CredentialsChoice, EraChoice, Resilience, ServerLimits, Sharing, StartMode,
};
use crate::supervision::Tuning;
use crate::transport::{
    ChildLimits, FaultSettings, HttpKind, InheritEnv, RecorderSettings, TlsFiles,
};

use super::gateway::{
    check_timeouts, pin_tools, queue_while_restarting, request_timeout, request_timeout_max,
    start_timeout,
};
use super::oauth::{OAuthKeys, OAuthTable};
use super::tables::{BreakerTable, SupervisionTable};
use super::tls::pem;

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

fn credentials() -> ChoiceKind<CredentialsChoice> {
    choice(&[
        ("shared", CredentialsChoice::Shared),
        ("user", CredentialsChoice::User),
    ])
}

/// Where clients of the API connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConnectionMode {
    #[default]
    Proxy,
    Direct,
}

fn connection_mode() -> ChoiceKind<ConnectionMode> {
    choice(&[
        ("proxy", ConnectionMode::Proxy),
        ("direct", ConnectionMode::Direct),
    ])
}

fn era() -> ChoiceKind<EraChoice> {
    choice(&[
        ("auto", EraChoice::Auto),
        ("legacy", EraChoice::Legacy),
        ("modern", EraChoice::Modern),
    ])
}

/// The keys of a server, and what tables of the whole gateway say of each server.
#[derive(Clone, PartialEq)]
pub(crate) struct ServerKeys {
    pub(crate) id: Option<String>,
    pub(crate) connection_mode: ConnectionMode,
    pub(crate) command: Option<String>,
    pub(crate) args: Vec<SecretText>,
    pub(crate) env: NamedSecrets,
    pub(crate) env_file: Option<PathBuf>,
    pub(crate) inherit_env: InheritEnv,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) url: Option<SecretText>,
    pub(crate) transport: Option<TransportKind>,
    pub(crate) headers: NamedSecrets,
    pub(crate) forward_headers: NamedSecrets,
    pub(crate) user_headers: NamedSecrets,
    pub(crate) credentials: CredentialsChoice,
    pub(crate) oauth: OAuthKeys,
    pub(crate) proxy: Option<SecretText>,
    pub(crate) tls_files: TlsFiles,
    pub(crate) stream_idle_timeout: Duration,
    pub(crate) enabled: bool,
    pub(crate) start: StartMode,
    pub(crate) sharing: Sharing,
    pub(crate) trusted: bool,
    pub(crate) roots: Vec<String>,
    pub(crate) era: EraChoice,
    pub(crate) names: NameSettings,
    pub(crate) limits: ServerLimits,
    pub(crate) supervision: Tuning,
    pub(crate) resilience: Resilience,
    pub(crate) child_limits: ChildLimits,
    pub(crate) faults: FaultSettings,
    pub(crate) recorder: RecorderSettings,
    pub(crate) line_max: usize,
    pub(crate) write_queue_max: usize,
    pub(crate) body_max: usize,
    pub(crate) event_max: usize,
    pub(crate) connections_max: usize,
}

impl Default for ServerKeys {
    fn default() -> Self {
        Self {
            id: None,
            connection_mode: ConnectionMode::default(),
            command: None,
            args: Vec::new(),
            env: Vec::new(),
            env_file: None,
            inherit_env: InheritEnv::default(),
            cwd: None,
            url: None,
            transport: None,
            headers: Vec::new(),
            forward_headers: Vec::new(),
            user_headers: Vec::new(),
            credentials: CredentialsChoice::default(),
            oauth: OAuthKeys::default(),
            proxy: None,
            tls_files: TlsFiles::default(),
            stream_idle_timeout: 10 * MINUTE,
            enabled: true,
            start: StartMode::default(),
            sharing: Sharing::default(),
            trusted: false,
            roots: Vec::new(),
            era: EraChoice::default(),
            names: NameSettings::default(),
            limits: ServerLimits::default(),
            supervision: Tuning::default(),
            resilience: Resilience::default(),
            child_limits: ChildLimits::default(),
            faults: FaultSettings::default(),
            recorder: RecorderSettings::default(),
            line_max: 16 * MIB,
            write_queue_max: 1024,
            body_max: 16 * MIB,
            event_max: 16 * MIB,
            connections_max: 1024,
        }
    }
}

/// Without values, since some are secret.
impl fmt::Debug for ServerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerKeys").finish_non_exhaustive()
    }
}

keys! {
    /// A server behind the gateway: a program that it starts, or a URL. NAME is 1 to 32 characters
    /// of A-Z, a-z, 0-9 and "-".
    ServerTable for ServerKeys, check {
        /// The program. A bare name is looked for in PATH; a relative path starts at the directory
        /// of this file.
        command: optional(text(NOT_EMPTY, not_empty), "\"npx\""), Reconnects;
        /// Arguments of the program.
        args: texts(NO_NUL, secret_no_nul).such_as(
                "[\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/home/me/project\"]"),
            Reconnects, Secret;
        /// Variables that are added to the environment of the program.
        env: named_texts(variable_name, no_nul, "{ TOKEN = \"${FILES_TOKEN}\" }"),
            Reconnects, Secret;
        /// A file with further variables, one NAME=VALUE per line; `env` wins over it. It is read
        /// when the configuration is.
        env_file: optional(text(FILE, file), "\".env\""), Reconnects;
        /// Which variables of the gateway's environment the program gets besides those that any
        /// program needs to run (the list is in docs/configuration.md): all (true), none (false),
        /// or globs over their names, as in ["AWS_*"]. Some pass by their full name only: see there.
        inherit_env: InheritEnvKind, Reconnects;
        /// Working directory of the program; without it, that of the gateway.
        cwd: optional(text(DIRECTORY, directory), "\".\""), Reconnects;
        /// The URL of a server that runs by itself.
        url: optional(text(URL, url), "\"https://docs.example.com/mcp\""), Reconnects, Secret;
        /// "http" (Streamable HTTP), "sse" (HTTP+SSE of 2024-11-05), or "auto": the first, and the
        /// second if that is refused. A program has "stdio".
        transport: optional(transport(), "\"auto\""), Reconnects;
        /// Headers that are sent with every request.
        headers:
            named_texts(header_name, header_value, "{ Authorization = \"Bearer ${DOCS_TOKEN}\" }"),
            Reconnects, Secret;
        /// Headers of clients that it is to read, and how they are called there: sent with the requests
        /// of the call that a client makes, and with nothing else. All others of a client end here. A
        /// server with any is spoken to over Streamable HTTP.
        forward_headers: named_texts(forwarded_name, forwarded_to,
            "{ X-Tenant = \"X-Tenant\" }"), Reconnects;
        /// Headers that tell it whose call it is: "sub" is the name of the client's API key or the
        /// subject of its token, "claims.NAME" a claim of its token, or of what introspection or the
        /// webhook answered ("claims.org.team" is one within another). They are sent with the requests
        /// of each call; where one is missing, there is no call. A server with any is spoken to over
        /// Streamable HTTP.
        user_headers: named_texts(forwarded_name, user_claim, "{ X-User = \"sub\", X-Team = \"claims.team\" }"), Reconnects;
        /// With whose sign-in it is called: that of the gateway ("shared"), or that of each client's user
        /// ("user"), who gets a link to sign in at with the first call. Each user is an API key then,
        /// and has connections of its own.
        credentials: credentials(), Reconnects;
        /// The HTTP proxy for requests to the server and for its tokens:
        /// "http://user:password@host:port", or "none". Without this key, the environment variables
        /// HTTP_PROXY, HTTPS_PROXY and NO_PROXY apply, except to loopback addresses.
        proxy: optional(text(PROXY, proxy), "\"http://proxy.example.com:3128\""), Reconnects, Secret;
        /// Authorities in PEM to trust for the server in addition to the system's roots. The gateway reads
        /// this file, `client_certificate` and `client_key` again for each connection.
        ca in tls_files.ca: pem("\"/etc/mcpvisor/company-ca.pem\""), Reconnects;
        /// The client certificate in PEM that the gateway shows to the server (mTLS).
        client_certificate in tls_files.client_certificate: pem("\"/etc/mcpvisor/client.pem\""), Reconnects;
        /// The private key of `client_certificate` in PEM, without a passphrase. Default: the same file.
        client_key in tls_files.client_key: pem("\"/etc/mcpvisor/client.key\""), Reconnects;
        /// A stream that is silent for longer counts as broken.
        stream_idle_timeout: duration(SECOND..=DAY);
        /// By which the API knows the server, whatever its name; without it, its name. The API
        /// writes a UUID here.
        id: optional(text(ID, id), "\"0d5c6d0e-7f5c-4f0e-9a52-3f3a1f5b8c11\"");
        /// Where clients of the API are told to connect: to the gateway ("proxy") or to the server
        /// itself ("direct"). It changes nothing in what the gateway serves.
        connection_mode: connection_mode();
        /// With false there is no process and no connection.
        enabled: flag();
        /// With the gateway ("eager"), or with the first call ("lazy"). A lazy server of which
        /// nothing is known yet is started once for its lists and stopped again. Its tools are
        /// listed all the while.
        start: start();
        /// Stopped when it had no call and no subscription for so long, and started by the next
        /// call; "0s" never. A lazy program that does not set it has "5m". Changes of its lists
        /// are seen when it runs again. Clients with a connection of their own have `entry_idle`.
        idle_stop in limits.idle_stop: duration(Duration::ZERO..=DAY);
        /// Whose calls share a connection: all that can ("auto"), "shared", "principal" or
        /// "session".
        sharing: sharing(), Reconnects;
        /// Whether its log lines that belong to no call go to every client that shares a connection
        /// to it. Otherwise such a line goes to the call under way if there is only one, or else
        /// only to `mcpvisor servers logs`.
        share_logs in limits.share_logs: flag();
        /// Whether what it says of its tools (readOnlyHint, idempotentHint) can be relied on.
        trusted: flag();
        /// With `trusted`: calls that were lost are sent once more, if they were not yet sent, or
        /// if their tool is read-only or idempotent.
        retry in resilience.retry.is_allowed: flag();
        /// "file://" URIs told to the server.
        roots: texts(ROOT, root);
        /// As in [gateway], for this server only.
        request_timeout in limits.request_timeout: request_timeout();
        /// As in [gateway], for this server only.
        request_timeout_max in limits.request_timeout_max: request_timeout_max();
        /// As in [gateway], for this server only.
        queue_while_restarting in limits.queue_while_restarting: queue_while_restarting();
        /// As in [gateway], for this server only.
        start_timeout in limits.start_timeout: start_timeout();
        /// Time between two full readings of its lists.
        refresh_every in limits.refresh_every: duration(SECOND..=DAY);
        /// Changes of its lists within this time are read once.
        refresh_debounce in limits.refresh_debounce: duration(MILLI..=10 * SECOND);
        /// An idle connection is pinged so often; "0s" never.
        ping_every in limits.ping_every: duration(Duration::ZERO..=HOUR);
        /// A ping without answer for so long is a dead connection.
        ping_timeout in limits.ping_timeout: duration(10 * MILLI..=10 * MINUTE);
        /// How long it may still be at a call that was cancelled or timed out and that it does not
        /// answer: until then what it asks may be asked for that call, so that no other client is
        /// asked, and a connection that serves one call at a time serves no other.
        cancelled_timeout in limits.cancelled_timeout: duration(10 * MILLI..=HOUR);
        /// The era of the protocol in which it is spoken to: "modern" (from 2026-07-28 on),
        /// "legacy" (before), or what it answers when asked ("auto").
        era: era(), Reconnects;
        /// It has so long to answer when it is asked for its era, before it gets the handshake of
        /// "legacy" as well; the answer still counts then.
        era_probe_timeout in limits.era_probe_timeout: duration(10 * MILLI..=HOUR);
        /// How long the era that it answered is remembered.
        era_remembered in limits.era_remembered: duration(SECOND..=30 * DAY);
        /// A program that prints a page to sign in at, and waits, is waited for so long.
        sign_in_timeout in limits.sign_in_timeout: duration(SECOND..=DAY);
        /// Connections of their own that clients may have to it; without it, 8 to a program, where
        /// each is a process, and 1000 to a URL, where each is a session.
        entries_max in limits.entries_max: optional(count(1..=100_000), "8");
        /// Such a connection is closed when it is unused for so long.
        entry_idle in limits.entry_idle: duration(SECOND..=DAY);
        /// As in [gateway], for this server only.
        pin_tools in names.pins: pin_tools();
        /// Which of its tools clients see, and under which names.
        tools in names: table::<ToolsTable>("`tools` of a server");
        /// Any key of [resources], for this server only.
        resources in names: table::<ResourcesTable>("[servers.NAME.resources]")
            .such_as("wrap = \"always\"");
        /// Any key of [supervision], for this server only.
        supervision: table::<SupervisionTable>("[servers.NAME.supervision]")
            .such_as("max_restarts = 10");
        /// Any key of [breaker], for this server only.
        breaker in resilience.breaker: table::<BreakerTable>("[servers.NAME.breaker]")
            .such_as("failures = 3");
        /// How the gateway gets a token for it.
        oauth: table::<OAuthTable>("[servers.NAME.oauth]"), Reconnects;
        /// Limits of each process of a program.
        limits in child_limits: table::<ChildLimitsTable>("[servers.NAME.limits]"), Reconnects;
        /// Misbehaviour on purpose, to see how clients take it.
        faults: table::<FaultsTable>("[servers.NAME.faults]"), Reconnects;
    }
}

/// The default of `idle_stop` for a lazy program.
const LAZY_IDLE_STOP: Duration = Duration::from_secs(5 * 60);

fn check(keys: &mut ServerKeys, section: &Section<'_>) {
    check_timeouts(&keys.limits, section);
    check_command(keys, section);
    warn_of_home(keys, section);
    if keys.start == StartMode::Lazy && keys.command.is_some() && !section.has("idle_stop") {
        keys.limits.idle_stop = LAZY_IDLE_STOP;
    }
    if keys.resilience.retry.is_allowed && !keys.trusted {
        let (retry, trusted) = (section.path("retry"), section.path("trusted"));
        let help = "set `trusted = true` if what this server says of its tools (`readOnlyHint`, \
                    `idempotentHint`) can be relied on";
        let message = format!("`{retry}` needs `{trusted}`");
        section.refuse(&["retry"], message, help.to_owned());
    }
    // The order of variables means nothing; a file in which only that changed is the same.
    keys.env.sort_by(|one, other| one.0.cmp(&other.0));
    check_tls_files(keys, section);
}

/// A key needs a certificate. Relative paths start at the directory of the file.
fn check_tls_files(keys: &mut ServerKeys, section: &Section<'_>) {
    let files = &mut keys.tls_files;
    if section.has("client_key") && !section.has("client_certificate") {
        let (key, other) = (
            section.path("client_key"),
            section.path("client_certificate"),
        );
        section.refuse_table(format!("`{key}` needs `{other}`"), None);
    }
    let directory = section.reader.interpolation.directory;
    let files = [
        &mut files.ca,
        &mut files.client_certificate,
        &mut files.client_key,
    ];
    for file in files.into_iter().flatten() {
        *file = directory.join(&file);
    }
}

keys! {
    /// Which of its tools clients see, and under which names.
    ToolsTable for NameSettings {
        /// Globs over the tools that are listed; none allows all.
        allow: texts(GLOB, glob);
        /// Globs over the tools that are not listed; wins over `allow`.
        deny: texts(GLOB, glob);
        /// Stands before the names of its tools; without it, the server's name. "" leaves names
        /// unchanged.
        prefix: optional(text(PREFIX, prefix), "\"files\"");
    }
}

fn wrap() -> ChoiceKind<Wrap> {
    choice(&[("auto", Wrap::Auto), ("always", Wrap::Always)])
}

keys! {
    /// How the resources of servers are told apart. The key may be set again for one server, in
    /// [servers.NAME.resources].
    ResourcesTable for NameSettings {
        /// Whether clients see the resource URIs and URI templates of a server inside of a URI that
        /// names it, as in `mcpgw+files+file:///a`: when one is also another server's ("auto"), or
        /// all of them, so that no server can be read in place of another ("always").
        wrap: wrap();
    }
}

keys! {
    /// Limits of each process of a server with a `command`; none by default. A process that
    /// reaches a limit ends, and is started again.
    ChildLimitsTable for ChildLimits {
        /// Private writable memory; leave room for the stacks of threads.
        memory_max: optional(size(16 * MIB as u64..=1024 * GIB as u64), "\"512MiB\"");
        /// CPU time from its start, all in all.
        cpu_max: optional(duration(SECOND..=365 * DAY), "\"10m\"");
        /// Files, sockets and pipes.
        open_files_max: optional(count(16..=1_000_000), "256");
    }
}

keys! {
    /// Misbehaviour on purpose, to see how clients take it; loud in `status`. Shares are 0.0 to
    /// 1.0. All off by default.
    FaultsTable for FaultSettings {
        /// Each message of the server comes so much later.
        delay: duration(Duration::ZERO..=HOUR);
        /// Share of messages that are lost, both ways.
        drop: factor(0.0..=1.0);
        /// Share of the server's messages that arrive as garbage.
        garbage: factor(0.0..=1.0);
        /// Share of connections that are refused.
        refuse: factor(0.0..=1.0);
        /// After so many calls a connection stays open and is silent.
        half_open_after: optional(count(0..=1_000_000_000), "3");
        /// After so many calls a connection breaks.
        crash_after: optional(count(0..=1_000_000_000), "3");
    }
}
