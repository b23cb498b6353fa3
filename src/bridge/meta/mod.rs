//! `_meta` of requests: what a sessionless client claims in it, and what servers of either era
//! are given in its place (S-LIFE-14, C-LIFE-06).

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

/// The prefix of the protocol's own keys in `_meta`.
pub const RESERVED: &str = "io.modelcontextprotocol/";

pub(super) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(super) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub(super) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(super) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
pub(super) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
pub(super) const PROGRESS_TOKEN: &str = "progressToken";

/// Where a request stands among the spans of its trace (W3C Trace Context), in `_meta` whatever the
/// transport is, and as a header of HTTP.
pub const TRACEPARENT: &str = "traceparent";

/// The `_meta` of each request to a sessionless server: revision, and what the client behind the
/// request can be asked for. Made once, spliced in as it is, beside who the client is.
#[derive(Clone, Debug)]
pub struct MetaDeclaration {
    members: String,
    /// The `_meta` that was seen last to hold nothing but a declaration: a client's requests
    /// mostly say the same.
    last_bare_meta: RefCell<String>,
}

/// A `_meta` that is longer, in bytes, is not kept to be recognised.
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

    /// The edit that gives the request this declaration, a log level, our progress token and the
    /// context of its trace. Everything else in its `_meta` stays, but not a client's own
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

    /// The `_meta` of a request without any other.
    pub fn meta(&self, client: &str) -> String {
        format!("{{{}{client}}}", self.members)
    }
}

/// A `params` or `result` with a member of `_meta`, in place of one that it has; `value` is JSON.
/// A value that is no object stays as it is.
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

/// The edit that takes out of `_meta` what a server with a handshake does not know, and makes
/// `token` the progress token. `None` when there is nothing of it in the request: then
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

/// The edit that puts the context of its trace into a request for a server with a handshake, beside
/// what [`strip_for_legacy`] does where the client is of the newer era.
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

/// The context of its trace that a request names in `_meta`. Most name none, and are not parsed
/// again; with an escape, any name may be there.
pub fn traceparent_of(request: &Request) -> Option<Cow<'_, str>> {
    static NAME: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(TRACEPARENT));
    let (_, meta) = meta_of(request)?;
    let bytes = meta.as_bytes();
    NAME.find(bytes).or_else(|| memchr(b'\\', bytes))?;
    json::text(json::member(meta, TRACEPARENT)?)
}

/// Where `_meta` is, if it is an object, and its text.
fn meta_of(request: &Request) -> Option<(Span, &str)> {
    let span = request.params.meta.clone()?;
    let meta = request.frame.as_str().get(span.clone())?;
    Some((span, meta))
}

/// Puts the members of `ours` into `_meta` before what is kept of it; makes `_meta` and `params`
/// where they are missing. `is_bare` says of a `_meta` whether nothing of it is kept: then there is
/// nothing to take apart.
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
    // A `_meta` that is no object stands in the way of ours.
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
