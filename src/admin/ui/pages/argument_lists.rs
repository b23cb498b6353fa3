//! Form fields for a list of objects: a row per object, a column per member. Pure.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::argument_fields::{Column, Kind, control, given_texts, value};
use crate::admin::ui::fields::Fields;
use crate::admin::ui::text;

/// Maximum rows of a list.
const ROWS_MAX: usize = 50;

/// Empty rows after the last one that is filled in.
const EMPTY_ROWS: usize = 3;

/// Whether a member of the row is filled in.
fn is_filled(columns: &[Column<'_>], form: &Fields, argument: &str, row: usize) -> bool {
    let mut columns = columns.iter();
    columns.any(|column| {
        let given = given_texts(form, &column.field(argument, row));
        given.first().is_some_and(|text| !text.is_empty())
    })
}

/// The objects of the rows that are filled in.
///
/// # Errors
///
/// Returns what is wrong in the first invalid row.
pub(super) fn read_rows(
    columns: &[Column<'_>],
    form: &Fields,
    argument: &str,
    is_required: bool,
) -> Result<Option<Value>, &'static str> {
    let filled = (0..ROWS_MAX).filter(|row| is_filled(columns, form, argument, *row));
    let mut objects = Vec::new();
    for row in filled {
        let mut object = Map::new();
        for column in columns {
            let given = given_texts(form, &column.field(argument, row));
            let member = value(column.schema, &given, column.is_required);
            let member = member.map_err(|why| match why {
                "is required" => "a row lacks a required value",
                "must be a number" | "must be a whole number" => "a row has an invalid number",
                _ => "a row has an invalid value",
            })?;
            object.extend(member.map(|member| (column.name.to_owned(), member)));
        }
        objects.push(Value::Object(object));
    }
    Ok((is_required || !objects.is_empty()).then(|| objects.into()))
}

/// The rows of a list of objects.
pub(super) fn rows(
    id: &str,
    argument: &str,
    columns: &[Column<'_>],
    filled_in: &Fields,
    label: &Markup,
) -> Markup {
    let last = (0..ROWS_MAX).rfind(|row| is_filled(columns, filled_in, argument, *row));
    let count = (last.map_or(0, |row| row + 1) + EMPTY_ROWS).min(ROWS_MAX);
    html! {
        fieldset id=(id) {
            legend { (label) }
            @for row in 0..count {
                div .pair {
                    @for (index, column) in columns.iter().enumerate() {
                        @let id = format!("{id}-{row}-{index}");
                        @let field = column.field(argument, row);
                        div {
                            label for=(id) {
                                (text::line(column.schema.text("title").unwrap_or(column.name))) " " (row + 1)
                                @if column.is_required { " " span .hint { "required" } }
                            }
                            (control(&id, (&field, column.schema), Kind::of(column.schema), filled_in, false))
                        }
                    }
                }
            }
            p .hint { "Empty rows are left out." }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::argument_fields::columns;
    use super::super::arguments::read;
    use super::*;
    use crate::admin::render::SchemaView;

    fn form(pairs: &[(&str, &str)]) -> Fields {
        let pairs = pairs.iter();
        let named = pairs.map(|(name, text)| (format!("argument.{name}"), (*text).to_owned()));
        named.collect()
    }

    #[test]
    fn filled_rows_become_objects() {
        let member = json!({
            "type": "object", "required": ["path"],
            "properties": {"path": {"type": "string"}, "line": {"type": "integer"}},
        });
        let schema = json!({"type": "object", "properties": {
            "edits": {"type": "array", "items": member},
            "words": {"type": "array", "items": {"type": "string"}},
        }});
        let table = [
            (form(&[]), Some(json!({}))),
            (
                form(&[
                    ("edits.0.path", "a"),
                    ("edits.1.path", ""),
                    ("edits.2.path", "b"),
                    ("edits.2.line", "7"),
                    ("words", " one\r\n\r\ntwo"),
                ]),
                Some(json!({
                    "edits": [{"path": "a"}, {"path": "b", "line": 7}], "words": ["one", "two"],
                })),
            ),
            (form(&[("edits.0.path", "a"), ("edits.0.line", "x")]), None),
        ];
        for (form, expected) in table {
            assert_eq!(read(&schema, &form).ok(), expected);
        }
    }

    #[test]
    fn one_more_row_is_offered_than_is_filled_in() {
        let items = json!({"properties": {"<b>": {"type": "string"}}});
        let columns = columns(SchemaView::new(&items)).unwrap();
        let shown = |form: &Fields| {
            let shown = rows("i", "edits", &columns, form, &html! { "Edits" });
            shown.into_string()
        };
        assert_eq!(shown(&form(&[])).matches("<textarea").count(), EMPTY_ROWS);
        let second = form(&[("edits.1.<b>", "</textarea><i>")]);
        let shown = shown(&second);
        assert_eq!(shown.matches("<textarea").count(), EMPTY_ROWS + 2);
        assert!(!shown.contains("<b>") && !shown.contains("<i>"), "{shown}");
    }
}
