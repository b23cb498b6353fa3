//! Native URIs in answers of a server whose URIs are wrapped.

use crate::id::ServerName;
use crate::protocol::{Edit, Method, RawJson, splice};

use super::json;
use super::snapshot::{MergedServer, Snapshot};

impl Snapshot {
    /// The result of `method` with public URIs in all places that hold one: `contents[].uri`,
    /// resource links and embedded resources of tool results and prompt messages. Text and
    /// structured content stay as they are. `None` when nothing changes, which costs only a
    /// look-up when the server's URIs are not wrapped.
    pub fn rewrite_result(
        &self,
        server: &ServerName,
        method: &Method,
        result: &RawJson,
    ) -> Option<RawJson> {
        let view = self.wrapping(server, result)?;
        let mut rewrite = UriRewriter::new(view, result);
        let text = result.as_str();
        match method {
            Method::ToolsCall => rewrite.blocks(json::member(text, "content")),
            Method::ResourcesRead => rewrite.contents(json::member(text, "contents")),
            Method::PromptsGet => {
                let messages = json::member(text, "messages").and_then(json::elements);
                for message in messages.unwrap_or_default() {
                    rewrite.blocks(json::member(message, "content"));
                }
            }
            _ => {
                rewrite.blocks(json::member(text, "content"));
                rewrite.contents(json::member(text, "contents"));
            }
        }
        rewrite.finish()
    }

    /// The error object of an answer with a public `data.uri`; `None` when nothing changes.
    pub fn rewrite_error(&self, server: &ServerName, error: &RawJson) -> Option<RawJson> {
        let view = self.wrapping(server, error)?;
        let mut rewrite = UriRewriter::new(view, error);
        rewrite.uri_of(json::member(error.as_str(), "data"));
        rewrite.finish()
    }

    fn wrapping(&self, server: &ServerName, answer: &RawJson) -> Option<&MergedServer> {
        let view = self.view(server).filter(|view| view.wraps())?;
        answer.as_str().contains("\"uri\"").then_some(view)
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

    /// Content of a message or tool result: one block or an array of them.
    fn blocks(&mut self, content: Option<&'a str>) {
        let Some(content) = content else { return };
        match json::elements(content) {
            Some(blocks) => blocks.into_iter().for_each(|block| self.block(block)),
            None => self.block(content),
        }
    }

    fn block(&mut self, block: &'a str) {
        let kind = json::member(block, "type").and_then(json::text);
        match kind.as_deref() {
            Some("resource_link") => self.uri_of(Some(block)),
            Some("resource") => self.uri_of(json::member(block, "resource")),
            _ => {}
        }
    }

    fn contents(&mut self, contents: Option<&'a str>) {
        for item in contents.and_then(json::elements).unwrap_or_default() {
            self.uri_of(Some(item));
        }
    }

    fn uri_of(&mut self, object: Option<&'a str>) {
        let Some(written) = object.and_then(|object| json::member(object, "uri")) else {
            return;
        };
        let Some(native) = json::text(written) else {
            return;
        };
        let public = self.view.public_uri(&native);
        if public != native {
            let span = json::span(self.whole.as_str(), written);
            self.edits
                .push((span, json::quoted(&public).as_bytes().clone()));
        }
    }

    fn finish(mut self) -> Option<RawJson> {
        if self.edits.is_empty() {
            return None;
        }
        let text = splice(self.whole.as_bytes(), &mut self.edits);
        RawJson::try_new(text).ok()
    }
}
