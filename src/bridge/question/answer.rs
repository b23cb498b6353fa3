//! Validates and translates client responses to questions, and defines the fallback for a missing
//! response.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::protocol::{RawJson, Revision, json as text, parse_bounded};

use super::QuestionKind;
use crate::bridge::object::{self, MemberChange, Object};

/// A response does not have the shape that its question requires: -32602, and the call keeps
/// waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAnswer(&'static str);

/// A server of an old revision cannot read a response with several parts or with tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("client responded with several parts, which the server's revision does not support")]
pub struct UnsupportedAnswer;

/// Fallback for a sessionless call whose question was refused: `inputResponses` can carry results
/// but no errors (B-ASK-04, S-REQ-13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionFallback {
    /// The call continues with this response.
    Answer(RawJson),
    /// The call ends: an error for the model to read, or -32603.
    Stop,
}

/// Checks the shape of a response, an entry of `inputResponses` or a result (S-MRTR-11).
///
/// # Errors
///
/// Returns [`InvalidAnswer`] with the problem.
pub fn check_answer(kind: QuestionKind, answer: &RawJson) -> Result<(), InvalidAnswer> {
    let right = match kind {
        QuestionKind::Elicitation => is_elicit_result(answer),
        QuestionKind::Sampling => is_sampling_result(answer),
        QuestionKind::Roots => is_roots(answer),
    };
    match right {
        Some(true) => Ok(()),
        _ => Err(InvalidAnswer(match kind {
            QuestionKind::Elicitation => {
                "response to an elicitation needs `action`: accept, decline or cancel, and `content` of plain values"
            }
            QuestionKind::Sampling => "response to sampling needs `role`, `content` and `model`",
            QuestionKind::Roots => "response to roots/list needs `roots`, each with a `uri`",
        })),
    }
}

/// Whether a response to an elicitation accepts.
pub fn is_accepted(answer: &RawJson) -> bool {
    let action = text::member(answer.as_str(), "action").and_then(text::text);
    action.as_deref() == Some("accept")
}

fn is_elicit_result(answer: &RawJson) -> Option<bool> {
    let members = parse_bounded::<Map<String, Value>>(answer.as_str())?;
    let action = members.get("action")?.as_str()?;
    let plain = |value: &Value| match value {
        Value::String(_) | Value::Bool(_) | Value::Number(_) => true,
        Value::Array(chosen) => chosen.iter().all(Value::is_string),
        Value::Null | Value::Object(_) => false,
    };
    let content = match members.get("content") {
        None => true,
        Some(content) => content.as_object()?.values().all(plain),
    };
    Some(content && matches!(action, "accept" | "decline" | "cancel"))
}

fn is_sampling_result(answer: &RawJson) -> Option<bool> {
    #[derive(Deserialize)]
    struct SampledBlock {
        r#type: String,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        One(SampledBlock),
        Several(Vec<SampledBlock>),
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its presence and type are checked")]
    struct SamplingResult {
        role: String,
        model: String,
        content: Content,
    }
    let message: SamplingResult = object::read(answer.as_str())?;
    let typed = |block: &SampledBlock| !block.r#type.is_empty();
    let content = match &message.content {
        Content::One(block) => typed(block),
        Content::Several(blocks) => blocks.iter().all(typed),
    };
    Some(content && matches!(message.role.as_str(), "user" | "assistant"))
}

fn is_roots(answer: &RawJson) -> Option<bool> {
    let members = parse_bounded::<Map<String, Value>>(answer.as_str())?;
    let roots = members.get("roots")?.as_array()?;
    let has_uri = |root: &Value| root.get("uri").is_some_and(Value::is_string);
    Some(roots.iter().all(has_uri))
}

/// Translates the response for a server of this revision; `None` if it can be forwarded unchanged.
///
/// # Errors
///
/// Returns [`UnsupportedAnswer`] for several parts that cannot be merged.
pub fn answer_for_server(
    kind: QuestionKind,
    answer: &RawJson,
    to: Revision,
) -> Result<Option<RawJson>, UnsupportedAnswer> {
    let Some(members) = Object::parse(answer.as_str()) else {
        return Ok(None);
    };
    let content = members.get("content");
    if kind != QuestionKind::Sampling || to >= Revision::V2025_11_25 {
        return Ok(None);
    }
    let Some(content) = content else {
        return Ok(None);
    };
    let block = match text::elements(content) {
        Some(blocks) => joined_block(&blocks)?,
        None => content.to_owned(),
    };
    let kind = text::member(&block, "type").and_then(text::text);
    if matches!(kind.as_deref(), Some("tool_use" | "tool_result")) {
        return Err(UnsupportedAnswer);
    }
    let block = crate::bridge::projection::block(&block, to).unwrap_or(block);
    if block == content {
        return Ok(None);
    }
    let changed = members.rebuild("", |key, _| match key {
        "content" => MemberChange::Value(block.clone()),
        _ => MemberChange::Keep,
    });
    Ok(changed.and_then(object::raw))
}

/// Merges several blocks into one, if all are text.
fn joined_block(blocks: &[&str]) -> Result<String, UnsupportedAnswer> {
    if let [block] = blocks {
        return Ok((*block).to_owned());
    }
    let text_of = |block: &&str| {
        let kind = text::member(block, "type").and_then(text::text)?;
        let words = text::member(block, "text").and_then(text::text)?;
        (kind == "text").then(|| words.into_owned())
    };
    let texts: Option<Vec<String>> = blocks.iter().map(text_of).collect();
    let joined = texts
        .filter(|texts| !texts.is_empty())
        .ok_or(UnsupportedAnswer)?;
    Ok(json!({ "type": "text", "text": joined.join("\n") }).to_string())
}

/// The fallback for a sessionless server if the client responds with an error or cannot be asked.
pub fn fallback_for(kind: QuestionKind) -> QuestionFallback {
    match kind {
        QuestionKind::Elicitation => QuestionFallback::Answer(cancel()),
        QuestionKind::Sampling | QuestionKind::Roots => QuestionFallback::Stop,
    }
}

fn cancel() -> RawJson {
    RawJson::from_value(&json!({ "action": "cancel" }))
}
