//! Messages from the gateway to the dashboard's MCP client, truncated to what a page shows. Pure.

use serde_json::Value;

use crate::masking::LiveSecrets;

/// Maximum size of a question, in bytes; a larger one is declined.
const QUESTION_MAX: usize = 256 * 1024;

/// Maximum size of one part of a result, in bytes.
const PART_MAX: usize = 64 * 1024;

/// Maximum total size of a result's parts, in bytes.
const RESULT_MAX: usize = 256 * 1024;

/// Maximum size of a progress message, in bytes.
const PROGRESS_MAX: usize = 1024;

/// A message relevant to a call.
#[derive(Debug)]
pub(super) enum Message {
    /// The answer to the request with this id.
    Answer(Value, PlaygroundAnswer),
    CallProgress(CallProgress),
    /// The request with this id is a question.
    Asks(Value, PlaygroundQuestion),
    /// The server no longer waits for an answer to the request with this id.
    Withdrawn(Value),
    Ping(Value),
    /// A request that is answered with this error.
    Refused(Value, &'static str),
    Other,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::admin::ui) struct CallProgress {
    pub(in crate::admin::ui) done: f64,
    pub(in crate::admin::ui) total: Option<f64>,
    pub(in crate::admin::ui) word: String,
}

/// A question of the server.
#[derive(Debug, Default, PartialEq)]
pub(in crate::admin::ui) struct PlaygroundQuestion {
    /// Number of the question within the call.
    pub(in crate::admin::ui) number: u64,
    pub(in crate::admin::ui) text: String,
    /// URL to open, for a question without a form.
    pub(in crate::admin::ui) url: Option<String>,
    pub(in crate::admin::ui) schema: Value,
}

/// The answer to a call.
#[derive(Debug, Default, PartialEq)]
pub(in crate::admin::ui) struct PlaygroundAnswer {
    /// Message of a JSON-RPC error, which replaces a result.
    pub(in crate::admin::ui) error: Option<String>,
    /// Whether the result is marked as a tool error.
    pub(in crate::admin::ui) is_tool_error: bool,
    pub(in crate::admin::ui) items: Vec<Item>,
    /// Whether parts were left out or truncated.
    pub(in crate::admin::ui) is_cut: bool,
    /// The complete answer as received.
    pub(in crate::admin::ui) whole: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::admin::ui) enum Item {
    Text(String),
    /// A part of another type.
    Other(String),
}

impl Message {
    pub(super) fn read(line: &str, secrets: &LiveSecrets) -> Self {
        let Ok(mut message) = serde_json::from_str::<Value>(line) else {
            return Self::Other;
        };
        for shown in ["params", "result", "error"] {
            if let Some(shown) = message.get_mut(shown) {
                secrets.mask_json(shown);
            }
        }
        let id = message.get_mut("id").map_or(Value::Null, Value::take);
        let nothing = Value::Null;
        let params = message.get("params").unwrap_or(&nothing);
        let number = |name: &str| params.get(name).and_then(Value::as_f64);
        let member = |name: &str| params.get(name).cloned().unwrap_or_default();
        match text_of(&message, "method") {
            None if id.is_null() => Self::Other,
            None => Self::Answer(id, PlaygroundAnswer::of(&message)),
            Some("notifications/progress") => Self::CallProgress(CallProgress {
                done: number("progress").unwrap_or(0.0),
                total: number("total").filter(|total| *total > 0.0),
                word: beginning(text_of(params, "message").unwrap_or_default(), PROGRESS_MAX),
            }),
            Some("notifications/cancelled") => Self::Withdrawn(member("requestId")),
            Some(_) if id.is_null() => Self::Other,
            Some("ping") => Self::Ping(id),
            Some("elicitation/create") if line.len() > QUESTION_MAX => {
                Self::Refused(id, "the question is too large for a page")
            }
            Some("elicitation/create") => {
                let text = |name: &str| text_of(params, name).map(str::to_owned);
                let question = PlaygroundQuestion {
                    number: 0,
                    text: text("message").unwrap_or_default(),
                    url: text("url"),
                    schema: member("requestedSchema"),
                };
                Self::Asks(id, question)
            }
            Some(_) => Self::Refused(id, "this client is a page that tries a tool"),
        }
    }
}

impl PlaygroundAnswer {
    fn of(message: &Value) -> Self {
        let error = message.get("error").filter(|error| error.is_object());
        let nothing = Value::Null;
        let shown = error.or(message.get("result")).unwrap_or(&nothing);
        let whole = serde_json::to_string_pretty(shown).unwrap_or_default();
        let mut answer = Self {
            whole: beginning(&whole, PART_MAX),
            ..Self::default()
        };
        if let Some(error) = error {
            let text = text_of(error, "message").unwrap_or_default();
            answer.error = Some(beginning(text, PART_MAX));
            return answer;
        }
        answer.is_tool_error = shown.get("isError") == Some(&Value::Bool(true));
        let mut room = RESULT_MAX;
        // A tool answers with contents, a prompt with messages, and a resource with its parts.
        let lists = ["content", "messages", "contents"].into_iter();
        let items = lists
            .filter_map(|list| shown.get(list)?.as_array())
            .flatten();
        for item in items {
            let item = item.get("content").unwrap_or(item);
            let text = text_of(item, "text");
            let kind = text_of(item, "type").or(text_of(item, "mimeType"));
            let kept = text.or(kind).unwrap_or("?");
            let part = beginning(kept, PART_MAX);
            answer.is_cut |= part.len() < kept.len();
            // Each part takes space on the page, even an empty one.
            let cost = part.len() + 256;
            if cost > room {
                answer.is_cut = true;
                break;
            }
            room -= cost;
            answer.items.push(match text {
                Some(_) => Item::Text(part),
                None => Item::Other(part),
            });
        }
        answer
    }
}

fn text_of<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member)?.as_str()
}

fn beginning(text: &str, bytes: usize) -> String {
    let end = text.floor_char_boundary(bytes);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(message: &Value) -> PlaygroundAnswer {
        match Message::read(&message.to_string(), &LiveSecrets::default()) {
            Message::Answer(_, answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_are_told_apart() {
        let table = [
            (json!({"id": 1, "result": {}}), "Answer(Number(1), "),
            (
                json!({"method": "notifications/progress", "params": {"progress": 1, "total": 0}}),
                "CallProgress(CallProgress { done: 1.0, total: None, word: \"\" })",
            ),
            (
                json!({"id": 7, "method": "elicitation/create", "params": {"message": "Who?"}}),
                "Asks(Number(7), PlaygroundQuestion { number: 0, text: \"Who?\", url: None",
            ),
            (
                json!({"method": "notifications/cancelled", "params": {"requestId": 7}}),
                "Withdrawn(Number(7))",
            ),
            (json!({"id": "a", "method": "ping"}), "Ping(String(\"a\"))"),
            (
                json!({"id": 1, "method": "sampling/createMessage"}),
                "Refused(Number(1), \"this client",
            ),
            (json!({"method": "notifications/message"}), "Other"),
            (json!([1]), "Other"),
            (json!({}), "Other"),
        ];
        for (message, expected) in table {
            let read = format!(
                "{:?}",
                Message::read(&message.to_string(), &LiveSecrets::default())
            );
            assert!(read.starts_with(expected), "{message}: {read}");
        }
        assert!(matches!(
            Message::read("{", &LiveSecrets::default()),
            Message::Other
        ));
    }

    #[test]
    fn large_messages_are_cut() {
        let long = "é".repeat(QUESTION_MAX);
        let content = json!([{"type": "text", "text": long}, {"type": long}, {}]);
        let cut = answer(&json!({"id": 1, "result": {"content": content, "isError": true}}));
        assert!(cut.is_cut && cut.is_tool_error && cut.items.len() == 3);
        let many = vec![json!({"type": "text", "text": "é".repeat(PART_MAX / 2)}); 100];
        for content in [json!(many), json!(vec![json!(null); 100_000])] {
            let cut = answer(&json!({"id": 1, "result": {"content": content}}));
            assert!(cut.is_cut && cut.items.len() <= RESULT_MAX / 256);
            assert!(cut.whole.len() <= PART_MAX && !cut.is_tool_error);
        }
        let failed = answer(&json!({"id": 1, "error": {"message": long}}));
        assert_eq!(failed.error.map(|error| error.len()), Some(PART_MAX));
        let question =
            json!({"id": 1, "method": "elicitation/create", "params": {"message": long}});
        let read = Message::read(&question.to_string(), &LiveSecrets::default());
        assert!(matches!(read, Message::Refused(..)));
        assert!(!answer(&json!({"id": 1, "result": {"content": [{"text": "a"}]}})).is_cut);
    }
}
