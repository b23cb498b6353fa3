//! Calls of a session that are sent once more.

use actix::{AsyncContext, Context};

use super::super::again::Attempt;
use super::super::dispatch::{Dispatch, Hold};
use super::Session;
use crate::protocol::Failure;

impl Session {
    /// Whether a call that failed is sent once more; then nobody is answered yet.
    pub(super) fn goes_again(
        &mut self,
        number: u64,
        failure: &Failure,
        ctx: &mut Context<Self>,
    ) -> bool {
        let Some(pending) = self.pending.get_mut(&number) else {
            return false;
        };
        let again = pending.again.as_mut();
        let Some(delay) = again.and_then(|again| again.after(failure, &self.parts)) else {
            return false;
        };
        // Between two attempts it is with no server.
        pending.callers = None;
        pending.hold = Hold::default();
        let server = pending.server.clone();
        self.drop_questions(number, &server);
        ctx.run_later(delay, move |session, ctx| session.send_again(number, ctx));
        true
    }

    /// The call is sent again in no case.
    pub(super) fn keep_no_longer(&mut self, number: u64) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.again = None;
        }
    }

    fn send_again(&mut self, number: u64, ctx: &mut Context<Self>) {
        // Taken back meanwhile.
        let Some(again) = self.pending.get(&number).and_then(|p| p.again.as_ref()) else {
            return;
        };
        let attempt = match again.attempt(&self.parts, &self.caller, self.arbiter) {
            Ok(attempt) => attempt,
            Err(failure) => return self.on_answer(number, Err(failure)),
        };
        let Attempt {
            number: sent_as,
            request,
            target,
            found,
        } = attempt;
        let Dispatch {
            deadline,
            way,
            hold,
            ..
        } = found;
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.hold = hold;
            pending.sent_as = sent_as;
        }
        self.send_by(way, number, request, target, deadline, ctx);
    }
}
