//! Calls whose session the server refused: held until it is known whether the session exists, and
//! resent once in a new session.

use tokio::time::Instant;

use crate::downstream::call_request::lost;
use crate::downstream::in_flight::call::{InFlightCall, WireState};
use crate::downstream::in_flight::endings::not_sent;
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent};
use crate::downstream::refusal::session_refused;
use crate::protocol::Envelope;
use crate::transport::SessionRefusal;

impl CallsInFlight {
    /// Handles the refusal of a request's session.
    pub(super) fn on_session_refused(
        &mut self,
        wire_id: Option<u64>,
        refusal: Box<SessionRefusal>,
        now: Instant,
    ) -> Option<UnhandledEvent> {
        let is_stale = refusal.is_stale;
        let error = refusal.error.clone();
        let number = wire_id.and_then(|wire_id| self.calls.by_wire_id(wire_id));
        let Some(call) = number.and_then(|number| self.calls.get_mut(number)) else {
            let is_news = wire_id.is_some() || !is_stale;
            return is_news.then_some(UnhandledEvent::SessionRefused {
                number: wire_id,
                error,
            });
        };
        let number = call.number;
        if call.is_resent || refusal.may_have_run {
            self.refuse(number, &refusal, now);
        } else if is_stale {
            call.is_resent = true;
            call.state = WireState::AwaitsHandshake;
            if !self.server.awaits_handshake {
                self.resend(now);
            }
            return None;
        } else {
            call.state = WireState::AwaitsVerdict(refusal);
        }
        Some(UnhandledEvent::SessionRefused {
            number: None,
            error,
        })
    }

    /// Answers the refused calls with their refusals, because the session exists.
    pub(crate) fn session_confirmed(&mut self, now: Instant) {
        for number in self.refused_calls() {
            let call = self.calls.get_mut(number);
            let state = call.map(|call| std::mem::replace(&mut call.state, WireState::Sent));
            if let Some(WireState::AwaitsVerdict(refusal)) = state {
                self.refuse(number, &refusal, now);
            }
        }
    }

    /// Answers a call with its refusal.
    fn refuse(&mut self, number: u64, refusal: &SessionRefusal, now: Instant) {
        let is_resent = self.calls.get(number).is_some_and(|call| call.is_resent);
        if is_resent && !refusal.may_have_run {
            let Some(call) = self.take(number) else {
                return;
            };
            let (server, status) = (self.server.name(), refusal.error.to_string());
            // The task continues at the server, whether or not the gateway asks about it.
            let failure = match call.task.is_some() {
                true => lost(server, &status),
                false => session_refused(server, &status),
            };
            return call.reply.answer(Err(failure));
        }
        match refusal.answer.clone() {
            Some(Envelope::Response(response)) => {
                self.server.spec.note_refusal(&refusal.error, now);
                let _ = self.on_response(response, now);
            }
            _ => self.on_failed(number, &refusal.error, now),
        }
    }

    /// Holds all calls until the new handshake is done.
    pub(crate) fn hold(&mut self) {
        self.server.awaits_handshake = true;
    }

    /// Sends the held calls in the new session, in the order in which they were made.
    pub(crate) fn resend(&mut self, now: Instant) {
        self.server.awaits_handshake = false;
        for number in self.refused_calls() {
            if let Some(call) = self.calls.get_mut(number) {
                call.is_resent = true;
                call.state = WireState::AwaitsHandshake;
            }
        }
        let waits = |call: &&InFlightCall| matches!(call.state, WireState::AwaitsHandshake);
        let waiting = self.calls.iter().filter(waits);
        let mut waiting: Vec<_> = waiting.map(|call| (call.wire_id, call.number)).collect();
        waiting.sort_unstable();
        for (_, number) in waiting {
            let Some(call) = self.calls.get_mut(number) else {
                continue;
            };
            call.reply.sent(now);
            call.state = WireState::Sent;
            if let Err(error) = self.server.link.send(call.outgoing.clone())
                && let Some(call) = self.take(number)
            {
                let failure = not_sent(self.server.name(), error);
                call.reply.answer(Err(failure));
            }
        }
    }

    /// Numbers of the calls whose session was refused.
    fn refused_calls(&self) -> Vec<u64> {
        let is_refused = |call: &InFlightCall| matches!(call.state, WireState::AwaitsVerdict(_));
        self.calls.numbers(is_refused)
    }
}
