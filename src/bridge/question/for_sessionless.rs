//! Translates questions of servers with a handshake for sessionless clients.

use serde_json::{Map, Value};

use crate::protocol::{RawJson, Request, code, json};

use super::{Question, QuestionKind};
use crate::bridge::meta::{PROGRESS_TOKEN, RESERVED};
use crate::bridge::object::{self, MemberChange, Object};

/// Maximum number of elicitations in one error.
const ELICITATIONS_MAX: usize = 64;

impl Question {
    /// The question in a request of a server with a handshake, in the form for a sessionless
    /// client: without ids, tasks and the protocol's own `_meta`, and without context that the
    /// client does not declare. `None` if the request is not a question, or has no usable `params`.
    pub fn from_server(request: &Request, capabilities: &Map<String, Value>) -> Option<Self> {
        let question = Self::of_request(request)?.without_legacy_members();
        Some(question.without_undeclared_context(capabilities))
    }

    fn without_legacy_members(self) -> Self {
        let kind = self.kind;
        self.rebuilt(|key, value| match key {
            "task" => MemberChange::Drop,
            "elicitationId" if kind == QuestionKind::Elicitation => MemberChange::Drop,
            "_meta" => without_reserved(value),
            _ => MemberChange::Keep,
        })
    }
}

fn without_reserved(meta: &str) -> MemberChange {
    let Some(members) = Object::parse(meta) else {
        return MemberChange::Drop;
    };
    let kept = |key: &str| key != PROGRESS_TOKEN && !key.starts_with(RESERVED);
    if !members.iter().any(|(key, _)| kept(key)) {
        return MemberChange::Drop;
    }
    MemberChange::set_if_some(members.rebuild("", |key, _| MemberChange::keep_if(kept(key))))
}

/// The pages that a server asks the user to visit first (S-REQ-05), from its error -32042. `None`
/// if it is a different error, or lists nothing that a client could be asked.
pub fn url_elicitations(error: &RawJson) -> Option<Vec<Question>> {
    let found: Option<Vec<_>> = listed(error)?.into_iter().map(url_elicitation).collect();
    found.filter(|found| !found.is_empty())
}

/// The ids of the pages in an error -32042, by which the server can later report a visit as
/// complete.
pub fn elicitation_ids(error: &RawJson) -> impl Iterator<Item = String> {
    let ids = listed(error).into_iter().flatten().filter_map(|params| {
        let id = json::text(json::member(params, "elicitationId")?)?;
        Some(id.into_owned())
    });
    ids.collect::<Vec<_>>().into_iter()
}

fn listed(error: &RawJson) -> Option<Vec<&str>> {
    let text = error.as_str();
    let is_code = json::member(text, "code")?.parse() == Ok(code::URL_ELICITATION_REQUIRED);
    let data = json::member(text, "data").filter(|_| is_code)?;
    let listed = json::elements(json::member(data, "elicitations")?)?;
    (listed.len() <= ELICITATIONS_MAX).then_some(listed)
}

fn url_elicitation(params: &str) -> Option<Question> {
    let members = Object::parse(params)?;
    let text = |name: &str| members.get(name).and_then(json::text);
    let is_url = text("mode").is_none_or(|mode| mode == "url");
    if !is_url || text("url").is_none() || text("message").is_none() {
        return None;
    }
    let question = Question::try_new(QuestionKind::Elicitation, Some(params))?;
    let mut question = question.without_legacy_members();
    if members.get("mode").is_none() {
        let params = question.params()?.as_str().to_owned();
        let with_mode =
            Object::parse(&params)?.rebuild(r#""mode":"url""#, |_, _| MemberChange::Keep);
        question.params = with_mode.and_then(object::raw);
    }
    Some(question)
}
