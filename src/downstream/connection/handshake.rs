//! The handshake with a server: builds the gateway's requests and validates the server's answers.

use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::catalog::ItemKind;
use crate::downstream::era::modern;
use crate::protocol::{
    DeclaredCapabilities, Era, Method, Outcome, RawJson, Response, Revision, is_declared,
};
use crate::telemetry::Reason;

/// Maximum size of `_meta` that is kept of the answer, in bytes.
const META_MAX: usize = 16 * 1024;

/// The result of the handshake: revision and capabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Negotiated {
    pub revision: Revision,
    pub capabilities: Map<String, Value>,
    pub server_info: Map<String, Value>,
    pub instructions: Option<String>,
    /// `_meta` of the answer.
    pub meta: Map<String, Value>,
}

/// Why a handshake failed. `{}` is for clients; `{:#}` is for operators and includes the server's
/// text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    #[error(fmt = show_refusal)]
    Refused(Method, String),
    #[error(fmt = show_shape)]
    Shape(Method, String),
    /// The connection ends (C-LIFE-04). Retrying alone does not help.
    #[error(fmt = show_revision)]
    Revision(String),
}

fn show_refusal(method: &Method, words: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let reason = Reason::quoting(format!("server refused `{method}`"), words);
    fmt::Display::fmt(&reason, f)
}

fn show_shape(method: &Method, fault: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let sentence = format!("answer to `{method}` has an unexpected shape");
    fmt::Display::fmt(&Reason::quoting(sentence, fault), f)
}

fn show_revision(revision: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if f.alternate() {
        write!(
            f,
            "server speaks protocol revision `{revision}`, which this gateway does not"
        )
    } else {
        f.write_str("server speaks a protocol revision that this gateway does not")
    }
}

/// Parameters of `initialize`. `roots` is always declared, because roots can be answered from the
/// configuration. `client` is the `clientInfo` of the connection's only client.
pub(crate) fn initialize_params(
    profile: &DeclaredCapabilities,
    revision: Revision,
    client: Option<&str>,
) -> Value {
    let mut capabilities = profile.as_map().clone();
    capabilities.retain(|name, _| revision >= capability_since(name));
    if revision < Revision::V2025_11_25 {
        // Neither had parts before.
        for name in ["elicitation", "sampling"] {
            capabilities
                .entry(name)
                .and_modify(|parts| *parts = json!({}));
        }
    }
    capabilities.entry("roots").or_insert_with(|| json!({}));
    let client: Option<Value> = client.and_then(|info| serde_json::from_str(info).ok());
    json!({
        "protocolVersion": revision,
        "capabilities": capabilities,
        "clientInfo": client.unwrap_or_else(modern::client_info),
    })
}

/// Revision that introduced a client capability.
fn capability_since(name: &str) -> Revision {
    match name {
        "elicitation" => Revision::V2025_06_18,
        "tasks" | "extensions" => Revision::V2025_11_25,
        _ => Revision::V2024_10_07,
    }
}

/// Reads the server's answer to `initialize`.
///
/// # Errors
///
/// Returns a [`HandshakeError`], after which the connection cannot be used.
pub(crate) fn negotiated(response: &Response) -> Result<Negotiated, HandshakeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeResult {
        protocol_version: String,
        #[serde(default, deserialize_with = "object_or_empty")]
        capabilities: Map<String, Value>,
        #[serde(default, deserialize_with = "object_or_empty")]
        server_info: Map<String, Value>,
        #[serde(default)]
        instructions: Option<String>,
        #[serde(default, rename = "_meta", deserialize_with = "object_or_empty")]
        meta: Map<String, Value>,
    }
    let result = match &response.outcome {
        Outcome::Result(result) => result,
        Outcome::Error(error) => {
            return Err(HandshakeError::Refused(
                Method::Initialize,
                error_text(error),
            ));
        }
    };
    let result: InitializeResult = result
        .parse()
        .map_err(|error| HandshakeError::Shape(Method::Initialize, error.to_string()))?;
    let revision = result.protocol_version.parse().ok();
    let revision = revision.filter(|revision: &Revision| revision.era() == Era::Legacy);
    let revision = revision.ok_or_else(|| {
        HandshakeError::Revision(result.protocol_version.chars().take(40).collect())
    })?;
    Ok(Negotiated {
        revision,
        capabilities: result.capabilities,
        server_info: result.server_info,
        instructions: result.instructions,
        meta: kept_meta(result.meta),
    })
}

/// The revision to offer after `offered`, if this answer to `initialize` refuses `offered`. Servers
/// should answer with a revision that they support instead, but some do not.
pub(crate) fn older_revision(response: &Response, offered: Revision) -> Option<Revision> {
    #[derive(Deserialize)]
    struct VersionError {
        #[serde(default)]
        data: Value,
    }
    let Outcome::Error(error) = &response.outcome else {
        return None;
    };
    let is_about_it = Revision::is_refused_by(error);
    let error: VersionError = error.parse().ok()?;
    let mut older = Revision::LEGACY.into_iter().rev();
    let mut older = older.by_ref().filter(|revision| *revision < offered);
    if let Some(supported) = error.data["supported"].as_array() {
        return older.find(|revision| supported.iter().any(|it| it == revision.as_str()));
    }
    older.next().filter(|_| is_about_it)
}

/// Reads a sessionless server's answer to `server/discover`.
///
/// # Errors
///
/// Returns a [`HandshakeError`], after which the connection cannot be used.
pub(crate) fn discovered(response: &Response) -> Result<Negotiated, HandshakeError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DiscoverResult {
        supported_versions: Vec<String>,
        #[serde(default, deserialize_with = "object_or_empty")]
        capabilities: Map<String, Value>,
        #[serde(default)]
        instructions: Option<String>,
        #[serde(default, rename = "_meta")]
        meta: Map<String, Value>,
    }
    let method = Method::Discover;
    let result = match &response.outcome {
        Outcome::Result(result) => result,
        Outcome::Error(error) => {
            return Err(HandshakeError::Refused(method, error_text(error)));
        }
    };
    let result: DiscoverResult = result
        .parse()
        .map_err(|error| HandshakeError::Shape(method, error.to_string()))?;
    let mut versions = result.supported_versions.iter();
    if !versions.any(|version| version == modern::REVISION.as_str()) {
        let versions = result.supported_versions.join(", ");
        return Err(HandshakeError::Revision(
            versions.chars().take(80).collect(),
        ));
    }
    let server_info = result.meta.get("io.modelcontextprotocol/serverInfo");
    let server_info = server_info.and_then(Value::as_object).cloned();
    Ok(Negotiated {
        revision: modern::REVISION,
        capabilities: result.capabilities,
        server_info: server_info.unwrap_or_default(),
        instructions: result.instructions,
        meta: kept_meta(result.meta),
    })
}

/// `_meta` for the clients of a view of this server, unless it is too long.
fn kept_meta(meta: Map<String, Value>) -> Map<String, Value> {
    let meta = Value::Object(meta);
    let is_short = meta.to_string().len() <= META_MAX;
    match meta {
        Value::Object(meta) if is_short => meta,
        _ => Map::new(),
    }
}

/// Reads an object. PHP writes an empty object as `[]`, and Go as `null`.
fn object_or_empty<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Map<String, Value>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Object(members) => Ok(members),
        Value::Null => Ok(Map::new()),
        Value::Array(none) if none.is_empty() => Ok(Map::new()),
        _ => Err(serde::de::Error::custom("capabilities are an object")),
    }
}

impl Negotiated {
    pub fn is_modern(&self) -> bool {
        self.revision.era() == Era::Modern
    }

    /// Whether the server reports changes of this capability's list.
    pub fn has_changes(&self, capability: &str) -> bool {
        let capability = self.capabilities.get(capability);
        capability.and_then(|it| it.get("listChanged")) == Some(&Value::Bool(true))
    }

    pub fn has(&self, capability: &str) -> bool {
        is_declared(&self.capabilities, capability)
    }

    /// Whether to request a list of this kind. Servers built with old libraries can have tools
    /// without declaring the capability.
    pub fn may_list(&self, kind: ItemKind) -> bool {
        let declares_none = || {
            ItemKind::ALL
                .iter()
                .all(|kind| !self.has(kind.capability()))
        };
        self.has(kind.capability()) || kind == ItemKind::Tools && declares_none()
    }

    /// Whether the server sends `resources/updated` for subscribed URIs.
    pub fn has_subscriptions(&self) -> bool {
        let resources = self.capabilities.get("resources");
        resources.and_then(|resources| resources.get("subscribe")) == Some(&Value::Bool(true))
    }
}

/// Message of a server's error object, truncated.
pub(crate) fn error_text(error: &RawJson) -> String {
    #[derive(Deserialize)]
    struct RpcErrorText {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
    }
    match error.parse::<RpcErrorText>() {
        Ok(error) => {
            let message: String = error.message.chars().take(200).collect();
            format!("{message} ({})", error.code)
        }
        Err(_) => "error of an unexpected shape".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::protocol::Envelope;

    fn response(member: &str) -> Response {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":1,{member}}}"#);
        match Envelope::parse(Bytes::from(frame)) {
            Ok(Envelope::Response(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn any_revision_with_a_handshake_is_accepted() {
        for revision in Revision::LEGACY {
            let answer =
                format!(r#""result":{{"protocolVersion":"{revision}","capabilities":{{}}}}"#);
            assert_eq!(negotiated(&response(&answer)).unwrap().revision, revision);
        }
    }

    #[test]
    fn what_declares_nothing_may_have_tools_and_an_empty_object_may_be_an_array() {
        let table = [
            ("{}", [true, false, false, false, false]),
            ("[]", [true, false, false, false, false]),
            ("null", [true, false, false, false, false]),
            (r#"{"logging":{}}"#, [true, false, false, false, false]),
            (r#"{"tools":[]}"#, [true, false, false, false, false]),
            (r#"{"prompts":{}}"#, [false, true, false, false, false]),
            (r#"{"resources":{}}"#, [false, false, true, true, false]),
            (
                r#"{"extensions":{"io.modelcontextprotocol/skills":{}}}"#,
                [false, false, false, false, true],
            ),
        ];
        for (declared, expected) in table {
            let answer = format!(
                r#""result":{{"protocolVersion":"2025-06-18","capabilities":{declared},"serverInfo":[]}}"#
            );
            let found = negotiated(&response(&answer)).unwrap();
            let lists = ItemKind::ALL.map(|kind| found.may_list(kind));
            assert_eq!(lists, expected, "{declared}");
        }
        let wrong = r#""result":{"protocolVersion":"2025-06-18","capabilities":[1]}"#;
        assert!(negotiated(&response(wrong)).is_err());
    }

    #[test]
    fn a_refusal_of_a_revision_is_answered_with_an_older_one() {
        use Revision::{V2024_10_07, V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25};
        let supported = r#""error":{"code":-1,"message":"no","data":{"supported":["2024-11-05","2025-03-26","1999-01-01"]}}"#;
        let unknown =
            r#""error":{"code":-32602,"message":"no","data":{"supported":["1999-01-01"]}}"#;
        let params = r#""error":{"code":-32602,"message":"no"}"#;
        let words = r#""error":{"code":-32000,"message":"Unsupported protocol Version"}"#;
        let other = r#""error":{"code":-32603,"message":"no disk"}"#;
        let table = [
            (supported, V2025_11_25, Some(V2025_03_26)),
            (supported, V2025_03_26, Some(V2024_11_05)),
            (supported, V2024_11_05, None),
            (unknown, V2025_11_25, None),
            (params, V2025_11_25, Some(V2025_06_18)),
            (params, V2024_11_05, Some(V2024_10_07)),
            (params, V2024_10_07, None),
            (words, V2025_06_18, Some(V2025_03_26)),
            (other, V2025_11_25, None),
            (r#""error":3"#, V2025_11_25, None),
            (r#""result":{}"#, V2025_11_25, None),
        ];
        for (answer, offered, expected) in table {
            assert_eq!(
                older_revision(&response(answer), offered),
                expected,
                "{answer}"
            );
        }
    }

    #[test]
    fn a_server_is_declared_only_what_its_revision_knows() {
        let declared = json!({"elicitation": {"form": {}}, "sampling": {"tools": {}}});
        let profile = DeclaredCapabilities::from_declared(declared.as_object().unwrap());
        use Revision::{V2024_10_07, V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25};
        let table = [
            (V2024_10_07, false),
            (V2024_11_05, false),
            (V2025_03_26, false),
            (V2025_06_18, true),
            (V2025_11_25, true),
        ];
        for (revision, expected) in table {
            let params = initialize_params(&profile, revision, None);
            let sent = &params["capabilities"];
            let is_sent = |name: &str| sent.get(name).is_some();
            assert_eq!(is_sent("elicitation"), expected, "{revision}: {sent}");
            assert!(
                is_sent("sampling") && is_sent("roots"),
                "{revision}: {sent}"
            );
            assert_eq!(params["protocolVersion"], revision.as_str());
        }
    }

    #[test]
    fn a_bad_answer_says_what_is_wrong() {
        let table = [
            (
                r#""error":{"code":-32600,"message":"no"}"#,
                "server refused `initialize`: no (-32600)",
            ),
            (
                r#""result":{"protocolVersion":"1999-01-01","capabilities":{}}"#,
                "server speaks protocol revision `1999-01-01`, which this gateway does not",
            ),
        ];
        for (answer, message) in table {
            assert_eq!(
                format!("{:#}", negotiated(&response(answer)).unwrap_err()),
                message
            );
        }
        assert!(matches!(
            negotiated(&response(r#""result":{}"#)),
            Err(HandshakeError::Shape(..))
        ));
    }

    #[test]
    fn a_sessionless_server_says_what_it_speaks() {
        let answer = r#""result":{"resultType":"complete","ttlMs":0,"cacheScope":"public","supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"instructions":"do","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n"}}}"#;
        let found = discovered(&response(answer)).unwrap();
        assert_eq!(found.revision, Revision::V2026_07_28);
        assert_eq!(found.server_info["name"], "n");
        assert_eq!(found.instructions.as_deref(), Some("do"));
        assert!(found.is_modern() && found.has_changes("tools") && !found.has_changes("prompts"));
        let old = r#""result":{"supportedVersions":["2027-01-01"]}"#;
        assert_eq!(
            format!("{:#}", discovered(&response(old)).unwrap_err()),
            "server speaks protocol revision `2027-01-01`, which this gateway does not"
        );
    }

    #[test]
    fn meta_is_kept_unless_it_is_long() {
        let answer = |text: &str| {
            let result = format!(
                r#""result":{{"protocolVersion":"2025-06-18","capabilities":{{}},"_meta":{{"com.example/a":"{text}"}}}}"#
            );
            negotiated(&response(&result)).unwrap().meta
        };
        assert_eq!(answer("x")["com.example/a"], "x");
        assert!(answer(&"x".repeat(META_MAX)).is_empty());
    }

    #[test]
    fn exactly_the_clients_capabilities_and_roots_are_declared() {
        let declared = json!({"sampling": {}, "vendor": {}, "elicitation": {"form": {}}});
        let profile = DeclaredCapabilities::from_declared(declared.as_object().unwrap());
        let params = initialize_params(&profile, Revision::NEWEST_LEGACY, None);
        assert_eq!(
            params["capabilities"],
            json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}})
        );
    }
}
