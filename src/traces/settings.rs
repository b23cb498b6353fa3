//! The settings of traces: the standard variables of OpenTelemetry, and no others.

use std::fmt;
use std::time::Duration;

use url::Url;

use super::sampler::{Sampler, SamplerError};

/// Longest time that a variable may name, in milliseconds.
const MILLIS_MAX: u64 = 3_600_000;

/// Most spans that a variable may have wait.
const QUEUE_MAX: u64 = 1_000_000;

/// How spans are exported. Where to, with which headers and within which time, the exporter reads
/// from the environment itself.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    pub protocol: OtlpProtocol,
    pub sampler: Sampler,
    /// Spans that wait (`OTEL_BSP_MAX_QUEUE_SIZE`); further ones are lost and counted.
    pub queue_max: usize,
    /// Spans of one request to the collector (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`).
    pub batch_max: usize,
    /// How long a span waits for others (`OTEL_BSP_SCHEDULE_DELAY`).
    pub delay: Duration,
    /// How long one request may take (`OTEL_BSP_EXPORT_TIMEOUT`).
    pub timeout: Duration,
}

/// The transport of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    HttpProtobuf,
    Grpc,
}

/// A variable that cannot be used, and what it must be. Its value, which may be secret, is not
/// shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidVariable {
    pub name: &'static str,
    pub must: String,
}

impl fmt::Display for InvalidVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, must } = self;
        write!(f, "the environment variable `{name}` must be {must}")
    }
}

impl TraceSettings {
    /// Reads the variables; `None` where no traces are wanted: those are off unless an address for
    /// them is set, or `OTEL_TRACES_EXPORTER=otlp`.
    ///
    /// # Errors
    ///
    /// Returns the first variable that cannot be used.
    pub fn read(
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Option<Self>, InvalidVariable> {
        let endpoints = [
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
        ];
        let endpoint = endpoints
            .iter()
            .find_map(|name| Some((*name, variable(name)?)));
        let is_disabled =
            variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let is_wanted = match variable("OTEL_TRACES_EXPORTER").as_deref() {
            None => endpoint.is_some(),
            Some("otlp") => true,
            Some("none") => false,
            Some(_) => return Err(invalid("OTEL_TRACES_EXPORTER", "`otlp` or `none`")),
        };
        if is_disabled || !is_wanted {
            return Ok(None);
        }
        if let Some((name, url)) = &endpoint {
            let url = Url::parse(url).ok();
            url.filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host())
                .ok_or_else(|| invalid(name, "a URL, as `http://127.0.0.1:4318`"))?;
        }
        let millis = |name, default| {
            let read = number(&variable, name, default, MILLIS_MAX);
            read.map(Duration::from_millis)
        };
        let count = |name, default| {
            let read = number(&variable, name, default, QUEUE_MAX);
            read.map(|count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        Ok(Some(Self {
            protocol: protocol(&variable)?,
            sampler: sampler(&variable)?,
            queue_max: count("OTEL_BSP_MAX_QUEUE_SIZE", 2048)?,
            batch_max: count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?,
            delay: millis("OTEL_BSP_SCHEDULE_DELAY", 5000)?,
            timeout: millis("OTEL_BSP_EXPORT_TIMEOUT", 30_000)?,
        }))
    }
}

fn invalid(name: &'static str, must: &str) -> InvalidVariable {
    InvalidVariable {
        name,
        must: must.to_owned(),
    }
}

fn protocol(
    variable: &impl Fn(&'static str) -> Option<String>,
) -> Result<OtlpProtocol, InvalidVariable> {
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ];
    let named = names.iter().find_map(|name| Some((*name, variable(name)?)));
    match named.as_ref().map(|(name, text)| (*name, text.as_str())) {
        None | Some((_, "http/protobuf")) => Ok(OtlpProtocol::HttpProtobuf),
        Some((_, "grpc")) => Ok(OtlpProtocol::Grpc),
        Some((name, _)) => Err(invalid(name, "`http/protobuf` or `grpc`")),
    }
}

fn sampler(variable: &impl Fn(&'static str) -> Option<String>) -> Result<Sampler, InvalidVariable> {
    let Some(name) = variable("OTEL_TRACES_SAMPLER") else {
        return Ok(Sampler::default());
    };
    let argument = variable("OTEL_TRACES_SAMPLER_ARG");
    Sampler::parse(&name, argument.as_deref()).map_err(|error| match error {
        SamplerError::Name => invalid(
            "OTEL_TRACES_SAMPLER",
            "`always_on`, `always_off` or `traceidratio`, alone or after `parentbased_`",
        ),
        SamplerError::Argument => invalid("OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1"),
    })
}

fn number(
    variable: &impl Fn(&'static str) -> Option<String>,
    name: &'static str,
    default: u64,
    most: u64,
) -> Result<u64, InvalidVariable> {
    let Some(text) = variable(name) else {
        return Ok(default);
    };
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| invalid(name, &format!("a whole number from 1 to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<TraceSettings>, &'static str> {
        let read = TraceSettings::read(|name| {
            let mut all = variables.iter();
            let (_, value) = all.find(|(other, _)| *other == name)?;
            Some((*value).to_owned())
        });
        read.map_err(|invalid| {
            assert!(!invalid.to_string().contains("s3cret"), "{invalid}");
            invalid.name
        })
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");

    #[test]
    fn traces_are_off_unless_they_are_asked_for() {
        let table: [(&[(&str, &str)], bool); 7] = [
            (&[], false),
            (&[ENDPOINT], true),
            (
                &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://a.example/v1")],
                true,
            ),
            (&[("OTEL_TRACES_EXPORTER", "otlp")], true),
            (&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")], false),
            (&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")], false),
            (&[("OTEL_SERVICE_NAME", "gateway")], false),
        ];
        for (variables, is_on) in table {
            assert_eq!(read(variables).unwrap().is_some(), is_on, "{variables:?}");
        }
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_named_without_its_value() {
        let table = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "s3cret"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://s3cret@a.example"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "127.0.0.1:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "s3cret"),
            ("OTEL_TRACES_EXPORTER", "jaeger"),
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
            ("OTEL_BSP_EXPORT_TIMEOUT", "3600001"),
        ];
        for (name, value) in table {
            let found = match name {
                "OTEL_EXPORTER_OTLP_ENDPOINT" => read(&[(name, value)]),
                _ => read(&[(name, value), ENDPOINT]),
            };
            assert_eq!(found, Err(name), "{value}");
        }
        let ratio = [
            ENDPOINT,
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ];
        assert_eq!(read(&ratio), Err("OTEL_TRACES_SAMPLER_ARG"));
    }

    #[test]
    fn the_variables_of_traces_win_over_those_of_all_signals() {
        let settings = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
            ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.protocol, OtlpProtocol::Grpc);
        assert_eq!((settings.queue_max, settings.batch_max), (10, 512));
        assert_eq!(settings.delay, Duration::from_millis(20));
    }
}
