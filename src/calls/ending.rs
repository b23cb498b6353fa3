//! The end of a call without a session, or of one round of it: what its client reads.

use bytes::Bytes;

use crate::bridge::error::TranslatedError;
use crate::bridge::question::url_elicitations;
use crate::bridge::result::{CacheHints, ResultKind};
use crate::calls::call::{Call, ClientState};
use crate::calls::call_route::outcome_counter;
use crate::calls::client_reply::{ClientReply, ReplyError};
use crate::calls::response_translator::ResponseTranslator;
use crate::calls::stream_event::StreamEvent;
use crate::calls::tasks;
use crate::catalog::Snapshot;
use crate::protocol::{Era, ErrorKind, Failure, Method, Outcome, RawJson, Response, error_frame};

impl Call {
    /// The one answer of the server, or of whoever knows that there will be none. It is kept if
    /// the client is not there to read it.
    pub(crate) fn on_answer(&mut self, answer: Result<Response, Failure>) {
        if matches!(self.client, ClientState::Away) && self.task.is_none() {
            self.finished = Some(Box::new(answer));
            return;
        }
        self.parts.counters.add(outcome_counter(&answer));
        if self.task.is_some() {
            return self.on_task_end(answer);
        }
        match answer {
            Ok(response) => match &response.outcome {
                Outcome::Result(result) => self.on_result(result),
                Outcome::Error(error) => self.on_error(error),
            },
            // Only its own client takes a call back, and that is gone.
            Err(failure) if failure.kind == ErrorKind::Cancelled => {}
            Err(failure) => self.answer_failure(&failure),
        }
        self.is_over = true;
    }

    fn on_result(&mut self, result: &RawJson) {
        let is_modern = self.caller.revision.era() == Era::Modern;
        if is_modern && ResultKind::of(result) == ResultKind::InputRequired {
            return self.forward_input_request(result);
        }
        let catalog = self.parts.catalog_of(&self.caller);
        let read = self.translator(&catalog).result(result);
        let result = read.as_ref().unwrap_or(result);
        let (translator, sealing) = (self.translator(&catalog), &self.parts.sealing);
        let named = tasks::public(translator, result, &self.caller, sealing);
        let result = named.as_ref().unwrap_or(result);
        let caching = (self.method == Method::ResourcesRead).then(|| CacheHints::of(result));
        let frame =
            self.parts
                .answer_decorator
                .answer(&self.id, result, caching, self.caller.revision);
        self.deliver(ClientReply::Json(frame));
    }

    fn on_error(&mut self, error: &RawJson) {
        let is_modern = self.caller.revision.era() == Era::Modern;
        if let Some(elicitations) = url_elicitations(error).filter(|_| is_modern) {
            return self.ask_for_url_visits(elicitations);
        }
        let catalog = self.parts.catalog_of(&self.caller);
        match self.translator(&catalog).error(error) {
            Some(TranslatedError::Result(result)) => {
                let frame = self.parts.answer_decorator.answer(
                    &self.id,
                    &result,
                    None,
                    self.caller.revision,
                );
                self.deliver(ClientReply::Json(frame));
            }
            Some(TranslatedError::Error(shown)) => self.deliver_error(&shown),
            None => self.deliver_error(error),
        }
    }

    /// The end of a task as `tasks/get` says it.
    pub(crate) fn task_outcome(&self, response: &Response) -> Outcome {
        let catalog = self.parts.catalog_of(&self.caller);
        let translator = self.translator(&catalog);
        let decorated =
            |result: &RawJson| Outcome::Result(self.parts.answer_decorator.decorated(result));
        match &response.outcome {
            Outcome::Result(result) => {
                let read = translator.result(result);
                decorated(read.as_ref().unwrap_or(result))
            }
            Outcome::Error(error) => match translator.error(error) {
                Some(TranslatedError::Result(result)) => decorated(&result),
                Some(TranslatedError::Error(shown)) => Outcome::Error(shown),
                None => Outcome::Error(error.clone()),
            },
        }
    }

    fn deliver_error(&mut self, error: &RawJson) {
        let frame = error_frame(&self.id, error);
        self.deliver(match self.caller.revision.era() {
            Era::Legacy => ClientReply::Json(frame),
            Era::Modern => ClientReply::Error {
                error: ReplyError::Server(error.clone()),
                frame,
            },
        });
    }

    fn translator<'a>(&'a self, catalog: &'a Snapshot) -> ResponseTranslator<'a> {
        ResponseTranslator {
            catalog,
            server: &self.target.server,
            method: &self.method,
            item: Some(&self.item),
            to: self.caller.revision,
        }
    }

    pub(crate) fn answer_failure(&mut self, failure: &Failure) {
        let answer = self.parts.answer_decorator.failed(
            &self.method,
            &self.id,
            failure,
            self.caller.revision,
        );
        self.deliver(answer);
    }

    /// Hands the client what its request ends with.
    pub(crate) fn deliver(&mut self, answer: ClientReply) {
        match std::mem::replace(&mut self.client, ClientState::Away) {
            ClientState::AwaitsAnswer(reply) => {
                // A client that left does not need it.
                let _ = reply.send(answer);
            }
            ClientState::ReadsStream(events) => {
                let frame = match answer {
                    ClientReply::Json(frame) | ClientReply::Error { frame, .. } => frame,
                    ClientReply::List(parts) => Bytes::from(parts.concat()),
                    ClientReply::Accepted | ClientReply::Stream(_) | ClientReply::Over => return,
                };
                let _ = events.try_send(StreamEvent::answer(frame));
            }
            ClientState::Away => {}
        }
    }
}
