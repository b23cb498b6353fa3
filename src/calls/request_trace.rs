//! The spans of a request of a client: its own, and one for each time that a server was asked.

use bytestring::ByteString;
use tokio::time::Instant;

use crate::bridge::meta::traceparent_of;
use crate::id::ServerName;
use crate::metrics::{ErrorType, MethodLabel, Network};
use crate::protocol::{Method, Request, RequestId, Revision};
use crate::traces::{ActiveSpan, TraceContext, Traces};

/// Bytes of the id of a request in a span.
const ID_MAX: usize = 128;

pub(crate) struct RequestTrace {
    span: ActiveSpan,
    /// Of the request that a server has.
    attempt: Option<ActiveSpan>,
    /// Attributes of both spans.
    item: Option<(&'static str, ByteString)>,
    server: Option<ServerName>,
}

/// Where a request goes out to.
pub(crate) struct Destination<'a> {
    pub(crate) transport: &'a str,
    pub(crate) revision: Revision,
}

impl RequestTrace {
    /// Begins the span of a request in the trace that the client names in `_meta`, or else in this
    /// header; `None` where it is not recorded.
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

    /// Notes its caller.
    pub(crate) fn of_caller(&mut self, session: Option<String>, view: Option<String>) {
        if let Some(session) = session {
            self.span.set("mcp.session.id", session);
        }
        if let Some(view) = view {
            self.span.set("mcpvisor.view", view);
        }
    }

    /// It goes to this server, about an item that there is.
    pub(crate) fn goes_to(&mut self, method: &Method, server: &ServerName, item: &ByteString) {
        let key = match method {
            Method::ToolsCall => "gen_ai.tool.name",
            Method::PromptsGet => "gen_ai.prompt.name",
            // Names of resources are too many for the name of a span.
            _ => "",
        };
        self.span.set("mcpvisor.server", server.as_str().to_owned());
        if *method == Method::ToolsCall {
            self.span.set("gen_ai.operation.name", "execute_tool");
        }
        if !key.is_empty() {
            let name = format!("{} {item}", self.span.name());
            self.span.set_name(name);
            self.span.set(key, item.to_string());
            self.item = Some((key, item.clone()));
        }
        self.server = Some(server.clone());
    }

    /// It is sent to its server, again or for the first time. Returns what the server is to read.
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
            attempt.set(key, item.to_string());
        }
        let context = attempt.context();
        self.attempt = Some(attempt);
        context
    }

    /// Its server, which had it from `sent` on, answered or was given up.
    pub(crate) fn end_attempt(&mut self, sent: Option<Instant>, error: Option<ErrorType>) {
        let Some(mut attempt) = self.attempt.take() else {
            return;
        };
        if let Some(sent) = sent {
            // Before, it waited for its turn.
            attempt.add_event("mcpvisor.sent", sent, []);
        }
        fail(&mut attempt, error);
        attempt.end();
    }

    /// It failed like this, and is sent again.
    pub(crate) fn retried(&mut self, error: &'static str) {
        let attributes = [("error.type", error.to_owned())];
        let now = Instant::now();
        self.span.add_event("mcpvisor.retry", now, attributes);
    }

    pub(crate) fn end(mut self: Box<Self>, error: Option<ErrorType>) {
        self.end_attempt(None, None);
        fail(&mut self.span, error);
        self.span.end();
    }
}

fn fail(span: &mut ActiveSpan, error: Option<ErrorType>) {
    let Some(error) = error else { return };
    span.fail(error.label());
    if let Some(code) = error.status_code() {
        span.set("rpc.response.status_code", code);
    }
}

/// An id as text: of a string without its quotes.
fn shown_id(id: &RequestId) -> String {
    let text = id.as_str().trim_matches('"');
    let end = text.floor_char_boundary(ID_MAX);
    text.get(..end).unwrap_or_default().to_owned()
}
