//! Pages of calls and of the log, for commands.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::OperatorClient;
use super::client_error::ClientError;
use super::render::{Screen, call_lines, record_lines};
use crate::history::{CallPage, RecordedCall};
use crate::telemetry::{LogEntry, LogPage};

/// A page of records, searched from newest to oldest.
pub trait RecordPage: DeserializeOwned {
    type Record: Serialize;

    /// The API path that lists the records.
    const PATH: &[&str];

    /// The records as text, one per line.
    fn lines(records: &[Self::Record], screen: &Screen) -> String;

    /// The id of a record, from which a search for newer ones can start.
    fn id_of(record: &Self::Record) -> &str;

    /// The records, newest first, and the position at which the search continues.
    fn into_parts(self) -> (Vec<Self::Record>, Option<String>);
}

impl RecordPage for CallPage {
    type Record = RecordedCall;

    const PATH: &[&str] = &["api", "history"];

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

    const PATH: &[&str] = &["api", "logs"];

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

/// The parameters of a page, by name.
pub type Parameters = BTreeMap<&'static str, String>;

impl OperatorClient {
    /// One page of records, oldest first, and the position at which the search continues.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn records<P: RecordPage>(
        &self,
        parameters: &Parameters,
    ) -> Result<(Vec<P::Record>, Option<String>), ClientError> {
        let query = parameters.iter();
        let query: Vec<(&str, &str)> = query.map(|(name, value)| (*name, &**value)).collect();
        let page: P = self.get(P::PATH, &query).await?;
        let (mut records, next) = page.into_parts();
        records.reverse();
        Ok((records, next))
    }

    /// The latest records, up to `limit` in the parameters. A text search can return an incomplete
    /// page; the search then continues.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn last_records<P: RecordPage>(
        &self,
        parameters: &Parameters,
    ) -> Result<Vec<P::Record>, ClientError> {
        let mut parameters = parameters.clone();
        let limit = parameters.get("limit").and_then(|limit| limit.parse().ok());
        let limit: usize = limit.unwrap_or(usize::MAX);
        let mut found = Vec::new();
        loop {
            let (mut records, next) = self.records::<P>(&parameters).await?;
            records.append(&mut found);
            found = records;
            let Some(next) = next.filter(|_| found.len() < limit) else {
                return Ok(found);
            };
            parameters.insert("before", next);
            parameters.insert("limit", (limit - found.len()).to_string());
        }
    }
}
