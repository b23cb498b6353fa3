//! The settings of one downstream server.

use std::fmt::Write as _;
use std::time::Duration;

use ring::digest::{Context, SHA256};
use secrecy::ExposeSecret;

use crate::auth::subject;
use crate::bridge::headers::{ClientHeaders, UserClaim};
use crate::bridge::seal::Digest;
use crate::catalog::NameSettings;
use crate::credentials::GrantKind;
use crate::downstream::caller::Caller;
use crate::downstream::resilience::Resilience;
use crate::id::{CredentialContext, ServerName};
use crate::protocol::{ErrorKind, Failure};
use crate::supervision::Settings as SupervisionSettings;
use crate::transport::{
    FaultSettings, HttpKind, HttpSettings, Proxy, RecorderSettings, StdioSettings,
};

/// Maximum connections of their own that clients have to a program, where each is a process, and to a
/// server over HTTP+SSE.
const PROCESSES_MAX: usize = 8;

/// The same for a server over HTTP, where each is a session, which costs a few KiB.
const SESSIONS_MAX: usize = 1000;

/// One enabled, usable server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub name: ServerName,
    pub transport: TransportSettings,
    pub supervision: SupervisionSettings,
    pub era: EraChoice,
    pub start: StartMode,
    pub sharing: Sharing,
    pub credentials: CredentialsChoice,
    /// Roots (`file://` URIs) sent to the server when no client that has roots is calling.
    pub roots: Vec<String>,
    pub names: NameSettings,
    pub limits: ServerLimits,
    pub resilience: Resilience,
    pub recorder: RecorderSettings,
    /// Misbehaviour that somebody wants of its connections.
    pub faults: Option<FaultSettings>,
}

impl ServerSettings {
    /// The proxy for requests to the server; an invalid one fails the connection, which reports it.
    pub fn proxy(&self) -> Option<Proxy> {
        match &self.transport {
            TransportSettings::Stdio(_) => None,
            TransportSettings::Http(http) => http.proxy.for_url(&http.url).ok().flatten(),
        }
    }

    /// A text that is the same as long as it is the same server that is configured, for what is
    /// kept of it. Nothing that may be a secret goes into it, not even hashed: no values of
    /// arguments, variables and headers, and no query.
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

    /// Tells the server from any other that stands under its name before or after it: its program
    /// with arguments and directory, or its URL. Variables and headers may change.
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

    /// Checks that a client says in its credentials what the server reads of whose call it is.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read, which has no value.
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
            "server `{name}` reads `{claim}` of each client in `{header}`, and the credentials of \
             this client do not say it, or not as a header can carry it; the call was not sent"
        );
        Err(Failure::new(ErrorKind::PolicyDenied, message).server(name))
    }

    /// Whether it is called with tokens in exchange for those of clients.
    pub fn exchanges_tokens(&self) -> bool {
        match &self.transport {
            TransportSettings::Http(http) => http.oauth.grant == GrantKind::TokenExchange,
            TransportSettings::Stdio(_) => false,
        }
    }

    /// Whose credentials serve this caller.
    pub(crate) fn credentials_of(&self, caller: &Caller) -> CredentialContext {
        match self.credentials {
            CredentialsChoice::Shared => CredentialContext::Shared,
            CredentialsChoice::User if self.exchanges_tokens() => {
                CredentialContext::Exchanged(subject(&caller.principal, &caller.scopes))
            }
            CredentialsChoice::User => CredentialContext::User(caller.principal.clone()),
        }
    }

    /// Maximum connections of their own that clients have to this server.
    pub(crate) fn entries_max(&self) -> usize {
        let of_transport = match &self.transport {
            TransportSettings::Http(http) if http.kind != HttpKind::Sse => SESSIONS_MAX,
            TransportSettings::Http(_) | TransportSettings::Stdio(_) => PROCESSES_MAX,
        };
        self.limits.entries_max.unwrap_or(of_transport)
    }

    /// Whether its connection may be closed because nobody uses it.
    pub fn may_rest(&self) -> bool {
        self.start == StartMode::Lazy || !self.limits.idle_stop.is_zero()
    }
}

/// Which era a server is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EraChoice {
    /// The newest that it knows, which it is asked once.
    #[default]
    Auto,
    Legacy,
    Modern,
}

/// When a server is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StartMode {
    /// With the gateway.
    #[default]
    Eager,
    /// With the first call; before that only to read its lists, if they are not known.
    Lazy,
}

#[derive(Clone, Debug)]
pub enum TransportSettings {
    Stdio(StdioSettings),
    Http(HttpSettings),
}

impl TransportSettings {
    /// The secrets of the server.
    pub fn secrets(&self) -> Vec<String> {
        match self {
            Self::Stdio(stdio) => stdio.secrets(),
            Self::Http(http) => http.secrets(),
        }
    }
}

/// Which clients share a connection to this server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// One for all clients that cannot be asked anything; clients that can share it where the
    /// transport tells whose call a question belongs to, and get their own elsewhere.
    #[default]
    Auto,
    /// One for all; a client that could be asked is not asked.
    Shared,
    /// One for each principal.
    Principal,
    /// One for each session.
    Session,
}

/// Whose credentials a server is called with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CredentialsChoice {
    /// Those of the gateway, whoever calls.
    #[default]
    Shared,
    /// Those that each user gave for itself.
    User,
}

/// Deadlines and limits of one server's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Idle deadline of a call: progress starts it anew.
    pub request_timeout: Duration,
    /// Deadline of a call, whatever its progress.
    pub request_timeout_max: Duration,
    /// How long a call waits for a server that is restarting; zero fails at once.
    pub queue_while_restarting: Duration,
    /// Calls in flight at this server, over all its connections.
    pub calls_max: usize,
    /// Items of one list that are taken; more are left out with a warning.
    pub list_items_max: usize,
    /// Pages of one list that are fetched.
    pub list_pages_max: usize,
    /// Time between two full refreshes of the lists.
    pub refresh_every: Duration,
    /// `list_changed` notifications within this time lead to one refresh.
    pub refresh_debounce: Duration,
    /// An idle connection is pinged this often; zero never.
    pub ping_every: Duration,
    /// A ping unanswered for this long is a dead connection.
    pub ping_timeout: Duration,
    /// How long a server may still be at a call that was cancelled and that it does not answer.
    pub cancelled_timeout: Duration,
    /// Time for a program to start: until it reads or writes.
    pub start_timeout: Duration,
    /// From then on it has this long to answer which era it speaks before it gets a handshake.
    pub era_probe_timeout: Duration,
    /// Time for a person to sign in where a program asks for it.
    pub sign_in_timeout: Duration,
    /// How long the answer is remembered.
    pub era_remembered: Duration,
    /// Maximum connections of their own that clients have to this server; `None` is a default of
    /// the transport.
    pub entries_max: Option<usize>,
    /// A connection of its own that is unused for this long is closed.
    pub entry_idle: Duration,
    /// The shared connection is closed when it was not used for this long; zero never.
    pub idle_stop: Duration,
    /// Bytes of progress and log lines of calls that wait for the threads of their callers.
    pub undelivered_max: usize,
    /// Lines kept of the server's stderr and of stray output.
    pub log_lines: usize,
    /// Whether log lines that belong to no call go to all clients of a shared connection.
    pub share_logs: bool,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(60),
            request_timeout_max: Duration::from_secs(10 * 60),
            queue_while_restarting: Duration::ZERO,
            calls_max: 1024,
            list_items_max: 10_000,
            list_pages_max: 1000,
            refresh_every: Duration::from_secs(5 * 60),
            refresh_debounce: Duration::from_millis(100),
            ping_every: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(10),
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
        }
    }
}
