//! All failures of a request, in one table.

use serde_json::{Map, Value, json};

use super::Revision;

use super::Method;
use crate::id::Principal;

/// JSON-RPC error codes. The gateway's own codes lie outside -32768..-32000 (B-RPC-11) except where
/// the protocol defines none.
pub mod code {
    pub const PARSE_ERROR: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL_ERROR: i64 = -32603;
    /// Code that gateways and SDKs use for a session or connection that no longer exists.
    pub const SESSION: i64 = -32000;
    /// The client must authenticate. Used by gateways; the protocol defines no code.
    pub const UNAUTHORIZED: i64 = -32001;
    /// Used only in revisions with a handshake (S-RES-03, S-RES-04, S-RES-05).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The headers differ from the body (2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client does not declare a capability that the request needs (2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The request's revision is not supported here (2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The user has to visit a URL first (2025-11-25 only).
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
    /// The user refused sampling (C-REQ-05).
    pub const USER_REJECTED: i64 = -1;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal, $rpc:expr, $http:literal, $retryable:literal;)*) => {
        /// The kind of a failure. Each kind has a stable text code, a JSON-RPC code, an HTTP status
        /// for responses that consist only of the failure, and a flag for whether a retry can help.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl ErrorKind {
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// Stable text code; also the anchor in `docs/errors.md`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $code,)* }
            }

            pub const fn rpc_code(self) -> i64 {
                match self { $(Self::$kind => $rpc,)* }
            }

            pub const fn http_status(self) -> u16 {
                match self { $(Self::$kind => $http,)* }
            }

            pub const fn retryable(self) -> bool {
                match self { $(Self::$kind => $retryable,)* }
            }
        }
    };
}

impl ErrorKind {
    /// Code used by the API: in capitals; two kinds use the name that clients of MCP Inspector's
    /// API know.
    pub fn api_code(self) -> String {
        match self {
            Self::ServerLost => "TRANSPORT_ERROR".to_owned(),
            Self::ServerProtocol => "PROTOCOL_ERROR".to_owned(),
            other => other.as_str().to_ascii_uppercase(),
        }
    }
}

kinds! {
    /// The body is not JSON.
    ParseError = "parse_error", code::PARSE_ERROR, 400, false;
    /// Valid JSON, but not a JSON-RPC message that is allowed here.
    InvalidRequest = "invalid_request", code::INVALID_REQUEST, 400, false;
    /// `MCP-Protocol-Version` names an unsupported revision (S-HDR-01).
    UnsupportedRevision = "unsupported_revision", code::INVALID_REQUEST, 400, false;
    MethodNotFound = "method_not_found", code::METHOD_NOT_FOUND, 404, false;
    /// This HTTP method does not exist on this path.
    HttpMethodNotAllowed = "http_method_not_allowed", code::METHOD_NOT_FOUND, 405, false;
    /// The headers of a sessionless request differ from its body (S-HDR-06).
    HeaderMismatch = "header_mismatch", code::HEADER_MISMATCH, 400, false;
    /// The client of a sessionless request does not declare a required capability (S-LIFE-16).
    MissingCapability = "missing_capability", code::MISSING_CAPABILITY, 400, false;
    /// A sessionless request claims a revision that is not supported without a session (S-LIFE-09).
    UnsupportedProtocolVersion = "unsupported_protocol_version", code::UNSUPPORTED_VERSION, 400, false;
    /// `_meta` of a sessionless request is incomplete or invalid (S-LIFE-14).
    InvalidMeta = "invalid_meta", code::INVALID_PARAMS, 400, false;
    InvalidParams = "invalid_params", code::INVALID_PARAMS, 400, false;
    ResourceNotFound = "resource_not_found", code::RESOURCE_NOT_FOUND, 404, false;
    /// The path does not exist.
    NotFound = "not_found", code::INVALID_REQUEST, 404, false;
    /// A request that needs a session has none (S-SESS-03).
    SessionRequired = "session_required", code::SESSION, 400, false;
    /// The session never existed, expired or was ended: start a new one (S-SESS-04).
    SessionNotFound = "session_not_found", code::SESSION, 404, false;
    /// The credentials of the request are missing, wrong or expired (S-AUTHS-07).
    Unauthorized = "unauthorized", code::UNAUTHORIZED, 401, false;
    /// `Origin` or `Host` is not allowed (S-HTTP-03, S-HTTP-04).
    Forbidden = "forbidden", code::SESSION, 403, false;
    /// The credentials are valid but do not permit the request (S-AUTHS-07).
    InsufficientScope = "insufficient_scope", code::SESSION, 403, false;
    NotAcceptable = "not_acceptable", code::SESSION, 406, false;
    UnsupportedMediaType = "unsupported_media_type", code::INVALID_REQUEST, 415, false;
    /// The message exceeds a limit of the gateway.
    TooLarge = "too_large", code::INVALID_REQUEST, 413, false;
    /// The API token is missing or wrong.
    SessionInvalid = "session_invalid", code::SESSION, 401, false;
    /// Signing in to a server failed.
    LoginFailed = "login_failed", code::INVALID_REQUEST, 502, false;
    /// No server has this name or id.
    ServerNotFound = "server_not_found", code::INVALID_PARAMS, 404, false;
    /// The new configuration is not valid.
    InvalidConfig = "invalid_config", code::INVALID_PARAMS, 400, false;
    /// The request conflicts with the current state.
    Conflict = "conflict", code::INVALID_REQUEST, 409, false;
    /// The resource was changed in the meantime (`If-Match`).
    PreconditionFailed = "precondition_failed", code::INVALID_REQUEST, 412, false;
    /// The body did not arrive in time.
    BodyTimeout = "body_timeout", code::INVALID_REQUEST, 408, true;
    /// A limit on concurrent work is reached; the request was shed.
    Overloaded = "overloaded", code::INTERNAL_ERROR, 503, true;
    /// The principal exceeds its rate limit.
    RateLimited = "rate_limited", code::INTERNAL_ERROR, 429, true;
    /// The server refuses calls for now: it is overloaded or under maintenance.
    ServerBusy = "server_busy", code::INTERNAL_ERROR, 503, true;
    /// The gateway is shutting down.
    ShuttingDown = "shutting_down", code::INTERNAL_ERROR, 503, true;
    /// The server is not connected; it reconnects automatically.
    ServerUnavailable = "server_unavailable", code::INTERNAL_ERROR, 502, true;
    /// The cause of [`ErrorKind::ServerUnavailable`]: its program cannot be started.
    SpawnFailed = "spawn_failed", code::INTERNAL_ERROR, 500, true;
    /// The cause of [`ErrorKind::ServerUnavailable`]: the connection to its URL was refused.
    ConnectionRefused = "connection_refused", code::INTERNAL_ERROR, 502, true;
    /// The cause of [`ErrorKind::ServerUnavailable`]: it did not connect in time.
    ConnectionTimeout = "connection_timeout", code::INTERNAL_ERROR, 504, true;
    /// The cause of [`ErrorKind::ServerUnavailable`]: its process ended.
    ProcessCrashed = "process_crashed", code::INTERNAL_ERROR, 500, true;
    /// The server or tool failed so often that calls are paused for a while.
    BreakerOpen = "breaker_open", code::INTERNAL_ERROR, 503, true;
    /// The server's response will never arrive; the call may have run.
    ServerLost = "server_lost", code::INTERNAL_ERROR, 502, false;
    /// The replica that served the call died or cannot be reached any more; the call may have run.
    ReplicaLost = "replica_lost", code::INTERNAL_ERROR, 502, false;
    /// The replica that owns the session cannot be asked at the moment.
    ReplicaUnavailable = "replica_unavailable", code::INTERNAL_ERROR, 503, true;
    /// The server's configuration is not usable.
    ServerMisconfigured = "server_misconfigured", code::INTERNAL_ERROR, 502, false;
    /// The server's response violates the protocol or a limit.
    ServerProtocol = "server_protocol", code::INTERNAL_ERROR, 502, false;
    /// The server needs input from the client that it cannot or will not provide.
    InputRefused = "input_refused", code::INTERNAL_ERROR, 502, false;
    /// A policy forbids it.
    PolicyDenied = "policy_denied", code::INTERNAL_ERROR, 403, false;
    /// The definition of the tool is not approved.
    ToolSuspended = "tool_suspended", code::INTERNAL_ERROR, 403, false;
    /// The client's user has to sign in to the server first.
    ConsentRequired = "consent_required", code::INTERNAL_ERROR, 502, false;
    /// The server answered, and the gateway had no room for the answer.
    NoRoom = "no_room", code::INTERNAL_ERROR, 503, true;
    /// The response did not arrive before the deadline.
    Timeout = "timeout", code::INTERNAL_ERROR, 504, true;
    /// The client cancelled the call.
    Cancelled = "cancelled", code::INTERNAL_ERROR, 499, false;
    /// A bug in the gateway.
    Internal = "internal", code::INTERNAL_ERROR, 500, false;
}

impl ErrorKind {
    /// Whether the failure guarantees that the request was not started.
    pub const fn says_not_run(self) -> bool {
        matches!(
            self,
            Self::Overloaded
                | Self::RateLimited
                | Self::ServerBusy
                | Self::ShuttingDown
                | Self::ServerUnavailable
                | Self::BreakerOpen
                | Self::ToolSuspended
                | Self::PolicyDenied
                | Self::ReplicaUnavailable
        )
    }
}

/// The value of a `Retry-After` header in seconds, at least 1.
pub fn retry_after_seconds(milliseconds: u64) -> u64 {
    milliseconds.div_ceil(1000).max(1)
}

/// One failure, as reported to its receiver. The log can contain more; this never contains a
/// secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: ErrorKind,
    /// A sentence for people: what is wrong, where, and what to do.
    pub message: String,
    /// The kind of the underlying cause, if known: a server is unavailable for a reason.
    pub cause: Option<ErrorKind>,
    /// The affected server.
    pub server: Option<String>,
    /// When a retry can help, in milliseconds from now.
    pub retry_after_ms: Option<u64>,
    /// The refused caller, if known although the request is rejected. Used for the audit trail and
    /// never sent.
    pub principal: Principal,
    /// Members of `data` that the protocol requires in addition to the standard ones.
    details: Option<Box<Map<String, Value>>>,
    /// A JSON-RPC error object to send unchanged: one from a server, or one for clients that expect
    /// a specific error.
    pub original: Option<super::RawJson>,
}

impl Failure {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            cause: None,
            server: None,
            retry_after_ms: None,
            principal: Principal::Anonymous,
            details: None,
            original: None,
        }
    }

    /// The client must declare these capabilities (-32021).
    pub fn missing_capability(message: impl Into<String>, required: Value) -> Self {
        Self::new(ErrorKind::MissingCapability, message).detail("requiredCapabilities", required)
    }

    /// The request claims a revision that is not supported without a session (-32022). The error
    /// lists only sessionless revisions, because a client uses one of them in its next request.
    pub fn unsupported_version(requested: &str) -> Self {
        let requested: String = requested.chars().take(64).collect();
        let supported = [Revision::NEWEST];
        let message = format!("protocol version `{requested}` is not supported");
        Self::new(ErrorKind::UnsupportedProtocolVersion, message)
            .detail("supported", json!(supported))
            .detail("requested", json!(requested))
    }

    /// Adds a member to `data`.
    pub fn detail(mut self, name: &str, value: Value) -> Self {
        let details = self.details.get_or_insert_default();
        details.insert(name.to_owned(), value);
        self
    }

    /// Names the configuration key, or the member of a body, that is wrong.
    pub fn about_key(self, key: &str) -> Self {
        self.detail("key", json!(key))
    }

    /// The key that the failure concerns, if there is one.
    pub fn key(&self) -> Option<&str> {
        self.details.as_ref()?.get("key")?.as_str()
    }

    /// The page that the user should open, if there is one.
    pub fn page(&self) -> Option<&str> {
        self.details.as_ref()?.get("url")?.as_str()
    }

    /// The failure without its page, for readers who must not see the URL: it allows signing in.
    pub fn without_page(&self) -> Self {
        let mut failure = self.clone();
        if let Some(details) = &mut failure.details {
            details.remove("url");
        }
        failure
    }

    pub fn cause(mut self, cause: Option<ErrorKind>) -> Self {
        self.cause = cause;
        self
    }

    pub fn server(mut self, server: impl Into<String>) -> Self {
        self.server = Some(server.into());
        self
    }

    pub fn principal(mut self, principal: Principal) -> Self {
        self.principal = principal;
        self
    }

    pub fn retry_after_ms(mut self, milliseconds: u64) -> Self {
        self.retry_after_ms = Some(milliseconds);
        self
    }

    /// The machine-readable part: `data` of a JSON-RPC error, `_meta["io.mcpvisor/error"]` of a
    /// tool result.
    pub fn data(&self) -> Value {
        let mut data = json!({ "code": self.kind.as_str(), "retryable": self.kind.retryable() });
        if let Some(cause) = self.cause {
            data["cause"] = json!(cause.as_str());
        }
        if let Some(server) = &self.server {
            data["server"] = json!(server);
        }
        if let Some(milliseconds) = self.retry_after_ms {
            data["retryAfterMs"] = json!(milliseconds);
        }
        for (name, value) in self.details.iter().flat_map(|details| details.iter()) {
            data[name] = value.clone();
        }
        data
    }

    /// The most specific kind that is known.
    pub fn exact_kind(&self) -> ErrorKind {
        self.cause.unwrap_or(self.kind)
    }

    /// The error object of the API; `base` is the URL of this gateway, without a trailing slash.
    pub fn api_object(&self, base: &str) -> Value {
        let code = self.exact_kind().api_code();
        let mut details = Map::new();
        if let Some(server) = &self.server {
            details.insert("serverId".to_owned(), json!(server));
            details.insert("serverName".to_owned(), json!(server));
        }
        if let Some(milliseconds) = self.retry_after_ms {
            details.insert("retryAfterMs".to_owned(), json!(milliseconds));
        }
        for (name, value) in self.details.iter().flat_map(|details| details.iter()) {
            details.insert(name.clone(), value.clone());
        }
        json!({ "error": {
            "code": code,
            "message": self.message,
            "details": details,
            "helpUrl": format!("{base}/help/{code}"),
        } })
    }

    /// The JSON-RPC error object.
    pub fn error_object(&self) -> Value {
        json!({ "code": self.kind.rpc_code(), "message": self.message, "data": self.data() })
    }

    /// The whole JSON-RPC error response; `id` is raw JSON, `null` if none could be read.
    pub fn answer(&self, id: &str) -> String {
        match &self.original {
            Some(error) => {
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#,
                    error.as_str()
                )
            }
            None => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#,
                self.error_object()
            ),
        }
    }

    /// Whether the failure is returned as a result that the model reads.
    pub fn is_for_model(&self, method: &Method) -> bool {
        let is_limit = matches!(self.kind, ErrorKind::Overloaded | ErrorKind::RateLimited);
        let concerns_model = self.server.is_some() || is_limit;
        *method == Method::ToolsCall && concerns_model && self.original.is_none()
    }

    /// The result for a failed request, if its method has one: the model should read the failure of
    /// a tool's server, while mistakes of the client are protocol errors (B-ERR-01).
    pub fn tool_result(&self, method: &Method) -> Option<Value> {
        self.is_for_model(method).then(|| {
            json!({
                "content": [{ "type": "text", "text": self.message }],
                "isError": true,
                "_meta": { "io.mcpvisor/error": self.data() },
            })
        })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_codes_are_unique() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.as_str()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
    }

    #[test]
    fn the_error_object_of_the_api_has_the_most_exact_code() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.api_code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
        let failure = Failure::new(ErrorKind::ServerUnavailable, "it cannot be started")
            .cause(Some(ErrorKind::SpawnFailed))
            .server("git");
        let expected = json!({ "error": {
            "code": "SPAWN_FAILED",
            "message": "it cannot be started",
            "details": { "serverId": "git", "serverName": "git" },
            "helpUrl": "http://here/help/SPAWN_FAILED",
        } });
        assert_eq!(failure.api_object("http://here"), expected);
        assert_eq!(failure.data()["code"], "server_unavailable");
        assert_eq!(failure.data()["cause"], "spawn_failed");
    }

    #[test]
    fn s_life_09_and_16_details_stand_beside_the_machine_readable_part() {
        let failure = Failure::unsupported_version(&"x".repeat(99));
        let error = failure.error_object();
        assert_eq!(error["code"], -32022);
        assert_eq!(error["data"]["requested"], "x".repeat(64));
        assert_eq!(error["data"]["supported"], json!(["2026-07-28"]));
        let needs = json!({ "roots": {} });
        let error = Failure::missing_capability("needs roots", needs.clone()).error_object();
        assert_eq!(
            (&error["code"], &error["data"]["requiredCapabilities"]),
            (&json!(-32021), &needs)
        );
        assert_eq!(error["data"]["code"], "missing_capability");
    }

    #[test]
    fn an_answer_carries_the_machine_readable_part() {
        let failure = Failure::new(ErrorKind::ServerUnavailable, "server `git` is reconnecting")
            .server("git")
            .retry_after_ms(500);
        let answer: Value = serde_json::from_str(&failure.answer("7")).unwrap();
        assert_eq!(answer["id"], 7);
        assert_eq!(
            answer["error"]["data"],
            json!({"code": "server_unavailable", "retryable": true, "server": "git", "retryAfterMs": 500})
        );
        let result = failure.tool_result(&Method::ToolsCall).unwrap();
        assert_eq!(result["isError"], true);
        assert_eq!(result["_meta"]["io.mcpvisor/error"]["server"], "git");
        assert_eq!(failure.tool_result(&Method::PromptsGet), None);
    }
}
