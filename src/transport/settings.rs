//! Settings of a server's transport, including its limits.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::proxy::{Proxy, ProxyChoice};
use super::tls::TlsFiles;
use crate::bridge::headers::UserClaim;
use crate::credentials::{Credential, OAuthSettings};
use crate::masking::{
    public_url, secrets_in_arguments, secrets_in_header, secrets_in_url, secrets_named,
};
use crate::sandbox::SandboxSettings;

/// A child process that communicates over its standard input and output.
#[derive(Clone, Debug)]
pub struct StdioSettings {
    pub command: String,
    pub args: Vec<SecretString>,
    /// Variables added to the child's environment.
    pub env: BTreeMap<String, SecretString>,
    pub inherit_env: InheritEnv,
    pub cwd: Option<PathBuf>,
    /// Longest line read from the child, in bytes.
    pub line_max: usize,
    /// Maximum frames that wait for the child to read them; more are refused.
    pub write_queue_max: usize,
    /// Duration of each step of stopping: after closing stdin, and after SIGTERM.
    pub stop_grace: Duration,
    pub limits: ChildLimits,
    pub sandbox: SandboxSettings,
}

/// Which variables of the gateway's environment a child inherits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InheritEnv {
    /// [`PASSED_VARIABLES`](crate::transport::PASSED_VARIABLES), and variables whose names match
    /// one of these globs.
    Matching(Vec<String>),
    All,
}

impl Default for InheritEnv {
    fn default() -> Self {
        Self::Matching(Vec::new())
    }
}

/// Limits that the system enforces on each process of a child; `None` sets no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChildLimits {
    /// Private writable memory, in bytes (`RLIMIT_DATA`). Memory that is only reserved, as by V8 or
    /// Go, does not count.
    pub memory_max: Option<u64>,
    /// CPU time of the process in total, rounded up to whole seconds.
    pub cpu_max: Option<Duration>,
    /// Open files, sockets and pipes at the same time.
    pub open_files_max: Option<u64>,
    pub tree: TreeLimits,
}

/// Limits of a child with all processes that it starts, enforced by a control group; `None` sets no
/// limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TreeLimits {
    /// Memory, in bytes. Beyond it, the kernel kills all processes of the tree.
    pub memory: Option<u64>,
    /// Share of the machine's CPU time, in cores.
    pub cpu: Option<f64>,
    /// Processes and threads; more cannot be started.
    pub pids: Option<u64>,
}

/// Transport of a server behind a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpKind {
    /// Streamable HTTP, or HTTP+SSE if the server refuses it.
    #[default]
    Auto,
    Streamable,
    /// HTTP+SSE of revision 2024-11-05.
    Sse,
}

/// A client's header that is forwarded to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedHeader {
    /// Name in the client's request, in lower case.
    pub from: String,
    /// Name in the request to the server.
    pub to: String,
}

/// Settings of a server behind a URL.
#[derive(Clone)]
pub struct HttpSettings {
    pub url: Url,
    pub kind: HttpKind,
    /// Headers of every request.
    pub headers: Vec<(String, SecretString)>,
    /// Clients' headers that are forwarded with the requests of their calls.
    pub forward_headers: Vec<ForwardedHeader>,
    /// Headers that identify the caller, sent with the requests of a call; a call without them is
    /// refused.
    pub user_headers: Vec<(String, UserClaim)>,
    /// How the gateway signs in if the server requires a token.
    pub oauth: Box<OAuthSettings>,
    /// The server's token; `None` if `headers` or `forward_headers` authenticate the requests.
    pub credential: Option<Arc<Credential>>,
    /// Proxy for requests to the server and for its tokens.
    pub proxy: ProxyChoice,
    /// Certificates and a key in addition to the gateway's roots.
    pub tls_files: TlsFiles,
    /// Time to connect, including TLS.
    pub connect_timeout: Duration,
    /// Largest JSON answer, in bytes.
    pub body_max: usize,
    /// Largest SSE event, in bytes.
    pub event_max: usize,
    /// Silence after which a stream counts as broken.
    pub stream_idle_timeout: Duration,
    /// Maximum connections of one arbiter to this server.
    pub connections_max: usize,
}

impl StdioSettings {
    /// Secrets in the variables and arguments.
    pub fn secrets(&self) -> Vec<String> {
        let named = self.env.iter();
        let named = named.flat_map(|(name, value)| secrets_named(name, value.expose_secret()));
        let arguments = self.args.iter().map(|argument| argument.expose_secret());
        named.chain(secrets_in_arguments(arguments)).collect()
    }
}

impl HttpSettings {
    /// Secrets in the headers, the URL, the proxy and the OAuth client.
    pub fn secrets(&self) -> Vec<String> {
        let proxy = match &self.proxy {
            ProxyChoice::Through(proxy) => Some(proxy),
            ProxyChoice::Environment | ProxyChoice::Direct => None,
        };
        let proxy = proxy.into_iter().flat_map(Proxy::secrets);
        let named = self.headers.iter();
        let named = named.flat_map(|(name, value)| secrets_in_header(name, value.expose_secret()));
        let idp = self.oauth.idp.iter();
        let idp = idp.filter_map(|idp| idp.client_secret.as_ref());
        let client = self.oauth.client_secret.iter().chain(idp);
        let client = client.map(|secret| secret.expose_secret().to_owned());
        named
            .chain(secrets_in_url(&self.url))
            .chain(client)
            .chain(proxy.map(str::to_owned))
            .collect()
    }

    /// Whether `Authorization` is configured, in which case the gateway gets no token.
    pub fn has_authorization(&self) -> bool {
        let own = self.headers.iter().map(|(name, _)| name);
        let forwarded = self.forward_headers.iter().map(|header| &header.to);
        own.chain(forwarded)
            .any(|name| name.eq_ignore_ascii_case("authorization"))
    }
}

/// Implemented manually, because the URL can contain a secret.
impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings")
            .field("url", &public_url(&self.url))
            .finish_non_exhaustive()
    }
}
