//! Converts TOML to JSON.

use std::path::Path;

use serde_json::Value;
use toml_edit::{DocumentMut, Item, TableLike};

use super::json::is_json;
use super::place;

/// A whole configuration file as written, without comments; variables are not filled in.
///
/// # Errors
///
/// Returns why it cannot be read.
pub fn file_as_json(path: &Path) -> Result<Value, String> {
    let shown = path.display();
    let text = place::read(path).map_err(|error| format!("{shown}: {error}"))?;
    let no_file = |what: &str| format!("{shown} is not {what}");
    if is_json(&text) {
        let text = text.trim_start_matches('\u{feff}');
        let read = jsonc_parser::parse_to_serde_value(text, &Default::default());
        return read.map_err(|_| no_file("JSON"));
    }
    let document: DocumentMut = text.parse().map_err(|_| no_file("TOML"))?;
    Ok(json_of_toml(document.as_item()))
}

/// Converts a TOML item to JSON; dates become strings.
pub fn json_of_toml(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => json_of_value(value),
        Item::Table(table) => json_of_table(table),
        Item::ArrayOfTables(tables) => tables.iter().map(|it| json_of_table(it)).collect(),
    }
}

fn json_of_table(table: &dyn TableLike) -> Value {
    let members = table
        .iter()
        .map(|(name, item)| (name.to_owned(), json_of_toml(item)));
    Value::Object(members.collect())
}

fn json_of_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value::{Array, Boolean, Datetime, Float, InlineTable, Integer, String};
    match value {
        String(text) => Value::from(text.value().as_str()),
        Integer(number) => Value::from(*number.value()),
        Float(number) => Value::from(*number.value()),
        Boolean(flag) => Value::from(*flag.value()),
        Datetime(time) => Value::from(time.value().to_string()),
        Array(values) => values.iter().map(json_of_value).collect(),
        InlineTable(table) => json_of_table(table),
    }
}
