//! Translates `Implementation`, the identity of a server, for a client of another revision.

use serde_json::{Map, Value};

use crate::protocol::Revision;

/// The `Implementation` of a server in this revision's form; `None` without a name, which every
/// revision requires. A missing version becomes an empty one for the same reason.
pub fn project_implementation(info: &Map<String, Value>, to: Revision) -> Option<Value> {
    if !info.get("name").is_some_and(Value::is_string) {
        return None;
    }
    let since = |field: &str| match field {
        "title" => Revision::V2025_06_18,
        "description" | "icons" | "websiteUrl" => Revision::V2025_11_25,
        _ => Revision::V2024_10_07,
    };
    let known = info.iter().filter(|(field, _)| since(field) <= to);
    let mut known: Map<String, Value> = known
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    if !known.get("version").is_some_and(Value::is_string) {
        known.insert("version".to_owned(), Value::from(""));
    }
    Some(Value::Object(known))
}
