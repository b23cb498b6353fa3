//! A task that a call represents, and the requests that wait for it.

use super::sent_call::SentCall;
use crate::calls::bridged_task::BridgedTask;
use crate::calls::client_reply::ClientRequest;
use crate::calls::task_lookup::OrphanedTask;

/// A running or ended task of the server.
pub(super) struct HostedTask {
    pub(super) task: BridgedTask,
    /// The call at the server; `None` once the task has ended.
    pub(super) sent: Option<SentCall>,
    /// Requests for the task that were not answered yet.
    pub(super) waiting: Vec<ClientRequest>,
}

/// A task of an earlier process of the gateway whose state the server has not reported yet.
pub(super) struct AdoptedTask {
    pub(super) task: OrphanedTask,
    pub(super) waiting: Vec<ClientRequest>,
}

impl HostedTask {
    pub(super) const fn sent(&self) -> Option<&SentCall> {
        self.sent.as_ref()
    }
}
