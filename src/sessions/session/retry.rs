//! Calls of a session that are sent once more.

use actix::{AsyncContext, Context};

use crate::calls::RetryAttempt;
use crate::calls::{CallPermit, CallRoute};
use crate::protocol::Failure;
use crate::sessions::session::Session;

impl Session {
    /// Whether a call that failed is sent once more; then nobody is answered yet.
    pub(super) fn schedule_retry(
        &mut self,
        number: u64,
        failure: &Failure,
        ctx: &mut Context<Self>,
    ) -> bool {
        let Some(pending) = self.pending.get_mut(&number) else {
            return false;
        };
        let again = pending.retry.as_mut();
        let Some(delay) = again.and_then(|again| again.next_delay(failure, &self.parts.calls))
        else {
            return false;
        };
        // Between two attempts it is with no server.
        pending.senders = None;
        pending.permit = CallPermit::default();
        let server = pending.server.clone();
        self.drop_questions(number, &server);
        ctx.run_later(delay, move |session, ctx| session.resend(number, ctx));
        true
    }

    /// The call is sent again in no case.
    pub(super) fn forbid_retry(&mut self, number: u64) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.retry = None;
        }
    }

    fn resend(&mut self, number: u64, ctx: &mut Context<Self>) {
        // Taken back meanwhile.
        let Some(again) = self.pending.get(&number).and_then(|p| p.retry.as_ref()) else {
            return;
        };
        let attempt = match again.attempt(&self.parts.calls, &self.caller, self.arbiter) {
            Ok(attempt) => attempt,
            Err(failure) => return self.on_answer(number, Err(failure)),
        };
        let RetryAttempt {
            number: sent_as,
            request,
            target,
            found,
        } = attempt;
        let CallRoute {
            deadline,
            way,
            permit,
            ..
        } = found;
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.permit = permit;
            pending.sent_as = sent_as;
        }
        self.send_by(way, number, request, target, deadline, ctx);
    }
}
