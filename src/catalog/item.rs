//! Parses and validates one item of a list, keeping its original bytes.

use bytes::Bytes;
use memchr::memchr_iter;
use serde_json::{Map, Value};

use crate::bridge::headers::ParamHeaders;
use crate::bridge::projection::wraps_structured_output;
use crate::bridge::schema::{SchemaKeyword, keyword_kind};
use crate::bridge::seal::Digest;
use crate::protocol::{Era, KNOWN_EXTENSIONS, RawJson, Span, each_member, extension_method};

use super::hidden_text::HiddenText;
use super::model_text::LazyDigest;
use super::schema::OddSchema;
use super::{IngestLimits, ItemKind, json, member_type, schema, uri, uri_template::UriTemplate};

/// A tool's statements about its effects. Only hints: an untrusted server can lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolHints {
    /// The tool changes nothing; `false` unless stated.
    pub read_only: bool,
    /// The tool can destroy something; `true` unless stated otherwise.
    pub destructive: bool,
    /// Repeating the call with the same arguments has no further effect; `false` unless stated.
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

/// A valid item of a server, verbatim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    raw: RawJson,
    native: Box<str>,
    native_span: Span,
    named_uris: Vec<(Span, Box<str>)>,
    hints: ToolHints,
    wraps_output: bool,
    is_for_apps: bool,
    headers: ParamHeaders,
    hidden: Option<HiddenText>,
    note: Option<Box<str>>,
    digest: LazyDigest,
}

impl Item {
    pub const fn raw(&self) -> &RawJson {
        &self.raw
    }

    /// The name, URI or URI template that the server uses for the item.
    pub const fn native(&self) -> &str {
        &self.native
    }

    pub const fn hints(&self) -> ToolHints {
        self.hints
    }

    /// Whether clients with a handshake receive the tool's output inside `result`.
    pub const fn wraps_output(&self) -> bool {
        self.wraps_output
    }

    /// Whether only user interfaces call the tool, so that no model is offered it.
    pub const fn is_for_apps(&self) -> bool {
        self.is_for_apps
    }

    /// The arguments of a tool that are repeated as headers; none if its annotations are invalid.
    pub const fn headers(&self) -> &ParamHeaders {
        &self.headers
    }

    /// The hidden characters in it.
    pub const fn hidden(&self) -> Option<&HiddenText> {
        self.hidden.as_ref()
    }

    /// A remark on an invalid schema that clients accept.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The digest that pins compare. `kind` is the item's own.
    pub(super) fn definition_digest(&self, kind: ItemKind) -> Digest {
        self.digest.of(kind, &self.raw)
    }

    pub(super) fn native_span(&self) -> Span {
        self.native_span.clone()
    }

    /// The URIs that extensions have in it, with their positions: of a tool's user
    /// interface, or of the files of a skill.
    pub(super) fn named_uris(&self) -> &[(Span, Box<str>)] {
        &self.named_uris
    }
}

/// Why an item is rejected, and its name if it can be read.
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

/// Parses and validates one item of a list (S-TOOL-06, S-RES-07, S-RES-10). `era` is its server's.
pub(super) fn read(
    kind: ItemKind,
    raw: &RawJson,
    limits: &IngestLimits,
    era: Era,
) -> Result<Item, RejectedItem> {
    let size = raw.as_bytes().len();
    if size > limits.item_bytes {
        let most = limits.item_bytes;
        return Err(RejectedItem::without_name(format!(
            "{size} bytes, the limit is {most}"
        )));
    }
    let raw = normalized(kind, raw, era).map_err(RejectedItem::without_name)?;
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
    let checked = check(kind, &native, &value, limits).and_then(|(hints, note)| {
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
    value: &Map<String, Value>,
    limits: &IngestLimits,
) -> Result<(ToolHints, Option<Box<str>>), String> {
    match kind {
        ItemKind::Tools | ItemKind::Prompts => check_name(native, limits)?,
        ItemKind::Resources | ItemKind::Skills => uri::check(native, limits)?,
        ItemKind::ResourceTemplates => {
            uri::check_template(native, limits)?;
            UriTemplate::parse(native).ok_or("`uriTemplate` has a malformed expression")?;
        }
    }
    if kind == ItemKind::Skills {
        return check_skill(value).map(|()| (ToolHints::default(), None));
    }
    if !value.get("name").is_some_and(Value::is_string) {
        return Err("has no `name`".to_owned());
    }
    member_type::check(kind, value)?;
    if kind != ItemKind::Tools {
        return Ok((ToolHints::default(), None));
    }
    let note = check_schemas(value)?;
    let hint = |name: &str| value.get("annotations")?.get(name)?.as_bool();
    let default = ToolHints::default();
    let hints = ToolHints {
        read_only: hint("readOnlyHint").unwrap_or(default.read_only),
        destructive: hint("destructiveHint").unwrap_or(default.destructive),
        idempotent: hint("idempotentHint").unwrap_or(default.idempotent),
    };
    Ok((hints, note))
}

fn check_skill(skill: &Map<String, Value>) -> Result<(), String> {
    let matter = skill.get("frontmatter");
    let has = |name: &str| matter.is_some_and(|it| it.get(name).is_some_and(Value::is_string));
    if !has("name") || !has("description") {
        return Err("`frontmatter` must have `name` and `description`".to_owned());
    }
    let is_file = |file: &Value| file.get("uri").is_some_and(Value::is_string);
    let is_sound = match skill.get("resources") {
        Some(Value::Array(files)) => files.iter().all(is_file),
        Some(other) => other == "dynamic",
        None => false,
    };
    let reason = "`resources` must be \"dynamic\" or an array of files with `uri`";
    is_sound.then_some(()).ok_or_else(|| reason.to_owned())
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

/// Rejects schemas that make clients drop the whole list. Clients read only the root of an
/// `inputSchema`, but compile an `outputSchema`.
///
/// Returns a remark on an invalid schema that clients accept.
fn check_schemas(tool: &Map<String, Value>) -> Result<Option<Box<str>>, String> {
    let input = tool.get("inputSchema").ok_or("has no `inputSchema`")?;
    let is_object = match input.get("type") {
        None => false,
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

/// Normalizes an item for strict clients, which drop the whole list for one invalid item: removes
/// `null` where a member must be absent, replaces the `[]` that PHP writes for an empty object with
/// `{}`, and adds the `type` that some servers omit from a schema.
fn normalized(kind: ItemKind, raw: &RawJson, era: Era) -> Result<RawJson, String> {
    // The caller rejects an item that is not an object.
    let Some(members) = json::members(raw.as_str()) else {
        return Ok(raw.clone());
    };
    let change = |key: &str, value: &str| normalized_member(kind, key, value, era);
    if members
        .iter()
        .all(|(key, value)| change(key, value) == MemberChange::Keep)
    {
        return Ok(raw.clone());
    }
    let rebuilt = json::rebuild(raw.as_str(), |key, value| match change(key, value) {
        MemberChange::Keep => Some(value.to_owned()),
        MemberChange::Drop => None,
        MemberChange::Set(text) => Some(text),
    });
    let rebuilt = rebuilt.ok_or("not a readable object")?;
    RawJson::try_new(Bytes::from(rebuilt)).map_err(|error| error.to_string())
}

/// The change to one member.
#[derive(Debug, PartialEq, Eq)]
enum MemberChange {
    Keep,
    Drop,
    Set(String),
}

impl MemberChange {
    fn set(text: Option<String>) -> Self {
        text.map_or(Self::Keep, Self::Set)
    }
}

fn normalized_member(kind: ItemKind, key: &str, value: &str, era: Era) -> MemberChange {
    if value == "null" && member_type::is_optional(kind, key) {
        return MemberChange::Drop;
    }
    let is_tool = kind == ItemKind::Tools;
    match key {
        "inputSchema" if is_tool => MemberChange::set(object_schema(value)),
        // From 2026-07-28 on, an output schema can have any type.
        "outputSchema" if is_tool && era == Era::Legacy => MemberChange::set(object_schema(value)),
        "outputSchema" if is_tool => MemberChange::set(empty_schemas(value)),
        "annotations" | "_meta" | "execution" if is_empty_array(value) => {
            MemberChange::Set("{}".to_owned())
        }
        "annotations" => {
            let hints = json::members(value).unwrap_or_default();
            let has_nulls = hints.iter().any(|(_, hint)| *hint == "null");
            let rebuilt =
                || json::rebuild(value, |_, hint| (hint != "null").then(|| hint.to_owned()));
            MemberChange::set(has_nulls.then(rebuilt).flatten())
        }
        _ => MemberChange::Keep,
    }
}

/// Corrects a schema that must describe an object: its empty objects, and a missing `type`. Returns
/// `None` if nothing changes.
fn object_schema(schema: &str) -> Option<String> {
    let changed = empty_schemas(schema);
    let text = changed.as_deref().unwrap_or(schema);
    let members = json::members(text)?;
    if members.iter().any(|(key, _)| key == "type") {
        return changed;
    }
    let rest = text.trim_start().strip_prefix('{')?.trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    Some(format!("{{\"type\":\"object\"{comma}{rest}"))
}

/// Replaces `[]` with `{}` wherever a schema, or an object of schemas, is required: PHP writes an
/// empty object that way. Returns `None` if nothing changes. The JSON parser has bounded the depth.
fn empty_schemas(schema: &str) -> Option<String> {
    // Most schemas have no empty array at all.
    let mut brackets = memchr_iter(b'[', schema.as_bytes());
    let is_empty_at = |at: usize| {
        let rest = schema.as_bytes().get(at + 1..).unwrap_or_default();
        rest.trim_ascii_start().first() == Some(&b']')
    };
    if !brackets.any(is_empty_at) {
        return None;
    }
    if is_empty_array(schema) {
        return Some("{}".to_owned());
    }
    let change = |key: &str, value: &str| match keyword_kind(key) {
        // These keywords take a list, which can be empty.
        SchemaKeyword::Schemas if is_list_of_schemas(key) => None,
        SchemaKeyword::Schemas => match json::elements(value) {
            Some(_) if is_empty_array(value) => Some("{}".to_owned()),
            Some(_) => None,
            None => empty_schemas(value),
        },
        SchemaKeyword::SchemasByName if is_empty_array(value) => Some("{}".to_owned()),
        SchemaKeyword::SchemasByName => json::rebuild(value, |_, named| {
            Some(empty_schemas(named).unwrap_or_else(|| named.into()))
        }),
        SchemaKeyword::Data => None,
    };
    json::rebuild(schema, |key, value| {
        Some(change(key, value).unwrap_or_else(|| value.to_owned()))
    })
}

fn is_list_of_schemas(keyword: &str) -> bool {
    matches!(keyword, "allOf" | "anyOf" | "oneOf" | "prefixItems")
}

fn is_empty_array(value: &str) -> bool {
    let inside = value
        .trim()
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inside.is_some_and(|inside| inside.trim().is_empty())
}

fn locate(kind: ItemKind, raw: RawJson, native: &str, hints: ToolHints) -> Result<Item, String> {
    let text = raw.as_str();
    let members = json::members(text).ok_or("not a readable object")?;
    let mut found = members.iter().filter(|(key, _)| key == kind.key());
    let (_, written) = found.next().ok_or("not a readable object")?;
    if found.next().is_some() {
        return Err(format!("duplicate `{}`", kind.key()));
    }
    let native_span = json::span(text, written);
    let (named_uris, headers) = match kind {
        ItemKind::Tools => {
            let paths = KNOWN_EXTENSIONS.iter().flat_map(|it| it.uris).copied();
            (named_spans(text, paths), ParamHeaders::of_tool(&raw))
        }
        ItemKind::Skills => (
            named_spans(text, listed_paths(kind)),
            Ok(ParamHeaders::default()),
        ),
        ItemKind::Prompts | ItemKind::Resources | ItemKind::ResourceTemplates => {
            (Vec::new(), Ok(ParamHeaders::default()))
        }
    };
    Ok(Item {
        hidden: HiddenText::in_json(raw.as_str()),
        wraps_output: kind == ItemKind::Tools && wraps_structured_output(&raw),
        is_for_apps: kind == ItemKind::Tools && is_for_apps(text),
        raw,
        native: native.into(),
        native_span,
        named_uris,
        hints,
        headers: headers.unwrap_or_default(),
        note: None,
        digest: LazyDigest::default(),
    })
}

/// Whether `_meta.ui.visibility` of a tool names audiences, but not the model.
fn is_for_apps(text: &str) -> bool {
    let mut audiences: Option<Vec<&str>> = None;
    each_member(text, &["_meta", "ui", "visibility"], &mut |written| {
        audiences = json::elements(written);
    });
    let for_models = |it: &&str| json::text(it).is_some_and(|it| it == "model");
    audiences.is_some_and(|all| !all.is_empty() && !all.iter().any(for_models))
}

/// The paths of further URIs in an item of an extension's list.
fn listed_paths(kind: ItemKind) -> impl Iterator<Item = &'static [&'static str]> {
    let listed = extension_method(kind.method().as_str());
    let paths = listed.into_iter().flat_map(|(_, method)| method.uris);
    let paths = paths.filter_map(move |path| path.strip_prefix(&[kind.member(), "[]"]));
    paths.filter(move |path| *path != [kind.key()])
}

/// The URIs at some paths of an item, with their positions.
fn named_spans<'p>(
    text: &str,
    paths: impl Iterator<Item = &'p [&'p str]>,
) -> Vec<(Span, Box<str>)> {
    let mut spans = Vec::new();
    for path in paths {
        each_member(text, path, &mut |written| {
            let uri = json::text(written);
            spans.extend(uri.map(|uri| (json::span(text, written), Box::from(&*uri))));
        });
    }
    spans
}
