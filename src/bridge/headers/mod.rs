//! HTTP headers of the sessionless revision. They repeat parts of the body for routing, and must
//! match the body (S-HDR-04, S-HDR-05, S-HDR-06, C-HTTP-04).

mod claims;
mod client_headers;
mod param_headers;
mod value;

use std::borrow::Cow;

use bytestring::ByteString;

use crate::protocol::{Method, Request, json};

pub use claims::{Claims, UserClaim, UserClaims};
pub use client_headers::ClientHeaders;
pub use param_headers::{InvalidAnnotation, ParamHeader, ParamHeaders, strip_annotations};
pub use value::{decode, encode};

/// Header names in lower case; HTTP compares them case-insensitively (S-HDR-11).
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
pub const METHOD: &str = "mcp-method";
pub const NAME: &str = "mcp-name";
pub const PARAM_PREFIX: &str = "mcp-param-";

/// The headers of a request are missing, malformed or differ from its body: -32020, with HTTP
/// status 400. Names the header and the difference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("header mismatch: {0}")]
pub struct HeaderMismatch(pub(crate) String);

/// The required value of `Mcp-Name` for a request: the name or URI that it concerns, or the id of
/// its task (S-HDR-17). `None` if the header does not apply, or the body has no such member.
pub fn name_of(request: &Request) -> Option<Cow<'_, str>> {
    match request.method {
        Method::ToolsCall | Method::PromptsGet => request.name(),
        Method::ResourcesRead => request.uri(),
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
            let params = json::member(request.frame.as_str(), "params")?;
            json::member(params, "taskId").and_then(json::text)
        }
        _ => None,
    }
}

/// The headers of one message to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    pub standard: StandardHeaders,
    /// Arguments repeated in `Mcp-Param-*`: name and encoded value.
    pub params: Vec<(String, String)>,
    /// Other headers of the client, unchanged.
    pub passed: PassedHeaders,
}

/// A client's `Mcp-Param-*` headers that its tool does not declare: names and values, forwarded
/// unchanged (S-HDR-12).
pub type PassedHeaders = Vec<(String, String)>;

/// Maximum total size of [`PassedHeaders`], in bytes.
const PASSED_BYTES_MAX: usize = 8 * 1024;

/// The headers of every message (C-HTTP-04). Many messages share the same values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StandardHeaders {
    pub revision: Cow<'static, str>,
    pub method: Method,
    /// The encoded value of `Mcp-Name`; `None` if it does not apply.
    pub name: Option<ByteString>,
}

impl Headers {
    /// `name` is the item that the message concerns, if `Mcp-Name` applies to it.
    pub fn new(
        revision: impl Into<Cow<'static, str>>,
        method: &Method,
        name: Option<ByteString>,
    ) -> Self {
        let name = name.map(|name| match encode(&name) {
            Cow::Borrowed(_) => name,
            Cow::Owned(encoded) => encoded.into(),
        });
        let standard = StandardHeaders {
            revision: revision.into(),
            method: method.clone(),
            name,
        };
        Self {
            standard,
            params: Vec::new(),
            passed: PassedHeaders::new(),
        }
    }
}

impl StandardHeaders {
    /// Names and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let name = self.name.as_ref().map(|name| (NAME, &**name));
        let always = [
            (PROTOCOL_VERSION, &*self.revision),
            (METHOD, self.method.as_str()),
        ];
        always.into_iter().chain(name)
    }
}

/// Case-insensitive lookup of HTTP request headers.
pub trait HttpHeaders {
    /// The first value, and whether there are more.
    fn first(&self, name: &str) -> Option<(&[u8], bool)>;

    /// Names and values of `Mcp-Param-*`, in any case.
    fn params(&self) -> Vec<(&str, &[u8])>;
}

/// The headers of one HTTP request that concern the protocol.
#[derive(Clone, Copy)]
pub struct McpHeaders<'a>(&'a dyn HttpHeaders);

impl<'a> McpHeaders<'a> {
    pub fn of(headers: &'a dyn HttpHeaders) -> Self {
        Self(headers)
    }

    /// The value of a header, trimmed but still encoded.
    ///
    /// # Errors
    ///
    /// Returns [`HeaderMismatch`] if the header is duplicated or contains illegal characters.
    pub fn get(&self, name: &str) -> Result<Option<&'a str>, HeaderMismatch> {
        match self.0.first(name) {
            None => Ok(None),
            Some((_, true)) => Err(HeaderMismatch(format!("`{name}` occurs more than once"))),
            Some((value, false)) => {
                let visible = value::visible(value).map(Some);
                visible.ok_or_else(|| not_ascii(name))
            }
        }
    }

    /// Checks the standard headers against the body. `revision` comes from the body's `_meta`.
    ///
    /// # Errors
    ///
    /// Returns [`HeaderMismatch`] for the first header that is missing, malformed or different.
    pub fn check(&self, request: &Request, revision: &str) -> Result<(), HeaderMismatch> {
        self.same(PROTOCOL_VERSION, revision)?;
        self.same(METHOD, request.method.as_str())?;
        let Some(expected) = name_of(request).filter(|name| !self.is_exactly(NAME, name)) else {
            return Ok(());
        };
        let Some(written) = self.get(NAME)? else {
            return match request.method {
                // The header must match if present; only other methods require it (S-HDR-05).
                Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => Ok(()),
                _ => Err(missing(NAME, &expected)),
            };
        };
        match decode(written) {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(differs(NAME, &found, &expected)),
            None => Err(HeaderMismatch(format!("`{NAME}` is not valid Base64"))),
        }
    }

    /// The `Mcp-Param-*` headers that match no argument of the tool.
    ///
    /// # Errors
    ///
    /// Returns [`HeaderMismatch`] if one contains illegal characters, or their total size is too
    /// large.
    pub fn unknown_params(&self, tool: &ParamHeaders) -> Result<PassedHeaders, HeaderMismatch> {
        let mut unknown = PassedHeaders::new();
        let mut bytes = 0;
        for (name, value) in self.0.params() {
            if tool.names(name) {
                continue;
            }
            let value = value::visible(value).ok_or_else(|| not_ascii(name))?;
            bytes += name.len() + value.len();
            if bytes > PASSED_BYTES_MAX {
                return Err(HeaderMismatch(format!(
                    "`Mcp-Param-*` headers that the tool does not declare exceed the limit of {PASSED_BYTES_MAX} bytes"
                )));
            }
            unknown.push((name.to_owned(), value.to_owned()));
        }
        Ok(unknown)
    }

    /// Fast path: whether a header is literally the expected value, so that nothing needs decoding.
    fn is_exactly(&self, name: &str, expected: &str) -> bool {
        let said = |(value, again): (&[u8], bool)| !again && value == expected.as_bytes();
        self.0.first(name).is_some_and(said) && value::is_plain(expected)
    }

    fn same(&self, name: &str, expected: &str) -> Result<(), HeaderMismatch> {
        if self.is_exactly(name, expected) {
            return Ok(());
        }
        match self.get(name)? {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(differs(name, found, expected)),
            None => Err(missing(name, expected)),
        }
    }
}

fn not_ascii(name: &str) -> HeaderMismatch {
    let name = shorten(name);
    HeaderMismatch(format!("`{name}` has a character that is not ASCII"))
}

fn missing(name: &str, expected: &str) -> HeaderMismatch {
    let expected = shorten(expected);
    HeaderMismatch(format!(
        "`{name}` is missing, but the body has `{expected}`"
    ))
}

fn differs(name: &str, found: &str, expected: &str) -> HeaderMismatch {
    let (found, expected) = (shorten(found), shorten(expected));
    HeaderMismatch(format!(
        "`{name}` is `{found}`, but the body has `{expected}`"
    ))
}

fn shorten(text: &str) -> String {
    text.chars()
        .take(64)
        .flat_map(char::escape_default)
        .collect()
}

#[cfg(test)]
mod tests;
