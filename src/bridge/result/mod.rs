//! Adds to results what sessionless clients expect besides the payload, and removes it for clients
//! with a handshake (B-RPC-06, S-LIFE-17).

mod completion;
mod input_required;

use std::borrow::Cow;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::{self, Finder};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::protocol::{Edit, RawJson, RequestId, json, result_frame, result_frame_from_parts};

use super::meta::SERVER_INFO;
use super::object::{self, MemberChange, Object, contains_any, is_object};

pub use completion::limited_completion;
pub use input_required::{InputRequired, InvalidInputRequired};
pub(super) use input_required::{parse_requests, requests_object};

/// The type of a sessionless server's result. An absent `resultType` means `complete`
/// (C-LIFE-13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    Complete,
    /// The server needs answers first; read it with [`InputRequired::parse`].
    InputRequired,
    /// The server continues in a task; read it with [`super::task`].
    Task,
    /// Defined by an extension that a client of the same era can know.
    Extension,
    /// Invalid: the type has no defined meaning.
    Unknown,
}

impl ResultKind {
    pub fn of(result: &RawJson) -> Self {
        #[derive(Deserialize)]
        struct TypedResult<'a> {
            #[serde(borrow, rename = "resultType")]
            kind: Option<Cow<'a, str>>,
        }
        if has_complete_type_at_an_end(result.as_str())
            || has_no_type_but_complete(result.as_bytes())
        {
            return Self::Complete;
        }
        match object::read::<TypedResult<'_>>(result.as_str()) {
            Some(TypedResult { kind }) => match kind.as_deref() {
                None | Some("complete") => Self::Complete,
                Some("input_required") => Self::InputRequired,
                Some("task") => Self::Task,
                Some(_) => Self::Extension,
            },
            None => Self::Unknown,
        }
    }
}

const COMPLETE: &str = r#""resultType":"complete","#;

/// Members that a result can already contain; every result is searched for them.
static KIND: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"resultType\""));
static META: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"_meta\""));
static HINTS: LazyLock<[Finder<'_>; 2]> =
    LazyLock::new(|| ["\"ttlMs\"", "\"cacheScope\""].map(Finder::new));

/// Whether `resultType` is at the start or the end of the result, where servers write it. There it
/// belongs to the result and not to a nested value.
fn has_complete_type_at_an_end(result: &str) -> bool {
    let rest = result.strip_prefix('{');
    rest.is_some_and(|rest| rest.starts_with(COMPLETE))
        || result.ends_with(r#","resultType":"complete"}"#)
}

/// Fast path: whether the result needs no parsing, because every type in it is `complete`, the
/// default.
fn has_no_type_but_complete(result: &[u8]) -> bool {
    let mut found = KIND.find_iter(result);
    found.all(|at| {
        let value = result.get(at + KIND.needle().len()..);
        value.is_some_and(|value| value.starts_with(b":\"complete\""))
    })
}

/// Which caches can store a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    Public,
    Private,
}

impl CacheScope {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
        }
    }

    /// Parses a scope; any unknown value counts as private.
    pub fn parse(text: &str) -> Self {
        if text == "public" {
            Self::Public
        } else {
            Self::Private
        }
    }
}

/// How long a result can be cached, and by which caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHints {
    /// Lifetime in milliseconds; 0 means immediately stale.
    pub ttl_ms: u64,
    pub scope: CacheScope,
}

impl CacheHints {
    /// For results that must not be cached, such as those without hints from the server.
    pub const NONE: Self = Self {
        ttl_ms: 0,
        scope: CacheScope::Private,
    };

    /// The caching hints of a server's result; absent, negative and malformed hints count as
    /// [`CacheHints::NONE`] (C-CACHE-03).
    pub fn of(result: &RawJson) -> Self {
        if !contains_any(result.as_bytes(), &["\"ttlMs\"", "\"cacheScope\""]) {
            return Self::NONE;
        }
        let text = result.as_str();
        let ttl_ms = json::member(text, "ttlMs").and_then(|ttl| ttl.parse().ok());
        let scope = json::member(text, "cacheScope").and_then(json::text);
        Self {
            ttl_ms: ttl_ms.unwrap_or(0),
            scope: scope.map_or(CacheScope::Private, |text| CacheScope::parse(&text)),
        }
    }
}

/// The `resultType` to insert, empty if it is present; `None` if only parsing can tell whether it
/// belongs to the result or to a nested value.
fn missing_result_type(result: &str) -> Option<&'static str> {
    if has_complete_type_at_an_end(result) {
        return Some("");
    }
    let is_named = KIND.find(result.as_bytes()).is_some();
    (!is_named).then_some(COMPLETE)
}

/// Capacity reserved for the members inserted beside `_meta`, in bytes.
const FIRST_MAX: usize = 96;

/// Adds the members that every result for a sessionless client has.
#[derive(Clone, Debug)]
pub struct ResultDecorator {
    /// `None` for a server that does not state its identity.
    server_info: Option<RawJson>,
    /// `_meta` with only `server_info`, and a comma.
    meta: String,
}

impl ResultDecorator {
    /// `server_info` is the `Implementation` object of the responding server.
    pub fn new(server_info: Option<RawJson>) -> Self {
        let meta = server_info.as_ref().map(|info| {
            let info = info.as_str();
            format!(r#""_meta":{{"{SERVER_INFO}":{info}}},"#)
        });
        Self {
            server_info,
            meta: meta.unwrap_or_default(),
        }
    }

    /// The response that asks a sessionless client for input first.
    pub fn input_required(&self, id: &RequestId, asked: &InputRequired) -> Bytes {
        result_frame(id, &asked.build(self.server_info.as_ref()))
    }

    /// The result for a sessionless client: with its type, the server's identity, and caching hints
    /// if the method has them. The payload stays byte for byte. An existing `resultType` stays, and
    /// `_meta` keeps its other members. A value that is not an object, or that names one of these
    /// members twice, stays unchanged.
    pub fn complete(&self, result: &RawJson, caching: Option<CacheHints>) -> RawJson {
        let hints = hints(caching);
        match self.inserted(result, &hints) {
            Some(parts) => RawJson::from_valid_parts(parts.concat()),
            None => self.merged(result, caching),
        }
    }

    /// A whole response around [`ResultDecorator::complete`].
    pub fn answer(&self, id: &RequestId, result: &RawJson, caching: Option<CacheHints>) -> Bytes {
        let hints = hints(caching);
        match self.inserted(result, &hints) {
            Some(parts) => result_frame_from_parts(id, &parts),
            None => result_frame(id, &self.merged(result, caching)),
        }
    }

    /// The decorated result in parts, with one insertion after the opening brace that includes
    /// `hints`. `None` if the result may already contain one of our members other than a type.
    fn inserted<'a>(&'a self, result: &'a RawJson, hints: &'a str) -> Option<[&'a str; 5]> {
        let has = |word: &Finder<'_>| word.find(result.as_bytes()).is_some();
        if !self.meta.is_empty() && has(&META) || !hints.is_empty() && HINTS.iter().any(has) {
            return None;
        }
        let kind = missing_result_type(result.as_str())?;
        let text = result.as_str().trim_ascii();
        let rest = text.strip_prefix('{')?.trim_ascii_start();
        let mut parts = ["{", kind, &self.meta, hints, rest];
        if rest == "}"
            && let Some(last) = parts[1..4].iter_mut().rfind(|part| !part.is_empty())
        {
            *last = last.trim_end_matches(',');
        }
        Some(parts)
    }

    /// Slow path for a result that may already contain our members: they are replaced in place, and
    /// missing ones are inserted after the brace.
    fn merged(&self, result: &RawJson, caching: Option<CacheHints>) -> RawJson {
        let merged = self.try_merged(result, caching);
        merged.unwrap_or_else(|| result.clone())
    }

    fn try_merged(&self, result: &RawJson, caching: Option<CacheHints>) -> Option<RawJson> {
        let text = result.as_str();
        let known: ResultMembers<'_> = object::read(text)?;
        let mut first = String::with_capacity(FIRST_MAX + self.meta.len());
        let mut edits = Vec::with_capacity(2);
        if known.kind.is_none() {
            first.push_str(COMPLETE);
        }
        match (known.meta.map(RawValue::get), &self.server_info) {
            (Some(meta), Some(info)) => edits.push(edit_meta(text, meta, info.as_str())?),
            (Some(_), None) => {}
            (None, _) => first.push_str(&self.meta),
        }
        if let Some(CacheHints { ttl_ms, scope }) = caching {
            let scope = format!(r#""{}""#, scope.as_str());
            for (name, old, value) in [
                ("ttlMs", known.ttl_ms, ttl_ms.to_string()),
                ("cacheScope", known.cache_scope, scope),
            ] {
                match old {
                    Some(old) => edits.push((json::span(text, old.get()), Bytes::from(value))),
                    None => first.push_str(&format!(r#""{name}":{value},"#)),
                }
            }
        }
        let start = text.find('{')? + 1;
        // The object is not empty: it contains one of our words, and so has a member.
        edits.push((start..start, Bytes::from(first)));
        result.spliced(&mut edits)
    }
}

/// Caching members, with a trailing comma.
fn hints(caching: Option<CacheHints>) -> String {
    caching.map_or_else(String::new, |caching| {
        let (ttl, scope) = (caching.ttl_ms, caching.scope.as_str());
        format!(r#""ttlMs":{ttl},"cacheScope":"{scope}","#)
    })
}

/// Positions and values of the members that change.
#[derive(Deserialize)]
struct ResultMembers<'a> {
    #[serde(
        borrow,
        default,
        rename = "resultType",
        deserialize_with = "json::present"
    )]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta", deserialize_with = "json::present")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "ttlMs", deserialize_with = "json::present")]
    ttl_ms: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        rename = "cacheScope",
        deserialize_with = "json::present"
    )]
    cache_scope: Option<&'a RawValue>,
}

/// The edit of `text` that sets the server's identity in `meta`, a part of it.
fn edit_meta(text: &str, meta: &str, info: &str) -> Option<Edit> {
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(
            borrow,
            default,
            rename = "io.modelcontextprotocol/serverInfo",
            deserialize_with = "json::present"
        )]
        server_info: Option<&'a RawValue>,
    }
    let ours = format!(r#""{SERVER_INFO}":{info}"#);
    if !is_object(meta) {
        return Some((json::span(text, meta), Bytes::from(format!("{{{ours}}}"))));
    }
    let known: Meta<'_> = object::read(meta)?;
    if let Some(theirs) = known.server_info {
        return Some((json::span(text, theirs.get()), Bytes::from(info.to_owned())));
    }
    let rest = meta.strip_prefix('{')?;
    let comma = if rest.trim_ascii_start() == "}" {
        ""
    } else {
        ","
    };
    let start = json::span(text, rest).start;
    Some((start..start, Bytes::from(format!("{ours}{comma}"))))
}

/// Removes what only sessionless clients know; `None` if the result has none of it.
pub fn strip_for_legacy(result: &RawJson) -> Option<RawJson> {
    let words = ["\"resultType\"", "\"ttlMs\"", "\"cacheScope\"", SERVER_INFO];
    if !contains_any(result.as_bytes(), &words) {
        return None;
    }
    let members = Object::parse(result.as_str())?;
    let stripped = members.rebuild("", |key, value| match key {
        "resultType" | "ttlMs" | "cacheScope" => MemberChange::Drop,
        "_meta" => strip_meta(value),
        _ => MemberChange::Keep,
    });
    stripped.map(RawJson::from_valid_parts)
}

/// `_meta` of a result without the server's identity; dropped if nothing else remains.
pub(super) fn strip_meta(meta: &str) -> MemberChange {
    if !is_object(meta) || memmem::find(meta.as_bytes(), SERVER_INFO.as_bytes()).is_none() {
        return MemberChange::Keep;
    }
    let Some(members) = Object::parse(meta) else {
        return MemberChange::Keep;
    };
    if members.iter().all(|(key, _)| key == SERVER_INFO) {
        return MemberChange::Drop;
    }
    MemberChange::set_if_some(
        members.rebuild("", |key, _| MemberChange::keep_if(key != SERVER_INFO)),
    )
}

#[cfg(test)]
mod tests;
