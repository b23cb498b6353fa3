//! Native URIs in responses of a server: replaced if the server's URIs are wrapped, otherwise
//! collected, so that a client can read what a result names.

use memchr::memmem;

use crate::id::ServerName;
use crate::protocol::{
    Edit, KNOWN_EXTENSIONS, Method, RawJson, each_member, extension_method, splice,
};

use super::merged_server::MergedServer;
use super::snapshot::Snapshot;
use super::{json, uri};

/// The extension of user interfaces.
const INTERFACES: &str = "io.modelcontextprotocol/ui";

/// Maximum number of URIs remembered from one result.
pub const NAMED_URIS_MAX: usize = 256;

/// Maximum length of a remembered URI, in bytes.
const NAMED_URI_BYTES_MAX: usize = 4096;

impl Snapshot {
    /// Replaces the URIs in a result of `method` with public ones: `contents[].uri`, resource links
    /// and embedded resources of tool results and prompt messages, and the user interfaces in
    /// `_meta`. Text and structured content stay unchanged. `None` if nothing changes, which costs
    /// only a look-up if the server's URIs are not wrapped.
    pub fn rewrite_result(
        &self,
        server: &ServerName,
        method: &Method,
        result: &RawJson,
    ) -> Option<RawJson> {
        let Some(view) = self.wrapping(server, result) else {
            return self.rewrite_interfaces(server, result);
        };
        let mut rewrite = UriRewriter::new(view, result);
        each_uri(method, result.as_str(), &mut |written| {
            rewrite.uri(written);
        });
        rewrite.finish()
    }

    /// Wraps the user interfaces in the `_meta` of a result that its server does not list and that
    /// clients would read from another server. `None` if there are none.
    fn rewrite_interfaces(&self, server: &ServerName, result: &RawJson) -> Option<RawJson> {
        if !self.routes.are_contested() || !holds_uri(result) {
            return None;
        }
        let mut rewrite = UriRewriter::new(self.view(server)?, result);
        let known = KNOWN_EXTENSIONS
            .iter()
            .find(|known| known.name == INTERFACES)?;
        for path in known.uris {
            each_member(result.as_str(), path, &mut |written| {
                let Some(native) = json::text(written) else {
                    return;
                };
                let is_owned = |uri: &str, named| {
                    let owner = self.resource(uri, named);
                    owner.is_some_and(|it| it.server == *server && it.native == native)
                };
                let wrapped = uri::wrap(&rewrite.view.wrap_prefix, &native);
                if !is_owned(&native, Some(server)) && is_owned(&wrapped, None) {
                    rewrite.replace(written, &wrapped);
                }
            });
        }
        rewrite.finish()
    }

    /// Replaces `data.uri` in a response's error object with the public URI; `None` if nothing
    /// changes.
    pub fn rewrite_error(&self, server: &ServerName, error: &RawJson) -> Option<RawJson> {
        let view = self.wrapping(server, error)?;
        let mut rewrite = UriRewriter::new(view, error);
        let data = json::member(error.as_str(), "data");
        if let Some(written) = data.and_then(|data| json::member(data, "uri")) {
            rewrite.uri(written);
        }
        rewrite.finish()
    }

    /// The URIs in a result of `method` that look as if they could belong to another server. Costs
    /// a look-up if only one server has resources.
    pub fn named_uris(
        &self,
        server: &ServerName,
        method: &Method,
        result: &RawJson,
    ) -> Vec<String> {
        let mut named = Vec::new();
        if self.routes.are_contested() && !self.wraps(server) && holds_uri(result) {
            each_uri(method, result.as_str(), &mut |written| {
                let uri = json::text(written).filter(|uri| uri.len() <= NAMED_URI_BYTES_MAX);
                let room = named.len() < NAMED_URIS_MAX;
                named.extend(uri.filter(|_| room).map(|uri| uri.into_owned()));
            });
        }
        named
    }

    fn wrapping(&self, server: &ServerName, answer: &RawJson) -> Option<&MergedServer> {
        let view = self.view(server).filter(|view| view.wraps())?;
        holds_uri(answer).then_some(view)
    }
}

/// Whether a response may contain a URI anywhere.
fn holds_uri(answer: &RawJson) -> bool {
    let holds = |name: &[u8]| memmem::find(answer.as_bytes(), name).is_some();
    holds(b"ri\"") || holds(b"outputTemplate\"")
}

/// Calls `visit` with every raw URI of a result.
fn each_uri<'a>(method: &Method, text: &'a str, visit: &mut dyn FnMut(&'a str)) {
    for path in KNOWN_EXTENSIONS.iter().flat_map(|known| known.uris) {
        each_member(text, path, visit);
    }
    if let Method::Other(name) = method
        && let Some((_, known)) = extension_method(name)
    {
        for path in known.uris {
            each_member(text, path, visit);
        }
        return;
    }
    if matches!(method, Method::PromptsGet) {
        let messages = json::member(text, "messages").and_then(json::elements);
        for message in messages.unwrap_or_default() {
            each_of_blocks(json::member(message, "content"), visit);
        }
        return;
    }
    if !matches!(method, Method::ResourcesRead) {
        each_of_blocks(json::member(text, "content"), visit);
    }
    if !matches!(method, Method::ToolsCall) {
        let contents = json::member(text, "contents").and_then(json::elements);
        let uris = contents.into_iter().flatten();
        uris.filter_map(|item| json::member(item, "uri"))
            .for_each(visit);
    }
}

/// Like [`each_uri`], for the content of a message or tool result: one block or an array of blocks.
fn each_of_blocks<'a>(content: Option<&'a str>, visit: &mut dyn FnMut(&'a str)) {
    let Some(content) = content else { return };
    let blocks = json::elements(content).unwrap_or_else(|| vec![content]);
    for block in blocks {
        let kind = json::member(block, "type").and_then(json::text);
        let holder = match kind.as_deref() {
            Some("resource_link") => Some(block),
            Some("resource") => json::member(block, "resource"),
            _ => None,
        };
        if let Some(written) = holder.and_then(|holder| json::member(holder, "uri")) {
            visit(written);
        }
    }
}

struct UriRewriter<'a> {
    view: &'a MergedServer,
    whole: &'a RawJson,
    edits: Vec<Edit>,
}

impl<'a> UriRewriter<'a> {
    const fn new(view: &'a MergedServer, whole: &'a RawJson) -> Self {
        Self {
            view,
            whole,
            edits: Vec::new(),
        }
    }

    fn uri(&mut self, written: &'a str) {
        let Some(native) = json::text(written) else {
            return;
        };
        let public = self.view.public_uri(&native);
        if public != native {
            self.replace(written, &public);
        }
    }

    fn replace(&mut self, written: &str, public: &str) {
        let span = json::span(self.whole.as_str(), written);
        self.edits
            .push((span, json::quoted(public).as_bytes().clone()));
    }

    fn finish(mut self) -> Option<RawJson> {
        if self.edits.is_empty() {
            return None;
        }
        let text = splice(self.whole.as_bytes(), &mut self.edits);
        RawJson::try_new(text).ok()
    }
}
