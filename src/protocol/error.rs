//! Every way in which a request can fail, in one table.

use serde_json::{Map, Value, json};

use super::Revision;

use super::Method;
use crate::id::Principal;

/// JSON-RPC codes. Codes of the gateway's own lie outside -32768..-32000 (B-RPC-11) only where
/// the protocol names none.
pub mod code {
    pub const PARSE_ERROR: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The code that gateways and SDKs use for a session or connection that is gone.
    pub const SESSION: i64 = -32000;
    /// The client must say who it is; gateways use it, the protocol names none.
    pub const UNAUTHORIZED: i64 = -32001;
    /// Only in revisions with a handshake (S-RES-03, S-RES-04, S-RES-05).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// Headers differ from the body (2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client does not declare what the request needs (2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The revision of the request is not spoken here (2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The user has to visit a URL first (2025-11-25 only).
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
    /// The user refused sampling (C-REQ-05).
    pub const USER_REJECTED: i64 = -1;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal, $rpc:expr, $http:literal, $retryable:literal;)*) => {
        /// The kind of a failure. Each kind has a stable text code, a JSON-RPC code, an HTTP
        /// status for answers that carry nothing else, and whether trying again can help.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl ErrorKind {
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// Stable text code: also the anchor in `docs/errors.md`.
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
    /// The code of the API: in capitals, and for two kinds the word that clients of the API of
    /// MCP Inspector know.
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
    /// JSON, but no JSON-RPC message that may be sent here.
    InvalidRequest = "invalid_request", code::INVALID_REQUEST, 400, false;
    /// `MCP-Protocol-Version` names a revision that we do not speak (S-HDR-01).
    UnsupportedRevision = "unsupported_revision", code::INVALID_REQUEST, 400, false;
    MethodNotFound = "method_not_found", code::METHOD_NOT_FOUND, 404, false;
    /// This HTTP method does not exist on this path.
    HttpMethodNotAllowed = "http_method_not_allowed", code::METHOD_NOT_FOUND, 405, false;
    /// The headers of a sessionless request differ from its body (S-HDR-06).
    HeaderMismatch = "header_mismatch", code::HEADER_MISMATCH, 400, false;
    /// The client of a sessionless request does not declare what it needs (S-LIFE-16).
    MissingCapability = "missing_capability", code::MISSING_CAPABILITY, 400, false;
    /// A sessionless request claims a revision that we do not speak so (S-LIFE-09).
    UnsupportedProtocolVersion = "unsupported_protocol_version", code::UNSUPPORTED_VERSION, 400, false;
    /// `_meta` of a sessionless request lacks something, or is wrong (S-LIFE-14).
    InvalidMeta = "invalid_meta", code::INVALID_PARAMS, 400, false;
    InvalidParams = "invalid_params", code::INVALID_PARAMS, 400, false;
    ResourceNotFound = "resource_not_found", code::RESOURCE_NOT_FOUND, 404, false;
    /// No such path.
    NotFound = "not_found", code::INVALID_REQUEST, 404, false;
    /// A request that needs a session came without one (S-SESS-03).
    SessionRequired = "session_required", code::SESSION, 400, false;
    /// The session never existed, expired or was ended: start a new one (S-SESS-04).
    SessionNotFound = "session_not_found", code::SESSION, 404, false;
    /// The credentials of the request are missing, wrong or expired (S-AUTHS-07).
    Unauthorized = "unauthorized", code::UNAUTHORIZED, 401, false;
    /// `Origin` or `Host` is not allowed (S-HTTP-03, S-HTTP-04).
    Forbidden = "forbidden", code::SESSION, 403, false;
    /// The credentials are good, and do not allow it (S-AUTHS-07).
    InsufficientScope = "insufficient_scope", code::SESSION, 403, false;
    NotAcceptable = "not_acceptable", code::SESSION, 406, false;
    UnsupportedMediaType = "unsupported_media_type", code::INVALID_REQUEST, 415, false;
    /// Larger than a limit of the gateway.
    TooLarge = "too_large", code::INVALID_REQUEST, 413, false;
    /// The token of the API is missing or wrong.
    SessionInvalid = "session_invalid", code::SESSION, 401, false;
    /// Nobody was signed in to a server.
    LoginFailed = "login_failed", code::INVALID_REQUEST, 502, false;
    /// No server has this name or id.
    ServerNotFound = "server_not_found", code::INVALID_PARAMS, 404, false;
    /// The new text is no valid configuration.
    InvalidConfig = "invalid_config", code::INVALID_PARAMS, 400, false;
    /// It does not go with the present state.
    Conflict = "conflict", code::INVALID_REQUEST, 409, false;
    /// It was changed by somebody else meanwhile (`If-Match`).
    PreconditionFailed = "precondition_failed", code::INVALID_REQUEST, 412, false;
    /// The body did not arrive in time.
    BodyTimeout = "body_timeout", code::INVALID_REQUEST, 408, true;
    /// A limit on work under way is reached: shed.
    Overloaded = "overloaded", code::INTERNAL_ERROR, 503, true;
    /// Its principal calls more often than it may.
    RateLimited = "rate_limited", code::INTERNAL_ERROR, 429, true;
    /// The server refuses calls for now: it is overloaded or under maintenance.
    ServerBusy = "server_busy", code::INTERNAL_ERROR, 503, true;
    /// The gateway is shutting down.
    ShuttingDown = "shutting_down", code::INTERNAL_ERROR, 503, true;
    /// The server is not connected; it comes back by itself.
    ServerUnavailable = "server_unavailable", code::INTERNAL_ERROR, 502, true;
    /// The cause of [`ErrorKind::ServerUnavailable`]: its program cannot be started.
    SpawnFailed = "spawn_failed", code::INTERNAL_ERROR, 500, true;
    /// The cause of [`ErrorKind::ServerUnavailable`]: nobody listens at its URL.
    ConnectionRefused = "connection_refused", code::INTERNAL_ERROR, 502, true;
    /// The cause of [`ErrorKind::ServerUnavailable`]: it was not there in time.
    ConnectionTimeout = "connection_timeout", code::INTERNAL_ERROR, 504, true;
    /// The cause of [`ErrorKind::ServerUnavailable`]: its process ended.
    ProcessCrashed = "process_crashed", code::INTERNAL_ERROR, 500, true;
    /// The server, or the tool, failed so often that it is not asked for a while.
    BreakerOpen = "breaker_open", code::INTERNAL_ERROR, 503, true;
    /// The server's answer will not come: the call may have run.
    ServerLost = "server_lost", code::INTERNAL_ERROR, 502, false;
    /// The server's configuration is not usable.
    ServerMisconfigured = "server_misconfigured", code::INTERNAL_ERROR, 502, false;
    /// The server's answer breaks the protocol or a limit.
    ServerProtocol = "server_protocol", code::INTERNAL_ERROR, 502, false;
    /// The server needs something of the client, which it cannot or would not give.
    InputRefused = "input_refused", code::INTERNAL_ERROR, 502, false;
    /// A policy forbids it.
    PolicyDenied = "policy_denied", code::INTERNAL_ERROR, 403, false;
    /// The definition of the tool is not approved.
    ToolSuspended = "tool_suspended", code::INTERNAL_ERROR, 403, false;
    /// The user of the client has to sign in to the server first.
    ConsentRequired = "consent_required", code::INTERNAL_ERROR, 502, false;
    /// No answer within the deadline.
    Timeout = "timeout", code::INTERNAL_ERROR, 504, true;
    /// The client took the call back.
    Cancelled = "cancelled", code::INTERNAL_ERROR, 499, false;
    /// A bug of the gateway.
    Internal = "internal", code::INTERNAL_ERROR, 500, false;
}

impl ErrorKind {
    /// Whether it says that the request was not begun.
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
        )
    }
}

/// The seconds of a `Retry-After` header: at least one.
pub fn retry_after_seconds(milliseconds: u64) -> u64 {
    milliseconds.div_ceil(1000).max(1)
}

/// One failure, as its receiver reads it. The log may say more; this never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: ErrorKind,
    /// A sentence for people: what was wrong, where, what to do.
    pub message: String,
    /// The kind of what is behind it, where that is known: a server is unavailable for a cause.
    pub cause: Option<ErrorKind>,
    /// The server that it concerns.
    pub server: Option<String>,
    /// When trying again can help, in milliseconds from now.
    pub retry_after_ms: Option<u64>,
    /// Who is refused, where that is known although the request is not taken: for the audit trail,
    /// and in no answer.
    pub principal: Principal,
    /// The members of `data` that the protocol demands, beside those of every failure.
    details: Option<Box<Map<String, Value>>>,
    /// The JSON-RPC error object that is sent as it is: that of a server, or one for clients that
    /// know another.
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

    /// The client must declare these capabilities to be served (-32021).
    pub fn missing_capability(message: impl Into<String>, required: Value) -> Self {
        Self::new(ErrorKind::MissingCapability, message).detail("requiredCapabilities", required)
    }

    /// The request claims a revision that is not spoken here without a session (-32022). Only
    /// those that are can be named: a client says them in its next request.
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

    /// Names the key of the configuration, or the member of a body, that is wrong.
    pub fn about_key(self, key: &str) -> Self {
        self.detail("key", json!(key))
    }

    /// The key that it is about, if there is one.
    pub fn key(&self) -> Option<&str> {
        self.details.as_ref()?.get("key")?.as_str()
    }

    /// The page that its user is to open, if there is one.
    pub fn page(&self) -> Option<&str> {
        self.details.as_ref()?.get("url")?.as_str()
    }

    /// The same for those who may not read the page: its address lets somebody sign in.
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

    /// The most exact kind that is known.
    pub fn exact_kind(&self) -> ErrorKind {
        self.cause.unwrap_or(self.kind)
    }

    /// The error object of the API; `base` is the URL of this gateway, without a slash at its end.
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

    /// The whole JSON-RPC error answer; `id` is raw JSON, `null` where none could be read.
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

    /// Whether the request is answered with a result that the model reads.
    pub fn is_for_model(&self, method: &Method) -> bool {
        let is_limit = matches!(self.kind, ErrorKind::Overloaded | ErrorKind::RateLimited);
        let concerns_model = self.server.is_some() || is_limit;
        *method == Method::ToolsCall && concerns_model && self.original.is_none()
    }

    /// The result of a request that failed, where its method has one for that: a server that
    /// fails a tool call is something that the model should read; what the client did wrong is
    /// an error of the protocol (B-ERR-01).
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
