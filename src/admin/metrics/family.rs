//! A metric family, the common source of all output formats.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::metrics::HistogramView;

/// Labels with OpenTelemetry names, such as `mcp.method.name`.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Integers by label set.
pub(super) type Numbers = BTreeMap<Labels, i64>;

pub(super) struct Family {
    /// Prometheus name, with the unit but without the `_total` suffix of counters.
    pub(super) name: Cow<'static, str>,
    /// OpenTelemetry name, if its conventions use a different one.
    pub(super) otel_name: Option<&'static str>,
    pub(super) help: Cow<'static, str>,
    pub(super) samples: Samples,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Samples {
    Gauges(Numbers),
    Counters(Numbers),
    /// Gauges in seconds.
    Seconds(BTreeMap<Labels, f64>),
    /// Counters in seconds.
    Times(BTreeMap<Labels, f64>),
    Histograms(Vec<(Labels, HistogramView)>),
}

impl Family {
    pub(super) fn new(
        name: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
        samples: Samples,
    ) -> Self {
        Self {
            name: name.into(),
            otel_name: None,
            help: help.into(),
            samples,
        }
    }

    /// A gauge without labels.
    pub(super) fn gauge(name: &'static str, help: &'static str, value: i64) -> Self {
        Self::new(
            name,
            help,
            Samples::Gauges(Numbers::from([(Labels::new(), value)])),
        )
    }

    /// A counter without labels.
    pub(super) fn counter(
        name: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
        count: u64,
    ) -> Self {
        let count = Numbers::from([(Labels::new(), signed(count))]);
        Self::new(name, help, Samples::Counters(count))
    }
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
