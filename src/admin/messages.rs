//! Request and response bodies of the operator API, shared by the gateway and the command line. The
//! gateway's own state is in [`super::status`].

use actix_web::http::header::HeaderName;
use serde::{Deserialize, Serialize};

use super::key_uses::KeyView;
use super::notices::Notice;
use super::status::{ServerStatus, ToolView};
use crate::credentials::CredentialView;
use crate::publisher::PinView;
use crate::sessions::SessionView;
use crate::telemetry::LogLine;

/// Header of every response that carries the gateway's version.
pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("mcpvisor-version");

/// Version of this program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Header that selects the view for an MCP client over the socket.
pub(super) const VIEW_HEADER: HeaderName = HeaderName::from_static("mcpvisor-view");

/// The place of a part of a list.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PagePosition {
    /// Entries in the whole list.
    pub(super) total: usize,
    /// Maximum entries in this part.
    pub(super) limit: usize,
    /// Entries before this part.
    pub(super) offset: usize,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Servers {
    pub(super) servers: Vec<ServerStatus>,
    #[serde(flatten)]
    pub(super) page: PagePosition,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Notices {
    pub(super) notices: Vec<Notice>,
}

/// The outcome of an order, and the server after it.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Ordered {
    pub(super) message: String,
    pub(super) server: ServerStatus,
}

/// The next steps of a server, with their reasons.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Explanation {
    pub(super) sentences: Vec<String>,
}

/// Tool that the order applies to; if absent, it applies to the whole server.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ToolOfServer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool: Option<String>,
}

/// The version that a server is upgraded to; if absent, the newest one.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WantedVersion {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
}

/// The last lines of a server, the oldest first.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ServerLogs {
    pub(super) entries: Vec<LogLine>,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Tools {
    pub(super) tools: Vec<ToolView>,
    pub(super) servers: Vec<ToolsOfServer>,
    /// Approximate tokens that the whole list costs a model.
    pub(super) tokens: usize,
    #[serde(flatten)]
    pub(super) page: PagePosition,
}

/// Token cost of one server's tools.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ToolsOfServer {
    pub(super) name: String,
    pub(super) tools: usize,
    pub(super) tokens: usize,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pins {
    pub(super) pins: Vec<PinView>,
    #[serde(flatten)]
    pub(super) page: PagePosition,
}

/// Digest of the approved definition; if absent, whatever is listed now is approved.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ApprovedDefinition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<String>,
}

/// Names that had something approved.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Approved {
    pub(super) approved: Vec<String>,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sessions {
    pub(super) sessions: Vec<SessionView>,
    #[serde(flatten)]
    pub(super) page: PagePosition,
}

/// The API keys, without their hashes.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Keys {
    pub(super) keys: Vec<KeyView>,
}

/// Minimum level at which the gateway logs.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogLevel {
    #[cfg_attr(test, schemars(extend("enum" = ["error", "warn", "info", "debug", "trace"])))]
    pub(super) level: String,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Logins {
    pub(super) logins: Vec<CredentialView>,
}

/// Local address that the browser returns to after a login; by default, the gateway's.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LoginRedirect {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redirect_uri: Option<String>,
}

/// The time of the last login, in seconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SignedIn {
    pub(super) signed_in_at: Option<u64>,
}

/// Whether a login existed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Forgotten {
    pub(super) forgotten: bool,
}

/// Address that the browser was redirected to at the end of a login, or only its query.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PastedAddress {
    pub(super) address: String,
}

/// The token of the API.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Token {
    pub(super) token: String,
}

/// Single-use link that signs in to the dashboard, valid for some minutes.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct DashboardLink {
    pub(super) link: String,
}
