//! Questions of servers to a session's client (sampling, elicitation, roots).

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Deserialize;

use crate::bridge::question::{self as bridge, UnsupportedQuestion};
use crate::downstream::{CancelledQuestion, Question, Server};
use crate::id::{QuickMap, ServerName};
use crate::protocol::{ErrorKind, Failure, Method, Request, RequestId, Response, Revision, splice};
use crate::sessions::session_record::SessionRecord;

/// Maximum length of a remembered elicitation id, in bytes.
const ELICITATION_ID_MAX: usize = 1024;

/// A question that the client has not answered yet.
pub(super) struct SentQuestion {
    pub(super) question: Question,
    /// The call that the question belongs to.
    pub(super) call: u64,
    /// The stream on which the question was sent.
    pub(super) stream: u64,
}

/// The questions that the client has not answered, and the lasting effects of earlier ones.
#[derive(Default)]
pub(super) struct SentQuestions {
    /// Open questions by the number that is their id at the client.
    open: QuickMap<u64, SentQuestion>,
    /// Open URL elicitations of this client, each with its server, or without on a connection of
    /// the session's own.
    elicitations: BTreeSet<(Option<ServerName>, String)>,
    /// Servers that asked for the client's roots.
    asked_for_roots: BTreeSet<ServerName>,
}

impl SentQuestions {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    pub(super) fn add(&mut self, number: u64, sent: SentQuestion) {
        self.open.insert(number, sent);
    }

    pub(super) fn take(&mut self, number: u64) -> Option<SentQuestion> {
        self.open.remove(&number)
    }

    /// Passes the client's answer to the server. Unknown numbers belong to questions that were
    /// already answered, or to calls that have ended.
    pub(super) fn answer(&mut self, response: Response) {
        let number = response.id.as_ref().and_then(RequestId::as_number);
        if let Some(sent) = number.and_then(|number| self.take(number)) {
            sent.question.answer(Ok(response));
        }
    }

    /// Removes the question that its server cancelled. Returns its number and stream.
    pub(super) fn cancel(
        &mut self,
        call: u64,
        cancelled: &CancelledQuestion,
    ) -> Option<(u64, u64)> {
        let is_it =
            |sent: &SentQuestion| sent.call == call && sent.question.request.id == cancelled.id;
        let mut found = self.open.extract_if(|_, sent| is_it(sent));
        let (number, sent) = found.next()?;
        sent.question.discard();
        Some((number, sent.stream))
    }

    /// Removes the questions of an ended call, and returns their numbers and streams. Questions that
    /// could belong to a different call to the same server now belong to `other`, on that stream.
    pub(super) fn end_call(&mut self, call: u64, other: Option<(u64, u64)>) -> Vec<(u64, u64)> {
        let mut ended = Vec::new();
        for (number, sent) in self.open.iter_mut().filter(|(_, it)| it.call == call) {
            match other.filter(|_| sent.question.is_unattributed) {
                Some((call, stream)) => (sent.call, sent.stream) = (call, stream),
                None => ended.push((*number, sent.stream)),
            }
        }
        for (number, _) in &ended {
            self.open.remove(number);
        }
        ended
    }

    /// Remembers that a server asked for roots or for a visit to a page.
    pub(super) fn remember(&mut self, server: Option<ServerName>, request: &Request, max: usize) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ElicitParams {
            elicitation_id: Option<String>,
        }
        if request.method == Method::RootsList {
            self.asked_for_roots.extend(server);
        } else if let Ok(params) = request.params_as::<ElicitParams>()
            && let Some(id) = params.elicitation_id
        {
            self.remember_elicitation(server, id, max);
        }
    }

    /// Remembers a URL elicitation, which the server can later report as complete. At most `max`
    /// are remembered.
    pub(super) fn remember_elicitation(
        &mut self,
        server: Option<ServerName>,
        id: String,
        max: usize,
    ) {
        if self.elicitations.len() < max && id.len() <= ELICITATION_ID_MAX {
            self.elicitations.insert((server, id));
        }
    }

    /// Forgets a completed elicitation. Returns whether this client was asked.
    pub(super) fn complete_elicitation(&mut self, server: ServerName, id: String) -> bool {
        let (named, unnamed) = ((Some(server), id.clone()), (None, id));
        self.elicitations.remove(&named) || self.elicitations.remove(&unnamed)
    }

    pub(super) fn asked_for_roots(&self, server: &ServerName) -> bool {
        self.asked_for_roots.contains(server)
    }
}

/// Returns a question in the format of the client's revision. `only_server` is the server of a
/// single-server view.
///
/// # Errors
///
/// Returns why the client cannot be asked (S-REQ-01, S-REQ-02, S-REQ-03).
pub(super) fn question_frame(
    record: &SessionRecord,
    only_server: Option<&Server>,
    request: &Request,
    id: &RequestId,
) -> Result<Bytes, Failure> {
    let revision = record.revision;
    let declared = record.profile.as_map();
    let written = bridge::Question::of_request(request);
    let written = written.ok_or_else(|| cannot_be_asked(request))?;
    if only_server.is_some_and(|server| refuses_itself(record, server, request)) {
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

/// Returns whether an undeclared question is still sent, so that the client refuses it itself. A
/// single-server view passes on every question that the server would send directly. If roots are
/// configured, they are the answer for clients without roots.
fn refuses_itself(record: &SessionRecord, server: &Server, request: &Request) -> bool {
    match request.method {
        Method::RootsList => record.profile.has_roots() || server.settings().roots.is_empty(),
        _ => record.revision >= Revision::V2025_11_25,
    }
}

/// Returns the failure for a question that is malformed, or exceeds the limit on open questions.
pub(super) fn cannot_be_asked(request: &Request) -> Failure {
    let message = format!("the client cannot be asked for `{}`", request.method);
    Failure::new(ErrorKind::MethodNotFound, message)
}
