//! The spans of a client's request: one for the request, and one for each attempt to send it to a
//! server.

use bytestring::ByteString;
use tokio::time::Instant;

use crate::bridge::headers::ClientHeaders;
use crate::bridge::meta::{TRACEPARENT, traceparent_of};
use crate::id::ServerName;
use crate::metrics::{ErrorType, MethodLabel, Network};
use crate::protocol::{Method, Request, RequestId, Revision};
use crate::telemetry::SpanNumbers;
use crate::traces::{ActiveSpan, TraceContext, Traces};

/// Maximum length of a request id in a span, in bytes.
const ID_MAX: usize = 128;

/// Maximum length of a resource URI in a span, in bytes.
const URI_MAX: usize = 512;

const URI: &str = "mcp.resource.uri";

/// The open spans of a request that is traced.
pub(crate) struct RequestTrace {
    span: ActiveSpan,
    /// The span of the attempt that is in flight.
    attempt: Option<ActiveSpan>,
    /// Attribute with the requested item, set on both spans.
    item: Option<(&'static str, ByteString)>,
    server: Option<ServerName>,
}

/// The connection over which a request is sent.
pub(crate) struct Destination<'a> {
    pub(crate) transport: &'a str,
    pub(crate) revision: Revision,
}

impl RequestTrace {
    /// Starts the span of a request in the trace named by `_meta`, or else by the `traceparent`
    /// header; `None` if the request is not recorded.
    pub(crate) fn begin(
        traces: &Traces,
        request: &Request,
        revision: Revision,
        header: Option<&str>,
    ) -> Option<Box<Self>> {
        if !traces.is_on() {
            return None;
        }
        let named = traceparent_of(request);
        let parent = named.as_deref().and_then(TraceContext::parse);
        let parent = parent.or_else(|| TraceContext::parse(header?));
        let mut span = traces.begin(parent)?;
        let method = MethodLabel::of(&request.method).as_str();
        span.set_name(method);
        span.set("mcp.method.name", method);
        span.set("mcp.protocol.version", revision.as_str());
        span.set("jsonrpc.request.id", shown_id(&request.id));
        Some(Box::new(Self {
            span,
            attempt: None,
            item: None,
            server: None,
        }))
    }

    pub(crate) fn numbers(&self) -> SpanNumbers {
        self.span.numbers()
    }

    /// Adds the caller's session and view to the span.
    pub(crate) fn of_caller(&mut self, session: Option<String>, view: Option<String>) {
        if let Some(session) = session {
            self.span.set("mcp.session.id", session);
        }
        if let Some(view) = view {
            self.span.set("mcpvisor.view", view);
        }
    }

    /// Adds the request's server and item, which is known to exist, to the span.
    pub(crate) fn goes_to(&mut self, method: &Method, server: &ServerName, item: &ByteString) {
        let key = match method {
            Method::ToolsCall => "gen_ai.tool.name",
            Method::PromptsGet => "gen_ai.prompt.name",
            // URIs are too varied for a span's name and only become an attribute.
            Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                URI
            }
            _ => "",
        };
        self.span.set("mcpvisor.server", server.as_str().to_owned());
        if *method == Method::ToolsCall {
            self.span.set("gen_ai.operation.name", "execute_tool");
        }
        if !key.is_empty() {
            if key != URI {
                let name = format!("{} {item}", self.span.name());
                self.span.set_name(name);
            }
            self.span.set(key, shown_item(item));
            self.item = Some((key, item.clone()));
        }
        self.server = Some(server.clone());
    }

    /// Starts the span of an attempt to send the request. Returns the context for the server.
    pub(crate) fn attempt(
        &mut self,
        destination: &Destination<'_>,
        method: &Method,
    ) -> TraceContext {
        self.end_attempt(None, None);
        let mut attempt = self.span.child(self.span.name().clone());
        attempt.set("mcp.method.name", MethodLabel::of(method).as_str());
        attempt.set("mcp.protocol.version", destination.revision.as_str());
        if let Some(network) = Network::of(destination.transport) {
            attempt.set("network.transport", network.as_str());
        }
        if let Some(server) = &self.server {
            attempt.set("mcpvisor.server", server.as_str().to_owned());
        }
        if let Some((key, item)) = &self.item {
            attempt.set(key, shown_item(item));
        }
        let context = attempt.context();
        self.attempt = Some(attempt);
        context
    }

    /// Ends the span of the current attempt. `sent` is when the request was written, if it was.
    pub(crate) fn end_attempt(&mut self, sent: Option<Instant>, error: Option<ErrorType>) {
        let Some(mut attempt) = self.attempt.take() else {
            return;
        };
        if let Some(sent) = sent {
            // The event separates the time in the queue from the time at the server.
            attempt.add_event("mcpvisor.sent", sent, []);
        }
        fail(&mut attempt, error);
        attempt.end();
    }

    /// Records that the request failed with this error and will be sent again.
    pub(crate) fn retried(&mut self, error: &'static str) {
        let attributes = [("error.type", error.to_owned())];
        let now = Instant::now();
        self.span.add_event("mcpvisor.retry", now, attributes);
    }

    /// Ends the spans of the request.
    pub(crate) fn end(mut self: Box<Self>, error: Option<ErrorType>) {
        // An abandoned attempt ends with the same error as the request.
        self.end_attempt(None, error);
        fail(&mut self.span, error);
        self.span.end();
    }
}

/// Returns the trace context to forward with an unrecorded request: the context in the client's
/// header; `None` if `_meta`, which is forwarded unchanged, names one.
pub(crate) fn unrecorded(request: &Request, said: &ClientHeaders) -> Option<String> {
    let header = TraceContext::parse(said.get(TRACEPARENT)?)?;
    let is_in_meta = traceparent_of(request).is_some();
    (!is_in_meta).then(|| header.to_string())
}

fn fail(span: &mut ActiveSpan, error: Option<ErrorType>) {
    let Some(error) = error else { return };
    span.fail(error.label());
    if let Some(code) = error.status_code() {
        span.set("rpc.response.status_code", code);
    }
}

/// Returns an id as text; strings lose their quotes.
fn shown_id(id: &RequestId) -> String {
    cut(id.as_str().trim_matches('"'), ID_MAX)
}

/// Truncates an item's name or URI; only URIs, which clients choose freely, can be long.
fn shown_item(item: &str) -> String {
    cut(item, URI_MAX)
}

fn cut(text: &str, max: usize) -> String {
    let end = text.floor_char_boundary(max);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::bridge::headers::HttpHeaders;
    use crate::protocol::Envelope;

    struct Sent(&'static str);

    impl HttpHeaders for Sent {
        fn first(&self, name: &str) -> Option<(&[u8], bool)> {
            (name == TRACEPARENT).then_some((self.0.as_bytes(), false))
        }

        fn params(&self) -> Vec<(&str, &[u8])> {
            Vec::new()
        }
    }

    #[test]
    fn a_request_that_is_not_recorded_keeps_the_context_of_its_client() {
        const CONTEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let table = [
            ("{}", CONTEXT, Some(CONTEXT)),
            ("{}", "00-a, b=c", None),
            (r#"{"traceparent":"00-own"}"#, CONTEXT, None),
        ];
        for (meta, header, expected) in table {
            let frame = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"_meta":{meta}}}}}"#
            );
            let Ok(Envelope::Request(request)) = Envelope::parse(Bytes::from(frame)) else {
                panic!("no request");
            };
            let names = [TRACEPARENT.to_owned()];
            let said = ClientHeaders::read(&names, &Sent(header), None);
            let said = said.unwrap().unwrap();
            assert_eq!(unrecorded(&request, &said).as_deref(), expected, "{meta}");
            assert_eq!(said.traceparent(), None, "it is only what a client says");
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("a\u{e9}", 2), "a");
        assert_eq!(shown_item(&"x".repeat(2 * URI_MAX)).len(), URI_MAX);
    }
}
