//! The settings of one downstream server.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{Context, SHA256};
use secrecy::ExposeSecret;
use serde_json::{Map, Value};

use crate::auth::subject;
use crate::bridge::headers::{ClientHeaders, UserClaim};
use crate::bridge::seal::Digest;
use crate::catalog::{NameSettings, ResultSettings};
use crate::downstream::caller::Caller;
use crate::downstream::resilience::Resilience;
use crate::id::{CredentialContext, ServerName};
use crate::protocol::{ErrorKind, Failure};
use crate::supervision::{GroupPolicy, RolloutPolicy, Settings as SupervisionSettings};
use crate::transport::{
    FaultSettings, HttpKind, HttpSettings, Proxy, RecorderSettings, StdioSettings,
};

/// Default limit of clients' own connections to a program, where each is a process.
const PROCESSES_MAX: usize = 8;

/// Default limit of clients' own connections to a server behind a URL, where each is a session of a
/// few KiB, and over HTTP+SSE an open stream.
const SESSIONS_MAX: usize = 1000;

/// Settings of one enabled, usable server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub name: ServerName,
    pub transport: TransportSettings,
    pub supervision: SupervisionSettings,
    pub era: EraChoice,
    pub start: StartMode,
    pub sharing: Sharing,
    pub credentials: CredentialsChoice,
    /// Roots (`file://` URIs) sent to the server when no calling client declares roots.
    pub roots: Vec<String>,
    pub names: NameSettings,
    pub limits: ServerLimits,
    pub resilience: Resilience,
    pub recorder: RecorderSettings,
    /// Faults to inject into its connections, if configured.
    pub faults: Option<FaultSettings>,
    pub dependencies: ServerTies,
    /// How a new version replaces the old one, unless at once.
    pub rollout: Option<RolloutSettings>,
}

/// A request that shows whether a server works; a ping without `tool` and `resource`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSettings {
    /// Native name of the tool to call.
    pub tool: Option<String>,
    pub arguments: Map<String, Value>,
    /// URI of the resource to read.
    pub resource: Option<String>,
    pub every: Duration,
    pub timeout: Duration,
    /// Failures in a row after which the server is restarted.
    pub failures: u32,
    /// Whether a tool is called that is not marked as read-only.
    pub allow_effects: bool,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        Self {
            tool: None,
            arguments: Map::new(),
            resource: None,
            every: Duration::from_secs(30),
            timeout: Duration::from_secs(5),
            failures: 3,
            allow_effects: false,
        }
    }
}

impl fmt::Display for ProbeSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.tool, &self.resource) {
            (Some(tool), _) => write!(f, "its probe, a call of `{tool}`,"),
            (None, Some(uri)) => write!(f, "its probe, a read of `{uri}`,"),
            (None, None) => f.write_str("its probe, a ping,"),
        }
    }
}

/// When a server is restarted as planned, while no call uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecycleSettings {
    /// Time since it came up.
    pub after: Option<Duration>,
    /// Calls since it came up.
    pub calls: Option<u64>,
    /// Resident memory of its process, in bytes.
    pub memory: Option<u64>,
    /// Open descriptors of its process.
    pub descriptors: Option<u64>,
}

/// How a new version of a server is tried beside the old one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloutSettings {
    pub policy: RolloutPolicy,
    pub compare: AnswerComparison,
}

/// How the answers of both versions are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerComparison {
    /// Answers must have the same structure; texts, numbers and lengths can differ.
    #[default]
    Shape,
    Exact,
}

/// The servers that a server depends on, and its group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerTies {
    /// Servers that have to be ready before it starts.
    pub depends_on: Vec<ServerName>,
    pub group: Option<Arc<GroupPolicy>>,
    /// Place in the file, which orders its group; 0 without dependencies.
    pub place: usize,
}

impl ServerTies {
    pub fn is_dependent(&self) -> bool {
        self.group.is_some() || !self.depends_on.is_empty()
    }
}

impl ServerSettings {
    /// Proxy for requests to the server. An invalid one is ignored here; the connection fails and
    /// reports it.
    pub fn proxy(&self) -> Option<Proxy> {
        match &self.transport {
            TransportSettings::Stdio(_) => None,
            TransportSettings::Http(http) => http.proxy.for_url(&http.url).ok().flatten(),
        }
    }

    /// A hash that stays the same while the configuration describes the same server, as a key for
    /// stored data. No potential secret is part of it, not even hashed: no values of arguments,
    /// variables or headers, and no query.
    pub fn identity(&self) -> String {
        let parts: Vec<String> = match &self.transport {
            TransportSettings::Stdio(stdio) => {
                let cwd = stdio.cwd.iter().map(|cwd| cwd.display().to_string());
                let head = ["stdio", &stdio.command, &stdio.args.len().to_string()];
                let head = head.map(str::to_owned).into_iter();
                head.chain(stdio.env.keys().cloned()).chain(cwd).collect()
            }
            TransportSettings::Http(http) => {
                let host = http.url.host_str().unwrap_or_default();
                let port = http.url.port_or_known_default().unwrap_or_default();
                let place = format!("{}://{host}:{port}", http.url.scheme());
                let head = ["http".to_owned(), place, http.url.path().to_owned()];
                let headers = http.headers.iter().map(|(name, _)| name.clone());
                head.into_iter().chain(headers).collect()
            }
        };
        let mut hash = Context::new(&SHA256);
        for part in parts {
            hash.update(&part.len().to_le_bytes());
            hash.update(part.as_bytes());
        }
        let mut text = String::new();
        for byte in hash.finish().as_ref() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Distinguishes the server from others that have the same name before or after it, by its
    /// program with arguments and directory, or by its URL. Variables and headers can change.
    pub fn declaration(&self) -> Digest {
        match &self.transport {
            TransportSettings::Stdio(stdio) => {
                let cwd = stdio.cwd.iter().map(|cwd| cwd.to_string_lossy());
                let cwd = cwd.collect::<Vec<_>>().concat();
                let head = ["stdio", &stdio.command, &cwd].into_iter();
                let args = stdio.args.iter().map(ExposeSecret::expose_secret);
                Digest::of_declaration(&head.chain(args).collect::<Vec<_>>())
            }
            TransportSettings::Http(http) => Digest::of_declaration(&["http", http.url.as_str()]),
        }
    }

    /// Whether a program with these settings runs as it does with `other`. Connections to a URL are
    /// cheap to replace, and are not compared.
    pub(crate) fn runs_alike(&self, other: &Self) -> bool {
        let (TransportSettings::Stdio(one), TransportSettings::Stdio(two)) =
            (&self.transport, &other.transport)
        else {
            return false;
        };
        let env = |stdio: &StdioSettings| -> Vec<(String, String)> {
            let env = stdio.env.iter();
            env.map(|(name, value)| (name.clone(), value.expose_secret().to_owned()))
                .collect()
        };
        self.declaration() == other.declaration()
            && env(one) == env(two)
            && one.inherit_env == two.inherit_env
            && one.limits == two.limits
            && self.sharing == other.sharing
            && self.era == other.era
            && self.credentials == other.credentials
            && self.faults == other.faults
    }

    /// These settings, for connections that were opened with the settings `opened`.
    pub(crate) fn over(self, opened: &Self) -> Self {
        Self {
            transport: opened.transport.clone(),
            sharing: opened.sharing,
            era: opened.era,
            credentials: opened.credentials,
            faults: opened.faults.clone(),
            ..self
        }
    }

    /// Checks that the caller's credentials hold every claim that the server reads from headers.
    ///
    /// # Errors
    ///
    /// Returns the failure for the client; it contains no claim value.
    pub(crate) fn check_user(&self, said: Option<&ClientHeaders>) -> Result<(), Failure> {
        let TransportSettings::Http(http) = &self.transport else {
            return Ok(());
        };
        let is_said = |claim: &UserClaim| said.is_some_and(|said| claim.of(said.user()).is_some());
        let missing = http.user_headers.iter().find(|(_, claim)| !is_said(claim));
        let Some((header, claim)) = missing else {
            return Ok(());
        };
        let name = self.name.as_str();
        let message = format!(
            "server `{name}` requires each client's `{claim}` in the header `{header}`, but the \
             credentials of this client lack it, or it does not fit into a header; the call was \
             not sent"
        );
        Err(Failure::new(ErrorKind::PolicyDenied, message).server(name))
    }

    /// Whether calls use tokens exchanged for the clients' own tokens.
    pub fn exchanges_tokens(&self) -> bool {
        match &self.transport {
            TransportSettings::Http(http) => http.oauth.grant.exchanges(),
            TransportSettings::Stdio(_) => false,
        }
    }

    /// The credentials with which the server is called for this caller.
    pub(crate) fn credentials_of(&self, caller: &Caller) -> CredentialContext {
        match self.credentials {
            CredentialsChoice::Shared => CredentialContext::Shared,
            CredentialsChoice::User if self.exchanges_tokens() => {
                CredentialContext::Exchanged(subject(&caller.principal, &caller.scopes))
            }
            CredentialsChoice::User => CredentialContext::User(caller.principal.clone()),
        }
    }

    /// Limit of clients' own connections to this server.
    pub(crate) fn entries_max(&self) -> usize {
        let of_transport = match &self.transport {
            TransportSettings::Http(_) => SESSIONS_MAX,
            TransportSettings::Stdio(_) => PROCESSES_MAX,
        };
        self.limits.entries_max.unwrap_or(of_transport)
    }

    /// Whether the shared connection can restart on purpose, so that calls wait for its start.
    pub fn can_restart(&self) -> bool {
        self.can_idle() || self.limits.recycle.is_some()
    }

    /// Whether the shared connection can be stopped as unused.
    pub fn can_idle(&self) -> bool {
        self.start == StartMode::Lazy || !self.limits.idle_stop.is_zero()
    }
}

/// Era in which the gateway speaks to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EraChoice {
    /// The newest era that the server supports, detected once.
    #[default]
    Auto,
    Legacy,
    Modern,
}

/// When a server is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StartMode {
    /// When the gateway starts.
    #[default]
    Eager,
    /// On the first call; before that only to read its lists, if they are not known.
    Lazy,
}

#[derive(Clone, Debug)]
pub enum TransportSettings {
    Stdio(StdioSettings),
    Http(HttpSettings),
}

impl TransportSettings {
    /// Secrets in the server's settings.
    pub fn secrets(&self) -> Vec<String> {
        match self {
            Self::Stdio(stdio) => stdio.secrets(),
            Self::Http(http) => http.secrets(),
        }
    }

    /// The same as of the connector that the transport gets.
    pub(crate) fn knows_call_of_requests(&self) -> bool {
        matches!(self, Self::Http(http) if http.kind != HttpKind::Sse)
    }
}

/// Which clients share a connection to this server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// One process for all clients of a program, unless it turns out to need more; at a server
    /// behind a URL, each client's own session.
    #[default]
    Auto,
    /// One connection for all clients; questions never reach a client.
    Shared,
    /// One connection for each principal.
    Principal,
    /// One connection for each session.
    Session,
}

/// Choice of the credentials with which a server is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CredentialsChoice {
    /// The gateway's credentials, for all callers.
    #[default]
    Shared,
    /// The credentials that each user provided.
    User,
}

/// Deadlines and limits of one server's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Idle deadline of a call; progress restarts it.
    pub request_timeout: Duration,
    /// Maximum duration of a call, regardless of progress.
    pub request_timeout_max: Duration,
    /// How long a call waits for a server that is restarting; zero fails it at once.
    pub queue_while_restarting: Duration,
    /// Exit codes of its program after which it is not started again until something changes.
    pub stop_on_exit: Vec<i32>,
    /// Exit codes with which its program asks for a restart, which is no failure.
    pub restart_on_exit: Vec<i32>,
    /// Maximum calls in flight at this server, over all its connections.
    pub calls_max: usize,
    /// Maximum items of one list; further items are dropped with a warning.
    pub list_items_max: usize,
    /// Maximum pages fetched of one list.
    pub list_pages_max: usize,
    /// Time between two full refreshes of the lists.
    pub refresh_every: Duration,
    /// Time within which `list_changed` notifications are combined into one refresh.
    pub refresh_debounce: Duration,
    /// Interval of pings on an idle connection; zero disables them.
    pub ping_every: Duration,
    /// Time for the answer to a ping, after which the connection counts as dead.
    pub ping_timeout: Duration,
    /// Planned restarts of the shared connection.
    pub recycle: Option<RecycleSettings>,
    /// The probe of the shared connection, besides pings.
    pub probe: Option<ProbeSettings>,
    /// How long a cancelled, unanswered call is assumed to keep the server busy.
    pub cancelled_timeout: Duration,
    /// Time for a program to start, until it first reads or writes.
    pub start_timeout: Duration,
    /// Time to answer the era probe, before the server gets a handshake as well.
    pub era_probe_timeout: Duration,
    /// Time for the user to sign in when a program asks for it.
    pub sign_in_timeout: Duration,
    /// How long the detected era is remembered.
    pub era_remembered: Duration,
    /// Limit of clients' own connections to this server; `None` is the transport's default.
    pub entries_max: Option<usize>,
    /// Idle time after which a client's own connection is closed.
    pub entry_idle: Duration,
    /// Idle time after which the shared connection is stopped; zero disables it.
    pub idle_stop: Duration,
    /// Maximum bytes of progress and log lines of calls that wait for their callers' threads.
    pub undelivered_max: usize,
    /// Maximum lines kept of the server's stderr and stray output.
    pub log_lines: usize,
    /// Whether log lines that belong to no call go to all clients of a shared connection.
    pub share_logs: bool,
    pub results: ResultSettings,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(60),
            request_timeout_max: Duration::from_secs(10 * 60),
            queue_while_restarting: Duration::ZERO,
            stop_on_exit: Vec::new(),
            restart_on_exit: Vec::new(),
            calls_max: 1024,
            list_items_max: 10_000,
            list_pages_max: 1000,
            refresh_every: Duration::from_secs(5 * 60),
            refresh_debounce: Duration::from_millis(100),
            ping_every: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(10),
            recycle: None,
            probe: None,
            cancelled_timeout: Duration::from_secs(10),
            start_timeout: Duration::from_secs(2 * 60),
            era_probe_timeout: Duration::from_secs(5),
            sign_in_timeout: Duration::from_secs(10 * 60),
            era_remembered: Duration::from_secs(24 * 3600),
            entries_max: None,
            entry_idle: Duration::from_secs(5 * 60),
            idle_stop: Duration::ZERO,
            undelivered_max: 16 << 20,
            log_lines: 200,
            share_logs: false,
            results: ResultSettings::default(),
        }
    }
}
