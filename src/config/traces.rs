//! Traces, by the variables of OpenTelemetry.

use super::environment::trimmed_var;
use super::reader::Reader;
use crate::bridge::meta::TRACEPARENT;
use crate::traces::TraceSettings;

/// Reads the variables, and has the front keep the header that they need. They may be meant for
/// other programs, so that one that cannot be used stops nothing.
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
