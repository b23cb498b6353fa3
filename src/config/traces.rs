//! Reads the OpenTelemetry variables that configure trace and metrics export.

use super::environment::trimmed_var;
use super::reader::Reader;
use crate::bridge::meta::TRACEPARENT;
use crate::metrics::OtlpSettings;
use crate::traces::TraceSettings;

/// Reads the metrics variables. An unusable variable only causes a warning, because it can be meant
/// for other programs.
pub(super) fn read_metrics(reader: &Reader<'_>) -> Option<OtlpSettings> {
    let environment = reader.interpolation.environment;
    let settings = OtlpSettings::read(|name| trimmed_var(environment, name));
    let warn = |invalid| reader.warn(&format!("{invalid}; metrics are not exported"));
    settings.map_err(warn).ok().flatten()
}

/// Reads the trace variables, and makes the front keep the header that traces need.
pub(super) fn read(
    reader: &Reader<'_>,
    forwarded_headers: &mut Vec<String>,
) -> Option<TraceSettings> {
    let environment = reader.interpolation.environment;
    let settings = TraceSettings::read(|name| trimmed_var(environment, name));
    let warn = |invalid| reader.warn(&format!("{invalid}; traces are not exported"));
    let settings = settings.map_err(warn).ok().flatten()?;
    if !forwarded_headers.iter().any(|name| name == TRACEPARENT) {
        forwarded_headers.push(TRACEPARENT.to_owned());
    }
    Some(settings)
}
