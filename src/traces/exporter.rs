//! The thread that exports spans.

use std::io;
use std::sync::mpsc as std_mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Event, SpanContext, SpanId, SpanKind as OtelKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, Key};
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{
    SpanExporter as OtlpExporter, WithExportConfig as _, WithHttpConfig as _, WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::settings::TraceSettings;
use super::span::{Span, SpanEvent, SpanKind};
use crate::telemetry::{Counter, Counters, OtlpProtocol};

/// Time limit for the thread to become ready.
const START_MAX: Duration = Duration::from_secs(10);

/// Handle to the thread.
pub(super) struct Exporter {
    spans: Sender<Span>,
    /// Cancelled when no more spans follow.
    stop: CancellationToken,
    /// Cancelled once everything is exported.
    stopped: CancellationToken,
}

impl Exporter {
    pub(super) fn start(settings: TraceSettings, counters: Counters) -> io::Result<Self> {
        let (spans, receiver) = mpsc::channel(settings.queue_max);
        let (stop, stopped) = (CancellationToken::new(), CancellationToken::new());
        let (ready, is_ready) = std_mpsc::sync_channel(1);
        let (stops, ended) = (stop.clone(), stopped.clone().drop_guard());
        thread::Builder::new()
            .name("traces".to_owned())
            .spawn(move || {
                let _ended = ended;
                match run(settings, receiver, counters, stops, &ready) {
                    Ok(()) => {}
                    // The receiver waits only for the start.
                    Err(error) => drop(ready.send(Err(error))),
                }
            })?;
        let started = is_ready.recv_timeout(START_MAX);
        started.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        Ok(Self {
            spans,
            stop,
            stopped,
        })
    }

    /// Queues a span; returns whether there was room.
    pub(super) fn take(&self, span: Span) -> bool {
        self.spans.try_send(span).is_ok()
    }

    pub(super) async fn stop(&self, within: Duration) {
        self.stop.cancel();
        if timeout(within, self.stopped.cancelled()).await.is_err() {
            log::warn!("spans dropped: the collector is too slow");
        }
    }
}

fn run(
    settings: TraceSettings,
    spans: Receiver<Span>,
    counters: Counters,
    stop: CancellationToken,
    ready: &std_mpsc::SyncSender<io::Result<()>>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async move {
        let exporter = otlp_exporter(&settings)?;
        // The gateway is waiting for this.
        let _ = ready.send(Ok(()));
        let batches = Batches {
            settings,
            exporter,
            counters,
            scope: InstrumentationScope::builder("mcpvisor")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            fails: false,
        };
        batches.run(spans, stop).await;
        Ok(())
    })
}

/// Reads the endpoint and headers from the environment.
fn otlp_exporter(settings: &TraceSettings) -> io::Result<OtlpExporter> {
    let builder = OtlpExporter::builder();
    let built = match settings.protocol {
        // The exporter's default trusts no root certificates.
        OtlpProtocol::Grpc if settings.is_encrypted => builder
            .with_tonic()
            .with_tls_config(ClientTlsConfig::new().with_enabled_roots())
            .build(),
        OtlpProtocol::Grpc => builder.with_tonic().build(),
        OtlpProtocol::HttpProtobuf => builder
            .with_http()
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
            .with_http_client(http_client(settings.send_timeout)?)
            .build(),
    };
    // The error text can contain the URL, with a password.
    let refused = |_| io::Error::other("a variable `OTEL_EXPORTER_OTLP_…` is invalid");
    let mut exporter = built.map_err(refused)?;
    exporter.set_resource(&resource());
    Ok(exporter)
}

/// An HTTP client for a collector. It follows no redirects, which would forward the headers.
///
/// # Errors
///
/// Returns why it cannot be created.
pub fn http_client(timeout: Duration) -> io::Result<reqwest::Client> {
    let builder = reqwest::Client::builder().timeout(timeout);
    let builder = builder.redirect(reqwest::redirect::Policy::none());
    builder.build().map_err(io::Error::other)
}

/// The observed resource, from `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`.
pub fn resource() -> Resource {
    let named = Resource::builder().build();
    let name = named.get(&Key::new("service.name"));
    let is_named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let builder = Resource::builder();
    let builder = match is_named {
        true => builder,
        false => builder.with_service_name("mcpvisor"),
    };
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    builder.with_attribute(version).build()
}

struct Batches {
    settings: TraceSettings,
    exporter: OtlpExporter,
    counters: Counters,
    scope: InstrumentationScope,
    /// Whether the last batch failed.
    fails: bool,
}

impl Batches {
    async fn run(mut self, mut spans: Receiver<Span>, stop: CancellationToken) {
        loop {
            let mut batch = Vec::new();
            let goes_on = self.gather(&mut spans, &stop, &mut batch).await;
            if !batch.is_empty() {
                self.export(batch).await;
            }
            if !goes_on && spans.is_empty() {
                return;
            }
        }
    }

    /// Fills a batch, or waits until its first span has waited long enough. Returns false when no
    /// more spans follow.
    async fn gather(
        &self,
        spans: &mut Receiver<Span>,
        stop: &CancellationToken,
        batch: &mut Vec<Span>,
    ) -> bool {
        let mut due = None;
        while batch.len() < self.settings.batch_max {
            let room = self.settings.batch_max - batch.len();
            let wait = async move {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                count = spans.recv_many(batch, room) => {
                    if count == 0 {
                        return false;
                    }
                    due = due.or(Some(Instant::now() + self.settings.delay));
                }
                () = stop.cancelled() => {
                    spans.close();
                    return false;
                }
                () = wait => return true,
            }
        }
        true
    }

    /// Exports a batch; a failed batch is lost, but the next one is tried.
    async fn export(&mut self, batch: Vec<Span>) {
        let count = batch.len();
        let (now, wall) = (Instant::now(), SystemTime::now());
        let wall_of = |at: Instant| wall - now.saturating_duration_since(at);
        let batch = batch.into_iter();
        let batch = batch.map(|span| span_data(span, wall_of, self.scope.clone()));
        let exported = self.exporter.export(batch.collect());
        let exported = timeout(self.settings.timeout, exported).await;
        let failure = match exported {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no response after {:?}", self.settings.timeout)),
        };
        match failure {
            None if self.fails => log::info!("collector accepts spans again"),
            None => {}
            Some(reason) => {
                self.counters.add_many(Counter::SpansLost, count);
                if !self.fails {
                    log::warn!(reason; "collector rejects spans; dropping them until it recovers");
                }
                self.fails = true;
                return;
            }
        }
        self.fails = false;
    }
}

fn span_data(
    span: Span,
    wall_of: impl Fn(Instant) -> SystemTime,
    scope: InstrumentationScope,
) -> SpanData {
    let context = span.context;
    let mut events = SpanEvents::default();
    events.dropped_count = span.events_lost;
    let event = |event: SpanEvent| Event::new(event.name, wall_of(event.at), event.attributes, 0);
    events.events = span.events.into_iter().map(event).collect();
    SpanData {
        span_context: SpanContext::new(
            TraceId::from_bytes(context.trace.to_be_bytes()),
            SpanId::from_bytes(context.span.to_be_bytes()),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        ),
        parent_span_id: SpanId::from_bytes(span.parent.unwrap_or_default().to_be_bytes()),
        parent_span_is_remote: span.parent_is_remote,
        span_kind: match span.kind {
            SpanKind::Server => OtelKind::Server,
            SpanKind::Client => OtelKind::Client,
        },
        name: span.name,
        start_time: wall_of(span.began),
        end_time: wall_of(span.ended),
        attributes: span.attributes,
        dropped_attributes_count: 0,
        events,
        links: SpanLinks::default(),
        status: match span.is_failed {
            true => Status::error(""),
            false => Status::Unset,
        },
        instrumentation_scope: scope,
    }
}
