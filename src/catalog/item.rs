//! One item of a list: what of it the gateway acts on, and whether it may be shown at all.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::bridge::headers::ParamHeaders;
use crate::bridge::seal::Digest;
use crate::protocol::{RawJson, Span};

use super::definition::LazyDigest;
use super::hidden_text::HiddenText;
use super::schema::OddSchema;
use super::{IngestLimits, ItemKind, json, member_type, schema, uri, uri_template::UriTemplate};

/// A tool's statements about its effects. Only hints: a server that is not trusted may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolHints {
    /// It changes nothing; `false` unless the tool says so.
    pub read_only: bool,
    /// It may destroy something; `true` unless the tool says otherwise.
    pub destructive: bool,
    /// Calling it again with the same arguments changes nothing more; `false` unless it says so.
    pub idempotent: bool,
}

impl Default for ToolHints {
    fn default() -> Self {
        Self {
            read_only: false,
            destructive: true,
            idempotent: false,
        }
    }
}

/// A valid item of a server, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    raw: RawJson,
    native: Box<str>,
    native_span: Span,
    interface_spans: Vec<(Span, Box<str>)>,
    hints: ToolHints,
    headers: ParamHeaders,
    hidden: Option<HiddenText>,
    note: Option<Box<str>>,
    digest: LazyDigest,
}

impl Item {
    pub const fn raw(&self) -> &RawJson {
        &self.raw
    }

    /// The name, URI or URI template that the server knows the item by.
    pub const fn native(&self) -> &str {
        &self.native
    }

    pub const fn hints(&self) -> ToolHints {
        self.hints
    }

    /// The arguments of a tool that are repeated as headers; none where its annotations are wrong.
    pub const fn headers(&self) -> &ParamHeaders {
        &self.headers
    }

    /// The characters in it that people do not see.
    pub const fn hidden(&self) -> Option<&HiddenText> {
        self.hidden.as_ref()
    }

    /// A remark on an invalid schema that clients accept.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Of the definition of a tool.
    pub fn definition_digest(&self) -> Digest {
        self.digest.of(&self.raw)
    }

    pub(super) fn native_span(&self) -> Span {
        self.native_span.clone()
    }

    /// The URIs of a tool's user interface, and where they stand.
    pub(super) fn interface_spans(&self) -> &[(Span, Box<str>)] {
        &self.interface_spans
    }
}

/// Why an item is not shown, and its name as far as it can be read.
pub(super) struct RejectedItem {
    pub(super) item: Option<String>,
    pub(super) reason: String,
}

impl RejectedItem {
    fn without_name(reason: impl Into<String>) -> Self {
        Self {
            item: None,
            reason: reason.into(),
        }
    }
}

/// Reads and checks one item of a list (S-TOOL-06, S-RES-07, S-RES-10).
pub(super) fn read(
    kind: ItemKind,
    raw: &RawJson,
    limits: &IngestLimits,
) -> Result<Item, RejectedItem> {
    let size = raw.as_bytes().len();
    if size > limits.item_bytes {
        let most = limits.item_bytes;
        return Err(RejectedItem::without_name(format!(
            "{size} bytes, the limit is {most}"
        )));
    }
    let value: Map<String, Value> = raw
        .parse()
        .map_err(|error| RejectedItem::without_name(schema::shorten(&error.to_string())))?;
    let key = kind.key();
    let native = match value.get(key) {
        Some(Value::String(native)) => native.clone(),
        Some(_) => {
            return Err(RejectedItem::without_name(format!(
                "`{key}` must be a string"
            )));
        }
        None => return Err(RejectedItem::without_name(format!("has no `{key}`"))),
    };
    let checked = check(kind, &native, value, limits).and_then(|(hints, note)| {
        let raw = normalized(kind, raw)?;
        let item = locate(kind, raw, &native, hints)?;
        Ok(Item { note, ..item })
    });
    checked.map_err(|reason| RejectedItem {
        item: Some(schema::shorten(&native)),
        reason,
    })
}

fn check(
    kind: ItemKind,
    native: &str,
    mut value: Map<String, Value>,
    limits: &IngestLimits,
) -> Result<(ToolHints, Option<Box<str>>), String> {
    value.retain(|name, value| !(value.is_null() && member_type::is_optional(kind, name)));
    if let Some(Value::Object(annotations)) = value.get_mut("annotations") {
        annotations.retain(|_, value| !value.is_null());
    }
    match kind {
        ItemKind::Tools | ItemKind::Prompts => check_name(native, limits)?,
        ItemKind::Resources => uri::check(native, limits)?,
        ItemKind::ResourceTemplates => {
            uri::check_template(native, limits)?;
            UriTemplate::parse(native).ok_or("`uriTemplate` has a malformed expression")?;
        }
    }
    if !value.get("name").is_some_and(Value::is_string) {
        return Err("has no `name`".to_owned());
    }
    member_type::check(kind, &value)?;
    if kind != ItemKind::Tools {
        return Ok((ToolHints::default(), None));
    }
    let note = check_schemas(&value)?;
    let hint = |name: &str| value.get("annotations")?.get(name)?.as_bool();
    let default = ToolHints::default();
    let hints = ToolHints {
        read_only: hint("readOnlyHint").unwrap_or(default.read_only),
        destructive: hint("destructiveHint").unwrap_or(default.destructive),
        idempotent: hint("idempotentHint").unwrap_or(default.idempotent),
    };
    Ok((hints, note))
}

fn check_name(name: &str, limits: &IngestLimits) -> Result<(), String> {
    if name.is_empty() {
        return Err("`name` is empty".to_owned());
    }
    if name.len() > limits.name_bytes {
        let most = limits.name_bytes;
        return Err(format!("`name` is longer than {most} bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err("`name` has a control character".to_owned());
    }
    Ok(())
}

/// Refuses the schemas that make clients drop the whole list. Clients read only the root of an
/// `inputSchema`, and compile an `outputSchema`.
///
/// Returns a remark on an invalid schema that clients accept.
fn check_schemas(tool: &Map<String, Value>) -> Result<Option<Box<str>>, String> {
    let input = tool.get("inputSchema").ok_or("has no `inputSchema`")?;
    let is_object = match input.get("type") {
        // `normalized` adds it.
        None => input.is_object(),
        Some(of) => of == "object",
    };
    if !is_object {
        return Err("`inputSchema` must be an object with \"type\": \"object\"".to_owned());
    }
    schema::check_root(input).map_err(|reason| format!("in `inputSchema`, {reason}"))?;
    let odd = schema::check(input).err();
    let of_input = odd.map(|odd| format!("`inputSchema` is {}", odd.reason()));
    let Some(output) = tool.get("outputSchema") else {
        return Ok(of_input.map(String::into_boxed_str));
    };
    if !output.is_object() {
        return Err("`outputSchema` must be an object".to_owned());
    }
    let of_output = match schema::check(output) {
        Ok(()) => None,
        Err(OddSchema::Invalid(reason)) => return Err(format!("`outputSchema` is {reason}")),
        Err(OddSchema::UnknownDialect(reason)) => Some(format!("`outputSchema` is {reason}")),
    };
    Ok(of_input.or(of_output).map(String::into_boxed_str))
}

/// Removes `null` where the protocol wants a member to be absent, and adds the `type` that an
/// `inputSchema` lacks: some servers write so, and strict clients drop the whole list for one of
/// them.
fn normalized(kind: ItemKind, raw: &RawJson) -> Result<RawJson, String> {
    let text = raw.as_str();
    let is_optional_null =
        |key: &str, value: &str| value == "null" && member_type::is_optional(kind, key);
    let members = json::members(text).ok_or("not a readable object")?;
    let annotations_have_nulls = |key: &str, value: &str| {
        key == "annotations"
            && json::members(value)
                .is_some_and(|members| members.iter().any(|(_, value)| *value == "null"))
    };
    let lacks_type = |key: &str, value: &str| {
        kind == ItemKind::Tools
            && key == "inputSchema"
            && json::members(value)
                .is_some_and(|members| members.iter().all(|(key, _)| *key != "type"))
    };
    let is_wrong = |key: &str, value: &str| {
        is_optional_null(key, value) || annotations_have_nulls(key, value) || lacks_type(key, value)
    };
    if !members.iter().any(|(key, value)| is_wrong(key, value)) {
        return Ok(raw.clone());
    }
    let rebuilt = json::rebuild(text, |key, value| {
        if is_optional_null(key, value) {
            return None;
        }
        if annotations_have_nulls(key, value) {
            return json::rebuild(value, |_, hint| (hint != "null").then(|| hint.to_owned()));
        }
        if lacks_type(key, value) {
            return with_object_type(value);
        }
        Some(value.to_owned())
    });
    let rebuilt = rebuilt.ok_or("not a readable object")?;
    RawJson::try_new(Bytes::from(rebuilt)).map_err(|error| error.to_string())
}

/// Adds `"type":"object"` to a schema that has no `type`.
fn with_object_type(schema: &str) -> Option<String> {
    let members = schema.trim_start().strip_prefix('{')?.trim_start();
    let comma = if members.starts_with('}') { "" } else { "," };
    Some(format!("{{\"type\":\"object\"{comma}{members}"))
}

fn locate(kind: ItemKind, raw: RawJson, native: &str, hints: ToolHints) -> Result<Item, String> {
    let text = raw.as_str();
    let members = json::members(text).ok_or("not a readable object")?;
    let mut found = members.iter().filter(|(key, _)| key == kind.key());
    let (_, written) = found.next().ok_or("not a readable object")?;
    if found.next().is_some() {
        return Err(format!("`{}` stands twice", kind.key()));
    }
    let native_span = json::span(text, written);
    let (interface_spans, headers) = match kind {
        ItemKind::Tools => (interface_spans(text), ParamHeaders::of_tool(&raw)),
        ItemKind::Prompts | ItemKind::Resources | ItemKind::ResourceTemplates => {
            (Vec::new(), Ok(ParamHeaders::default()))
        }
    };
    Ok(Item {
        hidden: HiddenText::in_json(raw.as_str()),
        raw,
        native: native.into(),
        native_span,
        interface_spans,
        hints,
        headers: headers.unwrap_or_default(),
        note: None,
        digest: LazyDigest::default(),
    })
}

/// The URIs of user interfaces that the `_meta` of a tool or a result names, as they are written:
/// `ui.resourceUri`, and the older spellings of it.
pub(super) fn interfaces(text: &str) -> impl Iterator<Item = &str> {
    let meta = json::member(text, "_meta");
    let nested = meta.and_then(|meta| json::member(json::member(meta, "ui")?, "resourceUri"));
    let flat = ["ui/resourceUri", "openai/outputTemplate"];
    let flat = flat.map(|name| json::member(meta?, name));
    nested.into_iter().chain(flat.into_iter().flatten())
}

/// The URIs of a tool's user interface, and where they stand.
fn interface_spans(text: &str) -> Vec<(Span, Box<str>)> {
    let read = |written: &str| {
        let uri = json::text(written)?;
        Some((json::span(text, written), Box::from(&*uri)))
    };
    interfaces(text).filter_map(read).collect()
}
