//! Calls that are sent once more, where that is allowed and harmless.

use std::time::Duration;

use actix::{AsyncContext, Context};
use tokio::time::Instant;

use super::super::again::Failed;
use super::super::dispatch::{Dispatch, dispatch};
use super::super::route::Target;
use super::Session;
use crate::downstream::Deadline;
use crate::protocol::{Failure, Request, Response};
use crate::telemetry::Counter;

/// What a call needs to be sent again.
pub(super) struct Again {
    pub(super) request: Request,
    pub(super) target: Target,
    pub(super) deadline: Deadline,
    /// How often it was sent again.
    times: u32,
}

impl Session {
    /// Keeps what it takes to send a call again, if its server allows that.
    pub(super) fn keep_for_again(
        &self,
        request: &Request,
        target: &Target,
        deadline: Deadline,
    ) -> Option<Box<Again>> {
        let server = self.parts.downstreams.get(&target.server)?;
        let is_allowed = server.settings().resilience.retry.is_allowed;
        is_allowed.then(|| {
            Box::new(Again {
                request: request.clone(),
                target: target.clone(),
                deadline,
                times: 0,
            })
        })
    }

    /// Sends a call that failed once more, if nothing speaks against it; gives the answer back
    /// otherwise.
    pub(super) fn try_again(
        &mut self,
        number: u64,
        answer: Result<Response, Failure>,
        ctx: &mut Context<Self>,
    ) -> Option<Result<Response, Failure>> {
        let Err(failure) = &answer else {
            return Some(answer);
        };
        let Some(delay) = self.again_in(number, failure) else {
            return Some(answer);
        };
        let Some(pending) = self.pending.get_mut(&number) else {
            return Some(answer);
        };
        // Between two attempts it is with no server.
        pending.callers = None;
        pending.hold = Default::default();
        let server = pending.server.clone();
        self.drop_questions(number, &server);
        self.parts.counters.add(Counter::CallsRepeated);
        log::info!(
            server = server.as_str(), code = failure.kind.as_str();
            "a call is sent once more"
        );
        ctx.run_later(delay, move |session, ctx| session.send_again(number, ctx));
        None
    }

    fn again_in(&mut self, number: u64, failure: &Failure) -> Option<Duration> {
        let pending = self.pending.get_mut(&number)?;
        let again = pending.again.as_mut()?;
        let failed = Failed {
            kind: failure.kind,
            hints: again.target.tool.as_ref().map(|tool| tool.hints),
            times: again.times,
        };
        let delay = failed.again_in()?;
        let server = self.parts.downstreams.get(&again.target.server)?;
        let in_time = Instant::now() + delay < again.deadline.latest;
        // The settings may have changed since it was sent.
        (in_time && !server.is_halted() && server.may_retry()).then(|| {
            again.times += 1;
            delay
        })
    }

    fn send_again(&mut self, number: u64, ctx: &mut Context<Self>) {
        // Taken back meanwhile.
        let Some(again) = self.pending.get(&number).and_then(|p| p.again.as_ref()) else {
            return;
        };
        let (request, target) = (again.request.clone(), again.target.clone());
        let (downstreams, deadline) = (&self.parts.downstreams, again.deadline);
        let found = dispatch(
            downstreams,
            &target,
            &self.caller,
            self.arbiter,
            Some(deadline),
        );
        let Dispatch { way, hold, .. } = match found {
            Ok(found) => found,
            Err(failure) => return self.on_answer(number, Err(failure)),
        };
        let as_number = self.parts.numbers.next();
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.hold = hold;
            pending.sent_as = as_number;
        }
        self.send_by(way, number, request, target, deadline, ctx);
    }
}
