//! Histograms of durations.

use std::time::Duration;

use crate::telemetry::SpanNumbers;

/// Upper bounds of the buckets of one histogram, in nanoseconds.
pub(super) type Bounds = [u64; BUCKETS];

pub(super) const BUCKETS: usize = 14;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000 * MICRO;
const SECOND: u64 = 1_000 * MILLI;

/// Bounds recommended by the OpenTelemetry conventions for MCP.
pub(super) const OPERATION_BOUNDS: Bounds = [
    10 * MILLI,
    20 * MILLI,
    50 * MILLI,
    100 * MILLI,
    200 * MILLI,
    500 * MILLI,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    120 * SECOND,
    300 * SECOND,
];

/// Bounds for durations that are mostly below a millisecond.
pub(super) const OVERHEAD_BOUNDS: Bounds = [
    50 * MICRO,
    100 * MICRO,
    200 * MICRO,
    500 * MICRO,
    MILLI,
    2 * MILLI,
    5 * MILLI,
    10 * MILLI,
    50 * MILLI,
    100 * MILLI,
    500 * MILLI,
    SECOND,
    10 * SECOND,
    60 * SECOND,
];

/// Number of durations up to each bound, and above the last one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram {
    counts: [u64; BUCKETS],
    beyond: u64,
    /// Sum in nanoseconds.
    sum: u64,
    /// The last traced duration in each bucket, allocated on first use.
    exemplars: Option<Box<[Option<Exemplar>; BUCKETS + 1]>>,
}

/// A duration whose request can be looked up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    pub span: SpanNumbers,
    pub seconds: f64,
    /// Time of the measurement, in milliseconds since 1970.
    pub at: u64,
}

impl Histogram {
    /// `exemplar` is the span of the request, if it is traced, and the wall-clock time.
    pub(super) fn add(
        &mut self,
        duration: Duration,
        bounds: &Bounds,
        exemplar: Option<(SpanNumbers, u64)>,
    ) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bounds.partition_point(|bound| *bound < nanos);
        *self.counts.get_mut(bucket).unwrap_or(&mut self.beyond) += 1;
        self.sum = self.sum.saturating_add(nanos);
        if let Some((span, at)) = exemplar {
            let exemplar = Exemplar {
                span,
                seconds: seconds(nanos),
                at,
            };
            let kept = self.exemplars.get_or_insert_default();
            if let Some(kept) = kept.get_mut(bucket) {
                *kept = Some(exemplar);
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.beyond += other.beyond;
        self.sum = self.sum.saturating_add(other.sum);
        let later = other.exemplars.as_deref().into_iter().flatten();
        for (index, later) in later.enumerate() {
            let kept = self.exemplars.get_or_insert_default();
            if let (Some(kept), Some(_)) = (kept.get_mut(index), later) {
                *kept = *later;
            }
        }
    }

    pub(super) fn view(&self, bounds: &Bounds) -> HistogramView {
        let bounds = bounds.iter().map(|bound| seconds(*bound));
        let buckets = bounds
            .zip(self.counts)
            .chain([(f64::INFINITY, self.beyond)]);
        let buckets: Vec<_> = buckets.collect();
        HistogramView {
            count: buckets.iter().map(|(_, count)| count).sum(),
            sum: seconds(self.sum),
            buckets,
            exemplars: self
                .exemplars
                .as_deref()
                .map_or_else(Vec::new, |it| it.to_vec()),
        }
    }
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

/// A histogram in the form of an exposition.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramView {
    pub count: u64,
    /// Sum in seconds.
    pub sum: f64,
    /// Upper bounds in seconds, each with the number of durations between it and the previous one.
    /// The last is `f64::INFINITY`.
    pub buckets: Vec<(f64, u64)>,
    /// One entry per bucket; empty if there are none.
    pub exemplars: Vec<Option<Exemplar>>,
}

impl HistogramView {
    /// The exemplar of a bucket.
    pub fn exemplar(&self, bucket: usize) -> Option<&Exemplar> {
        self.exemplars.get(bucket)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_the_first_bucket_that_fits() {
        let table = [
            (Duration::ZERO, 0.01),
            (Duration::from_millis(10), 0.01),
            (Duration::from_nanos(10_000_001), 0.02),
            (Duration::from_secs(1), 1.0),
            (Duration::from_secs(300), 300.0),
            (Duration::from_secs(301), f64::INFINITY),
            (Duration::MAX, f64::INFINITY),
        ];
        for (duration, bound) in table {
            let mut histogram = Histogram::default();
            histogram.add(duration, &OPERATION_BOUNDS, None);
            let view = histogram.view(&OPERATION_BOUNDS);
            let mut found = view.buckets.iter().filter(|(_, count)| *count > 0);
            assert_eq!(found.next(), Some(&(bound, 1)), "{duration:?}");
            assert_eq!((found.next(), view.count), (None, 1));
        }
    }

    #[test]
    fn merged_histograms_have_the_durations_of_both() {
        let mut both = Histogram::default();
        let (mut one, mut other) = (both.clone(), both.clone());
        for (nth, millis) in [1, 15, 70, 900_000].into_iter().enumerate() {
            let duration = Duration::from_millis(millis);
            both.add(duration, &OPERATION_BOUNDS, None);
            let part = if nth % 2 == 0 { &mut one } else { &mut other };
            part.add(duration, &OPERATION_BOUNDS, None);
        }
        one.merge(&other);
        assert_eq!(one, both);
        assert_eq!(one.view(&OPERATION_BOUNDS).sum, 900.086);
    }

    #[test]
    fn the_last_traced_duration_of_a_bucket_is_its_exemplar() {
        let (mut all, mut later) = (Histogram::default(), Histogram::default());
        let traced = |trace| Some((SpanNumbers { trace, span: 1 }, 7));
        let millis = Duration::from_millis;
        all.add(millis(1), &OPERATION_BOUNDS, traced(1));
        all.add(millis(2), &OPERATION_BOUNDS, traced(2));
        all.add(millis(15), &OPERATION_BOUNDS, traced(3));
        all.add(Duration::MAX, &OPERATION_BOUNDS, traced(4));
        later.add(millis(3), &OPERATION_BOUNDS, traced(5));
        later.add(millis(4), &OPERATION_BOUNDS, None);
        all.merge(&later);
        let view = all.view(&OPERATION_BOUNDS);
        let trace = |bucket| view.exemplar(bucket).map(|it| it.span.trace);
        assert_eq!((trace(0), trace(1), trace(2)), (Some(5), Some(3), None));
        assert_eq!(trace(BUCKETS), Some(4));
        assert_eq!(
            view.exemplar(0).map(|it| (it.seconds, it.at)),
            Some((0.003, 7))
        );
    }

    #[test]
    fn bounds_grow() {
        for bounds in [OPERATION_BOUNDS, OVERHEAD_BOUNDS] {
            assert!(bounds.is_sorted_by(|a, b| a < b));
        }
    }
}
