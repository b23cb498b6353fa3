//! Spans: timed operations within a trace.

use std::borrow::Cow;

use opentelemetry::{KeyValue, Value};
use tokio::time::Instant;

use super::Traces;
use super::context::TraceContext;
use crate::telemetry::SpanNumbers;

/// Maximum number of events kept per span; further ones are counted.
const EVENTS_MAX: usize = 128;

/// The side of a request that the span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// An incoming request.
    Server,
    /// An outgoing request.
    Client,
}

/// A span in progress. It is exported when it ends, and discarded if it is dropped before.
pub struct ActiveSpan {
    traces: Traces,
    span: Span,
}

/// A finished span, ready for export.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) context: TraceContext,
    pub(super) parent: Option<u64>,
    /// Whether the parent span belongs to the client.
    pub(super) parent_is_remote: bool,
    pub(super) kind: SpanKind,
    pub(super) name: Cow<'static, str>,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    pub(super) attributes: Vec<KeyValue>,
    pub(super) events: Vec<SpanEvent>,
    pub(super) events_lost: u32,
    pub(super) is_failed: bool,
}

/// An event during a span.
#[derive(Debug)]
pub(super) struct SpanEvent {
    pub(super) name: &'static str,
    pub(super) at: Instant,
    pub(super) attributes: Vec<KeyValue>,
}

impl ActiveSpan {
    pub(super) fn new(traces: Traces, context: TraceContext, parent: Option<u64>) -> Self {
        let now = Instant::now();
        let span = Span {
            context,
            parent,
            parent_is_remote: parent.is_some(),
            kind: SpanKind::Server,
            name: Cow::Borrowed(""),
            began: now,
            ended: now,
            attributes: Vec::new(),
            events: Vec::new(),
            events_lost: 0,
            is_failed: false,
        };
        Self { traces, span }
    }

    /// The span of an outgoing request on behalf of this one.
    pub fn child(&self, name: impl Into<Cow<'static, str>>) -> Self {
        let context = TraceContext {
            span: self.traces.next_span(),
            ..self.span.context
        };
        let parent = Some(self.span.context.span);
        let mut child = Self::new(self.traces.clone(), context, parent);
        child.span.parent_is_remote = false;
        child.span.kind = SpanKind::Client;
        child.span.name = name.into();
        child
    }

    pub fn context(&self) -> TraceContext {
        self.span.context
    }

    /// The ids, for the log.
    pub fn numbers(&self) -> SpanNumbers {
        SpanNumbers {
            trace: self.span.context.trace,
            span: self.span.context.span,
        }
    }

    /// Sets the name, which must come from a small set: details of a request belong in attributes.
    pub fn set_name(&mut self, name: impl Into<Cow<'static, str>>) {
        self.span.name = name.into();
    }

    pub fn name(&self) -> &Cow<'static, str> {
        &self.span.name
    }

    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.span.attributes.push(KeyValue::new(key, value));
    }

    /// Adds an event at this time.
    pub fn add_event(
        &mut self,
        name: &'static str,
        at: Instant,
        attributes: impl IntoIterator<Item = (&'static str, String)>,
    ) {
        if self.span.events.len() >= EVENTS_MAX {
            self.span.events_lost += 1;
            return;
        }
        let attributes = attributes.into_iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key, value));
        self.span.events.push(SpanEvent {
            name,
            at,
            attributes: attributes.collect(),
        });
    }

    /// Marks the span as failed with this kind of error.
    pub fn fail(&mut self, error_type: String) {
        self.span.is_failed = true;
        self.set("error.type", error_type);
    }

    pub fn end(mut self) {
        self.span.ended = Instant::now();
        self.traces.export(self.span);
    }
}
