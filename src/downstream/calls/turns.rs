//! Calls that wait for their turn at a server that has as many as it may.

use tokio::time::Instant;

use super::super::admission::{Entered, Turn};
use super::super::exchange::Exchange;
use super::Calls;
use crate::protocol::{ErrorKind, Failure};

impl Calls {
    /// Sends a client's call, lets it wait for its turn, or answers at once why it cannot be sent.
    pub(super) fn start(&mut self, exchange: Exchange, now: Instant) {
        let number = exchange.number;
        match self.admission.enter(exchange, now) {
            Entered::Now(exchange, place) => self.send(exchange, place, now),
            Entered::Waits(until) => self.deadlines.set(number, until),
            Entered::Full(exchange) => exchange.reply.answer(Err(self.shed())),
        }
    }

    pub(super) fn on_turn(&mut self, turn: Turn, now: Instant) {
        // Taken back meanwhile: its place goes to the next one.
        let Some(exchange) = self.admission.take(turn.number) else {
            return;
        };
        self.deadlines.remove(turn.number);
        match turn.place {
            Some(place) => self.send(exchange, place, now),
            None => exchange.reply.answer(Err(self.shed())),
        }
    }

    /// Takes a call back that waits; whether there was one.
    pub(super) fn leave_queue(&mut self, number: u64) -> bool {
        let Some(exchange) = self.admission.take(number) else {
            return false;
        };
        self.deadlines.remove(number);
        let failure = Failure::new(ErrorKind::Cancelled, "the client cancelled this call");
        exchange.reply.answer(Err(failure));
        true
    }

    /// Refuses a call whose time to wait is over; whether there was one.
    pub(super) fn waited_too_long(&mut self, number: u64) -> bool {
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
