//! The state of the whole gateway at one moment: what `mcpvisor status` shows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::auth::Effect;
use crate::cluster::ClusterStatus;
use crate::downstream::{BreakerView, GroupView, ServerStatusView};
use crate::protocol::RawJson;
use crate::sandbox::{KernelSupport, SandboxSettings, promises};
use crate::supervision::ChildView;

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    pub version: Cow<'static, str>,
    pub pid: u32,
    pub uptime_seconds: u64,
    /// Start time of the gateway, in milliseconds since 1970.
    #[serde(skip)]
    pub started_at: u64,
    pub listen: String,
    pub sessions: usize,
    /// Maximum open client connections; absent if the gateway does not listen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients_max: Option<usize>,
    /// Bytes of events that are kept for clients that reconnect.
    #[serde(skip)]
    pub event_bytes: usize,
    /// Bytes of large answers in transit to clients: now, and the maximum so far.
    #[serde(skip)]
    pub answer_bytes: (usize, usize),
    /// Threads that had to be replaced because a child blocked them.
    pub arbiters_replaced: u64,
    /// Actors that manage the servers and the catalog.
    pub actors: Vec<ChildView>,
    pub config: ConfigView,
    /// Absent when the gateway serves plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<CertificateView>,
    /// Servers in the order of the configuration.
    pub servers: Vec<ServerStatus>,
    /// Groups of servers, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupView>,
    /// Conflicts that the catalog merge resolved automatically: renamed, shortened and hidden
    /// items.
    pub notices: Vec<String>,
    pub counters: BTreeMap<Cow<'static, str>, u64>,
    /// Replicas and the engine; absent if the gateway is no replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// Why calls are not recorded, though they should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_failure: Option<String>,
    /// Why the state is kept in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_failure: Option<String>,
}

impl Status {
    /// All supervised children in the status.
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
    /// Path of the file; absent for the built-in configuration.
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
    /// Path of the certificate file.
    pub certificate: String,
    /// Whether clients must also present a certificate.
    pub requires_client_certificates: bool,
    /// Expiry time (RFC 3339), if it could be read from the file.
    pub not_after: Option<String>,
    /// Whole days until expiry; negative afterwards.
    pub days_left: Option<i64>,
    pub standing: Option<CertificateStanding>,
    /// Why the current files are not in use.
    pub refused: Option<String>,
}

/// Validity of a certificate at the current time.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateStanding {
    NotYetValid,
    Valid,
    EndsSoon,
    Expired,
}

/// A tool visible to clients.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolView {
    pub name: String,
    pub server: String,
    /// Name of the tool on its server.
    pub native_name: String,
    /// Approximate tokens that its list entry costs a model.
    pub tokens: usize,
    /// List entry as the server sent it.
    #[serde(skip)]
    pub entry: RawJson,
}

/// Approximate characters per token.
const CHARACTERS_PER_TOKEN: usize = 4;

impl ToolView {
    /// Estimated tokens of an entry with this many bytes.
    pub fn tokens_of(bytes: usize) -> usize {
        bytes.div_ceil(CHARACTERS_PER_TOKEN)
    }
}

/// How many tools of a view its clients may use under the policies.
#[derive(Clone, Debug)]
pub struct ViewAccess {
    /// Names of the policies, in order.
    pub policies: Vec<String>,
    /// Effect when no policy applies.
    pub default: Effect,
    /// Number of tools available to anonymous clients.
    pub unnamed: usize,
    /// Number of tools available per key name.
    pub by_key: Vec<(String, usize)>,
    /// Number of keys left out to keep the response time bounded.
    pub more_keys: usize,
}

/// An effective limit of a server.
#[derive(Clone, Debug)]
pub struct LimitView {
    /// Heading of the limit.
    pub about: &'static str,
    /// Key as written in the configuration.
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
    /// Id of the server in the API: its name, unless the configuration sets another.
    pub id: String,
    pub name: String,
    /// A phase of supervision, `disabled` or `misconfigured`.
    pub state: String,
    /// Why it is misconfigured, or what its start is waiting for.
    pub reason: Option<String>,
    /// Absent if the server is intentionally not connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<ServerStatusView>,
    /// Sandbox of its program; absent for a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxView>,
    /// Number of items visible to clients, by kind.
    pub items: BTreeMap<Cow<'static, str>, usize>,
    /// Number of tools withheld until an operator approves their definition.
    pub suspended: usize,
    /// Age of the oldest list that clients see, in seconds.
    #[serde(skip)]
    pub lists_age: Option<u64>,
    /// Expiry time of the gateway's token for this server, in seconds since 1970.
    #[serde(skip)]
    pub token_expires_at: Option<u64>,
}

/// The sandbox of a server's program.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxView {
    /// `off`, `standard` or `strict`.
    pub level: String,
    /// Promises that this kernel keeps.
    pub kept: Vec<String>,
    /// Promises that this kernel does not keep.
    pub unkept: Vec<UnkeptPromise>,
}

/// A promise of a sandbox that the kernel does not keep.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnkeptPromise {
    pub promise: String,
    pub why: String,
}

impl SandboxView {
    /// The sandbox of a server on this kernel.
    pub fn of(settings: &SandboxSettings, support: &KernelSupport) -> Self {
        let mut view = Self {
            level: settings.level().as_str().to_owned(),
            ..Self::default()
        };
        for (promise, why) in promises(settings, support) {
            let promise = promise.as_str().to_owned();
            match why {
                None => view.kept.push(promise),
                Some(why) => view.unkept.push(UnkeptPromise { promise, why }),
            }
        }
        view
    }

    /// The promises that are not kept, with the reasons; `None` if all are.
    pub fn unkept_text(&self) -> Option<String> {
        let unkept = self.unkept.iter();
        let unkept: Vec<String> = unkept
            .map(|UnkeptPromise { promise, why }| format!("{promise} ({why})"))
            .collect();
        (!unkept.is_empty()).then(|| unkept.join(", "))
    }
}

impl ServerStatus {
    /// The connection shared by all clients, if the server has one.
    pub(super) fn shared(&self) -> Option<&ChildView> {
        self.connection
            .as_ref()
            .map(|connection| &connection.shared)
    }

    /// Number of items of this kind that clients see.
    pub(super) fn item_count(&self, kind: &str) -> usize {
        self.items.get(kind).copied().unwrap_or_default()
    }

    /// Breakers of the server and its tools that are not closed.
    pub(super) fn open_breakers(&self) -> impl Iterator<Item = &BreakerView> {
        let connections = self.connection.iter();
        connections.flat_map(ServerStatusView::open_breakers)
    }
}
