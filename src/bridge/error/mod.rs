//! Translates errors of servers and of the gateway for the client's era (B-ERR-01).

use serde::Deserialize;
use serde_json::{Value, json};

use crate::protocol::{Era, ErrorKind, Failure, Method, RawJson, Revision, code, parse_bounded};

use super::headers::HeaderMismatch;
use super::meta::InvalidMeta;
use super::object;
use super::projection::Revisions;
use super::question::{InvalidAnswer, RequiredCapability, url_elicitations};
use super::seal::{AmbiguousArguments, InvalidState};

/// The request context needed to translate its error.
#[derive(Clone, Copy, Debug)]
pub struct ErrorContext<'a> {
    pub method: &'a Method,
    /// The requested URI, in the same form as the error's `data.uri`.
    pub uri: Option<&'a str>,
    /// The name of the server in the configuration.
    pub server: &'a str,
}

/// How a server's error is presented to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranslatedError {
    /// As a JSON-RPC error object.
    Error(RawJson),
    /// As a result of `tools/call` that the model reads; not yet decorated for its client.
    Result(RawJson),
}

#[derive(Deserialize)]
struct ServerError {
    code: i64,
    message: String,
    data: Option<Value>,
}

/// Translates a server's error object for its client; `None` if it can be forwarded unchanged.
pub fn from_server(
    error: &RawJson,
    asked: ErrorContext<'_>,
    revisions: Revisions,
) -> Option<TranslatedError> {
    let Some(object) = object::read::<ServerError>(error.as_str()) else {
        let message = "server responded with a malformed error";
        return Some(internal_error(message, error, asked));
    };
    let to = revisions.to;
    match (object.code, to.era()) {
        (code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION, _) => {
            Some(internal_error(&object.message, error, asked))
        }
        (code::RESOURCE_NOT_FOUND, Era::Modern) => Some(missing(&object, asked, to)),
        (code::INVALID_PARAMS, Era::Legacy) if revisions.from.era() == Era::Modern => {
            let uri = object
                .data
                .as_ref()
                .and_then(|data| data.get("uri")?.as_str());
            let is_missing = uri.is_some() && uri == asked.uri;
            is_missing.then(|| missing(&object, asked, to))
        }
        (code::URL_ELICITATION_REQUIRED, Era::Modern) => {
            Some(TranslatedError::Error(missing_url_elicitation()))
        }
        (code::URL_ELICITATION_REQUIRED, Era::Legacy) if to < Revision::V2025_11_25 => Some(
            tool_result_or_error(&message_with_links(&object, error), error, asked),
        ),
        (code::MISSING_CAPABILITY, Era::Legacy) => {
            let required = object.data.as_ref();
            let required = required.and_then(|data| data.get("requiredCapabilities"));
            let required = required.map_or_else(String::new, |required| format!(" {required}"));
            let message = format!(
                "the server needs a capability that this client does not declare:{required}"
            );
            Some(tool_result_or_error(&message, error, asked))
        }
        (-32019..=-32000, Era::Modern) => Some(internal_error(&object.message, error, asked)),
        // Codes that the newer era reserves have no meaning across eras (B-RPC-09).
        (-32099..=-32023, Era::Modern) if revisions.from.era() == Era::Legacy => {
            Some(internal_error(&object.message, error, asked))
        }
        _ => None,
    }
}

/// A missing resource, with the code of the reader's era (S-RES-03, S-RES-04).
fn missing(object: &ServerError, asked: ErrorContext<'_>, to: Revision) -> TranslatedError {
    let code = match to.era() {
        Era::Modern => code::INVALID_PARAMS,
        Era::Legacy => code::RESOURCE_NOT_FOUND,
    };
    let mut data = match &object.data {
        Some(Value::Object(data)) => data.clone(),
        _ => serde_json::Map::new(),
    };
    if let Some(uri) = asked.uri.filter(|_| !data.contains_key("uri")) {
        data.insert("uri".to_owned(), json!(uri));
    }
    let error = json!({ "code": code, "message": object.message, "data": data });
    TranslatedError::Error(RawJson::from_value(&error))
}

/// An internal error that preserves the server's error, whose code has no meaning here (B-RPC-10).
fn internal_error(message: &str, original: &RawJson, asked: ErrorContext<'_>) -> TranslatedError {
    let original: Value = parse_bounded(original.as_str()).unwrap_or_default();
    let data = json!({ "server": asked.server, "original": original });
    let error = json!({ "code": code::INTERNAL_ERROR, "message": message, "data": data });
    TranslatedError::Error(RawJson::from_value(&error))
}

/// Ends a call that cannot continue with this client, with a result for the model if the method has
/// one.
fn tool_result_or_error(
    message: &str,
    original: &RawJson,
    asked: ErrorContext<'_>,
) -> TranslatedError {
    if *asked.method == Method::ToolsCall {
        return TranslatedError::Result(tool_error_result(message));
    }
    internal_error(message, original, asked)
}

fn missing_url_elicitation() -> RawJson {
    let message =
        "the user has to visit a URL first, but the client does not declare URL elicitation";
    let needed = RequiredCapability::Url.capabilities();
    RawJson::from_value(&Failure::missing_capability(message, needed).error_object())
}

fn message_with_links(object: &ServerError, error: &RawJson) -> String {
    let listed = url_elicitations(error).unwrap_or_default();
    let links = listed.iter().filter_map(|listed| {
        let params: Value = parse_bounded(listed.params()?.as_str())?;
        let (message, url) = (
            params.get("message")?.as_str()?,
            params.get("url")?.as_str()?,
        );
        Some(format!("\n{message}: {url}"))
    });
    format!("{}{}", object.message, links.collect::<String>())
}

/// A result of `tools/call` that explains why the call failed.
pub fn tool_error_result(message: &str) -> RawJson {
    RawJson::from_value(&json!({
        "content": [{ "type": "text", "text": message }],
        "isError": true,
    }))
}

/// A gateway failure as a JSON-RPC error object for a client of this era. Clients of the newer era
/// never see -32000 to -32019, nor -32002 (B-RPC-09, S-RES-05).
pub fn error_object(failure: &Failure, era: Era) -> RawJson {
    if let Some(original) = &failure.original {
        return original.clone();
    }
    let mut error = failure.error_object();
    if era == Era::Modern {
        error["code"] = json!(match failure.kind.rpc_code() {
            code::RESOURCE_NOT_FOUND => code::INVALID_PARAMS,
            -32019..=-32000 => code::INVALID_REQUEST,
            other => other,
        });
    }
    RawJson::from_value(&error)
}

/// The HTTP status of a gateway failure for a sessionless client. Failures while the request was
/// being served have 200; a refusal has the status of its kind.
pub const fn modern_status(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::InvalidParams
        | ErrorKind::ResourceNotFound
        | ErrorKind::Overloaded
        | ErrorKind::ServerUnavailable
        | ErrorKind::ServerLost
        | ErrorKind::ReplicaLost
        | ErrorKind::ServerMisconfigured
        | ErrorKind::ServerProtocol
        | ErrorKind::Timeout
        | ErrorKind::Cancelled
        | ErrorKind::Internal => 200,
        refused => refused.http_status(),
    }
}

/// The HTTP status of a server's error object for a sessionless client that has received nothing
/// else yet (S-HTTP-24, S-LIFE-16).
pub fn status_of(error: &RawJson) -> u16 {
    match object::read::<ServerError>(error.as_str()).map(|object| object.code) {
        Some(code::METHOD_NOT_FOUND) => 404,
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION) => 400,
        _ => 200,
    }
}

macro_rules! failures {
    ($($error:ty => $kind:ident,)*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(ErrorKind::$kind, error.to_string())
            }
        })*
    };
}

failures! {
    HeaderMismatch => HeaderMismatch,
    InvalidMeta => InvalidMeta,
    InvalidState => InvalidParams,
    InvalidAnswer => InvalidParams,
    AmbiguousArguments => InvalidParams,
}

#[cfg(test)]
mod tests;
