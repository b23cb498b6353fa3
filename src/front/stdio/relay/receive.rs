//! Handles messages of the server, and failures of the link to it.

use tokio::time::{Instant, sleep};

use super::pending_request::failure_of;
use super::{Relay, RelayEvent};
use crate::protocol::{Envelope, ErrorKind, Failure, Outcome, RequestId, Response};
use crate::telemetry::Reason;
use crate::transport::{LinkError, LinkEvent};

impl Relay {
    pub(super) async fn on_event(&mut self, event: RelayEvent) {
        match event {
            RelayEvent::Retry(number) => self.send(number).await,
            RelayEvent::Reopen => self.reopen().await,
            RelayEvent::Event(LinkEvent::Received { call, envelope }) => match envelope {
                Envelope::Response(response) => self.on_response(&response).await,
                Envelope::Request(request) => self.write(request.frame.as_bytes().clone()).await,
                Envelope::Notification(notification) => {
                    let pending = call.and_then(|call| self.pending.get(&call));
                    let named = pending.and_then(|pending| pending.subscription(&notification));
                    let frame = named.unwrap_or_else(|| notification.frame.as_bytes().clone());
                    self.write(frame).await;
                }
            },
            RelayEvent::Event(LinkEvent::Failed { call, error }) => {
                self.on_failed(call, &error).await
            }
            RelayEvent::Event(LinkEvent::SessionGone { call, refusal }) => {
                match (refusal.is_certain(), call, refusal.answer) {
                    (true, call, _) => self.on_session_gone(call).await,
                    (false, _, Some(Envelope::Response(response))) => {
                        self.on_response(&response).await;
                    }
                    (false, Some(call), _) => self.on_failed(call, &refusal.error).await,
                    (false, None, _) => {}
                }
            }
            // Only child processes report sign-ins.
            RelayEvent::Event(LinkEvent::SignIn(_)) => {}
            RelayEvent::Event(LinkEvent::Closed(ending)) => {
                self.log_reason(&ending.reason);
                self.on_closed(&ending.to_string()).await
            }
        }
    }

    async fn on_response(&mut self, response: &Response) {
        let number = response.id.as_ref().and_then(RequestId::as_number);
        let found = number.and_then(|number| self.pending.remove(&number));
        // A response with an unknown id answers a cancelled request.
        let Some(pending) = found else { return };
        if pending.is_initialize() {
            self.on_initialized(response);
        }
        match (pending.from_client, &response.outcome) {
            (true, Outcome::Result(_)) => self.write(response.with_id(pending.id())).await,
            (true, Outcome::Error(_)) => {
                if pending.is_initialize() {
                    // The client can retry with another `initialize`.
                    self.initialize = None;
                }
                self.write(response.with_id(pending.id())).await;
            }
            (false, Outcome::Result(_)) => self.renewed().await,
            (false, Outcome::Error(error)) => {
                self.log_reason(&Reason::quoting(
                    "the server refused a new session",
                    error.as_str(),
                ));
                let message = "the server refused a new session";
                let failure = Failure::new(ErrorKind::ServerUnavailable, message);
                self.give_up_renewal(&failure).await;
            }
        }
    }

    async fn on_failed(&mut self, number: u64, error: &LinkError) {
        let Some(pending) = self.pending.get_mut(&number) else {
            return;
        };
        let again = match error {
            LinkError::NotSent(_) => pending.retry_delay(Instant::now()),
            // `initialize` can be repeated: its only effect is an unused session.
            LinkError::Lost(_) if pending.is_initialize() => pending.retry_delay(Instant::now()),
            _ => None,
        };
        if let Some(delay) = again {
            log::info!(error:%, delay:?; "server unreachable; retrying");
            return self.send_later(RelayEvent::Retry(number), delay);
        }
        let Some(pending) = self.pending.remove(&number) else {
            return;
        };
        self.log_reason(&Reason::of(error));
        let failure = failure_of(error);
        if pending.from_client {
            if pending.is_initialize() {
                self.initialize = None;
            }
            return self.write(pending.failure_answer(&failure).into()).await;
        }
        self.give_up_renewal(&failure).await;
    }

    /// Logs the reason for a failure, including the server's own text, with secrets masked.
    fn log_reason(&self, reason: &Reason) {
        let reason = self.secrets.masked(&format!("{reason:#}"));
        log::warn!(reason:%; "server failed");
    }

    pub(super) fn send_later(&self, event: RelayEvent, delay: std::time::Duration) {
        let event_sender = self.event_sender.clone();
        actix_rt::spawn(async move {
            sleep(delay).await;
            // Sending fails only if the relay has ended.
            let _ = event_sender.send(event).await;
        });
    }
}
