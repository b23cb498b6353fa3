//! `x-mcp-header` in a tool's input schema: arguments that are repeated as headers.

use memchr::memmem;
use serde_json::{Map, Value};

use crate::protocol::{RawJson, parse_bounded};

use super::{HeaderMismatch, McpHeaders, PARAM_PREFIX, decode, differs, encode, missing};
use crate::bridge::object::{self, MemberChange, Object};
use crate::bridge::schema::{SchemaKeyword, children_mut, keyword_kind};

const KEYWORD: &str = "x-mcp-header";

/// Up to this value, all parsers represent integers exactly.
const SAFE_MAX: f64 = 9_007_199_254_740_991.0;

/// Why a tool must not be shown to clients over HTTP (C-HTTP-08, S-HDR-15).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`x-mcp-header` at `{at}` {reason}")]
pub struct InvalidAnnotation {
    /// Location in the schema, as a path of keywords and names.
    pub at: String,
    pub reason: &'static str,
}

/// One argument that is repeated as a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// Full header name: `Mcp-Param-` followed by the name in the schema.
    pub name: String,
    /// Property names that lead to the argument.
    path: Vec<String>,
}

/// The arguments of one tool that are repeated as headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParamHeaders(Vec<ParamHeader>);

impl ParamHeaders {
    /// Reads the annotations of a tool, an item of `tools/list`. A tool without annotations costs
    /// only a search over its bytes.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidAnnotation`] for the first annotation that breaks a rule.
    pub fn of_tool(tool: &RawJson) -> Result<Self, InvalidAnnotation> {
        let mut found = Self::default();
        if memmem::find(tool.as_bytes(), KEYWORD.as_bytes()).is_none() {
            return Ok(found);
        }
        let tool: Map<String, Value> = tool.parse().unwrap_or_default();
        if let Some(schema) = tool.get("inputSchema") {
            found.walk(schema, &mut Vec::new(), Some(&[]))?;
        }
        Ok(found)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a header has this name, compared case-insensitively.
    pub fn names(&self, name: &str) -> bool {
        let mut names = self.iter().map(|header| &header.name);
        names.any(|known| known.eq_ignore_ascii_case(name))
    }

    pub fn iter(&self) -> impl Iterator<Item = &ParamHeader> {
        self.0.iter()
    }

    /// The headers for a call with these arguments (C-HTTP-07): name and encoded value. Absent,
    /// null and non-primitive arguments are omitted.
    pub fn for_call(&self, arguments: Option<&RawJson>) -> Vec<(String, String)> {
        let Some(arguments) = self.arguments(arguments) else {
            return Vec::new();
        };
        let value = |header: &ParamHeader| primitive(header.find(&arguments)?);
        self.0
            .iter()
            .filter_map(|header| Some((header.name.clone(), encode(&value(header)?).into_owned())))
            .collect()
    }

    /// Checks the headers of a client's call against its arguments (S-HDR-08, S-HDR-09, S-HDR-10).
    /// A header for an argument that the call omits is ignored, like an unknown header.
    ///
    /// # Errors
    ///
    /// Returns [`HeaderMismatch`] for the first header that is missing, malformed or different.
    pub fn check(
        &self,
        headers: &McpHeaders<'_>,
        arguments: Option<&RawJson>,
    ) -> Result<(), HeaderMismatch> {
        let Some(arguments) = self.arguments(arguments) else {
            return Ok(());
        };
        for header in &self.0 {
            let name = &header.name;
            let given = header.find(&arguments);
            let Some((given, expected)) = given.and_then(|v| Some((v, primitive(v)?))) else {
                continue;
            };
            let written = headers.get(name)?;
            let written = written.ok_or_else(|| missing(name, &expected))?;
            let found = decode(written)
                .ok_or_else(|| HeaderMismatch(format!("`{name}` is not valid Base64")))?;
            if found != expected && !equal_numbers(&found, given) {
                return Err(differs(name, &found, &expected));
            }
        }
        Ok(())
    }

    fn arguments(&self, arguments: Option<&RawJson>) -> Option<Value> {
        if self.is_empty() {
            return None;
        }
        arguments?.parse().ok()
    }

    /// Collects annotations below `schema`. `reached` has the property names from the root if the
    /// path leads through `properties` only.
    fn walk(
        &mut self,
        schema: &Value,
        at: &mut Vec<String>,
        reached: Option<&[String]>,
    ) -> Result<(), InvalidAnnotation> {
        let Value::Object(members) = schema else {
            return Ok(());
        };
        if members.contains_key(KEYWORD) {
            self.add(members, at, reached)?;
        }
        for (keyword, value) in members {
            at.push(keyword.clone());
            match (keyword_kind(keyword), value) {
                (SchemaKeyword::SchemasByName, Value::Object(named)) => {
                    for (name, schema) in named {
                        at.push(name.clone());
                        let path = reached.filter(|_| keyword == "properties");
                        let path = path.map(|path| [path, std::slice::from_ref(name)].concat());
                        self.walk(schema, at, path.as_deref())?;
                        at.pop();
                    }
                }
                (SchemaKeyword::Schemas, Value::Array(schemas)) => {
                    for schema in schemas {
                        self.walk(schema, at, None)?;
                    }
                }
                (SchemaKeyword::Schemas, schema) => self.walk(schema, at, None)?,
                (SchemaKeyword::SchemasByName | SchemaKeyword::Data, _) => {}
            }
            at.pop();
        }
        Ok(())
    }

    fn add(
        &mut self,
        schema: &Map<String, Value>,
        at: &[String],
        reached: Option<&[String]>,
    ) -> Result<(), InvalidAnnotation> {
        let invalid = |reason| InvalidAnnotation {
            at: at.join("."),
            reason,
        };
        let path = reached.filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| {
            invalid("must be on a property that is reached through `properties` only")
        })?;
        let name = schema.get(KEYWORD).and_then(Value::as_str);
        let name = name
            .filter(|name| is_token(name))
            .ok_or_else(|| invalid("must be a name of HTTP token characters"))?;
        let kind = schema.get("type").and_then(Value::as_str);
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err(invalid(
                "must be on a property of type string, integer or boolean",
            ));
        }
        let name = format!("Mcp-Param-{name}");
        debug_assert!(name.to_ascii_lowercase().starts_with(PARAM_PREFIX));
        if self.names(&name) {
            return Err(invalid("names the same header as another argument"));
        }
        let path = path.to_vec();
        self.0.push(ParamHeader { name, path });
        Ok(())
    }
}

impl ParamHeader {
    fn find<'v>(&self, arguments: &'v Value) -> Option<&'v Value> {
        let mut value = arguments;
        for name in &self.path {
            value = value.as_object()?.get(name)?;
        }
        Some(value)
    }
}

/// Removes the annotations of a tool, for a server that does not read headers; `None` if it has
/// none (B-HDR-01).
pub fn strip_annotations(tool: &RawJson) -> Option<RawJson> {
    memmem::find(tool.as_bytes(), KEYWORD.as_bytes())?;
    let item = Object::parse(tool.as_str())?;
    let mut schema: Value = parse_bounded(item.get("inputSchema")?)?;
    if !strip(&mut schema) {
        return None;
    }
    let schema = schema.to_string();
    let change = |key: &str, _: &str| match key {
        "inputSchema" => MemberChange::Value(schema.clone()),
        _ => MemberChange::Keep,
    };
    object::raw(item.rebuild("", change)?)
}

fn strip(schema: &mut Value) -> bool {
    let own = schema
        .as_object_mut()
        .and_then(|members| members.shift_remove(KEYWORD));
    let below = children_mut(schema).into_iter().map(strip);
    below.fold(own.is_some(), |found, changed| found | changed)
}

/// Whether the text is a token of RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(legal)
}

/// The text of a primitive; integers as decimals, even if they were written as `42.0`.
fn primitive(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => Some(float.to_string()),
            _ => Some(number.to_string()),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Numbers are compared by value: `42.0` and `42` are the same (S-HDR-10).
fn equal_numbers(header: &str, given: &Value) -> bool {
    let decimal = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let header = Some(header).filter(|text| text.bytes().all(decimal));
    let header = header.and_then(|text| text.parse::<f64>().ok());
    let given = given.as_f64().filter(|given| given.abs() <= SAFE_MAX);
    given.is_some() && header == given
}
