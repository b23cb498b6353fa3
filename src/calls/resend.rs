//! Calls of clients without a session that are sent once more.

use crate::calls::alarms::Alarm;
use crate::calls::call::Call;
use crate::calls::call_route::CallPermit;
use crate::calls::retry::{RetryAttempt, RetryState};
use crate::downstream::Deadline;
use crate::protocol::Failure;

impl Call {
    /// Keeps what it takes to send the call again. What its client answered was for one request
    /// of the server: a call that may have run with it is not sent again.
    pub(crate) fn prepare_retry(&mut self, deadline: Deadline) {
        let Some(request) = &self.request else { return };
        let mut again = RetryState::new(request, &self.target, deadline);
        if self.inputs.round > 0 {
            again.retry_only_if_unsent();
        }
        self.retry = Some(Box::new(again));
    }

    /// Whether the call, which failed, is sent once more; then nobody is answered yet.
    pub(crate) fn schedule_retry(&mut self, failure: &Failure) -> bool {
        let again = self.retry.as_mut();
        let Some(delay) = again.and_then(|again| again.next_delay(failure, &self.parts)) else {
            return false;
        };
        // Between two attempts it is with no server.
        self.senders = None;
        self.permit = CallPermit::default();
        self.alarms.set(Alarm::Retry, delay);
        true
    }

    pub(crate) fn resend(&mut self) {
        let Some(again) = &self.retry else { return };
        let attempt = match again.attempt(&self.parts, &self.caller, self.arbiter) {
            Ok(attempt) => attempt,
            Err(failure) => return self.on_answer(Err(failure)),
        };
        let RetryAttempt {
            number,
            request,
            target,
            found,
        } = attempt;
        self.sent_as = number;
        self.request = Some(request);
        self.target = target;
        self.send_by(found);
    }
}
