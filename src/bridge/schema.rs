//! Walks a JSON Schema: knows which keywords hold schemas and which hold data.

use serde_json::Value;

/// The kind of a keyword's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaKeyword {
    /// A schema, or an array of them.
    Schemas,
    /// An object of schemas by name.
    SchemasByName,
    /// No schema: constants, strings, limits.
    Data,
}

pub fn keyword_kind(keyword: &str) -> SchemaKeyword {
    match keyword {
        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions" => {
            SchemaKeyword::SchemasByName
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
        | "contentSchema" => SchemaKeyword::Schemas,
        _ => SchemaKeyword::Data,
    }
}

/// The direct subschemas, in no particular order.
pub(super) fn children_mut(schema: &mut Value) -> Vec<&mut Value> {
    let mut found = Vec::new();
    let Value::Object(members) = schema else {
        return found;
    };
    for (keyword, value) in members {
        match (keyword_kind(keyword), value) {
            (SchemaKeyword::SchemasByName, Value::Object(named)) => {
                found.extend(named.values_mut())
            }
            (SchemaKeyword::Schemas, Value::Array(schemas)) => found.extend(schemas),
            (SchemaKeyword::Schemas, schema) => found.push(schema),
            (SchemaKeyword::SchemasByName | SchemaKeyword::Data, _) => {}
        }
    }
    found
}
