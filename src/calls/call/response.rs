//! The end of a call, or of one round of it: what its client reads.

use super::reply_target::ReplyTarget;
use super::{Call, CallOwner, CallState};
use crate::bridge::error::TranslatedError;
use crate::bridge::question::url_elicitations;
use crate::bridge::result::{CacheHints, ResultKind};
use crate::calls::call_route::outcome_counter;
use crate::calls::client_reply::{ClientReply, ReplyError};
use crate::calls::response_translator::ResponseTranslator;
use crate::calls::tasks;
use crate::catalog::Snapshot;
use crate::protocol::{ErrorKind, Failure, Method, Outcome, RawJson, Response, error_frame};

impl Call {
    /// The one answer of the server, or of whoever knows that there will be none. It is kept if
    /// the client is not there to read it.
    pub(crate) fn on_answer(
        &mut self,
        answer: Result<Response, Failure>,
        owner: &mut impl CallOwner,
    ) {
        let is_task = matches!(self.state, CallState::Task(_));
        if matches!(self.client, ReplyTarget::Away) && !is_task {
            self.state = CallState::Answered(Box::new(answer));
            return;
        }
        self.context.counters.add(outcome_counter(&answer));
        if is_task {
            return self.on_task_end(answer);
        }
        self.state = CallState::Done;
        owner.on_call_returned(self, Some(&answer));
        match answer {
            Ok(response) => match &response.outcome {
                Outcome::Result(result) => self.on_result(&response, result, owner),
                Outcome::Error(error) => self.on_error(&response, error, owner),
            },
            Err(failure) if failure.kind == ErrorKind::Cancelled => {
                self.reply(ClientReply::Accepted, owner);
            }
            Err(failure) => self.answer_failure(&failure, owner),
        }
    }

    fn on_result(&mut self, response: &Response, result: &RawJson, owner: &mut impl CallOwner) {
        let is_modern = self.is_modern();
        if is_modern && ResultKind::of(result) == ResultKind::InputRequired {
            return self.forward_input_request(result, owner);
        }
        let catalog = self.context.catalog_of(&self.caller);
        let translator = self.translator(&catalog);
        let translated = translator.result(result);
        let sealing = &self.context.sealing;
        let readable = translated.as_ref().unwrap_or(result);
        let named = tasks::public(translator, readable, &self.caller, sealing);
        let frame = match named.or(translated) {
            None if !is_modern => response.with_id(&self.id),
            changed => {
                let result = changed.as_ref().unwrap_or(result);
                let is_read = self.method == Method::ResourcesRead;
                let caching = (is_modern && is_read).then(|| CacheHints::of(result));
                let decorator = &self.context.answer_decorator;
                decorator.answer(&self.id, result, caching, self.caller.revision)
            }
        };
        self.reply(ClientReply::Json(frame), owner);
    }

    fn on_error(&mut self, response: &Response, error: &RawJson, owner: &mut impl CallOwner) {
        let is_modern = self.is_modern();
        if let Some(elicitations) = url_elicitations(error).filter(|_| is_modern) {
            return self.ask_for_url_visits(elicitations, owner);
        }
        let catalog = self.context.catalog_of(&self.caller);
        let error_reply = |error: &RawJson| {
            let frame = error_frame(&self.id, error);
            if is_modern {
                let error = ReplyError::Server(error.clone());
                ClientReply::Error { error, frame }
            } else {
                ClientReply::Json(frame)
            }
        };
        let reply = match self.translator(&catalog).error(error) {
            None if !is_modern => ClientReply::Json(response.with_id(&self.id)),
            None => error_reply(error),
            Some(TranslatedError::Error(translated)) => error_reply(&translated),
            Some(TranslatedError::Result(result)) => {
                let decorator = &self.context.answer_decorator;
                let to = self.caller.revision;
                ClientReply::Json(decorator.answer(&self.id, &result, None, to))
            }
        };
        self.reply(reply, owner);
    }

    /// The end of a task as `tasks/get` says it.
    pub(super) fn task_outcome(&self, response: &Response) -> Outcome {
        let catalog = self.context.catalog_of(&self.caller);
        let translator = self.translator(&catalog);
        let decorator = &self.context.answer_decorator;
        match &response.outcome {
            Outcome::Result(result) => {
                let translated = translator.result(result);
                let result = translated.as_ref().unwrap_or(result);
                Outcome::Result(decorator.decorated(result))
            }
            Outcome::Error(error) => match translator.error(error) {
                Some(TranslatedError::Result(result)) => {
                    Outcome::Result(decorator.decorated(&result))
                }
                Some(TranslatedError::Error(translated)) => Outcome::Error(translated),
                None => Outcome::Error(error.clone()),
            },
        }
    }

    fn translator<'a>(&'a self, catalog: &'a Snapshot) -> ResponseTranslator<'a> {
        ResponseTranslator {
            catalog,
            server: &self.target.server,
            method: match &self.method {
                // It is what the tool says.
                Method::TasksResult => &Method::ToolsCall,
                method => method,
            },
            item: Some(&self.item),
            from: self.server_revision,
            to: self.caller.revision,
        }
    }

    pub(super) fn answer_failure(&mut self, failure: &Failure, owner: &mut impl CallOwner) {
        let decorator = &self.context.answer_decorator;
        let reply = decorator.failed(&self.method, &self.id, failure, self.caller.revision);
        self.reply(reply, owner);
    }

    /// Answers the request that the client waits for.
    pub(super) fn reply(&mut self, reply: ClientReply, owner: &mut impl CallOwner) {
        self.client.answer(self.number, reply, owner);
    }

    /// The client reads a failure, and the server is told that nobody waits.
    pub(super) fn fail(&mut self, failure: &Failure, reason: &str, owner: &mut impl CallOwner) {
        self.answer_failure(failure, owner);
        self.cancel_and_end(reason);
    }
}
