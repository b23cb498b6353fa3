//! Calls of a session's client: admits, starts and cancels them, and handles how they end.

use std::sync::Arc;

use actix::{AsyncContext, Context};
use serde::Deserialize;

use crate::bridge::question::elicitation_ids;
use crate::calls::{
    AdmittedCall, Call, CallClient, CallOwner, CallTable, CallTelemetry, ClientRequest, EventLog,
    HasCalls, NewCall, failed_by_bug,
};
use crate::catalog::Snapshot;
use crate::downstream::TaskMode;
use crate::history::CallEnding;
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure, Method, Notification, Outcome, Request, Response};
use crate::sessions::session::Session;
use crate::supervision::catch_panic;
use crate::telemetry::Counter;

impl HasCalls for Session {
    fn calls(&mut self) -> &mut CallTable {
        &mut self.calls
    }
}

impl CallOwner for Session {
    fn event_log(&mut self) -> Option<&mut EventLog> {
        Some(self.streams())
    }

    fn on_call_returned(&mut self, call: &Call, answer: Option<&Result<Response, Failure>>) {
        self.drop_questions(call);
        let Some(answer) = answer else { return };
        if let Ok(response) = answer
            && let Outcome::Error(error) = &response.outcome
        {
            for id in elicitation_ids(error) {
                self.remember_elicitation(Some(call.target.server.clone()), id);
            }
        }
        if call.target.tasks == TaskMode::FollowedByClient {
            self.record_task(call, answer);
        }
        if call.method == Method::ResourcesSubscribe
            && !is_success(answer)
            && let Some(watched) = self.watched(&call.target)
        {
            drop(self.remove_subscription(&call.item));
            self.unwatch(&watched);
        }
    }

    fn on_named(&mut self, server: &ServerName, uri: &str) {
        self.linked.get_or_insert_default().add(server, uri);
    }
}

impl Session {
    pub(super) fn call(
        &mut self,
        mut request: ClientRequest,
        catalog: &Snapshot,
        ctx: &mut Context<Self>,
    ) {
        let begun = request.call_telemetry.take();
        let calls = &self.context.calls;
        request.call_telemetry = calls.observe_call(begun, &request.request, &self.caller);
        let _log = CallTelemetry::log_scope(request.call_telemetry.as_deref());
        // A panic in a policy ends only the call, not the session.
        let admitted = catch_panic(|| self.admit(&request.request, catalog));
        let admitted = admitted.unwrap_or_else(|panic| {
            log::error!(panic = &*panic; "a bug ended a call");
            Err(failed_by_bug())
        });
        let AdmittedCall { target, place, .. } = match admitted {
            Ok(admitted) => admitted,
            Err(failure) => return self.fail(request, &failure),
        };
        match self.subscribe(&mut request, &target) {
            Some(Ok(answer)) => return request.answer(answer, CallEnding::Done),
            Some(Err(failure)) => return self.fail(request, &failure),
            None => {}
        }
        let reply_to = self
            .reply_to
            .get_or_insert_with(|| Arc::new(ctx.address().recipient()));
        let new_call = NewCall {
            request,
            context: self.context.calls.clone(),
            caller: self.caller.clone(),
            arbiter: self.arbiter,
            target,
            reply_to: reply_to.clone(),
            place,
            sessionless: None,
        };
        self.context.calls.counters.add(Counter::CallsStarted);
        self.start_call(new_call, ctx);
    }

    /// Admits a call within the limits of this session.
    fn admit(&self, request: &Request, catalog: &Snapshot) -> Result<AdmittedCall, Failure> {
        let context = &self.context.calls;
        let calls_max = context.settings.load().calls_max;
        if self.calls.len() >= calls_max {
            let message = format!(
                "this session has {calls_max} calls in flight, its limit (`calls_per_session`); try again later"
            );
            context.counters.add(Counter::ShedForSession);
            return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(100));
        }
        if self.calls.iter().any(|call| call.id == request.id) {
            let message = "a request with this id is in flight already";
            return Err(Failure::new(ErrorKind::InvalidRequest, message));
        }
        let linked = self.linked.as_ref();
        let client = CallClient {
            caller: &self.caller,
            holder: self.record.holder(),
            catalog,
            linked: linked.and_then(|linked| linked.server(&request.uri()?)),
            headers: None,
        };
        client.admit(request, context)
    }

    /// Upgrades a waiting JSON reply to an event stream. Returns whether the call now has a stream.
    pub(super) fn upgrade(&mut self, number: u64, ctx: &mut Context<Self>) -> bool {
        let mut has_stream = false;
        self.with_call(number, ctx, |call, session| {
            has_stream = call.upgrade(session);
        });
        has_stream
    }

    /// Handles a cancellation. Unknown, late and malformed ones are ignored (S-CANC-02).
    pub(super) fn on_cancelled(&mut self, notification: &Notification, ctx: &mut Context<Self>) {
        #[derive(Deserialize)]
        struct CancelledParams {
            reason: Option<String>,
        }
        let Some(id) = notification.member(notification.params.request_id.as_ref()) else {
            return;
        };
        let call = self.calls.iter().find(|call| *call.id.as_bytes() == id);
        let Some(number) = call.map(|call| call.number) else {
            return;
        };
        let params: Option<CancelledParams> = notification.params_as().ok();
        let reason = params.and_then(|params| params.reason);
        self.with_call(number, ctx, |call, session| call.take_back(reason, session));
    }
}

fn is_success(answer: &Result<Response, Failure>) -> bool {
    matches!(answer, Ok(response) if matches!(response.outcome, Outcome::Result(_)))
}
