//! Converts metric families to OTLP messages.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar as OtlpExemplar, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::family::{Family, Labels, Samples};
use crate::metrics::{Exemplar, HistogramView};

/// Start of the totals, and current time, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    began: u64,
    now: u64,
}

impl Period {
    /// Converts from milliseconds.
    pub(super) const fn new(began: u64, now: u64) -> Self {
        Self {
            began: nanos(began),
            now: nanos(now),
        }
    }
}

const fn nanos(millis: u64) -> u64 {
    millis.saturating_mul(1_000_000)
}

/// A message with all families.
pub(super) fn message(
    families: &[Family],
    period: Period,
    resource: &[(String, String)],
) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: "mcpvisor".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let metrics = families.iter().map(|family| metric(family, period));
    let pairs = resource.iter();
    let resource = Resource {
        attributes: pairs.map(|(key, value)| pair(key, value)).collect(),
        ..Resource::default()
    };
    let scope = ScopeMetrics {
        scope: Some(scope),
        metrics: metrics.collect(),
        ..ScopeMetrics::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![scope],
            ..ResourceMetrics::default()
        }],
    }
}

fn metric(family: &Family, period: Period) -> Metric {
    use number_data_point::Value::{AsDouble, AsInt};
    // All totals are counted from the start.
    let cumulative = AggregationTemporality::Cumulative.into();
    let sum = |data_points| {
        metric::Data::Sum(Sum {
            data_points,
            aggregation_temporality: cumulative,
            is_monotonic: true,
        })
    };
    let whole = |(labels, number): (&Labels, &i64)| point(labels, AsInt(*number), period);
    let seconds = |(labels, time): (&Labels, &f64)| point(labels, AsDouble(*time), period);
    let data = match &family.samples {
        Samples::Gauges(numbers) => metric::Data::Gauge(Gauge {
            data_points: numbers.iter().map(whole).collect(),
        }),
        Samples::Counters(numbers) => sum(numbers.iter().map(whole).collect()),
        Samples::Seconds(times) => metric::Data::Gauge(Gauge {
            data_points: times.iter().map(seconds).collect(),
        }),
        Samples::Times(times) => sum(times.iter().map(seconds).collect()),
        Samples::Histograms(histograms) => {
            let histograms = histograms.iter();
            let points = histograms.map(|(labels, view)| histogram(labels, view, period));
            metric::Data::Histogram(Histogram {
                data_points: points.collect(),
                aggregation_temporality: cumulative,
            })
        }
    };
    Metric {
        name: family.otel_name.unwrap_or(&family.name).to_owned(),
        description: family.help.to_string(),
        unit: unit(&family.name).to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// The unit in UCUM notation.
fn unit(name: &str) -> &'static str {
    match name.rsplit_once('_') {
        Some((_, "seconds")) => "s",
        Some((_, "bytes")) => "By",
        _ => "",
    }
}

fn point(labels: &Labels, value: number_data_point::Value, period: Period) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: period.began,
        time_unix_nano: period.now,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}

fn histogram(labels: &Labels, view: &HistogramView, period: Period) -> HistogramDataPoint {
    let bounds = view.buckets.iter().map(|(bound, _)| *bound);
    let exemplars = view.exemplars.iter().flatten();
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: period.began,
        time_unix_nano: period.now,
        count: view.count,
        sum: Some(view.sum),
        bucket_counts: view.buckets.iter().map(|(_, count)| *count).collect(),
        explicit_bounds: bounds.filter(|bound| bound.is_finite()).collect(),
        exemplars: exemplars.map(exemplar).collect(),
        ..HistogramDataPoint::default()
    }
}

fn exemplar(exemplar: &Exemplar) -> OtlpExemplar {
    OtlpExemplar {
        time_unix_nano: nanos(exemplar.at),
        span_id: exemplar.span.span.to_be_bytes().to_vec(),
        trace_id: exemplar.span.trace.to_be_bytes().to_vec(),
        value: Some(exemplar::Value::AsDouble(exemplar.seconds)),
        ..OtlpExemplar::default()
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(key, value)| pair(key, value)).collect()
}

fn pair(key: &str, value: &str) -> KeyValue {
    let value = any_value::Value::StringValue(value.to_owned());
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
