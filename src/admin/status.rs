//! The state of the whole gateway at one moment: what `mcpvisor status` shows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::auth::Effect;
use crate::downstream::{BreakerView, ServerStatusView};
use crate::protocol::RawJson;
use crate::supervision::ChildView;

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    pub version: Cow<'static, str>,
    pub pid: u32,
    pub uptime_seconds: u64,
    /// When it started, in milliseconds since 1970.
    #[serde(skip)]
    pub started_at: u64,
    pub listen: String,
    pub sessions: usize,
    /// Client connections that can be open at a time; absent where nothing listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients_max: Option<usize>,
    /// Bytes of events that are kept for clients that come back.
    #[serde(skip)]
    pub event_bytes: usize,
    /// Bytes of large answers on their way to clients: now, and at most so far.
    #[serde(skip)]
    pub answer_bytes: (usize, usize),
    /// Threads that had to be replaced because a child blocked them.
    pub arbiters_replaced: u64,
    /// The actors that keep the servers and the catalog.
    pub actors: Vec<ChildView>,
    pub config: ConfigView,
    /// Absent where plain HTTP is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<CertificateView>,
    /// In config order.
    pub servers: Vec<ServerStatus>,
    /// Conflicts that the merge resolved by itself: renamed, shortened, hidden items.
    pub notices: Vec<String>,
    pub counters: BTreeMap<Cow<'static, str>, u64>,
    /// Why calls are not recorded, though they should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_failure: Option<String>,
    /// Why the state is kept in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_failure: Option<String>,
}

impl Status {
    /// All supervised children in it.
    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut ChildView> {
        let connections = self.servers.iter_mut();
        let connections = connections.filter_map(|server| server.connection.as_mut());
        let of_servers = connections.flat_map(|connection| {
            let own = connection.own.iter_mut().map(|own| &mut own.connection);
            std::iter::once(&mut connection.shared).chain(own)
        });
        self.actors.iter_mut().chain(of_servers)
    }
}

/// The configuration that is in force.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigView {
    /// `None` is the built-in one.
    pub path: Option<String>,
    pub warnings: Vec<String>,
    /// Why the last change of the file was not applied.
    pub refused: Option<String>,
    /// Keys that were changed and need a restart.
    pub needs_restart: Vec<String>,
}

/// The certificate that is served.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateView {
    /// The file.
    pub certificate: String,
    /// Whether clients must have a certificate, too.
    pub requires_client_certificates: bool,
    /// When it ends (RFC 3339), if its file says so in a way that is understood.
    pub not_after: Option<String>,
    /// Whole days until then; below 0 afterwards.
    pub days_left: Option<i64>,
    pub standing: Option<CertificateStanding>,
    /// Why the files, as they are now, are not in use.
    pub refused: Option<String>,
}

/// How the time of a certificate stands to now.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateStanding {
    NotYetValid,
    Valid,
    EndsSoon,
    Expired,
}

/// A tool that clients see.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolView {
    pub name: String,
    pub server: String,
    /// The name that its server gives it.
    pub native_name: String,
    /// Roughly the tokens that its entry in the list costs a model.
    pub tokens: usize,
    /// Its entry as its server wrote it.
    #[serde(skip)]
    pub entry: RawJson,
}

/// Characters of a list to a token, roughly.
const CHARACTERS_PER_TOKEN: usize = 4;

impl ToolView {
    /// The tokens that an entry of so many bytes costs, estimated.
    pub fn tokens_of(bytes: usize) -> usize {
        bytes.div_ceil(CHARACTERS_PER_TOKEN)
    }
}

/// How many tools of a view its clients may use by the policies.
#[derive(Clone, Debug)]
pub struct ViewAccess {
    /// The names of the policies, in order.
    pub policies: Vec<String>,
    /// The effect where no policy holds.
    pub default: Effect,
    /// How many tools a client without a name may use.
    pub unnamed: usize,
    /// How many tools a client with a key of this name may use.
    pub by_key: Vec<(String, usize)>,
    /// Keys that are left out, so that the answer takes a bounded time.
    pub more_keys: usize,
}

/// A limit of a server that is in force.
#[derive(Clone, Debug)]
pub struct LimitView {
    /// Its heading.
    pub about: &'static str,
    /// As in the configuration.
    pub key: String,
    pub value: String,
    /// The built-in value.
    pub default: String,
}

/// One configured server.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// By which the API knows it; its name, unless the configuration says otherwise.
    pub id: String,
    pub name: String,
    /// A phase of supervision, `disabled` or `misconfigured`.
    pub state: String,
    /// Why it is misconfigured, or what its start waits for.
    pub reason: Option<String>,
    /// Absent while the server has no connection by intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<ServerStatusView>,
    /// Items that clients see, by kind.
    pub items: BTreeMap<Cow<'static, str>, usize>,
    /// Tools that are withheld until somebody approves their definition.
    pub suspended: usize,
    /// How old the oldest of the lists is that clients see, in seconds.
    #[serde(skip)]
    pub lists_age: Option<u64>,
    /// When the token expires with which the gateway is signed in there, in seconds since 1970.
    #[serde(skip)]
    pub token_expires_at: Option<u64>,
}

impl ServerStatus {
    /// The connection that all clients share, if the server has one.
    pub(super) fn shared(&self) -> Option<&ChildView> {
        self.connection
            .as_ref()
            .map(|connection| &connection.shared)
    }

    /// Clients see so many of its items of this kind.
    pub(super) fn item_count(&self, kind: &str) -> usize {
        self.items.get(kind).copied().unwrap_or_default()
    }

    /// The breakers of the server and its tools that do not let all calls through.
    pub(super) fn open_breakers(&self) -> impl Iterator<Item = &BreakerView> {
        let connections = self.connection.iter();
        connections.flat_map(ServerStatusView::open_breakers)
    }
}
