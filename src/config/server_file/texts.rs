//! Reads and writes strings of a server's table for the API.

use toml_edit::{Item, TableLike};

use serde_json::Value;

use crate::config::interpolate::escaped;
use crate::masking::REDACTED;
use crate::protocol::{ErrorKind, Failure};

/// The refusal of the member that this key names.
pub(super) fn invalid(key: &str, message: &str) -> Failure {
    Failure::new(ErrorKind::InvalidConfig, message).about_key(key)
}

pub(super) fn text<'t>(table: &'t dyn TableLike, key: &str) -> Option<&'t str> {
    table.get(key).and_then(Item::as_str)
}

/// The literal value of a string in the file; `None` if it contains `${…}`.
pub(super) fn literal(text: &str) -> Option<String> {
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        literal.push_str(before);
        literal.push('$');
        if after.starts_with('{') {
            return None;
        }
        rest = after.strip_prefix('$').unwrap_or(after);
    }
    literal.push_str(rest);
    Some(literal)
}

pub(super) fn write_text(
    table: &mut dyn TableLike,
    key: &str,
    value: &Value,
) -> Result<(), Failure> {
    match value {
        Value::Null => drop(table.remove(key)),
        Value::String(text) if text == REDACTED => {
            if !table.contains_key(key) {
                return Err(nothing_kept(key));
            }
        }
        Value::String(text) => drop(table.insert(key, toml_edit::value(escaped(text)))),
        _ => return Err(invalid(key, &format!("`{key}` must be a string"))),
    }
    Ok(())
}

pub(super) fn nothing_kept(place: &str) -> Failure {
    let message = format!("`{place}` is \"{REDACTED}\", but there is no value to keep");
    invalid(place, &message)
}
