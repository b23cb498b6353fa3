//! Reads and writes one server table in the form used by the API.
//!
//! Strings in the API are literal, while `${…}` in the file is filled in. Secrets and non-literal
//! strings read as [`REDACTED`]; writing back a string unchanged keeps the old one.

use serde_json::{Map, Value, json};
use toml_edit::{Array, InlineTable, Item, TableLike};

use super::oauth_form;
use super::texts::{invalid, literal, nothing_kept, text, write_text};
use crate::config::interpolate::escaped;
use crate::config::units::parse_duration;
use crate::masking::{self, REDACTED, argument_spans, command_spans, hide};
use crate::protocol::Failure;

/// Members that a client may send back unchanged.
const READ_ONLY: [&str; 4] = ["id", "name", "createdAt", "updatedAt"];

/// Maximum value in `timeouts`, in milliseconds.
const TIMEOUT_MAX: u64 = 24 * 3600 * 1000;

/// The id of a server; defaults to its name.
pub(super) fn id(name: &str, table: &dyn TableLike) -> String {
    let id = table.get("id").and_then(Item::as_str);
    id.unwrap_or(name).to_owned()
}

/// # Errors
///
/// Fails if the body has a different id: ids cannot change.
pub(super) fn check_id(body: &Map<String, Value>, id: &str) -> Result<(), Failure> {
    match body.get("id") {
        Some(named) if named.as_str() != Some(id) => Err(invalid("id", "`id` cannot be changed")),
        _ => Ok(()),
    }
}

/// A server as the API shows it.
pub(super) fn read(name: &str, table: &dyn TableLike) -> Value {
    let transport = match table.get("transport").and_then(Item::as_str) {
        Some("sse") => "sse",
        None | Some("stdio") if table.contains_key("command") => "stdio",
        _ => "streamableHttp",
    };
    let mut view = json!({ "id": id(name, table), "name": name, "transport": transport });
    if let Some(command) = text(table, "command") {
        view["command"] = json!(shown_command(command));
        view["args"] = json!(shown_arguments(table));
    }
    if let Some(url) = text(table, "url") {
        view["url"] = json!(shown_url(url));
    }
    for key in ["env", "headers"] {
        let values = table.get(key).and_then(Item::as_table_like);
        let values = values.into_iter().flat_map(|values| values.iter());
        let hidden: Map<String, Value> = values
            .map(|(name, _)| (name.to_owned(), json!(REDACTED)))
            .collect();
        view[key] = Value::Object(hidden);
    }
    if let Some(oauth) = oauth_form::read(table) {
        view["oauth"] = oauth;
    }
    let mode = text(table, "connection_mode").unwrap_or("proxy");
    view["connectionMode"] = json!(mode);
    if let Some(enabled) = table.get("enabled").and_then(Item::as_bool) {
        view["enabled"] = json!(enabled);
    }
    let supervision = table.get("supervision").and_then(Item::as_table_like);
    let connection = supervision.and_then(|table| milliseconds(table, "connect_timeout"));
    let request = milliseconds(table, "request_timeout");
    if connection.is_some() || request.is_some() {
        view["timeouts"] = json!({ "connection": connection, "request": request });
    }
    view
}

fn milliseconds(table: &dyn TableLike, key: &str) -> Option<u64> {
    let duration = parse_duration(text(table, key)?)?;
    u64::try_from(duration.as_millis()).ok()
}

/// Masks a string's secrets, or all of it if it contains `${…}`.
fn shown(written: &str, shown: impl Fn(&str) -> String) -> String {
    literal(written).map_or_else(|| REDACTED.to_owned(), |text| shown(&text))
}

fn shown_url(written: &str) -> String {
    shown(written, |url| masking::shown_url(url, REDACTED))
}

fn shown_command(written: &str) -> String {
    shown(written, |text| hide(text, command_spans(text), REDACTED))
}

fn shown_arguments(table: &dyn TableLike) -> Vec<String> {
    let written = table.get("args").and_then(Item::as_array);
    let written = written.into_iter().flat_map(Array::iter);
    let mut previous = String::new();
    let shown = written.map(|argument| {
        let argument = argument.as_str().unwrap_or_default();
        let hidden = |text: &str| hide(text, argument_spans(&previous, text), REDACTED);
        let hidden = shown(argument, hidden);
        previous = literal(argument).unwrap_or_default();
        hidden
    });
    shown.collect()
}

/// Writes the members of the body; missing members stay unchanged, and `null` removes one.
pub(super) fn write(table: &mut dyn TableLike, body: &Map<String, Value>) -> Result<(), Failure> {
    drop_other_transport(table, body);
    for (member, value) in body {
        match member.as_str() {
            known if READ_ONLY.contains(&known) => {}
            "transport" => write_transport(table, value)?,
            "command" => write_shown(table, member, value, shown_command)?,
            "url" => write_shown(table, member, value, shown_url)?,
            "args" => write_arguments(table, value)?,
            "env" | "headers" => write_named(table, member, value)?,
            "oauth" => oauth_form::write(table, value)?,
            "timeouts" => write_timeouts(table, value)?,
            "enabled" => match value {
                Value::Null => drop(table.remove("enabled")),
                Value::Bool(enabled) => drop(table.insert("enabled", toml_edit::value(*enabled))),
                _ => return Err(invalid("enabled", "`enabled` must be `true` or `false`")),
            },
            "connectionMode" => write_connection_mode(table, value)?,
            other => {
                let other: String = other.chars().take(64).collect();
                return Err(invalid(&other, &format!("unknown member {other:?}")));
            }
        }
    }
    Ok(())
}

/// Removes the keys of the old transport when a server changes to the other one.
fn drop_other_transport(table: &mut dyn TableLike, body: &Map<String, Value>) {
    let sets = |member: &str| body.get(member).is_some_and(Value::is_string);
    let dropped: &[&str] = match (sets("command"), sets("url")) {
        (true, false) => &["url", "headers", "oauth", "transport"],
        (false, true) => &["command", "args", "env", "transport"],
        _ => return,
    };
    for key in dropped {
        table.remove(key);
    }
}

fn write_transport(table: &mut dyn TableLike, value: &Value) -> Result<(), Failure> {
    let written = match value.as_str() {
        Some("stdio") => "stdio",
        Some("streamableHttp" | "streamable-http" | "http") => "http",
        Some("sse") => "sse",
        _ => {
            let message = "`transport` must be \"stdio\", \"streamableHttp\" or \"sse\"";
            return Err(invalid("transport", message));
        }
    };
    table.insert("transport", toml_edit::value(written));
    Ok(())
}

/// `proxy` is the default.
fn write_connection_mode(table: &mut dyn TableLike, value: &Value) -> Result<(), Failure> {
    match value.as_str() {
        Some("direct") => drop(table.insert("connection_mode", toml_edit::value("direct"))),
        Some("proxy") => drop(table.remove("connection_mode")),
        None if value.is_null() => drop(table.remove("connection_mode")),
        _ => {
            let message = "`connectionMode` must be \"direct\" or \"proxy\"";
            return Err(invalid("connectionMode", message));
        }
    }
    Ok(())
}

/// Writes a string, unless it was sent back as shown; then the old value stays.
fn write_shown(
    table: &mut dyn TableLike,
    key: &str,
    value: &Value,
    shown: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    let written = value.as_str().filter(|text| text.contains(REDACTED));
    match (written, text(table, key)) {
        (None, _) => write_text(table, key, value),
        (Some(written), Some(old)) if shown(old) == written => Ok(()),
        (Some(_), _) => Err(nothing_kept(key)),
    }
}

fn write_arguments(table: &mut dyn TableLike, value: &Value) -> Result<(), Failure> {
    let arguments = match value {
        Value::Null => {
            table.remove("args");
            return Ok(());
        }
        Value::Array(arguments) => arguments,
        _ => return Err(invalid("args", "`args` must be a list of strings")),
    };
    let old = table.get("args").and_then(Item::as_array).cloned();
    let old_shown = shown_arguments(table);
    let mut written = Array::new();
    for (index, argument) in arguments.iter().enumerate() {
        let text = argument.as_str();
        let text = text.ok_or_else(|| invalid("args", "`args` must be a list of strings"))?;
        if !text.contains(REDACTED) {
            written.push(escaped(text));
            continue;
        }
        // The client can have inserted or removed arguments before this one.
        let was_shown = |place: &usize| old_shown.get(*place).is_some_and(|old| old == text);
        let mut places = (0..old_shown.len()).filter(was_shown);
        let place = match (was_shown(&index), places.next(), places.next()) {
            (true, _, _) => Some(index),
            (false, only, None) => only,
            (false, _, Some(_)) => None,
        };
        let kept = place.and_then(|place| old.as_ref()?.get(place)?.as_str());
        written.push(kept.ok_or_else(|| nothing_kept(&format!("args[{index}]")))?);
    }
    table.insert("args", toml_edit::value(written));
    Ok(())
}

/// Writes the strings of `env` or `headers`, by name.
fn write_named(table: &mut dyn TableLike, key: &str, value: &Value) -> Result<(), Failure> {
    let named = match value {
        Value::Object(named) if !named.is_empty() => named,
        Value::Null | Value::Object(_) => {
            table.remove(key);
            return Ok(());
        }
        _ => {
            return Err(invalid(
                key,
                &format!("`{key}` must be an object with string values"),
            ));
        }
    };
    let mut written = InlineTable::new();
    let old = table.get(key).and_then(Item::as_table_like);
    for (name, value) in named {
        if key == "env" && (name.is_empty() || name.contains(['=', '\0'])) {
            return Err(invalid(
                key,
                "a variable of `env` has an empty name, or a name with `=`",
            ));
        }
        let text = value.as_str();
        let text = text.ok_or_else(|| {
            invalid(
                key,
                &format!("`{key}` must be an object with string values"),
            )
        })?;
        if text != REDACTED {
            written.insert(name, escaped(text).into());
            continue;
        }
        let kept = old.and_then(|old| old.get(name)?.as_str());
        let kept = kept.ok_or_else(|| nothing_kept(key))?;
        written.insert(name, kept.into());
    }
    table.insert(key, toml_edit::value(written));
    Ok(())
}

fn write_timeouts(table: &mut dyn TableLike, value: &Value) -> Result<(), Failure> {
    let timeouts = match value {
        Value::Null => &Map::new(),
        Value::Object(timeouts) => timeouts,
        _ => return Err(invalid("timeouts", "`timeouts` must be an object")),
    };
    if timeouts
        .keys()
        .any(|key| key != "connection" && key != "request")
    {
        let message = "`timeouts` has only `connection` and `request`";
        return Err(invalid("timeouts", message));
    }
    let written = |member: &str| match timeouts.get(member) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let number = value
                .as_u64()
                .filter(|number| (1..=TIMEOUT_MAX).contains(number));
            let number = number.ok_or_else(|| {
                let key = format!("timeouts.{member}");
                invalid(
                    &key,
                    &format!("`{key}` must be a number of milliseconds, at most a day"),
                )
            })?;
            Ok::<_, Failure>(Some(format!("{number}ms")))
        }
    };
    set_or_remove(table, "request_timeout", written("request")?);
    let connection = written("connection")?;
    if connection.is_some() && !table.contains_key("supervision") {
        table.insert("supervision", toml_edit::value(InlineTable::new()));
    }
    let supervision = table
        .get_mut("supervision")
        .and_then(Item::as_table_like_mut);
    if let Some(supervision) = supervision {
        set_or_remove(supervision, "connect_timeout", connection);
    }
    Ok(())
}

fn set_or_remove(table: &mut dyn TableLike, key: &str, text: Option<String>) {
    match text {
        Some(text) => drop(table.insert(key, toml_edit::value(text))),
        None => drop(table.remove(key)),
    }
}
