//! Sends a failed call again: decides when, and finds the connection.

use super::{Call, CallOwner, CallState};
use crate::calls::alarms::Alarm;
use crate::calls::call_route::find_route;
use crate::calls::retry::RetryState;
use crate::downstream::Deadline;
use crate::protocol::{Failure, Request};

impl Call {
    /// Returns the state for retries. An answer of the client is valid for only one request of the
    /// server, so a call that may have run with such an answer is not sent again.
    pub(super) fn retry_state(&self, request: &Request, deadline: Deadline) -> RetryState {
        let mut retry = RetryState::new(request, &self.target, deadline);
        if self
            .rounds
            .as_ref()
            .is_some_and(|rounds| rounds.questions.round > 0)
        {
            retry.retry_only_if_unsent();
        }
        retry
    }

    /// Schedules a retry of the failed call if it is allowed. Returns whether it is; in that case
    /// the client is not answered yet.
    pub(super) fn schedule_retry(&mut self, failure: &Failure, owner: &mut impl CallOwner) -> bool {
        let retry = self.retry.as_mut();
        let Some(delay) = retry.and_then(|retry| retry.next_delay(failure, &self.context)) else {
            return false;
        };
        if let Some(trace) = self.call_telemetry.as_mut().and_then(|it| it.trace()) {
            trace.retried(failure.exact_kind().as_str());
        }
        self.state = CallState::NotSent;
        owner.on_call_returned(self, None);
        self.alarms.set(Alarm::Retry, delay);
        true
    }

    pub(super) fn resend(&mut self, owner: &mut impl CallOwner) {
        let Some(retry) = &self.retry else { return };
        let (downstreams, before) = (&self.context.downstreams, Some(retry.deadline));
        match find_route(
            downstreams,
            &retry.target,
            &self.caller,
            self.arbiter,
            before,
        ) {
            Ok(route) => {
                let request = retry.request.clone();
                self.target = retry.target.clone();
                // The server sees each attempt as a separate request.
                let sent_as = self.context.numbers.next();
                self.send_by(route, request, sent_as);
            }
            Err(failure) => self.on_answer(Err(failure), owner),
        }
    }
}
