//! The change stream of a sessionless server: one at a time, replaced when the filter changes,
//! reopened when it breaks (B-SUB-01, C-SUB-03).

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::downstream::call_request::CallRequest;
use crate::downstream::connection::control::{Control, Due};
use crate::downstream::connection::handshake::{Negotiated, error_text};
use crate::downstream::connection::listen_filter::{ListenFilter, subscription_of};
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::server_event::ServerEvent;
use crate::downstream::subscription_registry::{SubscriptionKey, TaskKey};
use crate::protocol::{
    ErrorKind, Failure, Method, Notification, Outcome, RawJson, RequestId, Response,
};
use crate::supervision::Backoff;
use crate::telemetry::Counter;

/// Delays before a stream is reopened.
const REOPEN: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(60));

/// Minimum lifetime of a stream that resets the backoff.
const STEADY_MIN: Duration = Duration::from_secs(30);

/// Maximum subscriptions that wait for an acknowledgement; more are refused.
const WAITING_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct ListenStreams {
    /// The acknowledged stream.
    current: Option<ListenStream>,
    acknowledged: Option<Instant>,
    opening: Option<ListenStream>,
    /// Clients' subscriptions, answered when a stream that covers them is acknowledged.
    waiting: Vec<CallRequest>,
    attempts: u32,
    /// Whether there was a gap between streams, in which changes can have been missed.
    has_missed: bool,
}

struct ListenStream {
    number: u64,
    wanted: ListenFilter,
    granted: ListenFilter,
}

impl ListenStreams {
    /// Whether a notification counts: false if it came on a stream that was replaced.
    pub(super) fn is_current(&self, notification: &Notification) -> bool {
        match subscription_of(notification) {
            None => true,
            Some(number) => {
                let current = self.current.as_ref();
                current.is_some_and(|stream| number == Some(stream.number))
            }
        }
    }
}

/// Why a stream ended, taken from the response that ended it.
pub(super) fn ended(response: &Response) -> String {
    match &response.outcome {
        Outcome::Result(_) => "server ended the stream".to_owned(),
        Outcome::Error(error) => error_text(error),
    }
}

/// Delay before attempt number `attempts`. `chance` is from 0.0 to below 1.0.
fn delay(attempts: u32, chance: f64) -> Duration {
    REOPEN.delay(attempts).mul_f64(0.5 + chance / 2.0)
}

impl ListenStreams {
    /// Makes the stream report what clients currently watch.
    pub(super) fn update(&mut self, control: &mut Control) {
        let Some(negotiated) = control.state.negotiated() else {
            return;
        };
        // Both the acknowledgement of a stream that is being opened and a pending attempt call this
        // again.
        if self.opening.is_some() || control.due.get(&Due::ReopenStream).is_some() {
            return;
        }
        let (subscription_registry, server, key) = (
            &control.spec.of_all.subscription_registry,
            control.spec.server(),
            &control.spec.key,
        );
        let uris = subscription_registry.subscriptions(server, key);
        let declaration = control.spec.of_server.declaration;
        let tasks = subscription_registry.tasks(server, declaration, key);
        let wanted = ListenFilter::wanted(negotiated, uris, tasks);
        let current = self.current.as_ref();
        if current.is_some_and(|stream| stream.wanted.covers(&wanted)) && !wanted.is_empty() {
            return self.answer_waiting();
        }
        if wanted.is_empty() {
            self.close_current(control);
            return self.answer_waiting();
        }
        let params = wanted.params();
        if let Some(number) = control.ask_server(&Method::Listen, &params, OwnRequest::Listen) {
            control.spec.of_all.counters.add(Counter::ServersListened);
            self.opening = Some(ListenStream {
                number,
                wanted,
                granted: ListenFilter::default(),
            });
        }
    }

    /// Handles an acknowledgement. Returns whether changes of lists can have been missed before it.
    pub(super) fn on_acknowledged(
        &mut self,
        notification: &Notification,
        control: &mut Control,
    ) -> bool {
        let number = subscription_of(notification).flatten();
        let mut opening = self.opening.take();
        let Some(mut stream) = opening.take_if(|stream| number == Some(stream.number)) else {
            self.opening = opening;
            return false;
        };
        control.own.keep(stream.number);
        stream.granted = ListenFilter::granted(notification).unwrap_or_default();
        let missed = std::mem::take(&mut self.has_missed);
        self.assume_updates(&stream.granted, missed, control);
        self.close_current(control);
        self.acknowledged.get_or_insert_with(Instant::now);
        control.due.remove(&Due::ReopenStream);
        self.current = Some(stream);
        self.update(control);
        missed
    }

    /// Reports resources as changed whose changes can have been missed, because events are not
    /// replayed. After a gap without a stream these are all watched resources. Otherwise they are
    /// the ones that the previous stream did not report, because clients without a session assume
    /// that a resource is watched from their request on; clients that still wait for their answer
    /// need no report.
    fn assume_updates(&self, granted: &ListenFilter, missed: bool, control: &Control) {
        let before = self.current.as_ref();
        for uri in granted.uris() {
            let is_watched = before.is_some_and(|stream| stream.granted.has_uri(uri));
            let of = |exchange: &CallRequest| exchange.native_uri().as_deref() == Some(uri);
            if !missed && (is_watched || self.waiting.iter().any(of)) {
                continue;
            }
            let params = RawJson::from_value(&json!({ "uri": uri }));
            let updated = Notification::new(Method::ResourcesUpdated, &params);
            control.send_event(ServerEvent::ResourceUpdated(updated));
        }
    }

    /// Stops watching tasks after the server refused a stream, because it may no longer know one of
    /// them and would accept the stream without them.
    pub(super) fn refused(&self, number: u64, response: &Response, control: &Control) {
        let opening = self.opening.as_ref();
        let refused = opening.filter(|stream| stream.number == number);
        let is_error = matches!(response.outcome, Outcome::Error(_));
        for id in refused
            .filter(|_| is_error)
            .iter()
            .flat_map(|it| it.wanted.tasks())
        {
            let task = TaskKey {
                at: SubscriptionKey::new(control.spec.server(), &control.spec.key, id),
                declaration: control.spec.of_server.declaration,
            };
            control.spec.of_all.subscription_registry.end_task(&task);
        }
    }

    /// Handles a stream that ended or could not be opened, and schedules the next attempt.
    pub(super) fn ended(&mut self, number: u64, why: &str, control: &mut Control) {
        let is = |stream: &mut ListenStream| stream.number == number;
        if self.opening.take_if(is).is_some() {
            for exchange in std::mem::take(&mut self.waiting) {
                let message = format!("server cannot report updates now: {why}");
                exchange.reply.answer(Err(unavailable(message)));
            }
        } else if self.current.take_if(is).is_some() {
            self.has_missed = true;
            // An acknowledgement alone does not reset the backoff, because each stream can end
            // right after it.
            let acknowledged = self.acknowledged.take();
            if acknowledged.is_some_and(|since| since.elapsed() >= STEADY_MIN) {
                self.attempts = 0;
            }
        } else {
            return;
        }
        let delay = delay(self.attempts, control.spec.of_all.random.chance());
        self.attempts = self.attempts.saturating_add(1);
        log::info!(
            server = control.spec.server().as_str(), why, retry_in:? = delay;
            "change stream ended; reopening it"
        );
        control.due.set(Due::ReopenStream, Instant::now() + delay);
    }

    /// Answers a client's `resources/subscribe` or `resources/unsubscribe`; the subscription
    /// registry has already recorded it.
    pub(super) fn on_subscription(&mut self, exchange: CallRequest, control: &mut Control) {
        if exchange.request.method != Method::ResourcesSubscribe {
            answer_empty(exchange);
            return self.update(control);
        }
        let negotiated = control.state.negotiated();
        if !negotiated.is_some_and(Negotiated::has_subscriptions) {
            let message = "server does not report updates of resources";
            let failure = Failure::new(ErrorKind::MethodNotFound, message);
            return exchange.reply.answer(Err(failure));
        }
        if self.waiting.len() >= WAITING_MAX {
            let message = "too many subscriptions are waiting for the server".to_owned();
            return exchange.reply.answer(Err(unavailable(message)));
        }
        self.waiting.push(exchange);
        // The client should not have to wait for the next attempt.
        control.due.remove(&Due::ReopenStream);
        self.update(control);
    }

    /// Answers the subscriptions that the current stream settles.
    fn answer_waiting(&mut self) {
        let current = self.current.as_ref();
        for exchange in std::mem::take(&mut self.waiting) {
            let uri = exchange.native_uri();
            match current {
                Some(stream) if uri.as_ref().is_some_and(|uri| stream.granted.has_uri(uri)) => {
                    answer_empty(exchange);
                }
                _ => {
                    let message = "server does not report updates of this resource";
                    let failure = Failure::new(ErrorKind::InvalidParams, message);
                    exchange.reply.answer(Err(failure));
                }
            }
        }
    }

    fn close_current(&mut self, control: &mut Control) {
        if let Some(stream) = self.current.take() {
            control.own.take(stream.number);
            control.take_back(stream.number);
        }
    }
}

fn unavailable(message: String) -> Failure {
    Failure::new(ErrorKind::ServerUnavailable, message)
}

fn answer_empty(exchange: CallRequest) {
    let empty = Outcome::Result(RawJson::from_value(&json!({})));
    let response = Response::new(&RequestId::from(exchange.number), &empty);
    exchange.reply.answer(Ok(response));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_are_spread() {
        let ms = Duration::from_millis;
        let table = [
            (0, 250, 500),
            (1, 500, 1000),
            (3, 2000, 4000),
            (60, 30_000, 60_000),
        ];
        for (attempts, least, most) in table {
            assert_eq!(delay(attempts, 0.0), ms(least), "{attempts}");
            assert!(delay(attempts, 0.999) <= ms(most), "{attempts}");
        }
    }
}
