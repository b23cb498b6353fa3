//! Traces and metrics for a collector, by the variables of OpenTelemetry.

use super::environment::trimmed_var;
use super::reader::Reader;
use crate::bridge::meta::TRACEPARENT;
use crate::metrics::OtlpSettings;
use crate::traces::TraceSettings;

/// Reads those of metrics. One that cannot be used may be meant for other programs, and stops
/// nothing.
pub(super) fn read_metrics(reader: &Reader<'_>) -> Option<OtlpSettings> {
    let environment = reader.interpolation.environment;
    let settings = OtlpSettings::read(|name| trimmed_var(environment, name));
    let warn = |invalid| reader.warn(&format!("{invalid}; no metrics are sent"));
    settings.map_err(warn).ok().flatten()
}

/// Reads those of traces, and has the front keep the header that they need.
pub(super) fn read(
    reader: &Reader<'_>,
    forwarded_headers: &mut Vec<String>,
) -> Option<TraceSettings> {
    let environment = reader.interpolation.environment;
    let settings = TraceSettings::read(|name| trimmed_var(environment, name));
    let warn = |invalid| reader.warn(&format!("{invalid}; requests are not traced"));
    let settings = settings.map_err(warn).ok().flatten()?;
    if !forwarded_headers.iter().any(|name| name == TRACEPARENT) {
        forwarded_headers.push(TRACEPARENT.to_owned());
    }
    Some(settings)
}
