//! Settings for sending metrics to a collector, read from the standard variables of OpenTelemetry.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use url::Url;

use crate::telemetry::{InvalidVariable, OtelSignal, OtelVariables, OtlpProtocol};

const SIGNAL: OtelSignal = OtelSignal {
    exporter: "OTEL_METRICS_EXPORTER",
    endpoints: [
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ],
    protocols: [
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ],
};

const HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];

const TEMPORALITY: &str = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";

/// Destination and interval of exported metrics.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    pub protocol: OtlpProtocol,
    /// URL of the requests, which can contain a password.
    pub url: SecretString,
    pub is_encrypted: bool,
    /// Values are secret, and marked as such.
    pub headers: HeaderMap,
    /// Interval between exports (`OTEL_METRIC_EXPORT_INTERVAL`).
    pub interval: Duration,
    /// Time limit of one export (`OTEL_METRIC_EXPORT_TIMEOUT`).
    pub timeout: Duration,
}

impl OtlpSettings {
    /// Reads the variables; `None` if the export is off, as it is unless its endpoint or
    /// `OTEL_METRICS_EXPORTER=otlp` is set.
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
        let temporality = variables.get(TEMPORALITY);
        if temporality.is_some_and(|it| !it.eq_ignore_ascii_case("cumulative")) {
            return Err(InvalidVariable::new(TEMPORALITY, "`cumulative`"));
        }
        let protocol = variables.protocol(&SIGNAL)?;
        let url = url(variables.endpoint(&SIGNAL)?, protocol);
        let headers = match variables.first(&HEADERS) {
            Some((name, text)) => headers(&text).ok_or_else(|| {
                InvalidVariable::new(name, "headers, such as `name=value,other=value`")
            })?,
            None => HeaderMap::new(),
        };
        let limits = [
            variables.millis("OTEL_METRIC_EXPORT_TIMEOUT", 30_000)?,
            variables.timeout(&TIMEOUTS)?,
        ];
        Ok(Some(Self {
            protocol,
            is_encrypted: url.starts_with("https:"),
            url: url.into(),
            headers,
            interval: variables.millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?,
            timeout: limits.into_iter().min().unwrap_or_default(),
        }))
    }
}

const TIMEOUTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
];

/// The request URL. The general endpoint is a base URL to which the signal's path is added.
fn url(endpoint: Option<(&'static str, Url)>, protocol: OtlpProtocol) -> String {
    let is_of_signal = endpoint
        .as_ref()
        .is_some_and(|(name, _)| *name == SIGNAL.endpoints[0]);
    let base = endpoint.map(|(_, url)| url.to_string());
    match protocol {
        OtlpProtocol::Grpc => base.unwrap_or_else(|| "http://localhost:4317".to_owned()),
        OtlpProtocol::HttpProtobuf if is_of_signal => base.unwrap_or_default(),
        OtlpProtocol::HttpProtobuf => {
            let base = base.unwrap_or_else(|| "http://localhost:4318".to_owned());
            format!("{}/v1/metrics", base.trim_end_matches('/'))
        }
    }
}

/// Parses names and values, in which separators are percent-encoded.
fn headers(text: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=')?;
        let value: Vec<u8> = percent_decode_str(value.trim()).collect();
        let mut value = HeaderValue::from_bytes(&value).ok()?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value);
    }
    Some(headers)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    const OWN: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
    const EXPORTER: (&str, &str) = ("OTEL_METRICS_EXPORTER", "otlp");
    const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");

    fn read(variables: &[(&str, &str)]) -> Result<Option<OtlpSettings>, InvalidVariable> {
        OtlpSettings::read(|name| {
            let mut all = variables.iter();
            let (_, value) = all.find(|(other, _)| *other == name)?;
            Some((*value).to_owned())
        })
    }

    #[test]
    fn variables_set_the_metrics_endpoint() {
        type Row<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);
        let table: [Row<'_>; 8] = [
            (&[], None),
            (&[EXPORTER], Some("http://localhost:4318/v1/metrics")),
            (&[EXPORTER, GRPC], Some("http://localhost:4317")),
            (&[(ALL, "http://a/x/")], Some("http://a/x/v1/metrics")),
            (
                &[(ALL, "http://a"), (OWN, "https://b/c")],
                Some("https://b/c"),
            ),
            (&[(ALL, "https://a:1"), GRPC], Some("https://a:1/")),
            (
                &[(ALL, "http://a"), ("OTEL_METRICS_EXPORTER", "none")],
                None,
            ),
            (&[(ALL, "http://a"), ("OTEL_SDK_DISABLED", "true")], None),
        ];
        for (variables, expected) in table {
            let settings = read(variables).unwrap();
            let url = settings.as_ref().map(|it| it.url.expose_secret());
            assert_eq!(url, expected, "{variables:?}");
        }
        let settings = read(&[(ALL, "https://a"), ("OTEL_METRIC_EXPORT_INTERVAL", "5")]);
        let settings = settings.unwrap().unwrap();
        assert!(settings.is_encrypted);
        assert_eq!(settings.interval, Duration::from_millis(5));
        assert_eq!(settings.timeout, Duration::from_secs(10));
    }

    #[test]
    fn headers_are_read_and_never_shown() {
        let name = "OTEL_EXPORTER_OTLP_METRICS_HEADERS";
        let text = " api-key = s3cret%20word%2C ,x=y, ";
        let settings = read(&[EXPORTER, (HEADERS[1], "z=0"), (name, text)]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.headers["api-key"], "s3cret word,");
        assert_eq!(
            (&settings.headers["x"], settings.headers.len()),
            (&"y".parse().unwrap(), 2)
        );
        assert!(!format!("{settings:?}").contains("s3cret"));
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_named_without_its_value() {
        let table = [
            (OWN, "s3cret"),
            ("OTEL_METRICS_EXPORTER", "prometheus"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "s3cret"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "s3cret"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "a=s3cret%0D%0Ab"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"),
            (TEMPORALITY, "delta"),
        ];
        for (name, value) in table {
            let invalid = read(&[(name, value), EXPORTER]).unwrap_err();
            assert_eq!(invalid.name, name);
            assert!(!invalid.to_string().contains("s3cret"), "{invalid}");
        }
    }
}
