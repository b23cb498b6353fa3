//! Calls of a session's client: admits, starts and cancels them, and handles how they end.

use std::sync::Arc;

use actix::{AsyncContext, Context};
use bytes::Bytes;
use serde::Deserialize;

use super::questions::{SentQuestion, cannot_be_asked, question_frame};

use crate::bridge::question::elicitation_ids;
use crate::calls::{
    AdmittedCall, Call, CallClient, CallOwner, CallTable, CallTelemetry, ClientRequest, EventLog,
    GENERAL_STREAM, HasCalls, NewCall, ReplyTarget, failed_by_bug,
};
use crate::catalog::Snapshot;
use crate::downstream::{CancelledQuestion, Question, TaskMode};
use crate::history::CallEnding;
use crate::id::ServerName;
use crate::protocol::{
    ErrorKind, Failure, Method, Notification, Outcome, Request, RequestId, Response, cancelled,
};
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
                let max = self.context.calls.settings.load().calls_max;
                let server = Some(call.target.server.clone());
                self.questions.remember_elicitation(server, id, max);
            }
        }
        if call.target.tasks == TaskMode::FollowedByClient {
            self.followed.record(call, answer);
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

    /// Forwards a question on the stream of its call, or else on the general stream. Refuses it if
    /// the client cannot be asked (S-REQ-01).
    pub(super) fn on_question(&mut self, call: u64, question: Question, ctx: &mut Context<Self>) {
        let settings = self.context.calls.settings.load();
        let number = self.context.calls.numbers.next();
        let frame = match self.questions.len() < settings.calls_max {
            true => self.question_frame(&question.request, &RequestId::from(number)),
            false => Err(cannot_be_asked(&question.request)),
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(failure) => return question.answer(Err(failure)),
        };
        let stream = match self.upgrade(call, ctx) {
            true => call,
            false => GENERAL_STREAM,
        };
        if stream == GENERAL_STREAM && !self.streams().has_reader(GENERAL_STREAM) {
            let message = "the client has no stream open on which it could be asked";
            return question.answer(Err(Failure::new(ErrorKind::SessionNotFound, message)));
        }
        let made_by = self.calls.get(call);
        let server = made_by.map(|call| call.target.server.clone());
        // A related task has the id that the client knows.
        let frame = match made_by {
            Some(call) => self.with_public_ids(frame, call.server()),
            None => frame,
        };
        let max = settings.calls_max;
        self.questions.remember(server, &question.request, max);
        self.streams().send(stream, &frame);
        self.context.calls.counters.add(Counter::QuestionsAsked);
        let sent = SentQuestion {
            question,
            call,
            stream,
        };
        self.questions.add(number, sent);
        ctx.run_later(settings.answer_timeout, move |session, _| {
            session.on_answer_timeout(number);
        });
    }

    fn question_frame(&self, request: &Request, id: &RequestId) -> Result<Bytes, Failure> {
        let catalog = self.catalog();
        let server = catalog.one_server().map(|server| server.part.server());
        let server = server.and_then(|name| self.context.calls.downstreams.get(name));
        question_frame(&self.record, server.as_deref(), request, id)
    }

    fn on_answer_timeout(&mut self, number: u64) {
        let Some(sent) = self.questions.take(number) else {
            return;
        };
        self.withdraw(number, sent.stream, "no answer in time");
        let counters = &self.context.calls.counters;
        counters.add(Counter::LateClients);
        let failure = Failure::new(ErrorKind::Timeout, "the client did not answer in time");
        sent.question.answer(Err(failure));
    }

    /// Handles the server's cancellation of a question.
    pub(super) fn on_question_cancelled(&mut self, call: u64, cancelled: CancelledQuestion) {
        if let Some((number, stream)) = self.questions.cancel(call, &cancelled) {
            let reason = cancelled.reason.as_deref();
            self.withdraw(
                number,
                stream,
                reason.unwrap_or("the server cancelled its request"),
            );
        }
    }

    /// Cancels the questions of an ended call at the client, except questions that could belong to
    /// another call to the same server.
    fn drop_questions(&mut self, call: &Call) {
        if self.questions.len() == 0 {
            return;
        }
        let is_there = |other: &&Call| other.target.server == call.target.server;
        let other = self.calls.iter().find(is_there);
        let other = other.map(|other| match other.client {
            ReplyTarget::ResumableStream => (other.number, other.number),
            _ => (other.number, GENERAL_STREAM),
        });
        for (number, stream) in self.questions.end_call(call.number, other) {
            self.withdraw(number, stream, "the call is over");
        }
    }

    fn withdraw(&mut self, question: u64, stream: u64, reason: &str) {
        let frame = cancelled(&question, Some(reason));
        self.streams().send(stream, &frame);
    }
}

fn is_success(answer: &Result<Response, Failure>) -> bool {
    matches!(answer, Ok(response) if matches!(response.outcome, Outcome::Result(_)))
}
