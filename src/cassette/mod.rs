//! Cassettes: a server's lists and answers, recorded from the history of a gateway, and played back
//! as a server over stdio, so that a test of an agent needs neither the server nor its accounts.

mod matching;
mod playback;
mod server;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use matching::{ANY, mark_volatile};
pub use playback::Matching;
pub use server::serve_cassette;

/// Version of the file format.
const VERSION: u32 = 1;

/// Maximum size of a cassette, in bytes.
const CASSETTE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The recording of one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cassette {
    #[serde(rename = "cassette")]
    version: u32,
    /// Result of `initialize`.
    pub initialize: Value,
    /// Items of each list, by the member of the list's result, such as `tools`.
    pub lists: BTreeMap<String, Vec<Value>>,
    /// Calls in the order in which they ended.
    pub calls: Vec<RecordedExchange>,
}

/// A request, and how the server behaved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedExchange {
    pub method: String,
    pub params: Value,
    #[serde(flatten)]
    pub answer: RecordedAnswer,
}

/// The answer to a recorded request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedAnswer {
    Result(Value),
    /// A JSON-RPC error.
    Error(Value),
    Fault(Fault),
}

/// How a server failed a request without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// The process ended.
    Exit,
    /// No answer came in time.
    Silence,
}

/// Why a cassette cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CassetteError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("it is larger than {CASSETTE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("it is not a cassette: {0}")]
    Format(#[from] serde_json::Error),
    #[error("it has version {0}, and this mcpvisor reads version {VERSION}")]
    Version(u32),
}

impl Cassette {
    pub fn new(
        initialize: Value,
        lists: BTreeMap<String, Vec<Value>>,
        calls: Vec<RecordedExchange>,
    ) -> Self {
        Self {
            version: VERSION,
            initialize,
            lists,
            calls,
        }
    }

    /// # Errors
    ///
    /// Returns [`CassetteError`] if the file cannot be read or has another form.
    pub fn read(path: &Path) -> Result<Self, CassetteError> {
        if std::fs::metadata(path)?.len() > CASSETTE_BYTES_MAX {
            return Err(CassetteError::TooLarge);
        }
        let cassette: Self = serde_json::from_slice(&std::fs::read(path)?)?;
        match cassette.version {
            VERSION => Ok(cassette),
            other => Err(CassetteError::Version(other)),
        }
    }
}

impl RecordedAnswer {
    /// The result or error of a response to this request; `None` for a fault.
    fn response(&self, id: &Value) -> Option<Value> {
        match self {
            Self::Result(result) => Some(json!({"jsonrpc": "2.0", "id": id, "result": result})),
            Self::Error(error) => Some(json!({"jsonrpc": "2.0", "id": id, "error": error})),
            Self::Fault(_) => None,
        }
    }
}
