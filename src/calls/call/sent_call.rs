//! A call in flight at its server.

use crate::calls::call_route::CallPermit;
use crate::downstream::{CallMessage, CallSenders, CancelCall};

/// A call that was sent to its server.
pub(super) struct SentCall {
    pub(super) senders: CallSenders,
    /// The number under which the server received the call. It differs in each attempt.
    pub(super) sent_as: u64,
    pub(super) _permit: CallPermit,
}

impl SentCall {
    pub(super) fn cancel(&self, arbiter: usize, reason: Option<String>) {
        let number = self.sent_as;
        let cancel = CancelCall { number, reason };
        self.senders.send(arbiter, CallMessage::CancelCall(cancel));
    }
}
