//! Questions that a server asks a client during a call: sampling, elicitation, roots. Servers with
//! a handshake send a request, sessionless servers an entry of `inputRequests` (B-ASK-02,
//! B-ASK-03).

mod answer;
mod for_sessionless;
mod for_sessions;

use serde_json::{Map, Value, json};

use crate::protocol::json::text as text_of;
use crate::protocol::{Method, RawJson, Request, RequestId, json};

use super::object::{self, MemberChange, Object, is_object};

pub use answer::{
    InvalidAnswer, QuestionFallback, UnsupportedAnswer, answer_for_server, check_answer,
    fallback_for, is_accepted,
};
pub use for_sessionless::{elicitation_ids, url_elicitations};
pub use for_sessions::UnsupportedQuestion;

/// The kind of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuestionKind {
    Sampling,
    Elicitation,
    Roots,
}

impl QuestionKind {
    /// Parses the kind from a method name; `None` if the method is not a question.
    pub fn parse(method: &str) -> Option<Self> {
        Self::of(&Method::parse(method))
    }

    pub fn of(method: &Method) -> Option<Self> {
        match method {
            Method::SamplingCreateMessage => Some(Self::Sampling),
            Method::ElicitationCreate => Some(Self::Elicitation),
            Method::RootsList => Some(Self::Roots),
            _ => None,
        }
    }

    pub const fn method(self) -> Method {
        match self {
            Self::Sampling => Method::SamplingCreateMessage,
            Self::Elicitation => Method::ElicitationCreate,
            Self::Roots => Method::RootsList,
        }
    }
}

/// A question without a request id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub kind: QuestionKind,
    params: Option<RawJson>,
}

/// The capability that a client must declare to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequiredCapability {
    Form,
    Url,
    Sampling,
    SamplingTools,
    Roots,
}

impl Question {
    /// Builds a question; `None` if `params` is not an object, or is missing although the kind
    /// requires it.
    pub(super) fn try_new(kind: QuestionKind, params: Option<&str>) -> Option<Self> {
        let params = match params {
            Some(text) if is_object(text) => Some(object::raw(text.to_owned())?),
            None if kind == QuestionKind::Roots => None,
            Some(_) | None => return None,
        };
        Some(Self { kind, params })
    }

    /// The question in a server's request, unchanged. `None` if the request is not a question, or
    /// has no usable `params`.
    pub fn of_request(request: &Request) -> Option<Self> {
        let kind = QuestionKind::of(&request.method)?;
        let params = json::member(request.frame.as_str(), "params");
        Self::try_new(kind, params.filter(|text| *text != "null"))
    }

    /// Adapts the question to a client that declares these capabilities. `includeContext` stays
    /// only with `sampling.context` (S-REQ-02); the client would take the gateway for the server.
    ///
    /// # Errors
    ///
    /// Returns the capability that the client lacks.
    pub fn declared(self, capabilities: &Map<String, Value>) -> Result<Self, RequiredCapability> {
        let required = self.required();
        if !required.is_declared(capabilities) {
            return Err(required);
        }
        Ok(self.without_undeclared_context(capabilities))
    }

    fn without_undeclared_context(self, capabilities: &Map<String, Value>) -> Self {
        let sampling = capabilities.get("sampling");
        let context = sampling.and_then(|with| with.get("context"));
        if self.kind != QuestionKind::Sampling || context.is_some_and(Value::is_object) {
            return self;
        }
        self.rebuilt(|key, value| {
            MemberChange::keep_if(key != "includeContext" || value == "\"none\"")
        })
    }

    /// Rebuilds the question with changed members of `params`.
    fn rebuilt(self, change: impl FnMut(&str, &str) -> MemberChange) -> Self {
        let params = self.params.as_ref();
        let params = params.and_then(|params| Object::parse(params.as_str()));
        let changed = params.and_then(|params| params.rebuild("", change));
        match changed.and_then(object::raw) {
            Some(changed) => Self {
                kind: self.kind,
                params: Some(changed),
            },
            None => self,
        }
    }

    /// The sender's `params`, reduced to what is forwarded.
    pub const fn params(&self) -> Option<&RawJson> {
        self.params.as_ref()
    }

    /// The question as an entry of `inputRequests`.
    pub fn entry(&self) -> String {
        let method = self.kind.method();
        match &self.params {
            Some(params) => format!(r#"{{"method":"{method}","params":{}}}"#, params.as_str()),
            None => format!(r#"{{"method":"{method}"}}"#),
        }
    }

    /// The question as a request to a client with a handshake.
    pub fn request(&self, id: &RequestId) -> Request {
        Request::new(id, self.kind.method(), self.params.as_ref())
    }

    /// The capability that a client needs for this question (S-MRTR-05, S-REQ-01, S-REQ-02,
    /// S-REQ-03).
    pub fn required(&self) -> RequiredCapability {
        let params = self.params.as_ref();
        let params = params.and_then(|params| Object::parse(params.as_str()));
        let get = |name: &str| params.as_ref().and_then(|params| params.get(name));
        match self.kind {
            QuestionKind::Roots => RequiredCapability::Roots,
            QuestionKind::Elicitation if is_url(get("mode")) => RequiredCapability::Url,
            QuestionKind::Elicitation => RequiredCapability::Form,
            QuestionKind::Sampling if get("tools").or(get("toolChoice")).is_some() => {
                RequiredCapability::SamplingTools
            }
            QuestionKind::Sampling => RequiredCapability::Sampling,
        }
    }
}

fn is_url(mode: Option<&str>) -> bool {
    mode.and_then(text_of).is_some_and(|mode| mode == "url")
}

impl RequiredCapability {
    /// Name for messages and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Form => "elicitation.form",
            Self::Url => "elicitation.url",
            Self::Sampling => "sampling",
            Self::SamplingTools => "sampling.tools",
            Self::Roots => "roots",
        }
    }

    /// `requiredCapabilities` of error -32021.
    pub fn capabilities(self) -> Value {
        match self {
            Self::Form => json!({ "elicitation": { "form": {} } }),
            Self::Url => json!({ "elicitation": { "url": {} } }),
            Self::Sampling => json!({ "sampling": {} }),
            Self::SamplingTools => json!({ "sampling": { "tools": {} } }),
            Self::Roots => json!({ "roots": {} }),
        }
    }

    /// Whether a client that declares these capabilities can be asked. `elicitation: {}` means
    /// forms (C-REQ-02).
    pub fn is_declared(self, capabilities: &Map<String, Value>) -> bool {
        let get = |name: &str| capabilities.get(name).and_then(Value::as_object);
        match self {
            Self::Form => get("elicitation")
                .is_some_and(|modes| modes.contains_key("form") || !modes.contains_key("url")),
            Self::Url => get("elicitation").is_some_and(|modes| modes.contains_key("url")),
            Self::Sampling => get("sampling").is_some(),
            Self::SamplingTools => get("sampling").is_some_and(|with| with.contains_key("tools")),
            Self::Roots => get("roots").is_some(),
        }
    }
}

#[cfg(test)]
mod tests;
