//! Trace settings, read from the standard variables of OpenTelemetry.

use std::time::Duration;

use super::sampler::{Sampler, SamplerError};
use crate::telemetry::{InvalidVariable, OtelSignal, OtelVariables, OtlpProtocol};

const SIGNAL: OtelSignal = OtelSignal {
    exporter: "OTEL_TRACES_EXPORTER",
    endpoints: [
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ],
    protocols: [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ],
};

const TIMEOUTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
];

/// Maximum queue size that a variable can set.
const QUEUE_MAX: u64 = 1_000_000;

/// How spans are exported. The exporter reads endpoint and headers from the environment itself.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    pub protocol: OtlpProtocol,
    /// Whether the collector uses TLS.
    pub is_encrypted: bool,
    pub sampler: Sampler,
    /// Time limit of one attempt to send them (`OTEL_EXPORTER_OTLP_TIMEOUT`).
    pub send_timeout: Duration,
    /// Maximum number of queued spans (`OTEL_BSP_MAX_QUEUE_SIZE`); further ones are dropped and
    /// counted.
    pub queue_max: usize,
    /// Spans in one request to the collector (`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`).
    pub batch_max: usize,
    /// How long a span waits for others (`OTEL_BSP_SCHEDULE_DELAY`).
    pub delay: Duration,
    /// Time limit of all attempts together (`OTEL_BSP_EXPORT_TIMEOUT`).
    pub timeout: Duration,
}

impl TraceSettings {
    /// Reads the variables; `None` if traces are off, as they are unless their endpoint or
    /// `OTEL_TRACES_EXPORTER=otlp` is set.
    ///
    /// # Errors
    ///
    /// Returns the first invalid variable.
    pub fn read(
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Option<Self>, InvalidVariable> {
        let variables = OtelVariables(variable);
        if !variables.is_wanted(&SIGNAL)? {
            return Ok(None);
        }
        let endpoint = variables.endpoint(&SIGNAL)?;
        let count = |name, default| {
            let read = variables.number(name, default, QUEUE_MAX);
            read.map(|count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        Ok(Some(Self {
            protocol: variables.protocol(&SIGNAL)?,
            is_encrypted: endpoint.is_some_and(|(_, url)| url.scheme() == "https"),
            sampler: sampler(&variables)?,
            send_timeout: variables.timeout(&TIMEOUTS)?,
            queue_max: count("OTEL_BSP_MAX_QUEUE_SIZE", 2048)?,
            batch_max: count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?,
            delay: variables.millis("OTEL_BSP_SCHEDULE_DELAY", 5000)?,
            timeout: variables.millis("OTEL_BSP_EXPORT_TIMEOUT", 30_000)?,
        }))
    }
}

fn sampler(
    variables: &OtelVariables<impl Fn(&'static str) -> Option<String>>,
) -> Result<Sampler, InvalidVariable> {
    let Some(name) = variables.get("OTEL_TRACES_SAMPLER") else {
        return Ok(Sampler::default());
    };
    let argument = variables.get("OTEL_TRACES_SAMPLER_ARG");
    let sampler = Sampler::parse(&name, argument.as_deref());
    sampler.map_err(|error| match error {
        SamplerError::Name => InvalidVariable::new(
            "OTEL_TRACES_SAMPLER",
            "`always_on`, `always_off` or `traceidratio`, alone or after `parentbased_`",
        ),
        SamplerError::Argument => {
            InvalidVariable::new("OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1")
        }
    })
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
    fn traces_are_off_by_default() {
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
    fn trace_variables_override_general_ones() {
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
