//! Calls of clients without a session that are sent once more.

use super::super::again::{Again, Attempt};
use super::super::dispatch::Hold;
use super::alarms::Alarm;
use super::call::Call;
use crate::downstream::Deadline;
use crate::protocol::Failure;

impl Call {
    /// Keeps what it takes to send the call again. What its client answered was for one request
    /// of the server: a call that may have run with it is not sent again.
    pub(super) fn keep_for_again(&mut self, deadline: Deadline) {
        let Some(request) = &self.request else { return };
        let mut again = Again::new(request, &self.target, deadline);
        if self.inputs.round > 0 {
            again.only_unsent();
        }
        self.again = Some(Box::new(again));
    }

    /// Whether the call, which failed, is sent once more; then nobody is answered yet.
    pub(super) fn goes_again(&mut self, failure: &Failure) -> bool {
        let again = self.again.as_mut();
        let Some(delay) = again.and_then(|again| again.after(failure, &self.parts)) else {
            return false;
        };
        // Between two attempts it is with no server.
        self.callers = None;
        self.hold = Hold::default();
        self.alarms.set(Alarm::Again, delay);
        true
    }

    pub(super) fn send_again(&mut self) {
        let Some(again) = &self.again else { return };
        let attempt = match again.attempt(&self.parts, &self.caller, self.arbiter) {
            Ok(attempt) => attempt,
            Err(failure) => return self.on_answer(Err(failure)),
        };
        let Attempt {
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
