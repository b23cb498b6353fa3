//! Generates a form from the JSON Schema of a tool or an elicitation, and parses the submitted
//! values. Pure.

use maud::{Markup, html};
use serde_json::{Map, Number, Value};

use crate::admin::render::SchemaView;
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::text;
use crate::telemetry::{one_line, printable};

/// Maximum arguments with individual fields; a larger schema is filled in as JSON.
const FIELDS_MAX: usize = 50;

/// Maximum enum values offered as choices; a larger enum is filled in as JSON.
const CHOICES_MAX: usize = 200;

/// Prefix of argument names, which separates them from other fields.
const PREFIX: &str = "argument.";

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

/// The kind of input for an argument.
#[derive(Debug, PartialEq, Eq)]
enum Kind<'s> {
    Text,
    Number {
        is_whole: bool,
    },
    Boolean,
    Choice(Vec<Choice<'s>>),
    /// Any number of these choices, as a list.
    Several(Vec<Choice<'s>>),
    Json,
}

/// An enum value and its title.
type Choice<'s> = (&'s Value, Option<&'s str>);

impl<'s> Kind<'s> {
    fn of(schema: SchemaView<'s>) -> Self {
        if let Some(choices) = choices(schema) {
            return Self::Choice(choices);
        }
        match schema.text("type") {
            Some("string") => Self::Text,
            Some("number") => Self::Number { is_whole: false },
            Some("integer") => Self::Number { is_whole: true },
            Some("boolean") => Self::Boolean,
            Some("array") => choices(schema.items()).map_or(Self::Json, Self::Several),
            _ => Self::Json,
        }
    }
}

/// The values of an enum, with or without titles.
fn choices(schema: SchemaView<'_>) -> Option<Vec<Choice<'_>>> {
    let titles = schema.get("enumNames").and_then(Value::as_array);
    let plain = schema.choices().map(|values| {
        let title = |index: usize| titles?.get(index)?.as_str();
        let values = values.iter().enumerate();
        values.map(|(index, value)| (value, title(index))).collect()
    });
    let titled = || {
        let titled = schema.alternatives()?.into_iter();
        let choices = titled.map(|one| Some((one.constant()?, one.text("title"))));
        choices.collect()
    };
    let choices: Vec<Choice<'_>> = plain.or_else(titled)?;
    (1..=CHOICES_MAX)
        .contains(&choices.len())
        .then_some(choices)
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
        match value(property, &given_texts(form, name), is_required) {
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

/// The submitted values of an argument; several if it has checkboxes.
fn given_texts<'f>(form: &'f Fields, name: &str) -> Vec<&'f str> {
    let name = field_name(name);
    let given = form.iter().filter(|(known, _)| *known == name);
    given.map(|(_, text)| text.as_str()).collect()
}

/// Omits an argument that was left empty, except for a text or list that the tool requires.
fn value(
    schema: SchemaView<'_>,
    texts: &[&str],
    is_required: bool,
) -> Result<Option<Value>, &'static str> {
    let kind = Kind::of(schema);
    let chosen = |choices: &[Choice<'_>], text: &str| {
        let index: Option<usize> = text.parse().ok();
        let chosen = index.and_then(|index| choices.get(index));
        let (value, _) = chosen.ok_or("must be one of the listed values")?;
        Ok((*value).clone())
    };
    if let Kind::Several(choices) = &kind {
        let given: Result<Vec<Value>, _> = texts.iter().map(|text| chosen(choices, text)).collect();
        let given = given?;
        return Ok((is_required || !given.is_empty()).then(|| given.into()));
    }
    let text = texts.first().copied().unwrap_or_default();
    if text.is_empty() && !(is_required && kind == Kind::Text) {
        return match is_required {
            true => Err("is required"),
            false => Ok(None),
        };
    }
    match kind {
        Kind::Text => Ok(Some(Value::String(text.to_owned()))),
        Kind::Number { is_whole } => {
            let number: Result<Number, _> = serde_json::from_str(text.trim());
            match number {
                Ok(number) if is_whole && number.is_f64() => Err("must be a whole number"),
                Ok(number) => Ok(Some(Value::Number(number))),
                Err(_) => Err("must be a number"),
            }
        }
        Kind::Boolean => Ok(Some(Value::Bool(text == "true"))),
        Kind::Choice(choices) => chosen(&choices, text).map(Some),
        Kind::Several(_) | Kind::Json => serde_json::from_str(text)
            .map(Some)
            .map_err(|_| "must be JSON"),
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

fn field_name(name: &str) -> String {
    format!("{PREFIX}{}", one_line(name))
}

/// The initial value of a field. A default with invisible characters is ignored, because the person
/// could not see what would be sent.
fn default(property: SchemaView<'_>) -> String {
    let text = match property.get("default") {
        None | Some(Value::Null) => String::new(),
        Some(default) => plain(default),
    };
    match printable(&text) == text {
        true => text,
        false => String::new(),
    }
}

fn several(
    id: &str,
    (name, property): (&str, SchemaView<'_>),
    choices: &[Choice<'_>],
    filled_in: &Fields,
    label: &Markup,
) -> Markup {
    let given = given_texts(filled_in, name);
    let default = property.get("default").and_then(Value::as_array);
    let default = default.map_or(&[][..], Vec::as_slice);
    html! {
        fieldset id=(id) {
            legend { (label) }
            div .choices {
                @for (index, choice) in choices.iter().enumerate() {
                    @let is_chosen = match filled_in.is_empty() {
                        true => default.contains(choice.0),
                        false => given.contains(&index.to_string().as_str()),
                    };
                    label {
                        input type="checkbox" name=(field_name(name)) value=(index) checked[is_chosen];
                        (text::line(&shown(choice)))
                    }
                }
            }
        }
    }
}

/// A choice as displayed.
fn shown((value, title): &Choice<'_>) -> String {
    title.map_or_else(|| plain(value), str::to_owned)
}

/// Text unchanged, any other value as JSON.
fn plain(value: &Value) -> String {
    let text = value.as_str().map(str::to_owned);
    text.unwrap_or_else(|| value.to_string())
}

fn control(
    id: &str,
    (name, property): (&str, SchemaView<'_>),
    kind: Kind<'_>,
    filled_in: &Fields,
    is_wrong: bool,
) -> Markup {
    let field_name = field_name(name);
    let default = default(property);
    let value = field(filled_in, &field_name).unwrap_or(&default);
    let mut described: Vec<String> = Vec::new();
    if is_wrong {
        described.push(format!("{id}-error"));
    }
    if property.text("description").is_some() {
        described.push(format!("{id}-hint"));
    }
    let described = (!described.is_empty()).then(|| described.join(" "));
    let invalid = is_wrong.then_some("true");
    html! {
        @match kind {
            Kind::Text => {
                textarea id=(id) name=(field_name) rows="1" .line spellcheck="false"
                    aria-describedby=[described] aria-invalid=[invalid] { (value) }
            }
            Kind::Number { .. } => {
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
                        @let is_default = plain(choice.0) == value;
                        @let is_chosen = value == index.to_string() || (!default.is_empty() && is_default);
                        option value=(index) selected[is_chosen] { (text::line(&shown(choice))) }
                    }
                }
            }
            Kind::Several(_) | Kind::Json => {
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
