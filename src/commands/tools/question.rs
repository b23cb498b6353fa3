//! Elicitations of a server during a call, answered at the terminal.

use mcpvisor::admin::SchemaView;
use mcpvisor::telemetry::{one_line, printable};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::typed::typed;
use crate::commands::output::typed_lines;

/// Maximum attempts to enter a valid value; after that, the question is declined.
const ATTEMPTS_MAX: usize = 5;

/// Asks the person at the terminal.
#[derive(Default)]
pub(super) struct Questions {
    /// `None` until the first question.
    lines: Option<mpsc::Receiver<String>>,
}

/// Parameters of `elicitation/create`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    message: String,
    /// A URL to open instead of filling in a form.
    url: Option<String>,
    requested_schema: Value,
}

impl Questions {
    /// Asks the questions of `elicitation/create`, and returns its result. The end of the input
    /// declines.
    pub(super) async fn ask(&mut self, params: &Value) -> Value {
        let asked = Asked::deserialize(params).unwrap_or_default();
        eprintln!("The server asks: {}", printable(&asked.message));
        let answer = match &asked.url {
            Some(url) => self.ask_to_open(url).await,
            None => self.fill_in(&asked.requested_schema).await,
        };
        match answer {
            Some(_) if asked.url.is_some() => json!({"action": "accept"}),
            Some(content) => json!({"action": "accept", "content": content}),
            None => {
                eprintln!("declined");
                json!({"action": "decline"})
            }
        }
    }

    async fn ask_to_open(&mut self, url: &str) -> Option<Map<String, Value>> {
        eprintln!(
            "The server asks you to open this page:\n  {}",
            one_line(url)
        );
        let answer = self.line("Continue? [y/N]").await?;
        matches!(answer.as_str(), "y" | "Y" | "yes").then(Map::new)
    }

    /// Asks for each property; `None` if the person declines.
    async fn fill_in(&mut self, schema: &Value) -> Option<Map<String, Value>> {
        let mut content = Map::new();
        let view = SchemaView::new(schema);
        let Some(properties) = view.properties() else {
            let answer = self.line("Agree? [y/N]").await?;
            return matches!(answer.as_str(), "y" | "Y" | "yes").then_some(content);
        };
        eprintln!("(Ctrl-D declines)");
        for (name, property) in properties {
            let is_required = view.is_required(name);
            if let Some(value) = self.value(name, property, is_required).await? {
                content.insert(name.clone(), value);
            }
        }
        Some(content)
    }

    /// The value of a property; `None` if an optional one is left out.
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
            let plain = choices_of(schema);
            match typed(SchemaView::within(schema, &plain), &answer) {
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
    let word = |key: &str| SchemaView::new(schema).text(key).map(one_line);
    let mut prompt = word("title").unwrap_or_else(|| one_line(name));
    if let Some(description) = word("description") {
        prompt.push_str(&format!(", {description}"));
    }
    let plain = choices_of(schema);
    let plain = SchemaView::new(&plain);
    if let Some(choices) = plain.choices().or_else(|| plain.items().choices()) {
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

/// Converts choices with titles to a plain `enum`.
fn choices_of(schema: &Value) -> Value {
    let mut plain = schema.clone();
    for place in ["", "/items"] {
        let Some(part) = plain.pointer_mut(place) else {
            continue;
        };
        let titled = SchemaView::new(part).alternatives().unwrap_or_default();
        let values = titled.into_iter().map(|one| one.constant().cloned());
        let values: Option<Vec<Value>> = values.collect();
        let values = values.filter(|values| values.iter().all(Value::is_string));
        if let (Some(values), Value::Object(part)) = (values.filter(|it| !it.is_empty()), part) {
            part.insert("enum".to_owned(), values.into());
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
        let plain = choices_of(&titled);
        let plain = SchemaView::new(&plain);
        assert_eq!(typed(plain, "r"), Ok(json!("r")));
        assert!(typed(plain, "blue").is_err());
    }
}
