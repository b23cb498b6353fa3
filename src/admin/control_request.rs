//! Requests of operators over the control socket.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalog::PinKind;
use crate::id::ViewId;

/// The parameters of a page, by name.
pub type Parameters = BTreeMap<String, String>;

/// A request over the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum ControlRequest {
    Status,
    /// The tools that clients of a view see.
    Tools {
        view: ViewId,
    },
    /// After the answer, messages of an MCP client of this view and to it, a line each.
    Client {
        view: ViewId,
    },
    /// The configuration file is read again; the answer says how it went.
    ReadConfig,
    /// A fresh connection to a server, now.
    Restart {
        server: String,
    },
    /// A server out of service.
    Stop {
        server: String,
    },
    /// A server in service again.
    Start {
        server: String,
    },
    /// The processes of a server are killed.
    Kill {
        server: String,
    },
    /// No calls to a server, or to a tool of it, until a reset.
    Trip {
        server: String,
        tool: Option<String>,
    },
    /// Calls again; without a tool to the server and all its tools.
    Reset {
        server: String,
        tool: Option<String>,
    },
    /// The kept lines of a server: those after the line of this number, the last ones of them.
    Logs {
        server: String,
        #[serde(default)]
        after: u64,
        #[serde(default)]
        last: Option<usize>,
    },
    /// The crash reports of a server, or of all.
    Crashes {
        server: Option<String>,
    },
    /// The token of the API, a new one if it is to be replaced.
    Token {
        rotate: bool,
    },
    /// A link to the dashboard that signs in.
    LoginLink,
    /// A page of calls: the parameters of [`crate::history::HistoryQuery::from_pairs`].
    History {
        parameters: Parameters,
    },
    /// A call, made again.
    Replay {
        id: String,
    },
    /// The logins at servers.
    Logins,
    /// A login at a server, or the end of one.
    Login {
        server: String,
        /// Of this user, not of the gateway.
        #[serde(default)]
        principal: Option<String>,
        order: LoginOrder,
    },
    /// The address that a browser was sent back to at the end of a login, or its query.
    FinishLogin {
        answer: String,
    },
    /// The pins of all servers.
    Pins,
    /// One pin, with its definitions. `tool` is the name of the item, of whatever kind.
    Pin {
        server: String,
        #[serde(default)]
        kind: PinKind,
        tool: String,
    },
    ApprovePins(PinApproval),
    /// A page of the log: the parameters of [`crate::telemetry::LogQuery::from_pairs`].
    GatewayLog {
        parameters: Parameters,
    },
}

/// Approves what is listed under a name, or everything that a server lists; with a digest only that
/// definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinApproval {
    pub server: String,
    #[serde(default)]
    pub kind: PinKind,
    /// The name of the item, of whatever kind.
    pub tool: Option<String>,
    pub digest: Option<String>,
}

/// Where an operator begins a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoginOrigin {
    Api,
    CommandLine,
    Dashboard,
}

/// An order about the login at a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoginOrder {
    /// Answers with the page to open. The browser comes back to `redirect_uri`, which is on this
    /// machine, or to the gateway.
    Begin {
        redirect_uri: Option<String>,
        origin: LoginOrigin,
    },
    /// Answers when somebody signed in, in Unix seconds.
    SignedInAt,
    /// Renews the token now.
    Refresh,
    /// Forgets the token, and revokes it.
    Forget,
}
