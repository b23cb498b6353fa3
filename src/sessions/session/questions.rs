//! Questions of servers to a session's client (sampling, elicitation, roots).

use actix::{AsyncContext, Context};
use bytes::Bytes;
use serde::Deserialize;

use crate::bridge::question::{self as bridge, UnsupportedQuestion};
use crate::calls::{Call, GENERAL_STREAM, ReplyTarget};
use crate::downstream::{CancelledQuestion, Question, Server};
use crate::id::ServerName;
use crate::protocol::{
    ErrorKind, Failure, Method, Request, RequestId, Response, Revision, cancelled, splice,
};
use crate::sessions::session::Session;
use crate::telemetry::Counter;

/// Maximum length of a remembered elicitation id, in bytes.
const ELICITATION_ID_MAX: usize = 1024;

/// A question that the client has not answered yet.
pub(super) struct SentQuestion {
    question: Question,
    /// The call that the question belongs to.
    call: u64,
    /// The stream on which the question was sent.
    stream: u64,
}

impl Session {
    /// Forwards a question on the stream of its call, or else on the general stream. Refuses it if
    /// the client cannot be asked (S-REQ-01).
    pub(super) fn on_question(&mut self, call: u64, question: Question, ctx: &mut Context<Self>) {
        let settings = self.context.calls.settings.load();
        let number = self.context.calls.numbers.next();
        let asked = if self.questions.len() < settings.calls_max {
            self.question_frame(&question.request, &RequestId::from(number))
        } else {
            Err(cannot_be_asked(&question.request))
        };
        let frame = match asked {
            Ok(frame) => frame,
            Err(failure) => return question.answer(Err(failure)),
        };
        let stream = if self.upgrade(call, ctx) {
            call
        } else {
            GENERAL_STREAM
        };
        if stream == GENERAL_STREAM && !self.streams().has_reader(GENERAL_STREAM) {
            let message = "the client has no stream open on which it could be asked";
            return question.answer(Err(Failure::new(ErrorKind::SessionNotFound, message)));
        }
        self.remember_question(call, &question);
        let frame = self.with_public_task(call, frame);
        self.streams().send(stream, &frame);
        self.context.calls.counters.add(Counter::QuestionsAsked);
        self.questions.insert(
            number,
            SentQuestion {
                question,
                call,
                stream,
            },
        );
        ctx.run_later(settings.answer_timeout, move |session, _| {
            session.on_answer_timeout(number);
        });
    }

    fn on_answer_timeout(&mut self, number: u64) {
        let Some(asked) = self.questions.remove(&number) else {
            return;
        };
        self.withdraw(number, asked.stream, "no answer in time");
        let counters = &self.context.calls.counters;
        counters.add(Counter::LateClients);
        let failure = Failure::new(ErrorKind::Timeout, "the client did not answer in time");
        asked.question.answer(Err(failure));
    }

    /// Returns a question in the format of the client's revision.
    ///
    /// # Errors
    ///
    /// Returns why the client cannot be asked (S-REQ-01, S-REQ-02, S-REQ-03).
    fn question_frame(&self, request: &Request, id: &RequestId) -> Result<Bytes, Failure> {
        let revision = self.record.revision;
        let declared = self.record.profile.as_map();
        let written = bridge::Question::of_request(request);
        let written = written.ok_or_else(|| cannot_be_asked(request))?;
        if self.refuses_itself(request) {
            return Ok(splice(request.frame.as_bytes(), &mut [request.edit_id(id)]));
        }
        let older = revision < Revision::V2025_11_25 && request.method != Method::RootsList;
        let asked = if older {
            let asked = bridge::Question::from_server(request, declared);
            asked
                .unwrap_or_else(|| written.clone())
                .for_client(revision, declared, "")
        } else {
            let asked = written.clone().declared(declared);
            asked.map_err(UnsupportedQuestion::Undeclared)
        };
        match asked {
            Ok(asked) if asked == written => {
                let edit = request.edit_id(id);
                Ok(splice(request.frame.as_bytes(), &mut [edit]))
            }
            Ok(asked) => Ok(asked.request(id).frame.as_bytes().clone()),
            Err(error) => Err(Failure::new(ErrorKind::MethodNotFound, error.to_string())),
        }
    }

    /// Returns whether an undeclared question is still sent, so that the client refuses it itself.
    /// A single-server view passes on every question that the server would send directly. If roots
    /// are configured, they are the answer for clients without roots.
    fn refuses_itself(&self, request: &Request) -> bool {
        let catalog = self.catalog();
        let server = catalog.one_server().map(|server| server.part.server());
        let server = server.and_then(|name| self.context.calls.downstreams.get(name));
        let has_roots = |server: &Server| !server.settings().roots.is_empty();
        server.is_some_and(|server| match request.method {
            Method::RootsList => self.record.profile.has_roots() || !has_roots(&server),
            _ => self.record.revision >= Revision::V2025_11_25,
        })
    }

    pub(super) fn on_client_answer(&mut self, response: Response) {
        let number = response.id.as_ref().and_then(RequestId::as_number);
        // Unknown numbers belong to questions that were already answered, or to calls that have
        // ended.
        if let Some(asked) = number.and_then(|number| self.questions.remove(&number)) {
            asked.question.answer(Ok(response));
        }
    }

    /// Handles the server's cancellation of a question.
    pub(super) fn on_question_cancelled(&mut self, call: u64, cancelled: CancelledQuestion) {
        let CancelledQuestion { id, reason } = cancelled;
        let mut questions = self
            .questions
            .extract_if(|_, asked| asked.call == call && asked.question.request.id == id);
        let found = questions.next();
        drop(questions);
        if let Some((
            number,
            SentQuestion {
                question, stream, ..
            },
        )) = found
        {
            question.discard();
            let reason = reason.unwrap_or_else(|| "the server cancelled its request".to_owned());
            self.withdraw(number, stream, &reason);
        }
    }

    /// Returns a question whose related task has the id that the client knows.
    fn with_public_task(&self, call: u64, frame: Bytes) -> Bytes {
        match self.calls.get(call) {
            Some(call) => self.with_public_ids(frame, call.server()),
            None => frame,
        }
    }

    /// Cancels the questions of an ended call at the client, except questions that could belong to
    /// another call to the same server.
    pub(super) fn drop_questions(&mut self, call: &Call) {
        if self.questions.is_empty() {
            return;
        }
        let is_there = |other: &&Call| other.target.server == call.target.server;
        let other = self.calls.iter().find(is_there);
        let other = other.map(|other| match other.client {
            ReplyTarget::ResumableStream => (other.number, other.number),
            _ => (other.number, GENERAL_STREAM),
        });
        let call = call.number;
        let mut dropped = Vec::new();
        for (number, asked) in self.questions.iter_mut().filter(|(_, a)| a.call == call) {
            match other.filter(|_| asked.question.is_unattributed) {
                Some((call, stream)) => (asked.call, asked.stream) = (call, stream),
                None => dropped.push((*number, asked.stream)),
            }
        }
        for (number, stream) in dropped {
            self.questions.remove(&number);
            self.withdraw(number, stream, "the call is over");
        }
    }

    fn withdraw(&mut self, question: u64, stream: u64, reason: &str) {
        let frame = cancelled(&question, Some(reason));
        self.streams().send(stream, &frame);
    }

    /// Remembers that a server asked for roots or for a visit to a page.
    fn remember_question(&mut self, call: u64, question: &Question) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ElicitParams {
            elicitation_id: Option<String>,
        }
        let server = self.calls.get(call).map(|call| call.target.server.clone());
        let request = &question.request;
        if request.method == Method::RootsList {
            self.asked_for_roots.extend(server);
        } else if let Ok(params) = request.params_as::<ElicitParams>()
            && let Some(id) = params.elicitation_id
        {
            self.remember_elicitation(server, id);
        }
    }

    /// Remembers a URL elicitation, which the server can later report as complete. The server is
    /// `None` on a connection of this session's own.
    pub(super) fn remember_elicitation(&mut self, server: Option<ServerName>, id: String) {
        let max = self.context.calls.settings.load().calls_max;
        if self.elicitations.len() < max && id.len() <= ELICITATION_ID_MAX {
            self.elicitations.insert((server, id));
        }
    }
}

/// Returns the failure for a question that is malformed, or exceeds the limit on open questions.
fn cannot_be_asked(request: &Request) -> Failure {
    let message = format!("the client cannot be asked for `{}`", request.method);
    Failure::new(ErrorKind::MethodNotFound, message)
}
