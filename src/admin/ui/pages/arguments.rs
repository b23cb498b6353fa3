//! A form from the JSON Schema of a tool, and the arguments that it stands for. Pure.

use maud::{Markup, html};
use serde_json::{Map, Number, Value};

use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::text;
use crate::telemetry::{one_line, printable};

/// Arguments that get a field of their own; a schema with more is filled in as JSON.
const FIELDS_MAX: usize = 50;

/// Values of an enum that are offered; one with more is filled in as JSON.
const CHOICES_MAX: usize = 200;

/// Before the names of arguments, since a form has other fields.
const PREFIX: &str = "argument.";

/// The field in which all arguments are filled in as one object.
const ALL: &str = "arguments";

/// A field that cannot be read.
pub(super) struct Problem {
    name: String,
    message: &'static str,
}

/// How an argument is filled in.
#[derive(Debug, PartialEq, Eq)]
enum Kind<'s> {
    Text,
    Number,
    Boolean,
    Choice(Vec<&'s Value>),
    Json,
}

impl<'s> Kind<'s> {
    fn of(schema: &'s Value) -> Self {
        let choices = schema["enum"].as_array().map_or(&[][..], Vec::as_slice);
        if (1..=CHOICES_MAX).contains(&choices.len()) {
            return Self::Choice(choices.iter().collect());
        }
        match schema["type"].as_str() {
            Some("string") => Self::Text,
            Some("number" | "integer") => Self::Number,
            Some("boolean") => Self::Boolean,
            _ => Self::Json,
        }
    }
}

/// The arguments with fields of their own; none if all of them are one object.
fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    let properties = schema["properties"].as_object();
    properties.filter(|properties| properties.len() <= FIELDS_MAX)
}

fn is_required(schema: &Value, name: &str) -> bool {
    let required = schema["required"].as_array().into_iter().flatten();
    required.into_iter().any(|known| known == name)
}

/// The arguments of a form.
///
/// # Errors
///
/// Returns each field that cannot be read.
pub(super) fn read(schema: &Value, form: &Fields) -> Result<Value, Vec<Problem>> {
    let Some(properties) = properties(schema) else {
        let text = field(form, ALL).unwrap_or_default().trim();
        let object = if text.is_empty() { "{}" } else { text };
        return match serde_json::from_str(object) {
            Ok(Value::Object(object)) => Ok(Value::Object(object)),
            _ => Err(vec![Problem {
                name: ALL.to_owned(),
                message: "must be a JSON object",
            }]),
        };
    };
    let (mut given, mut problems) = (Map::new(), Vec::new());
    for (name, property) in properties {
        let text = field(form, &field_name(name)).unwrap_or_default();
        match value(property, text, is_required(schema, name)) {
            Ok(Some(value)) => drop(given.insert(name.clone(), value)),
            Ok(None) => {}
            Err(message) => problems.push(Problem {
                name: name.clone(),
                message,
            }),
        }
    }
    match problems.is_empty() {
        true => Ok(Value::Object(given)),
        false => Err(problems),
    }
}

/// An argument that was left empty is left out, but for a text that the tool requires.
fn value(schema: &Value, text: &str, is_required: bool) -> Result<Option<Value>, &'static str> {
    let kind = Kind::of(schema);
    if text.is_empty() && !(is_required && kind == Kind::Text) {
        return match is_required {
            true => Err("is required"),
            false => Ok(None),
        };
    }
    match kind {
        Kind::Text => Ok(Some(Value::String(text.to_owned()))),
        Kind::Number => {
            let number: Result<Number, _> = serde_json::from_str(text.trim());
            number
                .map(|number| Some(Value::Number(number)))
                .map_err(|_| "must be a number")
        }
        Kind::Boolean => Ok(Some(Value::Bool(text == "true"))),
        Kind::Choice(choices) => {
            let chosen: Option<usize> = text.parse().ok();
            let chosen = chosen.and_then(|index| choices.get(index));
            chosen
                .map(|value| Some((*value).clone()))
                .ok_or("must be one of the list")
        }
        Kind::Json => serde_json::from_str(text)
            .map(Some)
            .map_err(|_| "must be JSON"),
    }
}

/// The fields of the form, as they were filled in.
pub(super) fn fields(schema: &Value, filled_in: &Fields, problems: &[Problem]) -> Markup {
    let problem = |name: &str| {
        let found = problems.iter().find(|problem| problem.name == name);
        found.map(|problem| problem.message)
    };
    let Some(properties) = properties(schema) else {
        return html! {
            div .field {
                label for=(ALL) { "Arguments" }
                textarea id=(ALL) name=(ALL) spellcheck="false" { (field(filled_in, ALL).unwrap_or("{}")) }
                (error(ALL, problem(ALL)))
            }
        };
    };
    html! {
        @if properties.is_empty() { p .hint.field { "It takes no arguments." } }
        @for (index, (name, property)) in properties.iter().enumerate() {
            @let id = format!("argument-{index}");
            div .field {
                label for=(id) {
                    (text::line(name))
                    @if is_required(schema, name) { " " span .hint { "required" } }
                }
                (control(&id, name, property, filled_in, problem(name).is_some()))
                (error(&id, problem(name)))
                @if let Some(about) = property["description"].as_str() {
                    p .hint id=(format!("{id}-hint")) { (text::line(about)) }
                }
            }
        }
    }
}

fn error(id: &str, message: Option<&str>) -> Markup {
    html! {
        @if let Some(message) = message {
            p .error id=(format!("{id}-error")) role="alert" { (message) }
        }
    }
}

fn field_name(name: &str) -> String {
    format!("{PREFIX}{}", one_line(name))
}

/// What is filled in at first; nothing that one would send without seeing it.
fn default(property: &Value) -> String {
    let text = match &property["default"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match printable(&text) == text {
        true => text,
        false => String::new(),
    }
}

fn control(id: &str, name: &str, property: &Value, filled_in: &Fields, is_wrong: bool) -> Markup {
    let field_name = field_name(name);
    let default = default(property);
    let value = field(filled_in, &field_name).unwrap_or(&default);
    let mut described: Vec<String> = Vec::new();
    if is_wrong {
        described.push(format!("{id}-error"));
    }
    if property["description"].is_string() {
        described.push(format!("{id}-hint"));
    }
    let described = (!described.is_empty()).then(|| described.join(" "));
    let invalid = is_wrong.then_some("true");
    html! {
        @match Kind::of(property) {
            Kind::Text => {
                textarea id=(id) name=(field_name) rows="1" .line spellcheck="false"
                    aria-describedby=[described] aria-invalid=[invalid] { (value) }
            }
            Kind::Number => {
                input id=(id) name=(field_name) value=(value) inputmode="decimal" autocomplete="off"
                    aria-describedby=[described] aria-invalid=[invalid];
            }
            Kind::Boolean => {
                select id=(id) name=(field_name) aria-describedby=[described] aria-invalid=[invalid] {
                    option value="" { "not given" }
                    @for choice in ["true", "false"] {
                        option value=(choice) selected[value == choice] { (choice) }
                    }
                }
            }
            Kind::Choice(choices) => {
                select id=(id) name=(field_name) aria-describedby=[described] aria-invalid=[invalid] {
                    option value="" { "not given" }
                    @for (index, choice) in choices.iter().enumerate() {
                        @let shown = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
                        @let is_chosen = value == index.to_string() || (!default.is_empty() && value == shown);
                        option value=(index) selected[is_chosen] { (text::line(&shown)) }
                    }
                }
            }
            Kind::Json => {
                textarea id=(id) name=(field_name) rows="2" spellcheck="false" placeholder="JSON"
                    aria-describedby=[described] aria-invalid=[invalid] { (value) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form(pairs: &[(&str, &str)]) -> Fields {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_form_becomes_arguments() {
        let schema = json!({
            "type": "object",
            "required": ["text", "number"],
            "properties": {
                "text": {"type": "string"},
                "number": {"type": "number"},
                "flag": {"type": "boolean"},
                "choice": {"enum": ["a", 2, null]},
                "list": {"type": "array"},
            },
        });
        let all = form(&[
            ("text", ""),
            ("number", " 2.50"),
            ("flag", "false"),
            ("choice", "1"),
            ("list", "[1]"),
        ]);
        let expected = json!({"text": "", "number": 2.50, "flag": false, "choice": 2, "list": [1]});
        assert_eq!(read(&schema, &all).ok().unwrap(), expected);
        let few = form(&[("text", "x"), ("number", "1")]);
        assert_eq!(
            read(&schema, &few).ok().unwrap(),
            json!({"text": "x", "number": 1})
        );
        let table = [
            ("number", "", "is required"),
            ("number", "NaN", "must be a number"),
            ("choice", "3", "must be one of the list"),
            ("choice", "a", "must be one of the list"),
            ("list", "[", "must be JSON"),
        ];
        for (name, text, expected) in table {
            let mut pairs = vec![("text", "x"), ("number", "1")];
            pairs.retain(|(other, _)| *other != name);
            pairs.push((name, text));
            let problems = read(&schema, &form(&pairs)).err().unwrap();
            let problem = problems.first().unwrap();
            assert_eq!((problem.name.as_str(), problem.message), (name, expected));
        }
    }

    #[test]
    fn odd_schemas_are_filled_in_as_json() {
        let many: Map<String, Value> = (0..=FIELDS_MAX)
            .map(|n| (n.to_string(), json!({})))
            .collect();
        let field = |text: &str| vec![(ALL.to_owned(), text.to_owned())];
        for schema in [
            json!(null),
            json!(true),
            json!({"properties": []}),
            json!({"properties": many}),
        ] {
            assert_eq!(read(&schema, &field("")).ok().unwrap(), json!({}));
            assert_eq!(
                read(&schema, &field(r#"{"a":1}"#)).ok().unwrap(),
                json!({"a": 1})
            );
            assert!(read(&schema, &field("[]")).is_err() && read(&schema, &field("{")).is_err());
        }
    }

    #[test]
    fn hostile_schemas_stay_texts() {
        let schema = json!({"properties": {
            "\"><script>": {
                "type": "string", "description": "<b onclick=x>\u{202e}", "default": "</textarea><i>",
            },
            "e": {"enum": ["<option>", {"a": "</select>"}]},
        }});
        let shown = fields(&schema, &Vec::new(), &[]).into_string();
        for wrong in [
            "<script",
            "<b ",
            "</textarea><i>",
            "<option>&",
            "\u{202e}",
            "{\"a\"",
        ] {
            assert!(!shown.contains(wrong), "{wrong}: {shown}");
        }
        assert_eq!(shown.matches("</select>").count(), 1);
    }
}
