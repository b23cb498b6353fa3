//! The environment variables of OpenTelemetry that all signals share.

use std::fmt;
use std::time::Duration;

use url::Url;

/// Longest time that a variable may name, in milliseconds.
const MILLIS_MAX: u64 = 3_600_000;

/// A variable that cannot be used, and what it must be. Its value, which may be secret, is not
/// shown.
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

/// Where a signal goes, and under which names of variables.
pub struct OtelSignal {
    pub exporter: &'static str,
    /// Those of the signal, then those of all.
    pub endpoints: [&'static str; 2],
    pub protocols: [&'static str; 2],
}

/// Variables by their names.
pub struct OtelVariables<F>(pub F);

impl<F: Fn(&'static str) -> Option<String>> OtelVariables<F> {
    pub fn get(&self, name: &'static str) -> Option<String> {
        let Self(get) = self;
        get(name)
    }

    /// The first of these that is set.
    pub fn first(&self, names: &[&'static str]) -> Option<(&'static str, String)> {
        names.iter().find_map(|name| Some((*name, self.get(name)?)))
    }

    /// Whether the signal is wanted: it is off unless an address for it is set, or its exporter is
    /// `otlp`.
    ///
    /// # Errors
    ///
    /// Returns the variable that cannot be used.
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

    /// The address of the collector, with the name of its variable.
    ///
    /// # Errors
    ///
    /// Returns the variable that is no address.
    pub fn endpoint(
        &self,
        signal: &OtelSignal,
    ) -> Result<Option<(&'static str, Url)>, InvalidVariable> {
        let Some((name, text)) = self.first(&signal.endpoints) else {
            return Ok(None);
        };
        let url = Url::parse(&text).ok();
        let url = url.filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
        let must = "a URL, as `http://127.0.0.1:4318`";
        let url = url.ok_or_else(|| InvalidVariable::new(name, must))?;
        Ok(Some((name, url)))
    }

    /// # Errors
    ///
    /// Returns the variable that names none.
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
    /// Returns the variable if it is no number from 1 to this one.
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

    /// How long one request to the collector may take, by the first of these that is set.
    ///
    /// # Errors
    ///
    /// Returns the variable if it is no time.
    pub fn timeout(&self, names: &[&'static str]) -> Result<Duration, InvalidVariable> {
        let name = self.first(names).map(|(name, _)| name);
        let name = name.or(names.first().copied()).unwrap_or_default();
        self.millis(name, 10_000)
    }

    /// A time in milliseconds.
    ///
    /// # Errors
    ///
    /// Returns the variable if it is none.
    pub fn millis(&self, name: &'static str, default: u64) -> Result<Duration, InvalidVariable> {
        let read = self.number(name, default, MILLIS_MAX);
        read.map(Duration::from_millis)
    }
}
