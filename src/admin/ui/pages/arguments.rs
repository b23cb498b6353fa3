//! Generates a form from the JSON Schema of a tool or an elicitation, and parses the submitted
//! values. Pure.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::argument_fields::{Kind, control, given_texts, several, value};
use super::argument_lists::{read_rows, rows};
use crate::admin::render::SchemaView;
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::text;

/// Maximum arguments with individual fields; a larger schema is filled in as JSON.
const FIELDS_MAX: usize = 50;

/// The field that takes all arguments as one JSON object.
const ALL: &str = "arguments";

/// An invalid field.
pub(super) struct Problem {
    name: String,
    message: &'static str,
}

/// The fields of a form, with submitted values.
pub(super) struct Inputs<'f> {
    pub(super) schema: &'f Value,
    /// Prefix of the fields' ids.
    pub(super) id: &'f str,
    pub(super) filled_in: &'f Fields,
    pub(super) problems: &'f [Problem],
}

/// The arguments with individual fields; `None` if all arguments are filled in as one object.
fn properties(schema: SchemaView<'_>) -> Option<Vec<(&str, SchemaView<'_>)>> {
    let properties = schema.properties()?;
    let fields = properties.keys();
    let fields = fields.filter_map(|name| Some((name.as_str(), schema.property(name)?)));
    (properties.len() <= FIELDS_MAX).then(|| fields.collect())
}

/// The arguments in a submitted form.
///
/// # Errors
///
/// Returns every invalid field.
pub(super) fn read(schema: &Value, form: &Fields) -> Result<Value, Vec<Problem>> {
    let schema = SchemaView::new(schema);
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
        let is_required = schema.is_required(name);
        let given_value = match Kind::of(property) {
            Kind::Rows(columns) => read_rows(&columns, form, name, is_required),
            _ => value(property, &given_texts(form, name), is_required),
        };
        match given_value {
            Ok(Some(value)) => drop(given.insert(name.to_owned(), value)),
            Ok(None) => {}
            Err(message) => problems.push(Problem {
                name: name.to_owned(),
                message,
            }),
        }
    }
    match problems.is_empty() {
        true => Ok(Value::Object(given)),
        false => Err(problems),
    }
}

impl Inputs<'_> {
    /// The fields of the form; `none` is shown if there are no arguments.
    pub(super) fn show(&self, none: &str) -> Markup {
        let problem = |name: &str| {
            let found = self.problems.iter().find(|problem| problem.name == name);
            found.map(|problem| problem.message)
        };
        let (schema, filled_in) = (SchemaView::new(self.schema), self.filled_in);
        let Some(properties) = properties(schema) else {
            let id = format!("{}-{ALL}", self.id);
            return html! {
                div .field {
                    label for=(id) { "Arguments" }
                    textarea id=(id) name=(ALL) spellcheck="false" { (field(filled_in, ALL).unwrap_or("{}")) }
                    (error(&id, problem(ALL)))
                }
            };
        };
        html! {
            @if properties.is_empty() { p .hint.field { (none) } }
            @for (index, (name, property)) in properties.into_iter().enumerate() {
                @let id = format!("{}-{index}", self.id);
                @let label = html! {
                    (text::line(property.text("title").unwrap_or(name)))
                    @if schema.is_required(name) { " " span .hint { "required" } }
                };
                div .field {
                    @match Kind::of(property) {
                        Kind::Several(choices) => {
                            (several(&id, (name, property), &choices, filled_in, &label))
                        }
                        Kind::Rows(columns) => {
                            (rows(&id, name, &columns, filled_in, &label))
                        }
                        kind => {
                            label for=(id) { (label) }
                            (control(&id, (name, property), kind, filled_in, problem(name).is_some()))
                        }
                    }
                    (error(&id, problem(name)))
                    @if let Some(about) = property.text("description") {
                        p .hint id=(format!("{id}-hint")) { (text::line(about)) }
                    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::argument_fields::PREFIX;
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
                "whole": {"type": "integer"},
                "titled": {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
                "some": {"type": "array", "items": {"enum": ["x", "y", "z"]}},
            },
        });
        let all = form(&[
            ("text", ""),
            ("number", " 2.50"),
            ("flag", "false"),
            ("choice", "1"),
            ("list", "[1]"),
            ("whole", "7"),
            ("titled", "1"),
            ("some", "0"),
            ("some", "2"),
        ]);
        let expected = json!({
            "text": "", "number": 2.50, "flag": false, "choice": 2, "list": [1], "whole": 7,
            "titled": "g", "some": ["x", "z"],
        });
        assert_eq!(read(&schema, &all).ok().unwrap(), expected);
        let few = form(&[("text", "x"), ("number", "1")]);
        assert_eq!(
            read(&schema, &few).ok().unwrap(),
            json!({"text": "x", "number": 1})
        );
        let table = [
            ("number", "", "is required"),
            ("number", "NaN", "must be a number"),
            ("choice", "3", "must be one of the listed values"),
            ("choice", "a", "must be one of the listed values"),
            ("list", "[", "must be JSON"),
            ("whole", "2.5", "must be a whole number"),
            ("some", "3", "must be one of the listed values"),
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
            "titled": {"title": "<script>", "oneOf": [{"const": 1, "title": "</select>"}]},
            "some": {"type": "array", "items": {"enum": ["<script>"], "enumNames": ["<script>"]}},
        }});
        let inputs = Inputs {
            schema: &schema,
            id: "argument",
            filled_in: &Vec::new(),
            problems: &[],
        };
        let shown = inputs.show("").into_string();
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
        assert_eq!(shown.matches("</select>").count(), 2);
    }
}
