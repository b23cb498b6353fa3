//! Questions of a server in the middle of a call, asked at the terminal.

use mcpvisor::telemetry::{one_line, printable};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::typed::typed;
use crate::commands::output::typed_lines;

/// How often a value is asked for that is not right; then the question is declined.
const ATTEMPTS_MAX: usize = 5;

/// Asks the person at the terminal.
#[derive(Default)]
pub(super) struct Questions {
    /// `None` until the first question.
    lines: Option<mpsc::Receiver<String>>,
}

impl Questions {
    /// Asks what `elicitation/create` asks for, and returns its result. The end of the input
    /// declines.
    pub(super) async fn ask(&mut self, params: &Value) -> Value {
        let message = params["message"].as_str().unwrap_or_default();
        eprintln!("The server asks: {}", printable(message));
        let answer = match params["url"].as_str() {
            Some(url) => self.ask_to_open(url).await,
            None => self.fill_in(&params["requestedSchema"]).await,
        };
        match answer {
            Some(content) if params["url"].is_string() => {
                drop(content);
                json!({"action": "accept"})
            }
            Some(content) => json!({"action": "accept", "content": content}),
            None => {
                eprintln!("declined");
                json!({"action": "decline"})
            }
        }
    }

    async fn ask_to_open(&mut self, url: &str) -> Option<Map<String, Value>> {
        eprintln!("It wants you to open this page:\n  {}", one_line(url));
        let answer = self.line("Go on? [y/N]").await?;
        matches!(answer.as_str(), "y" | "Y" | "yes").then(Map::new)
    }

    /// Asks for each property; `None` if the person does not want to.
    async fn fill_in(&mut self, schema: &Value) -> Option<Map<String, Value>> {
        let mut content = Map::new();
        let Some(properties) = schema["properties"].as_object() else {
            let answer = self.line("Agree? [y/N]").await?;
            return matches!(answer.as_str(), "y" | "Y" | "yes").then_some(content);
        };
        eprintln!("(Ctrl-D declines)");
        for (name, property) in properties {
            let required = schema["required"].as_array().into_iter().flatten();
            let is_required = required.into_iter().any(|required| required == name);
            if let Some(value) = self.value(name, property, is_required).await? {
                content.insert(name.clone(), value);
            }
        }
        Some(content)
    }

    /// The value of a property, or none where it may be left out.
    async fn value(
        &mut self,
        name: &str,
        schema: &Value,
        is_required: bool,
    ) -> Option<Option<Value>> {
        let prompt = prompt(name, schema, is_required);
        for _ in 0..ATTEMPTS_MAX {
            let answer = self.line(&prompt).await?;
            if answer.is_empty() {
                match schema.get("default") {
                    Some(default) => return Some(Some(default.clone())),
                    None if !is_required => return Some(None),
                    None => {}
                }
            }
            match typed(schema, &choices_of(schema), &answer) {
                Ok(value) => return Some(Some(value)),
                Err(why) => eprintln!("{}", one_line(&why)),
            }
        }
        None
    }

    async fn line(&mut self, prompt: &str) -> Option<String> {
        eprint!("{prompt} ");
        let lines = self.lines.get_or_insert_with(typed_lines);
        lines.recv().await
    }
}

fn prompt(name: &str, schema: &Value, is_required: bool) -> String {
    let word = |key: &str| schema[key].as_str().map(one_line);
    let mut prompt = word("title").unwrap_or_else(|| one_line(name));
    if let Some(description) = word("description") {
        prompt.push_str(&format!(", {description}"));
    }
    let choices = choices_of(schema);
    let choices = choices["enum"]
        .as_array()
        .or(choices["items"]["enum"].as_array());
    if let Some(choices) = choices {
        let choices = choices.iter().filter_map(Value::as_str).map(one_line);
        prompt.push_str(&format!(" ({})", choices.collect::<Vec<_>>().join("/")));
    } else if let Some(kind) = word("type").filter(|kind| kind != "string") {
        prompt.push_str(&format!(" ({kind})"));
    }
    match schema.get("default") {
        Some(default) => prompt.push_str(&format!(" [{}]", one_line(&default.to_string()))),
        None if !is_required => prompt.push_str(" [none]"),
        None => {}
    }
    prompt + ":"
}

/// The schema with choices that have titles as a plain `enum`.
fn choices_of(schema: &Value) -> Value {
    let mut plain = schema.clone();
    for place in ["", "/items"] {
        let Some(part) = plain.pointer_mut(place) else {
            continue;
        };
        let titled = part["oneOf"].as_array().or(part["anyOf"].as_array());
        let values = titled.map(|titled| titled.iter().map(|one| one["const"].clone()));
        let values: Option<Vec<Value>> = values.map(Iterator::collect);
        if let Some(values) = values.filter(|values| values.iter().all(Value::is_string)) {
            part["enum"] = values.into();
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_says_what_may_be_typed() {
        let titled = json!({"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]});
        let table = [
            (json!({"type": "string"}), true, "x:"),
            (
                json!({"type": "integer", "title": "Age"}),
                false,
                "Age (integer) [none]:",
            ),
            (
                json!({"type": "boolean", "default": true}),
                true,
                "x (boolean) [true]:",
            ),
            (
                json!({"type": "string", "enum": ["a", "b"], "description": "one\nof"}),
                true,
                "x, one\\nof (a/b):",
            ),
            (titled.clone(), true, "x (r/g):"),
            (
                json!({"type": "array", "items": titled.clone()}),
                true,
                "x (r/g):",
            ),
        ];
        for (schema, is_required, expected) in table {
            assert_eq!(prompt("x", &schema, is_required), expected, "{schema}");
        }
        assert_eq!(typed(&titled, &choices_of(&titled), "r"), Ok(json!("r")));
        assert!(typed(&titled, &choices_of(&titled), "blue").is_err());
    }
}
