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
    ChoiceKind, ExitCodesKind, InheritEnvKind, choice, count, duration, factor, flag, optional,
    size, table,
};
use crate::config::declaration::texts::{NamedSecrets, SecretText, named_texts, text, texts};
use crate::config::programs::{check_command, warn_of_home};
use crate::config::section::Section;
use crate::config::units::{DAY, GIB, HOUR, MIB, MILLI, MINUTE, SECOND};
use crate::downstream::{
    CredentialsChoice, EraChoice, ProbeSettings, RecycleSettings, Resilience, RolloutSettings,
    ServerLimits, Sharing, StartMode,
};
use crate::sandbox::SandboxSettings;
use crate::supervision::Tuning;
use crate::transport::{
    ChildLimits, FaultSettings, HttpKind, InheritEnv, RecorderSettings, TlsFiles,
};

use super::gateway::{
    check_timeouts, pin_tools, queue_while_restarting, request_timeout, request_timeout_max,
    start_timeout,
};
use super::oauth::{OAuthKeys, OAuthTable};
use super::probe::ProbeTable;
use super::recycle::RecycleTable;
use super::rollout::RolloutKind;
use super::sandbox::sandbox;
use super::tables::{BreakerTable, SupervisionTable};
use super::tls::pem;
use super::view::ResultsTable;

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

/// The keys of a server, and the gateway-wide settings that apply to each server.
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
    pub(crate) sandbox: SandboxSettings,
    pub(crate) faults: FaultSettings,
    pub(crate) recorder: RecorderSettings,
    pub(crate) line_max: usize,
    pub(crate) write_queue_max: usize,
    pub(crate) body_max: usize,
    pub(crate) event_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) depends_on: Vec<String>,
    pub(crate) group: Option<String>,
    pub(crate) probe: ProbeSettings,
    pub(crate) recycle: RecycleSettings,
    pub(crate) rollout: RolloutSettings,
    /// Whether new versions are tried beside the old one.
    pub(crate) has_rollout: bool,
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
            sandbox: SandboxSettings::default(),
            faults: FaultSettings::default(),
            recorder: RecorderSettings::default(),
            line_max: 16 * MIB,
            write_queue_max: 1024,
            body_max: 16 * MIB,
            event_max: 16 * MIB,
            connections_max: 1024,
            depends_on: Vec::new(),
            group: None,
            probe: ProbeSettings::default(),
            recycle: RecycleSettings::default(),
            rollout: RolloutSettings::default(),
            has_rollout: false,
        }
    }
}

/// Omits the values, because some are secret.
impl fmt::Debug for ServerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerKeys").finish_non_exhaustive()
    }
}

keys! {
    /// A server behind the gateway: a program to start, or a URL. NAME is 1 to 32 characters of
    /// A-Z, a-z, 0-9, "-" and single "_" inside.
    ServerTable for ServerKeys, check {
        /// Program, looked up in PATH if it is a bare name.
        command: optional(text(NOT_EMPTY, not_empty), "\"npx\""), Reconnects;
        /// Arguments.
        args: texts(NO_NUL, secret_no_nul).such_as(
                "[\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/home/me/project\"]"),
            Reconnects, Secret;
        /// Environment variables to add.
        env: named_texts(variable_name, no_nul, "{ TOKEN = \"${FILES_TOKEN}\" }"),
            Reconnects, Secret;
        /// File with more variables, one NAME=VALUE per line; `env` overrides it.
        env_file: optional(text(FILE, file), "\".env\""), Reconnects;
        /// Environment variables of the gateway that the program gets besides a minimal set
        /// (docs/configuration.md): all (true), none (false), or names and globs, such as
        /// ["AWS_*"].
        inherit_env: InheritEnvKind, Reconnects;
        /// Working directory. Default: the gateway's.
        cwd: optional(text(DIRECTORY, directory), "\".\""), Reconnects;
        /// URL of a server that is already running. `unix:/path/to/socket` is a Unix socket, where
        /// requests go to `/mcp` unless another path follows, as in `unix:/path/to/socket:/path`.
        url: optional(text(URL, url), "\"https://docs.example.com/mcp\""), Reconnects, Secret;
        /// "http" (Streamable HTTP), "sse" (HTTP+SSE of 2024-11-05), or "auto": the first, or the
        /// second if the server refuses it.
        transport: optional(transport(), "\"auto\""), Reconnects;
        /// Headers sent with every request.
        headers:
            named_texts(header_name, header_value, "{ Authorization = \"Bearer ${DOCS_TOKEN}\" }"),
            Reconnects, Secret;
        /// Client headers to forward with that client's calls, and the names to send them under
        /// (docs/auth.md). Requires Streamable HTTP.
        forward_headers: named_texts(forwarded_name, forwarded_to,
            "{ X-Tenant = \"X-Tenant\" }"), Reconnects;
        /// Headers that identify the caller of each call (docs/auth.md): "sub" is the name of the
        /// API key or the token's subject, "claims.NAME" a claim. Requires Streamable HTTP.
        user_headers: named_texts(forwarded_name, user_claim, "{ X-User = \"sub\", X-Team = \"claims.team\" }"), Reconnects;
        /// The sign-in that calls use: the gateway's ("shared"), or each user's ("user":
        /// docs/oauth.md).
        credentials: credentials(), Reconnects;
        /// HTTP proxy for the server and its tokens, or "none". Default: HTTP_PROXY, HTTPS_PROXY
        /// and NO_PROXY, except for loopback addresses.
        proxy: optional(text(PROXY, proxy), "\"http://proxy.example.com:3128\""), Reconnects, Secret;
        /// CAs in PEM to trust in addition to the system's.
        ca in tls_files.ca: pem("\"/etc/mcpvisor/company-ca.pem\""), Reconnects;
        /// Client certificate in PEM (mTLS).
        client_certificate in tls_files.client_certificate: pem("\"/etc/mcpvisor/client.pem\""), Reconnects;
        /// Private key of `client_certificate` in PEM, without a passphrase. Default: the same file.
        client_key in tls_files.client_key: pem("\"/etc/mcpvisor/client.key\""), Reconnects;
        /// Time without data after which a stream counts as broken.
        stream_idle_timeout: duration(SECOND..=DAY);
        /// Stable id for the API. Default: the name.
        id: optional(text(ID, id), "\"0d5c6d0e-7f5c-4f0e-9a52-3f3a1f5b8c11\"");
        /// Stored for clients of the API; it does not change what the gateway serves.
        connection_mode: connection_mode();
        /// If false, the server is neither started nor connected.
        enabled: flag();
        /// Start with the gateway ("eager") or with the first call ("lazy"). Tools of a lazy server
        /// are always listed; it is started once to read them.
        start: start();
        /// Idle time (no call or subscription) after which the server is stopped; the next call
        /// starts it. A lazy program defaults to "5m". List changes are seen only while it runs.
        idle_stop in limits.idle_stop: duration(Duration::ZERO..=DAY);
        /// Which clients share a connection (docs/servers.md): all that can ("auto"), all
        /// ("shared"), clients of the same principal ("principal"), or none ("session").
        sharing: sharing(), Reconnects;
        /// Send log lines that belong to no call to every client of a shared connection.
        share_logs in limits.share_logs: flag();
        /// Rely on the server's tool annotations (readOnlyHint, idempotentHint).
        trusted: flag();
        /// Retry lost calls of a `trusted` server that were not yet sent, or whose tool is read-only
        /// or idempotent.
        retry in resilience.retry.is_allowed: flag();
        /// "file://" URIs of the roots that the server gets.
        roots: texts(ROOT, root);
        /// Overrides [gateway].
        request_timeout in limits.request_timeout: request_timeout();
        /// Overrides [gateway].
        request_timeout_max in limits.request_timeout_max: request_timeout_max();
        /// Overrides [gateway].
        queue_while_restarting in limits.queue_while_restarting: queue_while_restarting();
        /// Exit codes after which the program is not started again until its configuration changes,
        /// or an operator starts it.
        stop_on_exit in limits.stop_on_exit: ExitCodesKind;
        /// Exit codes with which the program asks for a restart: it starts again at once, and no
        /// failure is counted, if it was up for 10 seconds.
        restart_on_exit in limits.restart_on_exit: ExitCodesKind;
        /// Servers that have to be up before this one starts. It stops before them, and waits while
        /// one is away (docs/supervision.md).
        depends_on: texts(NOT_EMPTY, not_empty);
        /// Name of its group, which [groups.NAME] describes.
        group: optional(text(NOT_EMPTY, not_empty), "\"data\"");
        /// Overrides [gateway].
        start_timeout in limits.start_timeout: start_timeout();
        /// Interval of full list refreshes.
        refresh_every in limits.refresh_every: duration(SECOND..=DAY);
        /// List changes within this time cause one refresh.
        refresh_debounce in limits.refresh_debounce: duration(MILLI..=10 * SECOND);
        /// Ping interval of an idle connection; "0s" never pings.
        ping_every in limits.ping_every: duration(Duration::ZERO..=HOUR);
        /// Time without an answer after which a pinged connection is dead.
        ping_timeout in limits.ping_timeout: duration(10 * MILLI..=10 * MINUTE);
        /// How long a cancelled or timed-out call may still run at the server. Meanwhile a
        /// connection that serves one call at a time stays reserved.
        cancelled_timeout in limits.cancelled_timeout: duration(10 * MILLI..=HOUR);
        /// Protocol era (docs/revisions.md): "modern" (from 2026-07-28), "legacy" (before), or
        /// probe ("auto").
        era: era(), Reconnects;
        /// Time after which a silent server is also asked for the other era.
        era_probe_timeout in limits.era_probe_timeout: duration(10 * MILLI..=HOUR);
        /// How long the probed era is cached.
        era_remembered in limits.era_remembered: duration(SECOND..=30 * DAY);
        /// How long to wait for a program that prints a sign-in page.
        sign_in_timeout in limits.sign_in_timeout: duration(SECOND..=DAY);
        /// Per-client connections. Default: 8 to a program (processes), 1000 to a URL (sessions).
        entries_max in limits.entries_max: optional(count(1..=100_000), "8");
        /// Idle time after which a per-client connection is closed.
        entry_idle in limits.entry_idle: duration(SECOND..=DAY);
        /// Overrides [gateway].
        pin_tools in names.pins: pin_tools();
        /// How large results of its tools reach clients.
        results in limits.results: table::<ResultsTable>("`results` of a server");
        /// Which tools clients see, and under which names.
        tools in names: table::<ToolsTable>("`tools` of a server");
        /// Overrides [resources].
        resources in names: table::<ResourcesTable>("[servers.NAME.resources]")
            .such_as("wrap = \"always\"");
        /// A request that shows whether the server works (docs/servers.md).
        probe: table::<ProbeTable>("`probe` of a server");
        /// Planned restarts.
        recycle: table::<RecycleTable>("`recycle` of a server");
        /// Try a new version (`command`, `args` or `url`) beside the old one: "canary", or a table
        /// of its gates.
        rollout: RolloutKind(table("`rollout` of a server"));
        /// Overrides keys of [supervision].
        supervision: table::<SupervisionTable>("[servers.NAME.supervision]")
            .such_as("max_restarts = 10");
        /// Overrides keys of [breaker].
        breaker in resilience.breaker: table::<BreakerTable>("[servers.NAME.breaker]")
            .such_as("failures = 3");
        /// How the gateway gets a token for this server. By default it discovers where, and
        /// registers itself.
        oauth: table::<OAuthTable>("[servers.NAME.oauth]"), Reconnects;
        /// Limits of each of the program's processes.
        limits in child_limits: table::<ChildLimitsTable>("[servers.NAME.limits]"), Reconnects;
        /// Overrides keys of [sandbox]; `sandbox = "strict"` sets its level.
        sandbox: sandbox(), Reconnects;
        /// Fault injection.
        faults: table::<FaultsTable>("[servers.NAME.faults]"), Reconnects;
    }
}

/// The default of `idle_stop` for a lazy program.
const LAZY_IDLE_STOP: Duration = Duration::from_secs(5 * 60);

fn check(keys: &mut ServerKeys, section: &Section<'_>) {
    check_timeouts(&keys.limits, section);
    check_command(&mut keys.command, &mut keys.args, section);
    warn_of_home(&keys.args, section);
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
    if keys.faults.is_on() && !cfg!(feature = "faults") {
        let message = "this build of mcpvisor cannot inject faults".to_owned();
        let help = "build it with the feature `faults`, which is on by default";
        section.refuse(&["faults"], message, help.to_owned());
    }
    // The order of variables means nothing; a file in which only that changed is the same.
    keys.env.sort_by(|one, other| one.0.cmp(&other.0));
    check_tls_files(keys, section);
    keys.limits.recycle = section.has("recycle").then(|| keys.recycle.clone());
    keys.has_rollout = section.has("rollout");
    keys.limits.probe = section.has("probe").then(|| keys.probe.clone());
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
    /// Which tools clients see, and under which names.
    ToolsTable for NameSettings {
        /// Globs over tools to list; empty allows all.
        allow: texts(GLOB, glob);
        /// Globs over tools to hide; overrides `allow`.
        deny: texts(GLOB, glob);
        /// Prefix of public names; "" leaves names unchanged. Default: the server's name.
        prefix: optional(text(PREFIX, prefix), "\"files\"");
        /// Show tools that only user interfaces call (`_meta.ui.visibility` is `["app"]`) only at
        /// `/mcp/server/NAME`, because the user interfaces of all servers of an endpoint share the
        /// client's connection ([security](docs/security.md#user-interfaces)).
        own_apps: flag();
    }
}

fn wrap() -> ChoiceKind<Wrap> {
    choice(&[("auto", Wrap::Auto), ("always", Wrap::Always)])
}

keys! {
    /// How resources of different servers are distinguished. Overridable per server in
    /// [servers.NAME.resources].
    ResourcesTable for NameSettings {
        /// Show a server's resource URIs inside a URI that names the server, such as
        /// `mcpgw+files+file:///a`: only if another server has the same one ("auto"), or always, so
        /// that no server can be read in place of another ("always").
        wrap: wrap();
    }
}

keys! {
    /// Limits of each process of a server with a `command`. A process that reaches one is
    /// restarted.
    ChildLimitsTable for ChildLimits {
        /// Private writable memory; leave room for thread stacks.
        memory_max: optional(size(16 * MIB as u64..=1024 * GIB as u64), "\"512MiB\"");
        /// Total CPU time since its start.
        cpu_max: optional(duration(SECOND..=365 * DAY), "\"10m\"");
        /// Files, sockets and pipes.
        open_files_max: optional(count(16..=1_000_000), "256");
        /// Memory of the server with all processes that it starts, if the system delegated a
        /// control group to the gateway (docs/supervision.md).
        memory in tree.memory: optional(size(MIB as u64..=1024 * GIB as u64), "\"1GiB\"");
        /// Share of the CPU time, in cores, of the same processes.
        cpu in tree.cpu: optional(factor(0.01..=1024.0), "0.5");
        /// Number of the same processes and their threads.
        pids in tree.pids: optional(count(1..=4_000_000), "64");
    }
}

keys! {
    /// Fault injection, to test how clients cope.
    FaultsTable for FaultSettings {
        /// Delay of each message from the server.
        delay: duration(Duration::ZERO..=HOUR);
        /// Probability that a message is lost, in both directions.
        drop: factor(0.0..=1.0);
        /// Probability that a message from the server is garbled.
        garbage: factor(0.0..=1.0);
        /// Probability that a connection is refused.
        refuse: factor(0.0..=1.0);
        /// Calls after which a connection stays open but silent.
        half_open_after: optional(count(0..=1_000_000_000), "3");
        /// Calls after which a connection breaks.
        crash_after: optional(count(0..=1_000_000_000), "3");
    }
}
