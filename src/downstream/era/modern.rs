//! Requests to servers of the sessionless revision, which carry their own description (C-LIFE-06,
//! C-HTTP-04).

use bytestring::ByteString;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::bridge::headers::Headers;
use crate::bridge::task;
use crate::protocol::{Method, RawJson, Revision, request};
use crate::transport::OutgoingFrame;

/// Revision that is spoken in this era.
pub(crate) const REVISION: Revision = Revision::V2026_07_28;

/// [`client_info`] as a literal, for the requests of calls.
pub(crate) const CLIENT_INFO: &str = concat!(
    r#"{"name":"mcpvisor","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}"#
);

/// `Implementation` object of the gateway.
pub(crate) fn client_info() -> Value {
    json!({ "name": "mcpvisor", "version": env!("CARGO_PKG_VERSION") })
}

/// A request of the gateway's own. It declares no capabilities, because no client could answer a
/// question; only a request to watch tasks declares the tasks extension (S-SUB-11).
pub(crate) fn own(number: u64, method: &Method, params: &Value) -> OutgoingFrame {
    let of_tasks = params.pointer("/notifications/taskIds").is_some();
    let declared = of_tasks.then(|| task::with_tasks_extension(&Map::new()));
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": client_info(),
        "io.modelcontextprotocol/clientCapabilities": declared.unwrap_or_default(),
    });
    let name = match method {
        Method::ToolsCall => params.get("name"),
        Method::ResourcesRead => params.get("uri"),
        _ => None,
    };
    let name = name.and_then(Value::as_str).map(ByteString::from);
    OutgoingFrame {
        headers: Some(headers(method, name)),
        ..OutgoingFrame::new(Some(number), request(number, method, &params))
    }
}

/// Headers of a message; transports without headers ignore them.
pub(crate) fn headers(method: &Method, name: Option<ByteString>) -> Headers {
    Headers::new(REVISION.as_str(), method, name)
}

/// Code of a JSON-RPC error.
pub(crate) fn error_code(error: &RawJson) -> Option<i64> {
    #[derive(Deserialize)]
    struct CodeOnly {
        code: i64,
    }
    error.parse::<CodeOnly>().ok().map(|error| error.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_life_06_an_own_request_says_what_it_is() {
        let sent = own(7, &Method::ToolsList, &json!({"cursor": "x"}));
        let frame: Value = serde_json::from_slice(&sent.frame).unwrap();
        let meta = &frame["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientCapabilities"],
            json!({})
        );
        assert_eq!(frame["params"]["cursor"], "x");
        let of_tasks = json!({"notifications": {"taskIds": ["t"]}});
        let listen = own(8, &Method::Listen, &of_tasks);
        let listen: Value = serde_json::from_slice(&listen.frame).unwrap();
        let declared = &listen["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(declared["extensions"], json!({task::EXTENSION: {}}));
        assert_eq!(CLIENT_INFO, client_info().to_string());
        let standard = &sent.headers.unwrap().standard;
        assert_eq!(
            (&*standard.revision, &standard.method, &standard.name),
            ("2026-07-28", &Method::ToolsList, &None)
        );
        let named = headers(&Method::ToolsCall, Some("ä".into())).standard.name;
        assert_eq!(named.unwrap(), "=?base64?w6Q=?=");
    }
}
