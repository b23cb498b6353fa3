//! How a downstream server is reached, with the limits of its transport.

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

/// A child process that speaks over its standard input and output.
#[derive(Clone, Debug)]
pub struct StdioSettings {
    pub command: String,
    pub args: Vec<SecretString>,
    /// Added to the environment of the child.
    pub env: BTreeMap<String, SecretString>,
    pub inherit_env: InheritEnv,
    pub cwd: Option<PathBuf>,
    /// Longest line that is read from the child, in bytes.
    pub line_max: usize,
    /// Frames that wait for the child to read them; more are refused.
    pub write_queue_max: usize,
    /// How long each step of stopping may take: after closing stdin, and after SIGTERM.
    pub stop_grace: Duration,
    pub limits: ChildLimits,
}

/// Which variables of the gateway's environment a child gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InheritEnv {
    /// [`PASSED_VARIABLES`](crate::transport::PASSED_VARIABLES), and those whose names match one
    /// of these globs.
    Matching(Vec<String>),
    All,
}

impl Default for InheritEnv {
    fn default() -> Self {
        Self::Matching(Vec::new())
    }
}

/// Limits that the system puts on each process of a child; `None` is no limit of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildLimits {
    /// Private writable memory, in bytes (`RLIMIT_DATA`): what is only reserved, as by V8 or Go,
    /// does not count.
    pub memory_max: Option<u64>,
    /// CPU time from its start to its end, rounded up to whole seconds.
    pub cpu_max: Option<Duration>,
    /// Files, sockets and pipes that are open at the same time.
    pub open_files_max: Option<u64>,
}

/// Which of the two transports a server behind a URL speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpKind {
    /// Streamable HTTP; HTTP+SSE if the server refuses it.
    #[default]
    Auto,
    Streamable,
    /// HTTP+SSE of revision 2024-11-05.
    Sse,
}

/// A header of clients that a server is to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedHeader {
    /// Its name in the client's request, in lower case.
    pub from: String,
    /// Its name in the request to the server.
    pub to: String,
}

/// A server behind a URL.
#[derive(Clone)]
pub struct HttpSettings {
    pub url: Url,
    pub kind: HttpKind,
    /// Sent with every request.
    pub headers: Vec<(String, SecretString)>,
    /// Sent with the requests of a client's call, if the client says them.
    pub forward_headers: Vec<ForwardedHeader>,
    /// Sent with the requests of a client's call, which says whose it is; no call goes without them.
    pub user_headers: Vec<(String, UserClaim)>,
    /// How the gateway signs in, where the server wants a token.
    pub oauth: Box<OAuthSettings>,
    /// The token; `None` where `headers` or `forward_headers` say who asks.
    pub credential: Option<Arc<Credential>>,
    /// The proxy for requests to the server and for its tokens.
    pub proxy: ProxyChoice,
    /// Certificates and a key in addition to the gateway's roots.
    pub tls_files: TlsFiles,
    /// Time to connect, TLS included.
    pub connect_timeout: Duration,
    /// Largest JSON answer, in bytes.
    pub body_max: usize,
    /// Largest SSE event, in bytes.
    pub event_max: usize,
    /// A stream that is silent for longer counts as broken.
    pub stream_idle_timeout: Duration,
    /// Connections of one arbiter to this server.
    pub connections_max: usize,
}

impl StdioSettings {
    /// The secrets in its variables and arguments.
    pub fn secrets(&self) -> Vec<String> {
        let named = self.env.iter();
        let named = named.flat_map(|(name, value)| secrets_named(name, value.expose_secret()));
        let arguments = self.args.iter().map(|argument| argument.expose_secret());
        named.chain(secrets_in_arguments(arguments)).collect()
    }
}

impl HttpSettings {
    /// The secrets in its headers, its URL and its proxy, and the one of its client.
    pub fn secrets(&self) -> Vec<String> {
        let proxy = match &self.proxy {
            ProxyChoice::Through(proxy) => Some(proxy),
            ProxyChoice::Environment | ProxyChoice::Direct => None,
        };
        let proxy = proxy.into_iter().flat_map(Proxy::secrets);
        let named = self.headers.iter();
        let named = named.flat_map(|(name, value)| secrets_in_header(name, value.expose_secret()));
        let client = self.oauth.client_secret.iter();
        let client = client.map(|secret| secret.expose_secret().to_owned());
        named
            .chain(secrets_in_url(&self.url))
            .chain(client)
            .chain(proxy.map(str::to_owned))
            .collect()
    }

    /// Whether `Authorization` is configured, so that the gateway gets no token of its own.
    pub fn has_authorization(&self) -> bool {
        let own = self.headers.iter().map(|(name, _)| name);
        let forwarded = self.forward_headers.iter().map(|header| &header.to);
        own.chain(forwarded)
            .any(|name| name.eq_ignore_ascii_case("authorization"))
    }
}

/// By hand, because the URL may hold a secret.
impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings")
            .field("url", &public_url(&self.url))
            .finish_non_exhaustive()
    }
}
