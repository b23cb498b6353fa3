//! Traces: where the time of a request went, as OpenTelemetry spans (OTLP).
//!
//! When off, a request costs one branch. When on, a sampled request carries an [`ActiveSpan`];
//! finished spans are exported by a separate thread. Requests never wait for the collector: spans
//! above the queue's limit are dropped and counted.

mod context;
mod exporter;
mod sampler;
mod settings;
mod span;

use std::hash::BuildHasher as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::telemetry::{Counter, Counters};

pub use context::TraceContext;
use exporter::Exporter;
pub use exporter::{http_client, resource};
pub use sampler::Sampler;
pub use settings::TraceSettings;
use span::Span;
pub use span::{ActiveSpan, SpanKind};

/// A handle; clones share the exporter. Off by default.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Parts>>);

struct Parts {
    sampler: Sampler,
    exporter: Exporter,
    counters: Counters,
    /// Source of trace and span ids.
    random: RandomState,
    drawn: AtomicU64,
}

impl Traces {
    /// Starts the exporting thread.
    ///
    /// # Errors
    ///
    /// Returns the exporter's error about its variables, or the system's error about the thread.
    pub fn start(settings: &TraceSettings, counters: Counters) -> io::Result<Self> {
        let exporter = Exporter::start(settings.clone(), counters.clone())?;
        Ok(Self(Some(Arc::new(Parts {
            sampler: settings.sampler,
            exporter,
            counters,
            random: RandomState::default(),
            drawn: AtomicU64::new(0),
        }))))
    }

    /// Whether spans are recorded at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts the span of an incoming request, with the context that it carried; `None` if it is
    /// not recorded.
    pub fn begin(&self, parent: Option<TraceContext>) -> Option<ActiveSpan> {
        let parts = self.0.as_ref()?;
        let trace = match parent {
            Some(parent) => parent.trace,
            None => u128::from(parts.draw()) << 64 | u128::from(parts.draw()),
        };
        let context = TraceContext {
            trace,
            span: parts.draw(),
            is_sampled: parts.sampler.samples(trace, parent),
        };
        let is_recorded = context.is_sampled;
        is_recorded.then(|| {
            let parent = parent.map(|parent| parent.span);
            ActiveSpan::new(self.clone(), context, parent)
        })
    }

    fn next_span(&self) -> u64 {
        // Spans are only created by an exporter that is on.
        self.0.as_ref().map_or(1, |parts| parts.draw())
    }

    fn export(&self, span: Span) {
        let Some(parts) = &self.0 else { return };
        if !parts.exporter.take(span) {
            parts.counters.add(Counter::SpansLost);
        }
    }

    /// Exports the queued spans, within this time; nothing is exported afterwards.
    pub async fn stop(&self, within: Duration) {
        if let Some(parts) = &self.0 {
            parts.exporter.stop(within).await;
        }
    }
}

impl Parts {
    /// A unique number other than 0.
    fn draw(&self) -> u64 {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        self.random.hash_one(number).max(1)
    }
}
