//! Validates a tool's schemas. Clients differ in what they accept: some drop the whole list for a
//! schema whose root is malformed, none for unusual content further inside.

use serde_json::Value;

/// Validates a schema against the meta-schema of its dialect, 2020-12 if it names none (B-RPC-12).
/// References are not followed, so nothing is fetched; depth is bounded by the JSON parser and size
/// by the limit of an item.
///
/// # Errors
///
/// Returns [`OddSchema`] with the fault.
pub(super) fn check(schema: &Value) -> Result<(), OddSchema> {
    let named = schema.get("$schema").and_then(Value::as_str);
    let outcome = match named.map_or(Some(Dialect::V2020_12), Dialect::of) {
        Some(Dialect::Draft4) => jsonschema::draft4::meta::validate(schema),
        Some(Dialect::Draft6) => jsonschema::draft6::meta::validate(schema),
        Some(Dialect::Draft7) => jsonschema::draft7::meta::validate(schema),
        Some(Dialect::V2019_09) => jsonschema::draft201909::meta::validate(schema),
        Some(Dialect::V2020_12) => jsonschema::draft202012::meta::validate(schema),
        None => {
            let named = shorten(named.unwrap_or_default());
            return Err(OddSchema::UnknownDialect(format!(
                "of a dialect that is not supported, `{named}`: JSON Schema is, from draft 4 to 2020-12"
            )));
        }
    };
    outcome.map_err(|error| {
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { "its root" } else { &place };
        OddSchema::Invalid(shorten(&format!(
            "not a valid JSON Schema at {place}: {error}"
        )))
    })
}

/// Why a schema is not understood by every client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OddSchema {
    /// Clients that compile it fail.
    Invalid(String),
    /// Clients treat it as the newest dialect.
    UnknownDialect(String),
}

impl OddSchema {
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Invalid(reason) | Self::UnknownDialect(reason) => reason,
        }
    }
}

/// Validates the members of a schema's root that clients parse strictly, dropping the whole list if
/// one is malformed.
///
/// # Errors
///
/// Returns part of a sentence that names the invalid member.
pub(super) fn check_root(schema: &Value) -> Result<(), String> {
    let is = |member: &str, fits: fn(&Value) -> bool| schema.get(member).is_none_or(fits);
    let are_texts = |list: &Value| {
        let mut texts = list.as_array().into_iter().flatten();
        list.is_array() && texts.all(Value::is_string)
    };
    if !is("properties", Value::is_object) {
        return Err("`properties` must be an object".to_owned());
    }
    if !is("required", are_texts) {
        return Err("`required` must be a list of strings".to_owned());
    }
    Ok(())
}

/// The known dialects of JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Draft4,
    Draft6,
    Draft7,
    V2019_09,
    V2020_12,
}

impl Dialect {
    /// Looks up a dialect by the URI in `$schema`, which occurs with and without TLS, and with an
    /// empty fragment.
    fn of(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix("https://");
        let rest = rest.or_else(|| uri.strip_prefix("http://"))?;
        let path = rest.strip_prefix("json-schema.org/")?;
        match path.trim_end_matches(['#', '/']) {
            "draft-04/schema" => Some(Self::Draft4),
            "draft-06/schema" => Some(Self::Draft6),
            "draft-07/schema" => Some(Self::Draft7),
            "draft/2019-09/schema" => Some(Self::V2019_09),
            // A URI without a version denotes the newest dialect.
            "draft/2020-12/schema" | "schema" => Some(Self::V2020_12),
            _ => None,
        }
    }
}

/// Truncates a reason, which quotes a server's text.
pub(super) fn shorten(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let mut characters = text.chars().filter(|c| !c.is_control());
    let mut short: String = characters.by_ref().take(CHARACTERS_MAX).collect();
    if characters.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b_rpc_12_an_unknown_dialect_is_refused_and_none_is_2020_12() {
        let known = [
            "http://json-schema.org/draft-04/schema#",
            "http://json-schema.org/draft-06/schema#",
            "https://json-schema.org/draft-07/schema",
            "https://json-schema.org/draft/2019-09/schema",
            "https://json-schema.org/draft/2020-12/schema#",
            "http://json-schema.org/schema#",
        ];
        for dialect in known {
            let schema = json!({"$schema": dialect, "type": "object"});
            assert_eq!(check(&schema), Ok(()), "{dialect}");
        }
        let unknown = [
            "",
            "draft-07",
            "http://json-schema.org/draft-03/schema#",
            "https://json-schema.org/draft/2031-01/schema",
            "https://schemas.example/draft-07/2020-12",
        ];
        for dialect in unknown {
            let schema = json!({"$schema": dialect, "type": "object"});
            let odd = check(&schema).unwrap_err();
            let expected = format!("of a dialect that is not supported, `{dialect}`");
            assert!(odd.reason().starts_with(&expected), "{odd:?}");
        }
        // A list of schemas is a valid `items` in draft 7, but no longer in 2020-12.
        let items = json!({"items": [{}]});
        assert!(check(&items).is_err());
        assert!(check(&json!({"$schema": 7, "type": "object"})).is_err());
    }
}
