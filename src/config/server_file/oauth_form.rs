//! `oauth` of a server in the form used by the API, with the member names of MCP Inspector.

use serde_json::{Map, Value, json};
use toml_edit::{Array, InlineTable, Item, TableLike};

use super::texts::{invalid, literal, text, write_text};
use crate::config::client_entry::OAUTH_RENAMED;
use crate::config::interpolate::escaped;
use crate::masking::REDACTED;
use crate::protocol::Failure;

/// Reads the table; `None` for a server without one.
pub(super) fn read(table: &dyn TableLike) -> Option<Value> {
    let oauth = table.get("oauth").and_then(Item::as_table_like)?;
    let mut view = Map::new();
    for (member, key) in OAUTH_RENAMED {
        if let Some(written) = text(oauth, key) {
            let shown = literal(written).filter(|_| key != "client_secret");
            view.insert(
                member.to_owned(),
                json!(shown.unwrap_or_else(|| REDACTED.to_owned())),
            );
        }
    }
    if let Some(scopes) = oauth.get("scopes").and_then(Item::as_array) {
        let scopes: Vec<&str> = scopes.iter().filter_map(|scope| scope.as_str()).collect();
        view.insert("scopes".to_owned(), json!(scopes));
    }
    Some(Value::Object(view))
}

/// Writes the members of the body; missing members stay unchanged, and `null` removes one, or the
/// whole table.
///
/// # Errors
///
/// Fails if a member cannot be written.
pub(super) fn write(table: &mut dyn TableLike, value: &Value) -> Result<(), Failure> {
    let members = match value {
        Value::Null => {
            table.remove("oauth");
            return Ok(());
        }
        Value::Object(members) => members,
        _ => return Err(invalid("oauth", "`oauth` must be an object")),
    };
    if !table.contains_key("oauth") {
        table.insert("oauth", toml_edit::value(InlineTable::new()));
    }
    let oauth = table.get_mut("oauth").and_then(Item::as_table_like_mut);
    let oauth = oauth.ok_or_else(|| invalid("oauth", "`oauth` in the file is not a table"))?;
    for (member, value) in members {
        let known = OAUTH_RENAMED.iter().find(|(known, _)| known == member);
        match (known, member.as_str()) {
            (Some((_, key)), _) => write_text(oauth, key, value)?,
            (None, "scopes") => write_scopes(oauth, value)?,
            (None, other) => {
                let other: String = other.chars().take(64).collect();
                return Err(invalid(
                    "oauth",
                    &format!("unknown member {other:?} in `oauth`"),
                ));
            }
        }
    }
    Ok(())
}

fn write_scopes(oauth: &mut dyn TableLike, value: &Value) -> Result<(), Failure> {
    let wrong = || invalid("oauth", "`oauth.scopes` must be a list of strings");
    let scopes = match value {
        Value::Null => {
            oauth.remove("scopes");
            return Ok(());
        }
        Value::Array(scopes) => scopes,
        _ => return Err(wrong()),
    };
    let mut written = Array::new();
    for scope in scopes {
        written.push(escaped(scope.as_str().ok_or_else(wrong)?));
    }
    oauth.insert("scopes", toml_edit::value(written));
    Ok(())
}
