//! The `_meta` of a sessionless client's request.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::protocol::{CAPABILITIES_BYTES_MAX, LogLevel, RawJson, Request, json};

use super::{CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN, VERSION};
use crate::bridge::object::is_object;

/// Why a request's `_meta` is rejected: -32602, with HTTP status 400 (S-LIFE-14, S-LOG-05).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMeta {
    #[error("`_meta` of the request has no `{0}`")]
    Missing(&'static str),
    #[error("`{member}` in `_meta` of the request must be {must}")]
    Invalid {
        member: &'static str,
        must: &'static str,
    },
}

/// The declaration that a sessionless client sends in each request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestMeta {
    /// Verbatim; it can name an unknown revision.
    pub revision: String,
    /// `Implementation`, only for display (S-LIFE-15, S-LIFE-18).
    pub client: Option<RawJson>,
    pub capabilities: Map<String, Value>,
    /// Requested log level; `None` disables log messages for this request (S-LOG-03).
    pub level: Option<LogLevel>,
    /// Verbatim: a string or an integer.
    pub progress_token: Option<RawJson>,
}

#[derive(Deserialize)]
struct ReservedMembers<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo")]
    client: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
    level: Option<&'a RawValue>,
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

/// Whether a request claims a sessionless revision, whatever version its `_meta` names; then
/// `initialize` is an unknown method like any other (S-LIFE-21).
pub fn claims_modern(request: &Request) -> bool {
    request.params.claims_revision
}

impl RequestMeta {
    /// Reads the declaration of a request.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidMeta`] with the member that is missing or invalid.
    pub fn read(request: &Request) -> Result<Self, InvalidMeta> {
        let span = request.params.meta.clone();
        let meta = span.and_then(|span| request.frame.as_str().get(span));
        let meta = meta.ok_or(InvalidMeta::Missing(VERSION))?;
        let members: ReservedMembers<'_> = serde_json::from_str(meta).map_err(|_| {
            let (member, must) = ("_meta", "an object without duplicate members");
            InvalidMeta::Invalid { member, must }
        })?;
        let version = members.version.ok_or(InvalidMeta::Missing(VERSION))?;
        let revision = json::text(version.get()).ok_or(InvalidMeta::Invalid {
            member: VERSION,
            must: "a string",
        })?;
        let capabilities = members.capabilities;
        let capabilities = capabilities.ok_or(InvalidMeta::Missing(CAPABILITIES))?;
        Ok(Self {
            revision: revision.into_owned(),
            client: members.client.map(|raw| client(raw.get())).transpose()?,
            capabilities: read_capabilities(capabilities.get())?,
            level: members.level.map(|raw| level(raw.get())).transpose()?,
            progress_token: members.progress_token.map(token).transpose()?,
        })
    }
}

fn client(text: &str) -> Result<RawJson, InvalidMeta> {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only their presence is checked")]
    struct Implementation<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow)]
        version: Cow<'a, str>,
    }
    let known = is_object(text) && serde_json::from_str::<Implementation<'_>>(text).is_ok();
    let raw = known.then(|| RawJson::try_new(bytes::Bytes::copy_from_slice(text.as_bytes())));
    raw.and_then(Result::ok).ok_or(InvalidMeta::Invalid {
        member: CLIENT_INFO,
        must: "an object with the strings `name` and `version`",
    })
}

fn read_capabilities(text: &str) -> Result<Map<String, Value>, InvalidMeta> {
    if text.len() > CAPABILITIES_BYTES_MAX {
        return Err(InvalidMeta::Invalid {
            member: CAPABILITIES,
            must: "at most 8 KiB long",
        });
    }
    let known = [
        "sampling",
        "elicitation",
        "roots",
        "experimental",
        "extensions",
    ];
    let declared: Option<Map<String, Value>> = serde_json::from_str(text).ok();
    let declared = declared.filter(|declared| {
        known
            .iter()
            .all(|name| declared.get(*name).is_none_or(Value::is_object))
    });
    declared.ok_or(InvalidMeta::Invalid {
        member: CAPABILITIES,
        must: "an object whose known capabilities are objects",
    })
}

fn level(text: &str) -> Result<LogLevel, InvalidMeta> {
    serde_json::from_str(text).map_err(|_| InvalidMeta::Invalid {
        member: LOG_LEVEL,
        must: "one of debug, info, notice, warning, error, critical, alert and emergency",
    })
}

fn token(raw: &RawValue) -> Result<RawJson, InvalidMeta> {
    let text = raw.get();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let valid = integer || text.starts_with('"');
    let token = valid.then(|| RawJson::try_new(bytes::Bytes::copy_from_slice(text.as_bytes())));
    token.and_then(Result::ok).ok_or(InvalidMeta::Invalid {
        member: PROGRESS_TOKEN,
        must: "a string or an integer",
    })
}
