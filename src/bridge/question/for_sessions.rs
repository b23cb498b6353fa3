//! Translates questions of sessionless servers for clients with a handshake.

use serde_json::{Map, Value, json};

use crate::protocol::{RawJson, Revision, json as text, parse_bounded};

use super::{Question, QuestionKind, RequiredCapability};
use crate::bridge::object::{self, MemberChange, Object, rebuild_elements};

/// Why a client cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedQuestion {
    #[error("client does not declare `{}`", .0.as_str())]
    Undeclared(RequiredCapability),
    /// `what` does not exist in the client's revision.
    #[error("{what} does not exist in the client's revision {revision}")]
    Revision {
        what: &'static str,
        revision: Revision,
    },
}

impl Question {
    /// Translates the question for a client of this revision with these capabilities.
    /// `elicitation_id` is the id for a URL elicitation if the revision requires one; once the
    /// server stops asking, `notifications/elicitation/complete` names it.
    ///
    /// # Errors
    ///
    /// Returns [`UnsupportedQuestion`] if the client did not declare what is needed, or its
    /// revision cannot express the question. [`super::fallback_for`] then determines how the call
    /// continues.
    pub fn for_client(
        &self,
        to: Revision,
        capabilities: &Map<String, Value>,
        elicitation_id: &str,
    ) -> Result<Self, UnsupportedQuestion> {
        let asked = self.clone().declared(capabilities);
        let asked = asked.map_err(UnsupportedQuestion::Undeclared)?;
        let cannot = |what| UnsupportedQuestion::Revision { what, revision: to };
        let Some(params) = asked.params.as_ref().map(RawJson::as_str) else {
            return Ok(asked);
        };
        let changed = match (asked.kind, asked.required()) {
            (QuestionKind::Roots, _) => None,
            (QuestionKind::Elicitation, _) if to < Revision::V2025_06_18 => {
                return Err(cannot("elicitation"));
            }
            (_, RequiredCapability::Url) if to < Revision::V2025_11_25 => {
                return Err(cannot("elicitation by URL"));
            }
            (_, RequiredCapability::Url) if to == Revision::V2025_11_25 => {
                with_elicitation_id(params, elicitation_id)
            }
            (QuestionKind::Elicitation, _) if to < Revision::V2025_11_25 => {
                form(params).map_err(cannot)?
            }
            (QuestionKind::Sampling, _) if to < Revision::V2025_11_25 => {
                sampling(params, to).map_err(cannot)?
            }
            (QuestionKind::Elicitation | QuestionKind::Sampling, _) => None,
        };
        Ok(match changed.and_then(object::raw) {
            Some(params) => Self {
                kind: asked.kind,
                params: Some(params),
            },
            None => asked,
        })
    }
}

fn with_elicitation_id(params: &str, id: &str) -> Option<String> {
    let first = format!(r#""elicitationId":{}"#, text::quoted(id).as_str());
    Object::parse(params)?.rebuild(&first, |key, _| {
        MemberChange::keep_if(key != "elicitationId")
    })
}

/// A form for 2025-06-18: without `mode`, and with a single kind of choice.
fn form(params: &str) -> Result<Option<String>, &'static str> {
    let Some(members) = Object::parse(params) else {
        return Ok(None);
    };
    let schema = members.get("requestedSchema").unwrap_or("{}");
    let mut schema: Value = parse_bounded(schema).unwrap_or_default();
    if let Some(members) = schema.as_object_mut() {
        members.shift_remove("$schema");
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            field(property)?;
        }
    }
    let schema = schema.to_string();
    Ok(members.rebuild("", |key, _| match key {
        "mode" => MemberChange::Drop,
        "requestedSchema" => MemberChange::Value(schema.clone()),
        _ => MemberChange::Keep,
    }))
}

/// One field of a form: choices become `enum` with `enumNames`, and only booleans keep a default.
fn field(property: &mut Value) -> Result<(), &'static str> {
    let Value::Object(members) = property else {
        return Ok(());
    };
    let kind = members.get("type").and_then(Value::as_str);
    if kind == Some("array") {
        return Err("a choice of several");
    }
    if kind != Some("boolean") {
        members.shift_remove("default");
    }
    let Some(Value::Array(choices)) = members.shift_remove("oneOf") else {
        return Ok(());
    };
    let value = |choice: &Value| choice.get("const").cloned().unwrap_or_default();
    let name = |choice: &Value| {
        choice
            .get("title")
            .cloned()
            .unwrap_or_else(|| value(choice))
    };
    members.insert("type".to_owned(), json!("string"));
    members.insert("enum".to_owned(), choices.iter().map(value).collect());
    members.insert("enumNames".to_owned(), choices.iter().map(name).collect());
    Ok(())
}

/// Sampling before 2025-11-25: no tools, one block per message.
fn sampling(params: &str, to: Revision) -> Result<Option<String>, &'static str> {
    let Some(members) = Object::parse(params) else {
        return Ok(None);
    };
    if members.get("tools").or(members.get("toolChoice")).is_some() {
        return Err("sampling with tools");
    }
    let mut failure = None;
    let messages = members.get("messages").and_then(|messages| {
        rebuild_elements(messages, |message| {
            let changed = sampling_message(message, to);
            changed.unwrap_or_else(|what| {
                failure = Some(what);
                None
            })
        })
    });
    match (failure, messages) {
        (Some(what), _) => Err(what),
        (None, None) => Ok(None),
        (None, Some(messages)) => Ok(members.rebuild("", |key, _| match key {
            "messages" => MemberChange::Value(messages.clone()),
            _ => MemberChange::Keep,
        })),
    }
}

fn sampling_message(message: &str, to: Revision) -> Result<Option<String>, &'static str> {
    let Some(members) = Object::parse(message) else {
        return Ok(None);
    };
    let Some(content) = members.get("content") else {
        return Ok(None);
    };
    let block = match text::elements(content) {
        Some(blocks) => match blocks.as_slice() {
            [block] => block,
            _ => return Err("a sampling message of several parts"),
        },
        None => content,
    };
    let kind = text::member(block, "type").and_then(text::text);
    if matches!(kind.as_deref(), Some("tool_use" | "tool_result")) {
        return Err("sampling with tools");
    }
    let projected = crate::bridge::projection::block(block, to);
    if projected.is_none() && block == content {
        return Ok(None);
    }
    let block = projected.unwrap_or_else(|| block.to_owned());
    Ok(members.rebuild("", |key, _| match key {
        "content" => MemberChange::Value(block.clone()),
        _ => MemberChange::Keep,
    }))
}
