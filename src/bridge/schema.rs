//! Walking a JSON Schema: which of its keywords hold schemas, and which hold data.

use serde_json::Value;

/// What the value of a keyword is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// A schema, or an array of them.
    Schemas,
    /// An object of schemas by name.
    Named,
    /// No schema: constants, texts, limits.
    Data,
}

pub(super) fn holds(keyword: &str) -> Holds {
    match keyword {
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => {
            Holds::Named
        }
        "items"
        | "prefixItems"
        | "additionalItems"
        | "contains"
        | "additionalProperties"
        | "unevaluatedProperties"
        | "unevaluatedItems"
        | "propertyNames"
        | "oneOf"
        | "anyOf"
        | "allOf"
        | "not"
        | "if"
        | "then"
        | "else"
        | "contentSchema" => Holds::Schemas,
        _ => Holds::Data,
    }
}

/// The schemas directly below one, in no particular order.
pub(super) fn children_mut(schema: &mut Value) -> Vec<&mut Value> {
    let mut found = Vec::new();
    let Value::Object(members) = schema else {
        return found;
    };
    for (keyword, value) in members {
        match (holds(keyword), value) {
            (Holds::Named, Value::Object(named)) => found.extend(named.values_mut()),
            (Holds::Schemas, Value::Array(schemas)) => found.extend(schemas),
            (Holds::Schemas, schema) => found.push(schema),
            (Holds::Named | Holds::Data, _) => {}
        }
    }
    found
}
