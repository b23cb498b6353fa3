//! The end of a call or of one of its rounds: builds the answer that the client reads.

use tokio::time::Instant;

use super::reply_target::ReplyTarget;
use super::{Call, CallOwner, CallState};
use crate::bridge::error::TranslatedError;
use crate::bridge::question::{RequiredCapability, url_elicitations};
use crate::bridge::result::{CacheHints, ResultKind};
use crate::bridge::seal::Digest;
use crate::bridge::task::{self, Task};
use crate::calls::call_route::outcome_counter;
use crate::calls::call_telemetry::error_of_answer;
use crate::calls::client_reply::{ClientReply, ReplyError};
use crate::calls::kept_results::ResultOwner;
use crate::calls::response_translator::ResponseTranslator;
use crate::calls::result_preview::LargeResult;
use crate::calls::{consent, tasks};
use crate::catalog::{PREVIEW_ABOVE_MIN, Snapshot};
use crate::downstream::{TaskMode, lost};
use crate::history::{CallEnding, CallOutcome};
use crate::id::ServerName;
use crate::metrics::{Measure, MethodLabel, Network, Series};
use crate::protocol::{
    ErrorKind, Failure, Method, Outcome, RawJson, Response, Revision, error_frame,
};
use crate::telemetry::Counter;

impl Call {
    /// Records how an attempt to send the call ended. `sent` is when the request was written;
    /// `None` if it never was.
    pub(super) fn observe_answer(
        &mut self,
        answer: &Result<Response, Failure>,
        sent: Option<Instant>,
    ) {
        if let Some(call_telemetry) = &mut self.call_telemetry {
            call_telemetry.came_back(sent, answer);
        }
        let Some((shard, sent)) = self.context.metrics.shard(self.arbiter).zip(sent) else {
            return;
        };
        let CallState::Sent(sent_call) = &self.state else {
            return;
        };
        let is_named = matches!(self.method, Method::ToolsCall | Method::PromptsGet);
        let series = Series {
            method: Some(MethodLabel::of(&self.method)),
            server: Some(self.target.server.as_str()),
            item: is_named.then_some(self.target.counted_as(&self.item)),
            error: error_of_answer(answer, &self.method),
            revision: Some(sent_call.senders.revision()),
            network: Network::of(sent_call.senders.transport()),
            ..Series::of(Measure::ClientOperation)
        };
        let span = self.call_telemetry.as_ref().and_then(|it| it.span());
        shard.add_of(series, sent.elapsed(), span);
    }

    /// Handles the final answer: the server's response, or the failure that replaces it. Keeps the
    /// answer if the client is away.
    pub(crate) fn on_answer(
        &mut self,
        answer: Result<Response, Failure>,
        owner: &mut impl CallOwner,
    ) {
        let mut answer = answer.map_err(|failure| self.of_all_attempts(failure));
        let room = answer.as_mut().ok().and_then(|it| it.room.take());
        if let Some(adopted) = self.take_adopted() {
            return self.refuse_adopted(*adopted, &answer);
        }
        let is_task = matches!(self.state, CallState::Task(_));
        if matches!(self.client, ReplyTarget::Away) && !is_task {
            // An absent client can return much later, so the reserved memory is released.
            drop(room);
            self.state = CallState::Answered(Box::new(answer));
            return;
        }
        self.context.counters.add(outcome_counter(&answer));
        if is_task {
            return self.on_task_end(answer);
        }
        self.state = CallState::Done;
        owner.on_call_returned(self, Some(&answer));
        self.room = room;
        self.end_with(answer, owner);
        // If the answer was not delivered to the client, the memory is still reserved.
        self.room = None;
    }

    fn end_with(&mut self, answer: Result<Response, Failure>, owner: &mut impl CallOwner) {
        match answer {
            Ok(response) => match &response.outcome {
                Outcome::Result(result) => self.on_result(&response, result, owner),
                Outcome::Error(error) => self.on_error(&response, error, owner),
            },
            Err(failure) if failure.kind == ErrorKind::Cancelled => {
                self.reply(ClientReply::Accepted, CallEnding::Failed(&failure), owner);
            }
            Err(failure) if failure.kind == ErrorKind::ConsentRequired => {
                self.answer_with_page(&failure, owner);
            }
            Err(failure) => self.answer_failure(&failure, owner),
        }
    }

    /// Returns the failure of the whole call for the failure of its last attempt. It accounts for
    /// earlier attempts that may have run.
    fn of_all_attempts(&self, failure: Failure) -> Failure {
        let retry = self.retry.as_ref();
        let may_have_run = retry.is_some_and(|retry| retry.may_have_run) || self.round() > 0;
        if may_have_run && failure.kind.says_not_run() {
            return lost(&self.target.server, "it could not be asked again");
        }
        failure
    }

    fn on_result(&mut self, response: &Response, result: &RawJson, owner: &mut impl CallOwner) {
        let is_modern = self.is_modern();
        if is_modern && ResultKind::of(result) == ResultKind::InputRequired {
            return self.forward_input_request(result, owner);
        }
        let askable = match self.askable_task(result) {
            Ok(askable) => askable,
            Err(failure) => return self.answer_failure(&failure, owner),
        };
        let result = askable.as_ref().unwrap_or(result);
        let catalog = self.context.catalog.of(&self.caller);
        let translator = self.translator(&catalog);
        for uri in catalog.named_uris(&self.target.server, translator.method, result) {
            owner.on_named(&self.target.server, &uri);
        }
        let translated = translator.result(result);
        let sealing = &self.context.sealing;
        let readable = translated.as_ref().unwrap_or(result);
        let named = tasks::public(
            translator,
            readable,
            self.declaration(),
            &self.caller,
            sealing,
        );
        let changed = named.or(translated);
        let preview = self.preview(changed.as_ref().unwrap_or(result));
        let reply = match preview.or(changed) {
            None if !is_modern => ClientReply::passed_on(response, &self.id),
            changed => {
                let result = changed.as_ref().unwrap_or(result);
                let is_read = self.method == Method::ResourcesRead;
                let caching = (is_modern && is_read).then(|| CacheHints::of(result));
                let decorator = self.context.decorator(&self.caller);
                let to = self.caller.revision;
                ClientReply::Json(decorator.answer(&self.id, result, caching, to))
            }
        };
        let ending = if self.is_created_task(result) {
            CallEnding::Task
        } else {
            CallEnding::Result(result)
        };
        self.reply(reply, ending, owner);
    }

    /// Keeps a large result and returns its preview; `None` for results that clients get whole.
    fn preview(&self, result: &RawJson) -> Option<RawJson> {
        let is_of_tool = matches!(self.method, Method::ToolsCall | Method::TasksResult);
        let size = result.as_bytes().len();
        if size <= PREVIEW_ABOVE_MIN || !is_of_tool {
            return None;
        }
        let context = &self.context;
        let limit = context.preview_above(&self.target.server, &self.caller.view);
        let limit = limit.filter(|limit| size > *limit)?;
        let large = LargeResult::of(result)?;
        let owner = ResultOwner::of(&self.caller);
        let kept = (large.text.clone(), large.mime);
        let uri = context
            .kept_results
            .keep(owner, context.mint.mint(), kept)?;
        Some(large.preview(&uri, limit, self.caller.revision))
    }

    /// Returns whether the result says that the call continues as a task that the client follows.
    fn is_created_task(&self, result: &RawJson) -> bool {
        let may_be =
            self.method == Method::ToolsCall && self.target.tasks == TaskMode::FollowedByClient;
        let is_modern = || ResultKind::of(result) == ResultKind::Task;
        may_be && (is_modern() || Task::from_legacy_created(result).is_some())
    }

    /// Returns the state of an extension task without the questions that the client does not
    /// support; `None` if nothing has to be removed.
    fn askable_task(&self, result: &RawJson) -> Result<Option<RawJson>, Failure> {
        if !self.is_modern() || self.method != Method::TasksGet {
            return Ok(None);
        }
        let askable = task::askable(result, self.caller.profile.as_map()).map_err(|error| {
            let server = &self.target.server;
            let message = format!("server `{server}` asks for input in a wrong way: {error}");
            Failure::new(ErrorKind::ServerProtocol, message).server(server.as_str())
        })?;
        match askable.lacks {
            Some(needed) => Err(self.refusal(needed)),
            None => Ok(askable.changed),
        }
    }

    fn on_error(&mut self, response: &Response, error: &RawJson, owner: &mut impl CallOwner) {
        let is_modern = self.is_modern();
        if let Some(elicitations) = url_elicitations(error).filter(|_| is_modern) {
            return self.ask_for_url_visits(elicitations, owner);
        }
        let catalog = self.context.catalog.of(&self.caller);
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
            None if !is_modern => ClientReply::passed_on(response, &self.id),
            None => error_reply(error),
            Some(TranslatedError::Error(translated)) => error_reply(&translated),
            Some(TranslatedError::Result(result)) => {
                let decorator = self.context.decorator(&self.caller);
                let to = self.caller.revision;
                ClientReply::Json(decorator.answer(&self.id, &result, None, to))
            }
        };
        self.reply(reply, CallEnding::Error(error), owner);
    }

    /// Returns the outcome of a task in the form that `tasks/get` reports.
    pub(super) fn task_outcome(&self, response: &Response) -> Outcome {
        let catalog = self.context.catalog.of(&self.caller);
        let translator = self.translator(&catalog);
        let decorator = self.context.decorator(&self.caller);
        match &response.outcome {
            Outcome::Result(result) => {
                let translated = translator.result(result);
                let result = translated.as_ref().unwrap_or(result);
                let preview = self.preview(result);
                let result = preview.as_ref().unwrap_or(result);
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

    pub(super) fn translator<'a>(&'a self, catalog: &'a Snapshot) -> ResponseTranslator<'a> {
        ResponseTranslator {
            catalog,
            server: &self.target.server,
            method: match &self.method {
                // The result of the task is the result of the tool.
                Method::TasksResult => &Method::ToolsCall,
                method => method,
            },
            item: Some(&self.item),
            from: self.server_revision,
            to: self.caller.revision,
        }
    }

    /// Returns the server that the call was sent to, and the digest of its declaration at that
    /// time. The server may have been replaced since.
    pub(crate) fn server(&self) -> (&ServerName, Digest) {
        (&self.target.server, self.declaration())
    }

    pub(super) fn declaration(&self) -> Digest {
        let sealing = &self.context.sealing;
        let declaration = self.declaration;
        declaration.unwrap_or_else(|| sealing.declaration(&self.target.server))
    }

    pub(super) fn answer_failure(&mut self, failure: &Failure, owner: &mut impl CallOwner) {
        let decorator = self.context.decorator(&self.caller);
        let reply = decorator.failed(&self.method, &self.id, failure, self.caller.revision);
        self.reply(reply, CallEnding::Failed(failure), owner);
    }

    /// Shows the user the sign-in page: as an elicitation if the client supports URL elicitations,
    /// otherwise as a link in the error message.
    fn answer_with_page(&mut self, failure: &Failure, owner: &mut impl CallOwner) {
        let Some(page) = failure.page() else {
            return self.answer_failure(failure, owner);
        };
        let elicitation_id = self.context.mint.mint().to_string();
        let error = consent::elicitation_required(failure, page, &elicitation_id);
        let takes_url = RequiredCapability::Url.is_declared(self.caller.profile.as_map());
        let (to, recorded) = (self.caller.revision, failure.without_page());
        let reply = match takes_url && to >= Revision::V2025_11_25 {
            true if self.is_modern() => {
                let pages = url_elicitations(&error).unwrap_or_default();
                return self.ask_for_url_visits(pages, owner);
            }
            true => ClientReply::Json(error_frame(&self.id, &error)),
            false => {
                let mut readable = failure.clone();
                readable.message = format!(
                    "{}: open {page} and sign in there, then repeat the call. The link works once \
                     and expires after ten minutes",
                    failure.message
                );
                let decorator = self.context.decorator(&self.caller);
                decorator.failed(&self.method, &self.id, &readable, to)
            }
        };
        self.reply(reply, CallEnding::Failed(&recorded), owner);
    }

    /// Answers the request that the client waits for, and records how it ended.
    pub(super) fn reply(
        &mut self,
        reply: ClientReply,
        ending: CallEnding<'_>,
        owner: &mut impl CallOwner,
    ) {
        let outcome = match self.call_telemetry.take() {
            Some(call_telemetry) => call_telemetry.end(ending, reply.size()),
            None => ending.outcome(&self.method),
        };
        if outcome == CallOutcome::ToolError {
            self.context.counters.add(Counter::ToolErrors);
        }
        let room = self.room.take();
        self.client.answer(self.number, reply, room, owner);
    }

    /// Answers the client with a failure, and cancels the call at the server.
    pub(super) fn fail(&mut self, failure: &Failure, reason: &str, owner: &mut impl CallOwner) {
        self.answer_failure(failure, owner);
        self.cancel_and_end(reason);
    }
}

/// Returns the failure for the client of a call that ended because of a bug in the gateway.
pub(crate) fn failed_by_bug() -> Failure {
    let message = "the gateway failed while it worked on this call; the call may have run";
    Failure::new(ErrorKind::Internal, message)
}
