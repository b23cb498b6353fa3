//! The JSON Schema of `config.toml`, for editors.

use serde_json::{Value as Json, json};

use super::declaration::kinds::table_schema;
use super::keys;

/// JSON Schema (draft 2020-12) of the file as JSON. It covers every key; constraints that a schema
/// cannot express, such as the range of a duration, are checked only by `mcpvisor check`.
pub fn schema() -> Json {
    let mut schema = table_schema(keys::tables());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("config.toml of mcpvisor");
    schema["$defs"] = json!({
        "variable": {
            "description": "A string whose ${…} is filled in.",
            "type": "string",
            "pattern": r"\$\{",
        },
        "duration": {
            "type": "string",
            "pattern": r"^\s*[0-9][0-9a-zA-Zµ.\s]*$|\$\{",
        },
        "size": {
            "type": "string",
            "pattern": r"^\s*[0-9_]+ *([bB]|[kKmMgG]([iI]?[bB])?)?\s*$|\$\{",
        },
    });
    schema
}
