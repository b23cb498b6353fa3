//! The environment variables of OpenTelemetry that all signals share.

use std::fmt;
use std::time::Duration;

use url::Url;

/// Maximum duration in a variable, in milliseconds.
const MILLIS_MAX: u64 = 3_600_000;

/// An invalid variable, and what it must be. Its value, which can be secret, is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidVariable {
    pub name: &'static str,
    pub must: String,
}

impl InvalidVariable {
    pub fn new(name: &'static str, must: impl Into<String>) -> Self {
        let must = must.into();
        Self { name, must }
    }
}

impl fmt::Display for InvalidVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, must } = self;
        write!(f, "the environment variable `{name}` must be {must}")
    }
}

/// The transport of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    HttpProtobuf,
    Grpc,
}

/// The destination of a signal, and the names of its variables.
pub struct OtelSignal {
    pub exporter: &'static str,
    /// Variables of the signal, then the general ones.
    pub endpoints: [&'static str; 2],
    pub protocols: [&'static str; 2],
}

/// Reads variables by name.
pub struct OtelVariables<F>(pub F);

impl<F: Fn(&'static str) -> Option<String>> OtelVariables<F> {
    pub fn get(&self, name: &'static str) -> Option<String> {
        let Self(get) = self;
        get(name)
    }

    /// The first of these variables that is set.
    pub fn first(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    /// Whether the signal is enabled: it is off unless its endpoint is set, or its exporter is
    /// `otlp`.
    ///
    /// # Errors
    ///
    /// Returns the invalid variable.
    pub fn is_wanted(&self, signal: &OtelSignal) -> Result<bool, InvalidVariable> {
        let is_disabled = self.get("OTEL_SDK_DISABLED");
        if is_disabled.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(false);
        }
        match self.get(signal.exporter).as_deref() {
            None => Ok(self.first(&signal.endpoints).is_some()),
            Some("otlp") => Ok(true),
            Some("none") => Ok(false),
            Some(_) => Err(InvalidVariable::new(signal.exporter, "`otlp` or `none`")),
        }
    }

    /// The collector's endpoint, with the name of its variable.
    ///
    /// # Errors
    ///
    /// Returns the variable that is not a URL.
    pub fn endpoint(
        &self,
        signal: &OtelSignal,
    ) -> Result<Option<(&'static str, Url)>, InvalidVariable> {
        let Some((name, text)) = self.first(&signal.endpoints) else {
            return Ok(None);
        };
        let url = Url::parse(&text).ok();
        let url = url.filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
        let must = "a URL, such as `http://127.0.0.1:4318`";
        let url = url.ok_or_else(|| InvalidVariable::new(name, must))?;
        Ok(Some((name, url)))
    }

    /// # Errors
    ///
    /// Returns the variable that names no known protocol.
    pub fn protocol(&self, signal: &OtelSignal) -> Result<OtlpProtocol, InvalidVariable> {
        let named = self.first(&signal.protocols);
        match named.as_ref().map(|(name, text)| (*name, text.as_str())) {
            None | Some((_, "http/protobuf")) => Ok(OtlpProtocol::HttpProtobuf),
            Some((_, "grpc")) => Ok(OtlpProtocol::Grpc),
            Some((name, _)) => Err(InvalidVariable::new(name, "`http/protobuf` or `grpc`")),
        }
    }

    /// # Errors
    ///
    /// Returns the variable if it is not a number from 1 to `most`.
    pub fn number(
        &self,
        name: &'static str,
        default: u64,
        most: u64,
    ) -> Result<u64, InvalidVariable> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        let number = text.parse().ok();
        let number = number.filter(|number| (1..=most).contains(number));
        let must = || format!("a whole number from 1 to {most}");
        number.ok_or_else(|| InvalidVariable::new(name, must()))
    }

    /// Time limit of one request to the collector, from the first of these variables that is set.
    ///
    /// # Errors
    ///
    /// Returns the variable if it is not a duration.
    pub fn timeout(&self, names: &[&'static str]) -> Result<Duration, InvalidVariable> {
        let name = self.first(names).map(|(name, _)| name);
        let name = name.or(names.first().copied()).unwrap_or_default();
        self.millis(name, 10_000)
    }

    /// A duration in milliseconds.
    ///
    /// # Errors
    ///
    /// Returns the variable if it is not a duration.
    pub fn millis(&self, name: &'static str, default: u64) -> Result<Duration, InvalidVariable> {
        let read = self.number(name, default, MILLIS_MAX);
        read.map(Duration::from_millis)
    }
}
