//! A JSON Schema as a server wrote it: any member may be missing or of another type.

use serde_json::{Map, Value};

/// How many references of a schema are followed to one that says more.
const REFERENCES_MAX: usize = 16;

/// The schema that says nothing.
static NOTHING: Value = Value::Null;

/// A schema, or one within it. A local reference is followed; one that leads nowhere stays.
#[derive(Clone, Copy, Debug)]
pub struct SchemaView<'s> {
    /// The schema that references lead into.
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

    /// A schema whose references lead into `root`.
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

    /// A member whose value is shown as it is, such as `default`.
    pub fn get(self, member: &str) -> Option<&'s Value> {
        self.schema.get(member)
    }

    /// A member that is a text, such as `title`.
    pub fn text(self, member: &str) -> Option<&'s str> {
        self.get(member)?.as_str()
    }

    fn list(self, member: &str) -> Option<&'s Vec<Value>> {
        self.get(member)?.as_array()
    }

    /// The properties of an object, in the order of the server.
    pub fn properties(self) -> Option<&'s Map<String, Value>> {
        self.get("properties")?.as_object()
    }

    pub fn property(self, name: &str) -> Option<Self> {
        let schema = self.properties()?.get(name)?;
        Some(Self::within(self.root, schema))
    }

    /// Whether an object must have this property.
    pub fn is_required(self, name: &str) -> bool {
        let required = self.list("required").into_iter().flatten();
        required.into_iter().any(|required| required == name)
    }

    /// Whether an object may have no other properties.
    pub fn is_closed(self) -> bool {
        self.get("additionalProperties") == Some(&Value::Bool(false))
    }

    /// The schema of the items of a list.
    pub fn items(self) -> Self {
        Self::within(self.root, self.get("items").unwrap_or(&NOTHING))
    }

    /// The only value.
    pub fn constant(self) -> Option<&'s Value> {
        self.get("const")
    }

    /// The values of an `enum`.
    pub fn choices(self) -> Option<&'s Vec<Value>> {
        self.list("enum")
    }

    /// The schemas of which a value fits one.
    pub fn alternatives(self) -> Option<Vec<Self>> {
        let schemas = self.list("anyOf").or_else(|| self.list("oneOf"))?;
        let schemas = schemas.iter();
        Some(schemas.map(|it| Self::within(self.root, it)).collect())
    }

    /// The names of the types that a value may have; none if that is not said.
    pub fn types(self) -> Vec<&'s str> {
        match self.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }
}
