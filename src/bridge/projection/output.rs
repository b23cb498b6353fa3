//! Wraps structured output that is not an object: revisions before 2026-07-28 require an object
//! (S-TOOL-09, S-TOOL-10).

use serde_json::{Value, json};

use crate::protocol::{RawJson, Revision, json as text, parse_bounded};

use crate::bridge::schema::children_mut;

/// Whether clients with a handshake see this tool's output inside `result`.
pub fn wraps_structured_output(tool: &RawJson) -> bool {
    text::member(tool.as_str(), "outputSchema").is_some_and(is_wrapped)
}

/// Whether a revision has structured output that must be an object.
pub(super) fn wraps_for(to: Revision) -> bool {
    (Revision::V2025_06_18..Revision::V2026_07_28).contains(&to)
}

/// Whether a structured output is an object with no member but `result`.
pub(super) fn is_wrapped_output(output: &str) -> bool {
    let members = text::members(output);
    members.is_some_and(|members| matches!(members.as_slice(), [(key, _)] if key == "result"))
}

fn is_wrapped(schema: &str) -> bool {
    let kind = text::member(schema, "type").and_then(text::text);
    kind.is_none_or(|kind| kind != "object")
}

/// The schema of an object whose member `result` has the given schema. References within the schema
/// are adjusted; `None` if it is not JSON.
pub(super) fn wrapped(schema: &str) -> Option<String> {
    let mut inner: Value = parse_bounded(schema)?;
    let mut outer = json!({ "type": "object" });
    let own_base = inner.get("$id").is_some();
    if !own_base {
        let dialect = inner
            .as_object_mut()
            .and_then(|members| members.shift_remove("$schema"));
        if let Some(dialect) = dialect {
            outer["$schema"] = dialect;
        }
        rebase_references(&mut inner);
    }
    outer["properties"] = json!({ "result": inner });
    outer["required"] = json!(["result"]);
    Some(outer.to_string())
}

/// Adjusts references. Those inside a schema with an `$id` are relative to it and stay.
fn rebase_references(schema: &mut Value) {
    if schema.get("$id").is_some() {
        return;
    }
    if let Some(Value::String(reference)) = schema.get_mut("$ref")
        && let Some(pointer) = reference.strip_prefix('#')
        && (pointer.is_empty() || pointer.starts_with('/'))
    {
        *reference = format!("#/properties/result{pointer}");
    }
    children_mut(schema).into_iter().for_each(rebase_references);
}
