//! Pages of calls and of the log, asked for through the control socket.

use std::path::Path;

use serde_json::Value;

use super::control::{ControlError, ask};
use super::control_request::{ControlRequest, Parameters};

/// Records, the oldest first.
pub struct RecordPage {
    pub entries: Vec<Value>,
    /// Where the search goes on.
    next: Option<String>,
}

/// Asks for one page.
///
/// # Errors
///
/// As [`ask`].
pub async fn ask_records(
    data_dir: &Path,
    request: &ControlRequest,
) -> Result<RecordPage, ControlError> {
    let answer = ask(data_dir, request).await?;
    let page = &answer["page"];
    let entries = page["entries"].as_array().into_iter().flatten();
    Ok(RecordPage {
        entries: entries.rev().cloned().collect(),
        next: page["next"].as_str().map(str::to_owned),
    })
}

/// Asks for the last records, as many as `limit` in the parameters. Where a text is looked for, a
/// page may be incomplete; then the search goes on.
///
/// # Errors
///
/// As [`ask`].
pub async fn ask_last_records(
    data_dir: &Path,
    parameters: &Parameters,
    request: impl Fn(Parameters) -> ControlRequest,
) -> Result<Vec<Value>, ControlError> {
    let mut parameters = parameters.clone();
    let limit = parameters.get("limit").and_then(|limit| limit.parse().ok());
    let limit: usize = limit.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    loop {
        let page = ask_records(data_dir, &request(parameters.clone())).await?;
        let mut entries = page.entries;
        entries.append(&mut found);
        found = entries;
        let Some(next) = page.next.filter(|_| found.len() < limit) else {
            return Ok(found);
        };
        parameters.insert("before".to_owned(), next);
        parameters.insert("limit".to_owned(), (limit - found.len()).to_string());
    }
}
