//! A JSON Schema as received from a server: any member may be missing or have the wrong type.

use serde_json::{Map, Value};

/// Maximum references followed from one schema to another.
const REFERENCES_MAX: usize = 16;

/// A schema without constraints.
static NOTHING: Value = Value::Null;

/// A schema, or a nested one. Local references are followed; an unresolved reference is kept.
#[derive(Clone, Copy, Debug)]
pub struct SchemaView<'s> {
    /// The root that references are resolved against.
    root: &'s Value,
    schema: &'s Value,
}

impl SchemaView<'static> {
    /// A schema that allows everything.
    pub fn any() -> Self {
        Self::new(&NOTHING)
    }
}

impl<'s> SchemaView<'s> {
    pub fn new(root: &'s Value) -> Self {
        Self::within(root, root)
    }

    /// A schema whose references are resolved against `root`.
    pub fn within(root: &'s Value, mut schema: &'s Value) -> Self {
        for _ in 0..REFERENCES_MAX {
            let target = schema.get("$ref").and_then(Value::as_str);
            let pointer = target.and_then(|target| target.strip_prefix('#'));
            match pointer.and_then(|pointer| root.pointer(pointer)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        Self { root, schema }
    }

    pub fn is_object(self) -> bool {
        self.schema.is_object()
    }

    /// A member whose value is shown unchanged, such as `default`.
    pub fn get(self, member: &str) -> Option<&'s Value> {
        self.schema.get(member)
    }

    /// A text member, such as `title`.
    pub fn text(self, member: &str) -> Option<&'s str> {
        self.get(member)?.as_str()
    }

    fn list(self, member: &str) -> Option<&'s Vec<Value>> {
        self.get(member)?.as_array()
    }

    /// Properties of an object, in the server's order.
    pub fn properties(self) -> Option<&'s Map<String, Value>> {
        self.get("properties")?.as_object()
    }

    pub fn property(self, name: &str) -> Option<Self> {
        let schema = self.properties()?.get(name)?;
        Some(Self::within(self.root, schema))
    }

    /// Whether the property is required.
    pub fn is_required(self, name: &str) -> bool {
        let required = self.list("required").into_iter().flatten();
        required.into_iter().any(|required| required == name)
    }

    /// Whether an object may have no additional properties.
    pub fn is_closed(self) -> bool {
        self.get("additionalProperties") == Some(&Value::Bool(false))
    }

    /// Schema of a list's items.
    pub fn items(self) -> Self {
        Self::within(self.root, self.get("items").unwrap_or(&NOTHING))
    }

    /// The only allowed value.
    pub fn constant(self) -> Option<&'s Value> {
        self.get("const")
    }

    /// The values of an `enum`.
    pub fn choices(self) -> Option<&'s Vec<Value>> {
        self.list("enum")
    }

    /// The alternatives of which a value must match one.
    pub fn alternatives(self) -> Option<Vec<Self>> {
        let schemas = self.list("anyOf").or_else(|| self.list("oneOf"))?;
        let schemas = schemas.iter();
        Some(schemas.map(|it| Self::within(self.root, it)).collect())
    }

    /// The allowed types; empty if the schema does not restrict them.
    pub fn types(self) -> Vec<&'s str> {
        match self.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }
}
