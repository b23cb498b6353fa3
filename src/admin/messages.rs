//! The bodies and answers of the API of operators, as the gateway and the command line read and
//! write them. The state of the gateway itself is in [`super::status`].

use actix_web::http::header::HeaderName;
use serde::{Deserialize, Serialize};

use super::key_uses::KeyView;
use super::status::{ServerStatus, ToolView};
use crate::credentials::CredentialView;
use crate::publisher::PinView;
use crate::telemetry::LogLine;

/// The version of the gateway, which stands in each answer.
pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("mcpvisor-version");

/// The version of this program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The view that an MCP client over the socket is to see.
pub(super) const VIEW_HEADER: HeaderName = HeaderName::from_static("mcpvisor-view");

/// The place of a part of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Entries of the whole list.
    pub total: usize,
    /// Entries of this part at most.
    pub limit: usize,
    /// Entries before this part.
    pub offset: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Servers {
    pub servers: Vec<ServerStatus>,
    #[serde(flatten)]
    pub page: Page,
}

/// The outcome of an order, and the server after it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ordered {
    pub message: String,
    pub server: ServerStatus,
}

/// The tool that an order is about; without one, it is about the whole server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolOfServer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// The last lines of a server, the oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerLogs {
    pub entries: Vec<LogLine>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tools {
    pub tools: Vec<ToolView>,
    pub servers: Vec<ToolsOfServer>,
    /// Roughly the tokens that the whole list costs a model.
    pub tokens: usize,
    #[serde(flatten)]
    pub page: Page,
}

/// What the tools of one server cost a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolsOfServer {
    pub name: String,
    pub tools: usize,
    pub tokens: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pins {
    pub pins: Vec<PinView>,
    #[serde(flatten)]
    pub page: Page,
}

/// The definition that is approved; without its digest, whatever is listed now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovedDefinition {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The names of which something was approved.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Approved {
    pub approved: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sessions<T> {
    pub sessions: Vec<T>,
    #[serde(flatten)]
    pub page: Page,
}

/// The API keys, without their hashes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Keys {
    pub keys: Vec<KeyView>,
}

/// The level from which on the gateway logs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    pub level: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Logins {
    pub logins: Vec<CredentialView>,
}

/// Where the browser comes back to after a login, on this machine; to the gateway without it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoginRedirect {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
}

/// When somebody signed in last, in seconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignedIn {
    pub signed_in_at: Option<u64>,
}

/// Whether there was a login that could be ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Forgotten {
    pub forgotten: bool,
}

/// The address that a browser was sent back to at the end of a login, or its query.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PastedAddress {
    pub address: String,
}

/// The token of the API.
#[derive(Clone, Serialize, Deserialize)]
pub struct Token {
    pub token: String,
}

/// A link to the dashboard that signs in once, within some minutes.
#[derive(Clone, Serialize, Deserialize)]
pub struct DashboardLink {
    pub link: String,
}
