//! The field of one argument: its kind by the JSON Schema, its control, and its submitted value. Pure.

use maud::{Markup, html};
use serde_json::{Number, Value};

use crate::admin::render::SchemaView;
use crate::admin::ui::fields::{Fields, field};
use crate::admin::ui::text;
use crate::telemetry::{one_line, printable};

/// Maximum enum values offered as choices; a larger enum is filled in as JSON.
const CHOICES_MAX: usize = 200;

/// Maximum members of an object that are shown as columns; others are filled in as JSON.
const COLUMNS_MAX: usize = 6;

/// Prefix of argument names, which separates them from other fields.
pub(super) const PREFIX: &str = "argument.";

/// The kind of input for an argument.
#[derive(Debug, PartialEq)]
pub(super) enum Kind<'s> {
    Text,
    Number {
        is_whole: bool,
    },
    Boolean,
    Choice(Vec<Choice<'s>>),
    /// Any number of these choices, as a list.
    Several(Vec<Choice<'s>>),
    /// A list of texts, one per line.
    Lines,
    /// A list of objects with these members, one per row.
    Rows(Vec<Column<'s>>),
    Json,
}

/// An enum value and its title.
pub(super) type Choice<'s> = (&'s Value, Option<&'s str>);

impl<'s> Kind<'s> {
    pub(super) fn of(schema: SchemaView<'s>) -> Self {
        if let Some(choices) = choices(schema) {
            return Self::Choice(choices);
        }
        match schema.text("type") {
            Some("string") => Self::Text,
            Some("number") => Self::Number { is_whole: false },
            Some("integer") => Self::Number { is_whole: true },
            Some("boolean") => Self::Boolean,
            Some("array") => Self::of_list(schema.items()),
            _ => Self::Json,
        }
    }

    fn of_list(items: SchemaView<'s>) -> Self {
        if let Some(choices) = choices(items) {
            return Self::Several(choices);
        }
        match items.text("type") {
            Some("string") => Self::Lines,
            Some("object") => columns(items).map_or(Self::Json, Self::Rows),
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

/// A member of the objects, by its name.
#[derive(Debug)]
pub(super) struct Column<'s> {
    pub(super) name: &'s str,
    pub(super) schema: SchemaView<'s>,
    pub(super) is_required: bool,
}

impl PartialEq for Column<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Column<'_> {
    /// The name of the field in a row.
    pub(super) fn field(&self, argument: &str, row: usize) -> String {
        format!("{argument}.{row}.{}", self.name)
    }
}

/// The columns of a list of objects; `None` if a member needs more than one field.
pub(super) fn columns(items: SchemaView<'_>) -> Option<Vec<Column<'_>>> {
    let properties = items.properties()?;
    let columns = properties.keys().map(|name| {
        let schema = items.property(name)?;
        let is_single = matches!(
            Kind::of(schema),
            Kind::Text | Kind::Number { .. } | Kind::Boolean | Kind::Choice(_)
        );
        is_single.then_some(Column {
            name,
            schema,
            is_required: items.is_required(name),
        })
    });
    let columns: Vec<_> = columns.collect::<Option<_>>()?;
    (1..=COLUMNS_MAX)
        .contains(&columns.len())
        .then_some(columns)
}

/// The submitted values of an argument; several if it has checkboxes.
pub(super) fn given_texts<'f>(form: &'f Fields, name: &str) -> Vec<&'f str> {
    let name = field_name(name);
    let given = form.iter().filter(|(known, _)| *known == name);
    given.map(|(_, text)| text.as_str()).collect()
}

/// Omits an argument that was left empty, except for a text or list that the tool requires.
pub(super) fn value(
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
    if kind == Kind::Lines {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines: Vec<Value> = lines.map(Value::from).collect();
        return Ok((is_required || !lines.is_empty()).then(|| lines.into()));
    }
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
        Kind::Several(_) | Kind::Lines | Kind::Rows(_) | Kind::Json => serde_json::from_str(text)
            .map(Some)
            .map_err(|_| "must be JSON"),
    }
}

/// The checkboxes of an argument that takes any number of choices.
pub(super) fn several(
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

pub(super) fn field_name(name: &str) -> String {
    format!("{PREFIX}{}", one_line(name))
}

/// The initial value of a field. A default with invisible characters is ignored, because the person
/// could not see what would be sent.
fn default(property: SchemaView<'_>) -> String {
    let text = match property.get("default") {
        None | Some(Value::Null) => String::new(),
        Some(Value::Array(lines)) if Kind::of(property) == Kind::Lines => {
            lines.iter().map(plain).collect::<Vec<_>>().join("\n")
        }
        Some(default) => plain(default),
    };
    match printable(&text) == text {
        true => text,
        false => String::new(),
    }
}

/// A choice as displayed.
pub(super) fn shown((value, title): &Choice<'_>) -> String {
    title.map_or_else(|| plain(value), str::to_owned)
}

/// Text unchanged, any other value as JSON.
fn plain(value: &Value) -> String {
    let text = value.as_str().map(str::to_owned);
    text.unwrap_or_else(|| value.to_string())
}

pub(super) fn control(
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
        @match &kind {
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
            Kind::Several(_) | Kind::Lines | Kind::Rows(_) | Kind::Json => {
                @let placeholder = if kind == Kind::Lines { "one per line" } else { "JSON" };
                textarea id=(id) name=(field_name) rows="2" spellcheck="false" placeholder=(placeholder)
                    aria-describedby=[described] aria-invalid=[invalid] { (value) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn only_objects_with_single_fields_have_columns() {
        let many: Map<String, Value> = (0..=COLUMNS_MAX)
            .map(|n| (n.to_string(), json!({"type": "string"})))
            .collect();
        let table = [
            (json!({"properties": {"a": {"type": "string"}}}), true),
            (json!({"properties": {"a": {"type": "array"}}}), false),
            (json!({"properties": {}}), false),
            (json!({"properties": many}), false),
            (json!({}), false),
        ];
        for (items, expected) in table {
            assert_eq!(
                columns(SchemaView::new(&items)).is_some(),
                expected,
                "{items}"
            );
        }
    }
}
