//! The change stream of a sessionless server: one at a time, replaced when the filter changes,
//! reopened when it breaks (B-SUB-01, C-SUB-03).

use std::time::Duration;

use actix::{AsyncContext, Context, SpawnHandle};
use serde_json::json;
use tokio::time::Instant;

use crate::catalog::ItemKind;
use crate::downstream::call_request::CallRequest;
use crate::downstream::connection::Connection;
use crate::downstream::connection::handshake::{Negotiated, error_text};
use crate::downstream::connection::listen_filter::{ListenFilter, subscription_of};
use crate::downstream::connection::own_requests::OwnRequest;
use crate::downstream::server_event::ServerEvent;
use crate::downstream::subscription_registry::{SubscriptionKey, TaskKey};
use crate::protocol::{
    ErrorKind, Failure, Method, Notification, Outcome, RawJson, RequestId, Response, cancelled,
};
use crate::supervision::Backoff;
use crate::telemetry::Counter;
use crate::transport::OutgoingFrame;

/// Delays before a stream is reopened.
const REOPEN: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(60));

/// Minimum lifetime of a stream that resets the backoff.
const STEADY_MIN: Duration = Duration::from_secs(30);

/// Maximum subscriptions that wait for an acknowledgement; more are refused.
const WAITING_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct ListenState {
    /// The acknowledged stream.
    current: Option<ListenStream>,
    acknowledged: Option<Instant>,
    opening: Option<ListenStream>,
    /// Clients' subscriptions, answered when a stream that covers them is acknowledged.
    waiting: Vec<CallRequest>,
    attempts: u32,
    retry: Option<SpawnHandle>,
    /// Whether there was a gap between streams, in which changes can have been missed.
    has_missed: bool,
}

struct ListenStream {
    number: u64,
    wanted: ListenFilter,
    granted: ListenFilter,
}

impl ListenState {
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

impl Connection {
    /// Makes the stream report what clients currently watch.
    pub(super) fn update_listen_stream(&mut self, ctx: &mut Context<Self>) {
        let Some(negotiated) = self.state.negotiated() else {
            return;
        };
        // Both the acknowledgement of a stream that is being opened and a pending attempt call this
        // again.
        if self.listening.opening.is_some() || self.listening.retry.is_some() {
            return;
        }
        let (subscription_registry, server, key) = (
            &self.spec.of_all.subscription_registry,
            self.spec.server(),
            &self.spec.key,
        );
        let uris = subscription_registry.subscriptions(server, key);
        let declaration = self.spec.settings().declaration();
        let tasks = subscription_registry.tasks(server, declaration, key);
        let wanted = ListenFilter::wanted(negotiated, uris, tasks);
        let current = self.listening.current.as_ref();
        if current.is_some_and(|stream| stream.wanted.covers(&wanted)) && !wanted.is_empty() {
            return self.answer_waiting();
        }
        if wanted.is_empty() {
            self.close_current();
            return self.answer_waiting();
        }
        let params = wanted.params();
        if let Some(number) = self.ask_server(&Method::Listen, &params, OwnRequest::Listen, ctx) {
            self.spec.of_all.counters.add(Counter::ServersListened);
            self.listening.opening = Some(ListenStream {
                number,
                wanted,
                granted: ListenFilter::default(),
            });
        }
    }

    pub(super) fn on_acknowledged(&mut self, notification: &Notification, ctx: &mut Context<Self>) {
        let number = subscription_of(notification).flatten();
        let mut opening = self.listening.opening.take();
        let Some(mut stream) = opening.take_if(|stream| number == Some(stream.number)) else {
            self.listening.opening = opening;
            return;
        };
        self.own.keep(stream.number);
        stream.granted = ListenFilter::granted(notification).unwrap_or_default();
        let missed = std::mem::take(&mut self.listening.has_missed);
        if missed {
            self.list_changed(&ItemKind::ALL, ctx);
        }
        self.assume_updates(&stream.granted, missed);
        self.close_current();
        self.listening.acknowledged.get_or_insert_with(Instant::now);
        self.cancel_retry(ctx);
        self.listening.current = Some(stream);
        self.update_listen_stream(ctx);
    }

    /// Reports resources as changed whose changes can have been missed, because events are not
    /// replayed. After a gap without a stream these are all watched resources. Otherwise they are
    /// the ones that the previous stream did not report, because clients without a session assume
    /// that a resource is watched from their request on; clients that still wait for their answer
    /// need no report.
    fn assume_updates(&self, granted: &ListenFilter, missed: bool) {
        let before = self.listening.current.as_ref();
        for uri in granted.uris() {
            let is_watched = before.is_some_and(|stream| stream.granted.has_uri(uri));
            let of = |exchange: &CallRequest| exchange.native_uri().as_deref() == Some(uri);
            if !missed && (is_watched || self.listening.waiting.iter().any(of)) {
                continue;
            }
            let params = RawJson::from_value(&json!({ "uri": uri }));
            let updated = Notification::new(Method::ResourcesUpdated, &params);
            self.send_event(ServerEvent::ResourceUpdated(updated));
        }
    }

    /// Stops watching tasks after the server refused a stream, because it may no longer know one of
    /// them and would accept the stream without them.
    pub(super) fn listen_refused(&self, number: u64, response: &Response) {
        let opening = self.listening.opening.as_ref();
        let refused = opening.filter(|stream| stream.number == number);
        let is_error = matches!(response.outcome, Outcome::Error(_));
        for id in refused
            .filter(|_| is_error)
            .iter()
            .flat_map(|it| it.wanted.tasks())
        {
            let task = TaskKey {
                at: SubscriptionKey::new(self.spec.server(), &self.spec.key, id),
                declaration: self.spec.settings().declaration(),
            };
            self.spec.of_all.subscription_registry.end_task(&task);
        }
    }

    /// Handles a stream that ended or could not be opened, and schedules the next attempt.
    pub(super) fn listen_ended(&mut self, number: u64, why: &str, ctx: &mut Context<Self>) {
        let listening = &mut self.listening;
        let is = |stream: &mut ListenStream| stream.number == number;
        if listening.opening.take_if(is).is_some() {
            for exchange in std::mem::take(&mut listening.waiting) {
                let message = format!("server cannot report updates now: {why}");
                exchange.reply.answer(Err(unavailable(message)));
            }
        } else if listening.current.take_if(is).is_some() {
            listening.has_missed = true;
            // An acknowledgement alone does not reset the backoff, because each stream can end
            // right after it.
            let acknowledged = listening.acknowledged.take();
            if acknowledged.is_some_and(|since| since.elapsed() >= STEADY_MIN) {
                listening.attempts = 0;
            }
        } else {
            return;
        }
        let delay = delay(listening.attempts, self.spec.of_all.random.chance());
        listening.attempts = listening.attempts.saturating_add(1);
        log::info!(
            server = self.spec.server().as_str(), why, retry_in:? = delay;
            "change stream ended; reopening it"
        );
        self.cancel_retry(ctx);
        self.listening.retry = Some(ctx.run_later(delay, |connection, ctx| {
            connection.listening.retry = None;
            connection.update_listen_stream(ctx);
        }));
    }

    fn cancel_retry(&mut self, ctx: &mut Context<Self>) {
        if let Some(retry) = self.listening.retry.take() {
            ctx.cancel_future(retry);
        }
    }

    /// Answers a client's `resources/subscribe` or `resources/unsubscribe`; the subscription
    /// registry has already recorded it.
    pub(super) fn on_subscription(&mut self, exchange: CallRequest, ctx: &mut Context<Self>) {
        if exchange.request.method != Method::ResourcesSubscribe {
            answer_empty(exchange);
            return self.update_listen_stream(ctx);
        }
        let negotiated = self.state.negotiated();
        if !negotiated.is_some_and(Negotiated::has_subscriptions) {
            let message = "server does not report updates of resources";
            let failure = Failure::new(ErrorKind::MethodNotFound, message);
            return exchange.reply.answer(Err(failure));
        }
        if self.listening.waiting.len() >= WAITING_MAX {
            let message = "too many subscriptions are waiting for the server".to_owned();
            return exchange.reply.answer(Err(unavailable(message)));
        }
        self.listening.waiting.push(exchange);
        // The client should not have to wait for the next attempt.
        self.cancel_retry(ctx);
        self.update_listen_stream(ctx);
    }

    /// Answers the subscriptions that the current stream settles.
    fn answer_waiting(&mut self) {
        let current = self.listening.current.as_ref();
        for exchange in std::mem::take(&mut self.listening.waiting) {
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

    fn close_current(&mut self) {
        if let Some(stream) = self.listening.current.take() {
            self.own.take(stream.number);
            self.take_back(stream.number);
        }
    }

    /// Cancels one of our own requests: by ending its stream if it has one (C-CANC-02), otherwise
    /// with a message (C-STDIO-06).
    pub(super) fn take_back(&self, number: u64) {
        let Some(calls) = self.state.calls() else {
            return;
        };
        calls.link().forget(number);
        if !self.spec.of_server.connector.knows_call_of_requests() {
            let frame = cancelled(&number, Some("replaced"));
            // A dead link reports its own end.
            let _ = calls.link().send(OutgoingFrame::new(None, frame));
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
