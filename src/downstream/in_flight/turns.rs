//! Calls that wait for their turn at a server that has as many as it may.

use tokio::time::Instant;

use crate::downstream::call_request::CallRequest;
use crate::downstream::in_flight::Calls;
use crate::downstream::resilience::admission::{AdmissionOutcome, QueueTurn};
use crate::protocol::{ErrorKind, Failure};

impl Calls {
    /// Sends a client's call, lets it wait for its turn, or answers at once why it cannot be sent.
    pub(super) fn start(&mut self, exchange: CallRequest, now: Instant) {
        let number = exchange.number;
        match self.admission.enter(exchange, now) {
            AdmissionOutcome::Now(exchange, permit) => self.send(exchange, permit, now),
            AdmissionOutcome::Waits(until) => self.deadlines.set(number, until),
            AdmissionOutcome::Full(exchange) => exchange.reply.answer(Err(self.shed())),
        }
    }

    pub(super) fn on_turn(&mut self, turn: QueueTurn, now: Instant) {
        // Taken back meanwhile: its permit goes to the next one.
        let Some(exchange) = self.admission.take(turn.number) else {
            return;
        };
        self.deadlines.remove(turn.number);
        match turn.permit {
            Some(permit) => self.send(exchange, permit, now),
            None => exchange.reply.answer(Err(self.shed())),
        }
    }

    /// Takes a call back that waits; whether there was one.
    pub(super) fn cancel_queued(&mut self, number: u64) -> bool {
        let Some(exchange) = self.admission.take(number) else {
            return false;
        };
        self.deadlines.remove(number);
        let failure = Failure::new(ErrorKind::Cancelled, "the client cancelled this call");
        exchange.reply.answer(Err(failure));
        true
    }

    /// Refuses a call whose time to wait is over; whether there was one.
    pub(super) fn expire_queued(&mut self, number: u64) -> bool {
        let Some(exchange) = self.admission.take(number) else {
            return false;
        };
        exchange.reply.answer(Err(self.shed()));
        true
    }

    fn shed(&self) -> Failure {
        let server = self.spec.server.as_str();
        let message = format!(
            "server `{server}` has {} calls in flight, its limit (`calls_per_server`), and more wait; try again later",
            self.admission.max()
        );
        Failure::new(ErrorKind::Overloaded, message)
            .retry_after_ms(500)
            .server(server)
    }
}
