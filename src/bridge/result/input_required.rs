//! `input_required`: a result that asks the client for input first (S-MRTR-01, S-MRTR-02,
//! S-MRTR-03, S-MRTR-04).

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::protocol::{RawJson, json};

use crate::bridge::meta::SERVER_INFO;
use crate::bridge::object::{self, Object};
use crate::bridge::question::{Question, QuestionKind, RequiredCapability};

/// Maximum number of questions in one result.
const QUESTIONS_MAX: usize = 64;

/// The input that a server needs before it can answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputRequired {
    /// Questions by the key of their response, in the server's order.
    pub requests: Vec<(String, Question)>,
    /// `requestState`, to be returned unchanged.
    pub state: Option<String>,
}

/// Why a result with `resultType: "input_required"` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInputRequired {
    #[error("neither `inputRequests` nor `requestState`")]
    Empty,
    #[error("`inputRequests` must be an object of requests")]
    Requests,
    #[error("`inputRequests` has more than {QUESTIONS_MAX} requests")]
    TooMany,
    #[error("`inputRequests` has the duplicate key `{0}`")]
    DuplicateKey(String),
    #[error("input request `{0}` must be elicitation, sampling or roots, with `params` as object")]
    Request(String),
    #[error("`requestState` must be a string")]
    State,
}

impl InputRequired {
    /// # Errors
    ///
    /// Returns [`InvalidInputRequired`] with the violated rule.
    pub fn parse(result: &RawJson) -> Result<Self, InvalidInputRequired> {
        let members = Object::parse(result.as_str()).ok_or(InvalidInputRequired::Requests)?;
        let state = members.get("requestState").map(|state| {
            let state = json::text(state).ok_or(InvalidInputRequired::State)?;
            Ok(state.into_owned())
        });
        let state = state.transpose()?;
        let requests = members.get("inputRequests").map(parse_requests);
        let requests = requests.transpose()?.unwrap_or_default();
        // The client would retry forever if it had neither a question nor a state to return.
        if state.is_none() && requests.is_empty() {
            return Err(InvalidInputRequired::Empty);
        }
        Ok(Self { requests, state })
    }

    /// Adapts the questions to a client that declares these capabilities (S-MRTR-05).
    ///
    /// # Errors
    ///
    /// Returns a capability that the client lacks.
    pub fn declared(
        mut self,
        capabilities: &Map<String, Value>,
    ) -> Result<Self, RequiredCapability> {
        for (_, question) in &mut self.requests {
            *question = question.clone().declared(capabilities)?;
        }
        Ok(self)
    }

    /// Builds the result for a sessionless client; `server_info` is the `Implementation` of the
    /// asking server.
    pub(in crate::bridge) fn build(&self, server_info: Option<&RawJson>) -> RawJson {
        let mut text = String::from(r#"{"resultType":"input_required""#);
        if !self.requests.is_empty() {
            text.push_str(&format!(
                r#","inputRequests":{}"#,
                requests_object(&self.requests)
            ));
        }
        if let Some(state) = &self.state {
            text.push_str(&format!(
                r#","requestState":{}"#,
                json::quoted(state).as_str()
            ));
        }
        if let Some(info) = server_info {
            let info = info.as_str();
            text.push_str(&format!(r#","_meta":{{"{SERVER_INFO}":{info}}}"#));
        }
        text.push('}');
        object::raw(text).unwrap_or_else(|| RawJson::from_value(&()))
    }
}

/// The value of `inputRequests`, of a result or of a task.
pub(in crate::bridge) fn requests_object(requests: &[(String, Question)]) -> String {
    let entry = |(key, question): &(String, Question)| {
        format!("{}:{}", json::quoted(key).as_str(), question.entry())
    };
    let entries: Vec<_> = requests.iter().map(entry).collect();
    format!("{{{}}}", entries.join(","))
}

/// Parses the entries of `inputRequests`, of a result or of a task.
///
/// # Errors
///
/// Returns [`InvalidInputRequired`] with the violated rule.
pub(in crate::bridge) fn parse_requests(
    text: &str,
) -> Result<Vec<(String, Question)>, InvalidInputRequired> {
    #[derive(Deserialize)]
    struct InputRequest {
        method: String,
    }
    let members = Object::parse(text).ok_or(InvalidInputRequired::Requests)?;
    let mut requests: Vec<(String, Question)> = Vec::new();
    for (key, value) in members.iter() {
        if requests.len() == QUESTIONS_MAX {
            return Err(InvalidInputRequired::TooMany);
        }
        if requests.iter().any(|(other, _)| other == key) {
            return Err(InvalidInputRequired::DuplicateKey(
                key.chars().take(64).collect(),
            ));
        }
        let invalid = || InvalidInputRequired::Request(key.chars().take(64).collect());
        let entry = Object::parse(value).ok_or_else(invalid)?;
        let method = object::read::<InputRequest>(value).ok_or_else(invalid)?;
        let kind = QuestionKind::parse(&method.method).ok_or_else(invalid)?;
        let params = entry.get("params").filter(|params| *params != "null");
        let question = Question::try_new(kind, params).ok_or_else(invalid)?;
        requests.push((key.to_owned(), question));
    }
    Ok(requests)
}
