//! Observes a client's request until it is answered: its history record, its timing for the
//! metrics, and its trace spans.

use bytestring::ByteString;
use tokio::time::Instant;

use crate::calls::request_trace::{Destination, RequestTrace};
use crate::history::{CallEnding, CallOutcome, PendingCall, is_tool_error};
use crate::id::ServerName;
use crate::metrics::{ErrorType, Measure, MethodLabel, Metrics, MetricsShard, Network, Series};
use crate::protocol::{ErrorKind, Failure, Method, Outcome, Request, Response, Revision};
use crate::telemetry::{LogScope, SpanNumbers};

/// The telemetry of a request in flight. Dropping it without [`CallTelemetry::end`] records the
/// request as cancelled.
pub(crate) struct CallTelemetry {
    method: Method,
    record: Option<PendingCall>,
    timing: Option<Timing>,
    trace: Option<Box<RequestTrace>>,
}

struct Timing {
    shard: MetricsShard,
    revision: Revision,
    started: Instant,
    /// When the request was sent to its server, and when the server's answer arrived.
    at_server: Option<(Instant, Instant)>,
    server: Option<ServerName>,
    /// The tool or prompt, once the catalog confirmed that it exists. Unconfirmed names would make
    /// the number of metric series unbounded.
    item: Option<ByteString>,
}

impl CallTelemetry {
    /// Starts observing a request that arrived on the worker thread with this index; `None` if
    /// metrics are off and the request is not traced.
    pub(crate) fn begin(
        metrics: &Metrics,
        request: &Request,
        revision: Revision,
        worker: usize,
        trace: Option<Box<RequestTrace>>,
    ) -> Option<Box<Self>> {
        let timing = metrics.shard(worker).map(|shard| Timing {
            shard: shard.clone(),
            revision,
            started: Instant::now(),
            at_server: None,
            server: None,
            item: None,
        });
        if timing.is_none() && trace.is_none() {
            return None;
        }
        Some(Box::new(Self {
            method: request.method.clone(),
            record: None,
            timing,
            trace,
        }))
    }

    /// Adds a call's history record, if any, to the telemetry of its request.
    pub(crate) fn of_call(
        begun: Option<Box<Self>>,
        request: &Request,
        record: Option<PendingCall>,
    ) -> Option<Box<Self>> {
        let Some(record) = record else { return begun };
        let mut call_telemetry = begun.unwrap_or_else(|| {
            Box::new(Self {
                method: request.method.clone(),
                record: None,
                timing: None,
                trace: None,
            })
        });
        call_telemetry.record = Some(record);
        Some(call_telemetry)
    }

    /// Records the server that the request goes to, and the public name of the requested item.
    pub(crate) fn goes_to(&mut self, server: &ServerName, item: &ByteString) {
        if let Some(record) = &mut self.record {
            record.at_server(server);
        }
        if let Some(timing) = &mut self.timing {
            let is_named = matches!(self.method, Method::ToolsCall | Method::PromptsGet);
            timing.server = Some(server.clone());
            timing.item = is_named.then(|| item.clone());
        }
        if let Some(trace) = &mut self.trace {
            trace.goes_to(&self.method, server, item);
        }
    }

    /// Returns the spans of the request, if it is traced.
    pub(crate) fn trace(&mut self) -> Option<&mut RequestTrace> {
        self.trace.as_deref_mut()
    }

    /// Returns the ids of the request's span, if it is traced.
    pub(crate) fn span(&self) -> Option<SpanNumbers> {
        self.trace.as_ref().map(|trace| trace.numbers())
    }

    /// Links log records to this request's span until the scope is dropped; `None` if the request
    /// is not traced.
    pub(crate) fn log_scope(call_telemetry: Option<&Self>) -> Option<LogScope> {
        LogScope::of(call_telemetry?.span())
    }

    /// Starts the span of an attempt to send the request to its server. Returns the `traceparent`
    /// to send along; `None` if the request is not traced.
    pub(crate) fn attempt(&mut self, destination: &Destination<'_>) -> Option<String> {
        let trace = self.trace.as_mut()?;
        Some(trace.attempt(destination, &self.method).to_string())
    }

    /// Records the end of an attempt: the server answered or failed. `sent` is when the request was
    /// written, if it was.
    pub(crate) fn came_back(&mut self, sent: Option<Instant>, answer: &Result<Response, Failure>) {
        if let Some(trace) = &mut self.trace {
            trace.end_attempt(sent, error_of_answer(answer, &self.method));
        }
        let Some(sent) = sent else { return };
        if let Some(record) = &mut self.record {
            record.sent_at(sent);
        }
        if let Some(timing) = &mut self.timing {
            timing.at_server = Some((sent, Instant::now()));
        }
    }

    /// Ends the telemetry with the answer that the client reads. Returns the outcome.
    pub(crate) fn end(
        mut self: Box<Self>,
        ending: CallEnding<'_>,
        answer_bytes: usize,
    ) -> CallOutcome {
        let outcome = ending.outcome(&self.method);
        let (span, _log) = (self.span(), Self::log_scope(Some(&self)));
        if let Some(record) = self.record.take() {
            record.end(ending, outcome, answer_bytes);
        }
        let error = || error_of(ending, outcome, &self.method);
        if let Some(timing) = self.timing.take() {
            timing.end(&self.method, error(), span);
        }
        if let Some(trace) = self.trace.take() {
            trace.end(error());
        }
        outcome
    }
}

impl Drop for CallTelemetry {
    fn drop(&mut self) {
        let (span, _log) = (self.span(), Self::log_scope(Some(self)));
        drop(self.record.take());
        let cancelled = ErrorType::Failure(ErrorKind::Cancelled, false);
        if let Some(timing) = self.timing.take() {
            timing.end(&self.method, Some(cancelled), span);
        }
        if let Some(trace) = self.trace.take() {
            trace.end(Some(cancelled));
        }
    }
}

impl Timing {
    fn end(self, method: &Method, error: Option<ErrorType>, span: Option<SpanNumbers>) {
        let total = self.started.elapsed();
        let series = Series {
            method: Some(MethodLabel::of(method)),
            server: self.server.as_ref().map(ServerName::as_str),
            item: self.item.as_deref(),
            error,
            revision: Some(self.revision),
            network: Some(Network::OF_CLIENTS),
            ..Series::of(Measure::ServerOperation)
        };
        self.shard.add_of(series, total, span);
        let is_answered = !matches!(error, Some(ErrorType::Failure(..)));
        if let Some((sent, answered)) = self.at_server.filter(|_| is_answered) {
            // When a client returns with answers, its call was sent before this request started.
            let at_server = answered.saturating_duration_since(sent.max(self.started));
            let overhead = total.saturating_sub(at_server);
            self.shard
                .add_of(Series::of(Measure::Overhead), overhead, span);
        }
    }
}

fn error_of(ending: CallEnding<'_>, outcome: CallOutcome, method: &Method) -> Option<ErrorType> {
    match ending {
        CallEnding::Result(_) if outcome == CallOutcome::ToolError => Some(ErrorType::ToolError),
        CallEnding::Error(error) => Some(ErrorType::of_error(error)),
        CallEnding::Failed(failure) => Some(ErrorType::of_failure(failure, method)),
        CallEnding::Result(_) | CallEnding::Done | CallEnding::InputRequired | CallEnding::Task => {
            None
        }
    }
}

/// Returns the error type of a server's answer to a request with this method, if it is an error.
pub(super) fn error_of_answer(
    answer: &Result<Response, Failure>,
    method: &Method,
) -> Option<ErrorType> {
    match answer {
        Ok(response) => match &response.outcome {
            Outcome::Result(result) => {
                is_tool_error(method, result).then_some(ErrorType::ToolError)
            }
            Outcome::Error(error) => Some(ErrorType::of_error(error)),
        },
        // Only an answer has a JSON-RPC error code.
        Err(failure) => Some(ErrorType::Failure(failure.exact_kind(), false)),
    }
}
