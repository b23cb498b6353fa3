//! Counts of durations by size.

use std::time::Duration;

/// Upper bounds of the buckets of one histogram, in nanoseconds.
pub(super) type Bounds = [u64; BUCKETS];

pub(super) const BUCKETS: usize = 14;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000 * MICRO;
const SECOND: u64 = 1_000 * MILLI;

/// Those that the conventions of OpenTelemetry for MCP recommend.
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

/// For times that are mostly below a millisecond.
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

/// How many durations were up to each bound, and beyond the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram {
    counts: [u64; BUCKETS],
    beyond: u64,
    /// In nanoseconds.
    sum: u64,
}

impl Histogram {
    pub(super) fn add(&mut self, duration: Duration, bounds: &Bounds) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bounds.partition_point(|bound| *bound < nanos);
        *self.counts.get_mut(bucket).unwrap_or(&mut self.beyond) += 1;
        self.sum = self.sum.saturating_add(nanos);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.beyond += other.beyond;
        self.sum = self.sum.saturating_add(other.sum);
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
        }
    }
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

/// A histogram as an exposition shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramView {
    pub count: u64,
    /// In seconds.
    pub sum: f64,
    /// Upper bounds in seconds, each with the durations between it and the one before. The last
    /// is `f64::INFINITY`, for all that is longer.
    pub buckets: Vec<(f64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_at_the_first_bound_that_is_not_below_it() {
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
            histogram.add(duration, &OPERATION_BOUNDS);
            let view = histogram.view(&OPERATION_BOUNDS);
            let mut found = view.buckets.iter().filter(|(_, count)| *count > 0);
            assert_eq!(found.next(), Some(&(bound, 1)), "{duration:?}");
            assert_eq!((found.next(), view.count), (None, 1));
        }
    }

    #[test]
    fn merged_histograms_have_the_durations_of_both() {
        let mut both = Histogram::default();
        let (mut one, mut other) = (both, both);
        for (nth, millis) in [1, 15, 70, 900_000].into_iter().enumerate() {
            let duration = Duration::from_millis(millis);
            both.add(duration, &OPERATION_BOUNDS);
            let part = if nth % 2 == 0 { &mut one } else { &mut other };
            part.add(duration, &OPERATION_BOUNDS);
        }
        one.merge(&other);
        assert_eq!(one, both);
        assert_eq!(one.view(&OPERATION_BOUNDS).sum, 900.086);
    }

    #[test]
    fn bounds_grow() {
        for bounds in [OPERATION_BOUNDS, OVERHEAD_BOUNDS] {
            assert!(bounds.is_sorted_by(|a, b| a < b));
        }
    }
}
