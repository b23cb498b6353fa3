//! Pages of calls and of the log, asked for through the control socket.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::control::{ControlError, ask};
use super::control_request::{ControlRequest, Parameters};
use super::render::{Screen, call_lines, record_lines};
use crate::history::{CallPage, RecordedCall};
use crate::telemetry::{LogEntry, LogPage};

/// A page of records that is searched from the newest to the oldest.
pub trait RecordPage: DeserializeOwned {
    type Record: Serialize;

    /// The records as text, a line each.
    fn lines(records: &[Self::Record], screen: &Screen) -> String;

    /// The id of a record, after which newer ones begin.
    fn id_of(record: &Self::Record) -> &str;

    /// The records, the newest first, and where the search goes on.
    fn into_parts(self) -> (Vec<Self::Record>, Option<String>);
}

impl RecordPage for CallPage {
    type Record = RecordedCall;

    fn lines(records: &[RecordedCall], screen: &Screen) -> String {
        call_lines(records, screen)
    }

    fn id_of(record: &RecordedCall) -> &str {
        &record.id
    }

    fn into_parts(self) -> (Vec<RecordedCall>, Option<String>) {
        (self.entries, self.next)
    }
}

impl RecordPage for LogPage {
    type Record = LogEntry;

    fn lines(records: &[LogEntry], screen: &Screen) -> String {
        record_lines(records, screen)
    }

    fn id_of(record: &LogEntry) -> &str {
        &record.id
    }

    fn into_parts(self) -> (Vec<LogEntry>, Option<String>) {
        (self.entries, None)
    }
}

/// Asks for one page; the oldest record comes first.
///
/// # Errors
///
/// As [`ask`].
pub async fn ask_records<P: RecordPage>(
    data_dir: &Path,
    request: &ControlRequest,
) -> Result<(Vec<P::Record>, Option<String>), ControlError> {
    let page: P = ask(data_dir, request).await?;
    let (mut records, next) = page.into_parts();
    records.reverse();
    Ok((records, next))
}

/// Asks for the last records, as many as `limit` in the parameters. Where a text is looked for, a
/// page may be incomplete; then the search goes on.
///
/// # Errors
///
/// As [`ask`].
pub async fn ask_last_records<P: RecordPage>(
    data_dir: &Path,
    parameters: &Parameters,
    request: impl Fn(Parameters) -> ControlRequest,
) -> Result<Vec<P::Record>, ControlError> {
    let mut parameters = parameters.clone();
    let limit = parameters.get("limit").and_then(|limit| limit.parse().ok());
    let limit: usize = limit.unwrap_or(usize::MAX);
    let mut found = Vec::new();
    loop {
        let request = request(parameters.clone());
        let (mut records, next) = ask_records::<P>(data_dir, &request).await?;
        records.append(&mut found);
        found = records;
        let Some(next) = next.filter(|_| found.len() < limit) else {
            return Ok(found);
        };
        parameters.insert("before".to_owned(), next);
        parameters.insert("limit".to_owned(), (limit - found.len()).to_string());
    }
}
