//! The labels of a measured duration.

use std::hash::{Hash, Hasher};

use super::histogram::{Bounds, OPERATION_BOUNDS, OVERHEAD_BOUNDS};
use crate::protocol::{ErrorKind, Failure, Method, MethodName, RawJson, Revision, code};

/// The kind of a measured duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A client request, from its arrival to its response.
    ServerOperation,
    /// A request to a server, from being written until its response.
    ClientOperation,
    /// A session of a client.
    ServerSession,
    /// A connection to a server, from the end of its handshake.
    ClientSession,
    /// The part of a client request's duration that its server did not take.
    Overhead,
}

impl Measure {
    pub(super) const fn bounds(self) -> &'static Bounds {
        match self {
            Self::Overhead => &OVERHEAD_BOUNDS,
            Self::ServerOperation
            | Self::ClientOperation
            | Self::ServerSession
            | Self::ClientSession => &OPERATION_BOUNDS,
        }
    }
}

/// A duration's labels; `N` is the representation of names. All labels have few values, except for
/// the names of servers, tools and prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series<N> {
    pub measure: Measure,
    pub method: Option<MethodLabel>,
    pub server: N,
    /// The public name of the tool or prompt.
    pub item: N,
    pub error: Option<ErrorType>,
    pub revision: Option<Revision>,
    pub network: Option<Network>,
}

/// Hashes only the most distinctive labels: hashing all of them would take longer than comparing
/// the few series that collide.
impl<N: Hash> Hash for Series<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.server.hash(state);
        self.item.hash(state);
        let method = self.method.map_or(0, MethodLabel::number);
        let revision = self.revision.map_or(0, |revision| revision as usize);
        let numbers = [
            self.measure as usize,
            method,
            revision,
            usize::from(self.error.is_some()),
        ];
        state.write_usize(numbers.iter().fold(0, |all, number| all << 8 | number));
    }
}

/// Label for values without a separate series: a name above the limits, or a method or code unknown
/// to the protocol. No server can have this name.
pub const OTHER: &str = "_other";

impl<N: Default> Series<N> {
    pub fn of(measure: Measure) -> Self {
        Self {
            measure,
            method: None,
            server: N::default(),
            item: N::default(),
            error: None,
            revision: None,
            network: None,
        }
    }

    /// The series for everything above the limits: only the measure is kept.
    pub(super) fn overflow(&self, other: N) -> Self {
        Self {
            method: Some(MethodLabel::Other),
            server: other,
            ..Self::of(self.measure)
        }
    }
}

impl<N> Series<N> {
    pub(super) fn with_names<M>(self, mut name: impl FnMut(N) -> M) -> Series<M> {
        Series {
            measure: self.measure,
            method: self.method,
            server: name(self.server),
            item: name(self.item),
            error: self.error,
            revision: self.revision,
            network: self.network,
        }
    }
}

/// A method as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodLabel {
    Known(MethodName),
    Other,
}

impl MethodLabel {
    pub fn of(method: &Method) -> Self {
        method.name().map_or(Self::Other, Self::Known)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Known(name) => name.as_str(),
            Self::Other => OTHER,
        }
    }

    fn number(self) -> usize {
        match self {
            Self::Known(name) => name as usize,
            Self::Other => usize::from(u8::MAX),
        }
    }
}

/// The network protocol below a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Pipe,
    Tcp,
}

impl Network {
    /// The network protocol of clients: metrics exist only with HTTP.
    pub const OF_CLIENTS: Self = Self::Tcp;

    /// The network protocol below a transport to servers.
    pub fn of(transport: &str) -> Option<Self> {
        match transport {
            "stdio" => Some(Self::Pipe),
            "http" | "sse" => Some(Self::Tcp),
            _ => None,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Tcp => "tcp",
        }
    }
}

/// How an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorType {
    /// A result with `isError` from a server.
    ToolError,
    /// A JSON-RPC error from a server; `None` for a code unknown to the protocol.
    Rpc(Option<i64>),
    /// A failure of the gateway, and whether the response was a JSON-RPC error.
    Failure(ErrorKind, IsRpc),
}

type IsRpc = bool;

/// Codes with separate labels: servers can invent any number of others.
const CODES: [i64; 12] = [
    code::PARSE_ERROR,
    code::INVALID_REQUEST,
    code::METHOD_NOT_FOUND,
    code::INVALID_PARAMS,
    code::INTERNAL_ERROR,
    code::SESSION,
    code::UNAUTHORIZED,
    code::RESOURCE_NOT_FOUND,
    code::HEADER_MISMATCH,
    code::MISSING_CAPABILITY,
    code::UNSUPPORTED_VERSION,
    code::URL_ELICITATION_REQUIRED,
];

impl ErrorType {
    /// The error type of a server's error object.
    pub fn of_error(error: &RawJson) -> Self {
        let code = error.member("code");
        let code = code.and_then(|code| code.as_str().parse().ok());
        Self::Rpc(code.filter(|code| CODES.contains(code)))
    }

    /// The error type of the gateway's own failure of a request of this method.
    pub fn of_failure(failure: &Failure, method: &Method) -> Self {
        let is_answered = failure.kind != ErrorKind::Cancelled;
        let is_rpc = is_answered && !failure.is_for_model(method);
        Self::Failure(failure.exact_kind(), is_rpc)
    }

    /// Value of `error.type`.
    pub fn label(self) -> String {
        match self {
            Self::ToolError => "tool_error".to_owned(),
            Self::Rpc(code) => code_label(code),
            Self::Failure(kind, _) => kind.as_str().to_owned(),
        }
    }

    /// Value of `rpc.response.status_code`.
    pub fn status_code(self) -> Option<String> {
        match self {
            Self::ToolError | Self::Failure(_, false) => None,
            Self::Rpc(code) => Some(code_label(code)),
            Self::Failure(kind, true) => Some(kind.rpc_code().to_string()),
        }
    }
}

fn code_label(code: Option<i64>) -> String {
    code.map_or_else(|| OTHER.to_owned(), |code| code.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invented_codes_share_a_label() {
        let table = [
            (json!({"code": -32602}), "-32602"),
            (json!({"code": -32042}), "-32042"),
            (json!({"code": 4711}), OTHER),
            (json!({"code": "-32602"}), OTHER),
            (json!({}), OTHER),
        ];
        for (error, label) in table {
            let found = ErrorType::of_error(&RawJson::from_value(&error));
            assert_eq!(found.label(), label, "{error}");
            assert_eq!(found.status_code().as_deref(), Some(label));
        }
    }

    #[test]
    fn a_failure_has_a_status_code_if_its_response_does() {
        let timeout = Failure::new(ErrorKind::Timeout, "").server("docs");
        let cancelled = Failure::new(ErrorKind::Cancelled, "");
        let table = [
            (&timeout, Method::ToolsCall, "timeout", None),
            (&timeout, Method::PromptsGet, "timeout", Some("-32603")),
            (&cancelled, Method::PromptsGet, "cancelled", None),
        ];
        for (failure, method, label, code) in table {
            let found = ErrorType::of_failure(failure, &method);
            assert_eq!(found.label(), label);
            assert_eq!(found.status_code().as_deref(), code, "{label}");
        }
    }

    #[test]
    fn unknown_methods_share_a_label() {
        let label = |name| MethodLabel::of(&Method::parse(name)).as_str();
        assert_eq!(label("tools/call"), "tools/call");
        assert_eq!(label("vendor/thing"), OTHER);
    }
}
