//! TOML in JSON.

use serde_json::Value;
use toml_edit::{Item, TableLike};

/// A part of a TOML file in JSON, dates as texts.
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
