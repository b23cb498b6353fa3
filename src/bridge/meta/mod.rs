//! `_meta` of requests: reads a sessionless client's declaration, and writes what servers of either
//! era expect instead (S-LIFE-14, C-LIFE-06).

mod request_meta;

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memchr;
use memchr::memmem::{self, Finder};
use serde_json::{Map, Value};

use crate::protocol::{Edit, Era, LogLevel, RawJson, Request, RequestId, Revision, Span, json};

use super::object::{self, MemberChange, Object};

pub use request_meta::{InvalidMeta, RequestMeta, claims_modern};

/// Prefix of the protocol's own keys in `_meta`.
pub const RESERVED: &str = "io.modelcontextprotocol/";

pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(super) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub(super) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(super) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
pub(super) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
pub(super) const PROGRESS_TOKEN: &str = "progressToken";

/// Trace context of a request (W3C Trace Context): in `_meta` on every transport, and as an HTTP
/// header.
pub const TRACEPARENT: &str = "traceparent";

/// The declaration in `_meta` of each request to a sessionless server: the revision, and the
/// capabilities of the client behind the request. Built once and inserted unchanged, next to the
/// client's identity.
#[derive(Clone, Debug)]
pub struct MetaDeclaration {
    members: String,
    /// The last `_meta` that contained only a declaration, cached because a client's requests
    /// mostly repeat it.
    last_bare_meta: RefCell<String>,
}

/// Maximum length of a cached `_meta`, in bytes.
const BARE_META_BYTES_MAX: usize = 2048;

impl MetaDeclaration {
    pub fn new(revision: Revision, capabilities: &Map<String, Value>) -> Self {
        let capabilities = RawJson::from_value(capabilities);
        let capabilities = capabilities.as_str();
        Self {
            members: format!(
                r#""{VERSION}":"{revision}","{CAPABILITIES}":{capabilities},"{CLIENT_INFO}":"#
            ),
            last_bare_meta: RefCell::default(),
        }
    }

    /// The edit that adds this declaration, a log level, the gateway's progress token and the trace
    /// context to a request. Everything else in its `_meta` stays, except the client's own
    /// declaration. `client` is the `Implementation` object of the client, as JSON.
    pub fn edit(
        &self,
        request: &Request,
        client: &str,
        level: Option<LogLevel>,
        token: Option<&RequestId>,
        traceparent: Option<&str>,
    ) -> Edit {
        let level = level.map(|level| RawJson::from_value(&level));
        let level = level.map(|level| format!(r#","{LOG_LEVEL}":{}"#, level.as_str()));
        let level = level.unwrap_or_default();
        let (key, token) = token.map_or(("", ""), |token| (r#","progressToken":"#, token.as_str()));
        let trace = traceparent.map(|context| format!(",{}", trace_member(context)));
        let trace = trace.unwrap_or_default();
        let ours = ["{", &self.members, client, &level, key, token, &trace, "}"].concat();
        let dropped = |key: &str| {
            let replaced = [VERSION, CLIENT_INFO, CAPABILITIES, LOG_LEVEL];
            let of_others = [PROGRESS_TOKEN, RELATED_TASK, SUBSCRIPTION];
            replaced.contains(&key) || of_others.contains(&key)
        };
        if traceparent.is_some() {
            let dropped = |key: &str| key == TRACEPARENT || dropped(key);
            return edit_meta(request, ours, |meta| json::has_only(meta, dropped), dropped);
        }
        edit_meta(request, ours, |meta| self.is_bare(meta, dropped), dropped)
    }

    fn is_bare(&self, meta: &str, dropped: impl Fn(&str) -> bool) -> bool {
        let mut last_bare_meta = self.last_bare_meta.borrow_mut();
        if *last_bare_meta == meta {
            return true;
        }
        let is_bare = json::has_only(meta, dropped);
        if is_bare && meta.len() <= BARE_META_BYTES_MAX {
            meta.clone_into(&mut last_bare_meta);
        }
        is_bare
    }

    /// The `_meta` for a request that has none.
    pub fn meta(&self, client: &str) -> String {
        format!("{{{}{client}}}", self.members)
    }
}

/// A `params` or `result` with a member of `_meta` added or replaced; `value` is JSON. Returns a
/// value that is not an object unchanged.
pub fn with_meta(holder: &RawJson, name: &str, value: &str) -> RawJson {
    let ours = format!("{}:{value}", json::quoted(name).as_str());
    let built = Object::parse(holder.as_str()).and_then(|members| {
        let meta = members.get("_meta").and_then(Object::parse);
        let meta =
            meta.and_then(|meta| meta.rebuild(&ours, |key, _| MemberChange::keep_if(key != name)));
        let meta = meta.unwrap_or_else(|| format!("{{{ours}}}"));
        let first = format!(r#""_meta":{meta}"#);
        members.rebuild(&first, |key, _| MemberChange::keep_if(key != "_meta"))
    });
    built
        .and_then(object::raw)
        .unwrap_or_else(|| holder.clone())
}

/// The edit that removes from `_meta` what a server with a handshake does not know, and sets
/// `token` as the progress token. `None` if there is nothing to remove: then
/// [`Request::edit_progress_token`] is enough.
pub fn strip_for_legacy(request: &Request, token: Option<&RequestId>) -> Option<Edit> {
    let (_, meta) = meta_of(request)?;
    memmem::find(meta.as_bytes(), RESERVED.as_bytes())?;
    let ours = token.map(|token| format!(r#"{{"{PROGRESS_TOKEN}":{}}}"#, token.as_str()));
    let dropped = |key: &str| key == PROGRESS_TOKEN || key.starts_with(RESERVED);
    let is_bare = |meta: &str| json::has_only(meta, dropped);
    Some(edit_meta(
        request,
        ours.unwrap_or_else(|| "{}".to_owned()),
        is_bare,
        dropped,
    ))
}

/// The edit that adds the trace context to a request for a server with a handshake, combined with
/// [`strip_for_legacy`] for clients of the newer era.
pub fn trace_for_legacy(
    request: &Request,
    client: Era,
    token: &RequestId,
    traceparent: &str,
) -> Edit {
    let trace = trace_member(traceparent);
    let ours = format!(r#"{{"{PROGRESS_TOKEN}":{},{trace}}}"#, token.as_str());
    let dropped = |key: &str| {
        let is_reserved = client == Era::Modern && key.starts_with(RESERVED);
        key == PROGRESS_TOKEN || key == TRACEPARENT || is_reserved
    };
    let is_bare = |meta: &str| json::has_only(meta, dropped);
    edit_meta(request, ours, is_bare, dropped)
}

fn trace_member(traceparent: &str) -> String {
    format!(r#""{TRACEPARENT}":{}"#, json::quoted(traceparent).as_str())
}

/// The trace context in a request's `_meta`. Most requests have none, and are not parsed again; a
/// name can be hidden by escapes.
pub fn traceparent_of(request: &Request) -> Option<Cow<'_, str>> {
    static NAME: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(TRACEPARENT));
    let (_, meta) = meta_of(request)?;
    let bytes = meta.as_bytes();
    NAME.find(bytes).or_else(|| memchr(b'\\', bytes))?;
    json::text(json::member(meta, TRACEPARENT)?)
}

/// Position and text of `_meta`, if it is an object.
fn meta_of(request: &Request) -> Option<(Span, &str)> {
    let span = request.params.meta.clone()?;
    let meta = request.frame.as_str().get(span.clone())?;
    Some((span, meta))
}

/// Inserts the members of `ours` into `_meta` before the members that are kept, creating `_meta`
/// and `params` if they are missing. `is_bare` returns whether nothing of the old `_meta` is kept,
/// so that it need not be parsed.
fn edit_meta(
    request: &Request,
    ours: String,
    is_bare: impl Fn(&str) -> bool,
    dropped: impl Fn(&str) -> bool,
) -> Edit {
    let frame = request.frame.as_str();
    let edit = |span, text: String| (span, Bytes::from(text));
    if let Some((span, meta)) = meta_of(request) {
        let members = if is_bare(meta) {
            None
        } else {
            Object::parse(meta)
        };
        let keep = |key: &str, _: &str| MemberChange::keep_if(!dropped(key));
        let first = ours
            .strip_prefix('{')
            .and_then(|ours| ours.strip_suffix('}'));
        let rebuilt = members.and_then(|members| members.rebuild(first?, keep));
        return edit(span, rebuilt.unwrap_or(ours));
    }
    let params = json::member(frame, "params").filter(|text| *text != "null");
    let Some(params) = params else {
        return match json::member(frame, "params") {
            Some(null) => edit(json::span(frame, null), format!(r#"{{"_meta":{ours}}}"#)),
            None => {
                let at = frame.find('{').map_or(0, |brace| brace + 1);
                edit(at..at, format!(r#""params":{{"_meta":{ours}}},"#))
            }
        };
    };
    // A `_meta` that is not an object must be replaced.
    if let Some(meta) = json::member(params, "_meta") {
        return edit(json::span(frame, meta), ours);
    }
    let is_empty = json::members(params).is_none_or(|members| members.is_empty());
    let comma = if is_empty { "" } else { "," };
    let at = json::span(frame, params).start + 1;
    edit(at..at, format!(r#""_meta":{ours}{comma}"#))
}

#[cfg(test)]
mod tests;
