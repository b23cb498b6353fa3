//! Queues calls while the server has its maximum number of calls in flight.

use tokio::time::Instant;

use crate::downstream::call_request::CallRequest;
use crate::downstream::in_flight::{CallsInFlight, endings::cancelled};
use crate::downstream::resilience::admission::{AdmissionOutcome, QueueTurn};
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::Counter;

impl CallsInFlight {
    /// Sends a client's call, queues it, or refuses it at once.
    pub(super) fn start(&mut self, request: CallRequest, now: Instant) {
        let number = request.number;
        match self.admission.enter(request, now) {
            AdmissionOutcome::Now(request, permit) => self.send(request, permit, now),
            AdmissionOutcome::Waits(until) => self.deadlines.set(number, until),
            AdmissionOutcome::Full(request) => request.reply.answer(Err(self.shed())),
        }
    }

    pub(crate) fn on_turn(&mut self, turn: QueueTurn, now: Instant) {
        // The call was cancelled meanwhile, so the permit goes to the next one.
        let Some(request) = self.admission.take(turn.number) else {
            return;
        };
        self.deadlines.remove(&turn.number);
        match turn.permit {
            Some(permit) => self.send(request, permit, now),
            None => request.reply.answer(Err(self.shed())),
        }
    }

    /// Cancels a queued call. Returns whether it was queued.
    pub(super) fn cancel_queued(&mut self, number: u64) -> bool {
        let Some(request) = self.admission.take(number) else {
            return false;
        };
        self.deadlines.remove(&number);
        request.reply.answer(Err(cancelled()));
        true
    }

    /// Refuses a call that was queued too long. Returns whether it was queued.
    pub(super) fn expire_queued(&mut self, number: u64) -> bool {
        let Some(request) = self.admission.take(number) else {
            return false;
        };
        self.spec.of_all.counters.add(Counter::LateTurns);
        request.reply.answer(Err(self.shed()));
        true
    }

    fn shed(&self) -> Failure {
        let server = self.spec.server.as_str();
        let message = format!(
            "server `{server}` has {} calls in flight, its limit (`calls_per_server`), and other calls are queued; try again later",
            self.admission.max()
        );
        Failure::new(ErrorKind::Overloaded, message)
            .retry_after_ms(500)
            .server(server)
    }
}
