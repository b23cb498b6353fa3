//! Whether a tool's schema is one: a client that meets an invalid schema drops the whole list.

use serde_json::Value;

/// Checks a schema against the meta-schema of its draft. References are not followed, so nothing
/// is fetched; depth is bounded by the JSON parser and size by the limit of an item.
///
/// # Errors
///
/// Returns a sentence that says where the schema is wrong.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let draft = schema.get("$schema").and_then(Value::as_str).unwrap_or("");
    let outcome = if draft.contains("draft-04") {
        jsonschema::draft4::meta::validate(schema)
    } else if draft.contains("draft-06") {
        jsonschema::draft6::meta::validate(schema)
    } else if draft.contains("draft-07") {
        jsonschema::draft7::meta::validate(schema)
    } else if draft.contains("2019-09") {
        jsonschema::draft201909::meta::validate(schema)
    } else {
        jsonschema::draft202012::meta::validate(schema)
    };
    outcome.map_err(|error| {
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { "its root" } else { &place };
        shorten(&format!("not a valid JSON Schema at {place}: {error}"))
    })
}

/// Reasons quote what a server wrote, so they are cut.
pub(super) fn shorten(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let mut characters = text.chars().filter(|c| !c.is_control());
    let mut short: String = characters.by_ref().take(CHARACTERS_MAX).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}
