//! Which era a peer speaks: the verdict of a probe for a server (C-LIFE-07, C-LIFE-08,
//! C-LIFE-09, C-LIFE-10, C-LIFE-11, C-HTTP-18), and what a message says of itself (S-LIFE-21).

use serde::Deserialize;

use crate::protocol::{Method, RawJson, Request, Revision, code, json};

use super::meta::VERSION;
use super::object;

/// What came of `server/discover`, sent to a server of unknown era.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// A result, with HTTP status 200 where there is one.
    Result(RawJson),
    /// A JSON-RPC error object, whatever the HTTP status; `None` on stdio.
    Error { error: RawJson, status: Option<u16> },
    /// An HTTP status whose body is no JSON-RPC answer.
    Status(u16),
    /// No answer in time.
    Timeout,
    /// stdio: the process ended, or closed its output.
    Exited,
    /// HTTP: no connection, or it broke.
    Unreachable,
    /// stdio: an answer that is no JSON-RPC.
    NotJsonRpc,
}

/// How the server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeTransport {
    Http,
    Stdio,
}

/// What a probe says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// The server serves this sessionless revision; its `DiscoverResult` is in the outcome.
    Modern(Revision),
    /// Sessionless, but not in the revision asked for: probe again with this one.
    ModernRetry(Revision),
    /// Sessionless, and our request was wrong (-32020, -32021) or no revision is common
    /// (-32022): no fall-back; an error for the operator.
    ModernFailed(String),
    /// `initialize` comes next, and over HTTP what [`after_initialize`] says if that fails.
    Legacy,
    /// 401 or 403: authorize and probe again. No verdict.
    Authorize,
    /// The server is away. No verdict.
    Outage,
}

/// The error codes that only sessionless servers answer with.
const MODERN_ERRORS: [i64; 3] = [
    code::HEADER_MISMATCH,
    code::MISSING_CAPABILITY,
    code::UNSUPPORTED_VERSION,
];

/// The verdict of a probe that asked for `asked`.
pub fn verdict(transport: ProbeTransport, outcome: &ProbeOutcome, asked: Revision) -> ProbeVerdict {
    match outcome {
        ProbeOutcome::Result(result) => verdict_of_result(result),
        ProbeOutcome::Error { error, status } => match verdict_of_error(error, asked) {
            Some(verdict) => verdict,
            None => status.map_or(ProbeVerdict::Legacy, verdict_of_status),
        },
        ProbeOutcome::Status(status) => verdict_of_status(*status),
        ProbeOutcome::Unreachable => ProbeVerdict::Outage,
        ProbeOutcome::Timeout | ProbeOutcome::Exited | ProbeOutcome::NotJsonRpc => {
            match transport {
                // Some servers of old end at the first message that they do not know.
                ProbeTransport::Stdio => ProbeVerdict::Legacy,
                ProbeTransport::Http => ProbeVerdict::Outage,
            }
        }
    }
}

/// A result without a list of versions is no `DiscoverResult`: some servers answer everything.
fn verdict_of_result(result: &RawJson) -> ProbeVerdict {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DiscoverResult {
        supported_versions: Vec<String>,
    }
    let Some(found) = object::read::<DiscoverResult>(result.as_str()) else {
        return ProbeVerdict::Legacy;
    };
    newest_modern(&found.supported_versions).map_or(ProbeVerdict::Legacy, ProbeVerdict::Modern)
}

/// `None` for errors that say nothing about the era.
fn verdict_of_error(error: &RawJson, asked: Revision) -> Option<ProbeVerdict> {
    #[derive(Deserialize)]
    struct ProbeError {
        code: i64,
        #[serde(default)]
        message: String,
        #[serde(default)]
        data: Option<Data>,
    }
    #[derive(Deserialize)]
    struct Data {
        #[serde(default)]
        supported: Vec<String>,
    }
    #[derive(Deserialize)]
    struct CodeAndMessage {
        code: i64,
        #[serde(default)]
        message: String,
    }
    let (code, message, supported) = match object::read::<ProbeError>(error.as_str()) {
        Some(error) => {
            let supported = error.data.map(|data| data.supported).unwrap_or_default();
            (error.code, error.message, supported)
        }
        // `data` of another shape.
        None => {
            let error: CodeAndMessage = object::read(error.as_str())?;
            (error.code, error.message, Vec::new())
        }
    };
    if !MODERN_ERRORS.contains(&code) {
        return None;
    }
    let message = message.chars().take(200).collect();
    if code != code::UNSUPPORTED_VERSION {
        return Some(ProbeVerdict::ModernFailed(message));
    }
    Some(match newest_modern(&supported) {
        Some(revision) if revision != asked => ProbeVerdict::ModernRetry(revision),
        // It refuses what it offers, or offers only what begins with a handshake.
        _ if supported.iter().any(|text| is_legacy(text)) => ProbeVerdict::Legacy,
        _ => ProbeVerdict::ModernFailed(message),
    })
}

fn is_legacy(text: &str) -> bool {
    Revision::LEGACY.iter().any(|known| known.as_str() == text)
}

fn newest_modern(supported: &[String]) -> Option<Revision> {
    let known = supported.iter().filter_map(|text| text.parse().ok());
    known
        .filter(|revision: &Revision| !Revision::LEGACY.contains(revision))
        .max()
}

fn verdict_of_status(status: u16) -> ProbeVerdict {
    match status {
        401 | 403 => ProbeVerdict::Authorize,
        408 | 425 | 429 | 500.. => ProbeVerdict::Outage,
        _ => ProbeVerdict::Legacy,
    }
}

/// What follows when `initialize` was answered with an HTTP status of failure (C-HTTP-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterInitialize {
    /// GET the same URL and wait for `endpoint`: HTTP+SSE of 2024-11-05.
    TrySse,
    Authorize,
    Outage,
    /// It is no server that we could speak to.
    Failed,
}

pub const fn after_initialize(status: u16) -> AfterInitialize {
    match status {
        400 | 404 | 405 => AfterInitialize::TrySse,
        401 | 403 => AfterInitialize::Authorize,
        408 | 425 | 429 | 500.. => AfterInitialize::Outage,
        _ => AfterInitialize::Failed,
    }
}

/// Whether a request claims a sessionless revision: by `_meta`, whatever version it names there.
/// Then `initialize` is an unknown method like any other.
pub fn claims_modern(request: &Request) -> bool {
    claimed_version(request).is_some()
}

/// The version that a request claims in `_meta`, as raw JSON; it may be no string.
pub fn claimed_version(request: &Request) -> Option<&str> {
    let meta = request.frame.as_str().get(request.params.meta.clone()?)?;
    memchr::memmem::find(meta.as_bytes(), VERSION.as_bytes())?;
    json::member(meta, VERSION)
}

/// How a POST is served, by its body and its version header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEra {
    /// Sessionless; headers and claim are to be checked against each other.
    Modern,
    /// `initialize`, or within a session.
    Legacy,
    /// The header names a sessionless revision, but the body claims none: -32602 with HTTP
    /// status 400 (S-LIFE-14).
    MissingClaim,
}

/// `header`: the value of `MCP-Protocol-Version`, if there is one.
pub fn incoming(request: &Request, header: Option<&str>) -> RequestEra {
    let named = header.and_then(|text| text.trim_ascii().parse::<Revision>().ok());
    let header_is_modern = named.is_some_and(|named| !Revision::LEGACY.contains(&named));
    if claims_modern(request) {
        RequestEra::Modern
    } else if header_is_modern && request.method != Method::Initialize {
        RequestEra::MissingClaim
    } else {
        RequestEra::Legacy
    }
}

#[cfg(test)]
mod tests;
