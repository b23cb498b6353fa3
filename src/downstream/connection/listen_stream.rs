//! The stream of changes of a sessionless server: one at a time, replaced when something else is
//! wanted, opened again when it breaks (B-SUB-01, C-SUB-03).

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

/// Delays before a stream is opened again.
const REOPEN: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(60));

/// A stream that lasted so long was none to back off from.
const STEADY_MIN: Duration = Duration::from_secs(30);

/// Subscriptions that wait for an acknowledgement; more are refused.
const WAITING_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct ListenState {
    /// Acknowledged.
    current: Option<ListenStream>,
    acknowledged: Option<Instant>,
    opening: Option<ListenStream>,
    /// Subscriptions of clients, answered when a stream that has them is acknowledged.
    waiting: Vec<CallRequest>,
    attempts: u32,
    retry: Option<SpawnHandle>,
    /// There was a time without a stream: nothing is known of it.
    has_missed: bool,
}

struct ListenStream {
    number: u64,
    wanted: ListenFilter,
    granted: ListenFilter,
}

impl ListenState {
    /// Whether a notification counts: it is not of a stream that was replaced.
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

/// Why a stream ended that was answered.
pub(super) fn ended(response: &Response) -> String {
    match &response.outcome {
        Outcome::Result(_) => "the server ended it".to_owned(),
        Outcome::Error(error) => error_text(error),
    }
}

/// How long to wait before attempt number `attempts`. `chance` is from 0.0 to below 1.0.
fn delay(attempts: u32, chance: f64) -> Duration {
    REOPEN.delay(attempts).mul_f64(0.5 + chance / 2.0)
}

impl Connection {
    /// Sees to it that the stream reports what is wanted now.
    pub(super) fn update_listen_stream(&mut self, ctx: &mut Context<Self>) {
        let Some(negotiated) = self.state.negotiated() else {
            return;
        };
        // Its acknowledgement looks again; an attempt that is due does, too.
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

    /// Events are not replayed; after a gap assume that every watched resource changed.
    /// After a time without a stream that is everything. Otherwise it is what the stream before
    /// did not report: clients without a session believe it watched since they asked for it; the
    /// others wait for their answer.
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

    /// A server that refuses a stream may not know a task any more: without tasks it reports the
    /// rest again.
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

    /// A stream is no more, or never was.
    pub(super) fn listen_ended(&mut self, number: u64, why: &str, ctx: &mut Context<Self>) {
        let listening = &mut self.listening;
        let is = |stream: &mut ListenStream| stream.number == number;
        if listening.opening.take_if(is).is_some() {
            for exchange in std::mem::take(&mut listening.waiting) {
                let message = format!("server does not report updates now: {why}");
                exchange.reply.answer(Err(unavailable(message)));
            }
        } else if listening.current.take_if(is).is_some() {
            listening.has_missed = true;
            // That it is acknowledged is not enough: it may end at once each time.
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
            "its stream of changes ended"
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

    /// A client wants updates of a resource, or no more of them; what is wanted is known.
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
            let message = "too many subscriptions wait for the server".to_owned();
            return exchange.reply.answer(Err(unavailable(message)));
        }
        self.listening.waiting.push(exchange);
        // It has no time to wait for the next attempt.
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

    /// Takes back a request of our own: by the end of its stream where it has one (C-CANC-02),
    /// by a message elsewhere (C-STDIO-06).
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
