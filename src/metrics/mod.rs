//! Durations of requests and sessions, as histograms for Prometheus.
//!
//! When off, a measurement costs one branch. When on, each worker thread counts in a separate
//! shard, so that only scrapes contend for it.

mod histogram;
mod otlp_settings;
mod series;
mod shard;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use histogram::{Exemplar, HistogramView};
pub use otlp_settings::OtlpSettings;
pub use series::{ErrorType, Measure, MethodLabel, Network, OTHER, Series};
use shard::{Shard, Totals};

use crate::telemetry::{SpanNumbers, unix_millis};

/// Maximum number of server names with separate exit counts; further ones are combined.
const EXITS_MAX: usize = 500;

/// A handle; clones share the measurements. Off by default.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Option<Arc<Parts>>);

#[derive(Debug)]
struct Parts {
    shards: Box<[MetricsShard]>,
    totals: Mutex<Totals>,
    exits: Mutex<BTreeMap<(Arc<str>, &'static str), u64>>,
}

/// The shard that one worker thread counts in.
#[derive(Clone, Debug)]
pub struct MetricsShard(Arc<Mutex<Shard>>);

impl MetricsShard {
    pub fn add(&self, series: Series<Option<&str>>, duration: Duration) {
        self.add_of(series, duration, None);
    }

    /// Adds the duration of a request with this span, which readers of the metrics can look up.
    pub fn add_of(
        &self,
        series: Series<Option<&str>>,
        duration: Duration,
        span: Option<SpanNumbers>,
    ) {
        let exemplar = span.map(|span| (span, unix_millis()));
        self.0.lock().add(series, duration, exemplar);
    }
}

/// The histograms with their labels.
pub type Histograms = Vec<(Series<Option<Arc<str>>>, HistogramView)>;

impl Metrics {
    /// Metrics with a shard for each of this many worker threads.
    pub fn on(workers: usize) -> Self {
        let shard = |_| MetricsShard(Arc::default());
        Self(Some(Arc::new(Parts {
            shards: (0..workers.max(1)).map(shard).collect(),
            totals: Mutex::default(),
            exits: Mutex::default(),
        })))
    }

    /// The shard of the worker thread with this index; `None` if metrics are off.
    pub fn shard(&self, worker: usize) -> Option<&MetricsShard> {
        let shards = &self.0.as_ref()?.shards;
        shards.get(worker).or(shards.first())
    }

    /// Counts the exit of a server's process.
    pub fn count_exit(&self, server: &str, cause: &'static str) {
        let Some(parts) = &self.0 else { return };
        let mut exits = parts.exits.lock();
        let key = (Arc::from(server), cause);
        let has_place = exits.len() < EXITS_MAX || exits.contains_key(&key);
        let key = if has_place {
            key
        } else {
            (Arc::from(OTHER), cause)
        };
        *exits.entry(key).or_default() += 1;
    }

    /// Everything measured since the start.
    pub fn histograms(&self) -> Histograms {
        let Some(parts) = &self.0 else {
            return Vec::new();
        };
        let mut totals = parts.totals.lock();
        for MetricsShard(shard) in &parts.shards {
            // The worker continues with an empty shard immediately.
            let measured = std::mem::take(&mut *shard.lock());
            totals.merge(measured);
        }
        totals.view()
    }

    /// Process exits, by server and cause.
    pub fn exits(&self) -> BTreeMap<(Arc<str>, &'static str), u64> {
        let parts = self.0.as_ref();
        parts.map_or_else(BTreeMap::new, |parts| parts.exits.lock().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_measured_while_it_is_off() {
        let metrics = Metrics::default();
        metrics.count_exit("docs", "exited");
        assert!(metrics.shard(0).is_none());
        assert!(metrics.histograms().is_empty() && metrics.exits().is_empty());
    }

    #[test]
    fn a_scrape_has_what_every_worker_measured_until_then() {
        let metrics = Metrics::on(2);
        for scrape in 1..=3 {
            // A worker without a shard counts in the first one.
            for worker in 0..3 {
                let shard = metrics.shard(worker).unwrap();
                shard.add(Series::of(Measure::Overhead), Duration::from_millis(1));
            }
            let histograms = metrics.histograms();
            assert_eq!(histograms.len(), 1);
            assert_eq!(histograms[0].1.count, 3 * scrape);
        }
    }

    #[test]
    fn process_exits_are_counted_by_cause() {
        let metrics = Metrics::on(1);
        for number in 0..EXITS_MAX + 2 {
            metrics.count_exit(&format!("s{number}"), "exited");
        }
        let exits = metrics.exits();
        assert_eq!(exits.len(), EXITS_MAX + 1);
        assert_eq!(exits[&(Arc::from(OTHER), "exited")], 2);
    }
}
