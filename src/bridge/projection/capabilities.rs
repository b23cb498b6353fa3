//! Translates a client's capabilities for a server of another revision.

use serde_json::{Map, Value, json};

use crate::protocol::{Era, Revision};

/// The capabilities to declare to a server of this revision: never more than the client supports
/// (S-REQ-01). The gateway declares `tasks` itself, never on behalf of a client.
pub fn client_capabilities(declared: &Map<String, Value>, to: Revision) -> Map<String, Value> {
    let known = declared.iter().filter_map(|(name, value)| {
        let value = match name.as_str() {
            "sampling" if to < Revision::V2025_11_25 => json!({}),
            "elicitation" => elicitation(value, to)?,
            "roots" if to.era() == Era::Modern => json!({}),
            "tasks" => return None,
            _ => value.clone(),
        };
        Some((name.clone(), value))
    });
    known.collect()
}

/// `{}` means forms; 2025-06-18 supports nothing else, and only allows `{}` (C-REQ-02).
fn elicitation(modes: &Value, to: Revision) -> Option<Value> {
    let modes = modes.as_object()?;
    let form = modes.contains_key("form") || !modes.contains_key("url");
    match to {
        Revision::V2024_10_07 | Revision::V2024_11_05 | Revision::V2025_03_26 => None,
        Revision::V2025_06_18 => form.then(|| json!({})),
        Revision::V2025_11_25 | Revision::V2026_07_28 if modes.is_empty() => {
            Some(json!({ "form": {} }))
        }
        Revision::V2025_11_25 | Revision::V2026_07_28 => Some(Value::Object(modes.clone())),
    }
}
