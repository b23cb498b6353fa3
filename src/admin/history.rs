//! Call history and log for operators: pages, single calls and replays.

use actix_rt::ArbiterHandle;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::history::{
    CallPage, History, HistoryEntry, HistoryError, HistoryQuery, NotReplayable, RecordedCall,
};
use crate::id::ViewId;
use crate::protocol::{Envelope, ErrorKind, Failure, Request, Revision};
use crate::sessions::Sessions;
use crate::telemetry::{LogPage, LogQuery, LogRecords};

/// Why a request for records failed. The messages are for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordsError {
    /// A parameter is wrong.
    #[error("{0}")]
    Invalid(String),
    #[error("no call has the id {}; its record may have been removed", .0.escape_debug())]
    NotFound(String),
    #[error("the call cannot be made again: {0}")]
    NotReplayable(#[from] NotReplayable),
    #[error(transparent)]
    Unavailable(#[from] HistoryError),
    /// The gateway is shutting down.
    #[error("the call was not answered")]
    Unanswered,
}

impl From<RecordsError> for Failure {
    fn from(error: RecordsError) -> Self {
        let kind = match &error {
            RecordsError::Invalid(_) => ErrorKind::InvalidRequest,
            RecordsError::NotFound(_) => ErrorKind::NotFound,
            RecordsError::NotReplayable(_) | RecordsError::Unavailable(HistoryError::Off) => {
                ErrorKind::Conflict
            }
            RecordsError::Unavailable(HistoryError::Busy) => ErrorKind::Overloaded,
            RecordsError::Unavailable(HistoryError::Unavailable(_)) => ErrorKind::Internal,
            RecordsError::Unanswered => ErrorKind::ShuttingDown,
        };
        Self::new(kind, error.to_string())
    }
}

/// One page of calls: `entries`, newest first, `total`, and `next`, which continues after this
/// page.
///
/// # Errors
///
/// Returns the invalid parameter, or why the history cannot be read.
pub async fn history_page<'p>(
    history: &History,
    parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> Result<CallPage, RecordsError> {
    let query = HistoryQuery::from_pairs(parameters).map_err(RecordsError::Invalid)?;
    Ok(history.page(query).await?.view())
}

/// One call.
///
/// # Errors
///
/// Returns an error if no call has this id, or if the history cannot be read.
pub async fn history_entry(history: &History, id: &str) -> Result<RecordedCall, RecordsError> {
    Ok(entry(history, id).await?.record())
}

/// Log records that match: `entries`, newest first, and `total`.
///
/// # Errors
///
/// Returns the invalid parameter.
pub fn log_page<'p>(
    log: &LogRecords,
    parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> Result<LogPage, RecordsError> {
    let query = LogQuery::from_pairs(parameters).map_err(RecordsError::Invalid)?;
    Ok(log.page(&query))
}

/// Replays a call as an operator without a session, on the arbiter with this index, and returns its
/// JSON-RPC answer. A call to a single server goes to the same server again. The replay is recorded
/// like any other call.
///
/// # Errors
///
/// Returns an error if no call has this id, or if it cannot be replayed.
pub async fn replay(
    history: &History,
    sessions: &Sessions,
    place: (usize, &ArbiterHandle),
    id: &str,
) -> Result<Value, RecordsError> {
    let entry = entry(history, id).await?;
    let request = replay_request(&entry)?;
    let as_client = (entry.view(), Revision::NEWEST);
    let frame = answer_request(sessions, place, request, as_client).await;
    let frame = frame.ok_or(RecordsError::Unanswered)?;
    Ok(serde_json::from_slice(&frame).unwrap_or_else(|_| json!(null)))
}

/// The JSON-RPC answer to an operator's request, in the form for this view and revision, served on
/// the arbiter with this index. `None` if the gateway stops first.
pub async fn answer_request(
    sessions: &Sessions,
    (index, arbiter): (usize, &ArbiterHandle),
    request: Request,
    as_client: (ViewId, Revision),
) -> Option<Bytes> {
    let (sender, answer) = oneshot::channel();
    let sessions = sessions.clone();
    arbiter.spawn_fn(move || {
        actix_rt::spawn(async move {
            let answer = sessions.answer_operator(request, as_client, index);
            // The requester may have disconnected.
            let _ = sender.send(answer.await);
        });
    });
    answer.await.ok().flatten()
}

pub(super) fn replay_request(entry: &HistoryEntry) -> Result<Request, RecordsError> {
    match Envelope::parse(entry.replay_frame(1)?) {
        Ok(Envelope::Request(request)) => Ok(request),
        _ => Err(NotReplayable::Cut.into()),
    }
}

async fn entry(history: &History, id: &str) -> Result<HistoryEntry, RecordsError> {
    let unknown = || RecordsError::NotFound(id.chars().take(64).collect());
    let number = id.parse().map_err(|_| unknown())?;
    let found = history.entry(number).await?;
    found.ok_or_else(unknown)
}
