//! Spans: what happened from when to when, and where that stands among others.

use std::borrow::Cow;

use opentelemetry::{KeyValue, Value};
use tokio::time::Instant;

use super::Traces;
use super::context::TraceContext;
use crate::telemetry::SpanNumbers;

/// Events that one span keeps; further ones are counted.
const EVENTS_MAX: usize = 128;

/// On which side of a request it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Of a request that came in.
    Server,
    /// Of a request that went out.
    Client,
}

/// A span under way. It is exported when it ends; dropped without an end, it never was.
pub struct ActiveSpan {
    traces: Traces,
    span: Span,
}

/// A span as it is exported.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) context: TraceContext,
    pub(super) parent: Option<u64>,
    /// The parent is the client's.
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

/// Something that happened during a span.
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

    /// A span of a request that goes out on behalf of this one.
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

    /// For the log.
    pub fn numbers(&self) -> SpanNumbers {
        SpanNumbers {
            trace: self.span.context.trace,
            span: self.span.context.span,
        }
    }

    /// Few different ones: what differs for each request is an attribute.
    pub fn set_name(&mut self, name: impl Into<Cow<'static, str>>) {
        self.span.name = name.into();
    }

    pub fn name(&self) -> &Cow<'static, str> {
        &self.span.name
    }

    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.span.attributes.push(KeyValue::new(key, value));
    }

    /// Something happened at this time.
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

    /// It failed with this kind of error.
    pub fn fail(&mut self, error_type: String) {
        self.span.is_failed = true;
        self.set("error.type", error_type);
    }

    pub fn end(mut self) {
        self.span.ended = Instant::now();
        self.traces.export(self.span);
    }
}
