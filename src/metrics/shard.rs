//! The durations of one worker thread, and the totals since the start.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::histogram::{Histogram, HistogramView};
use super::series::{Measure, OTHER, Series};
use crate::id::QuickMap;
use crate::telemetry::SpanNumbers;

/// Maximum number of series; further ones are combined into one for each measure.
const SERIES_MAX: usize = 2_000;

/// Maximum number of server, tool and prompt names; the series of further ones are combined as
/// `_other`.
const NAMES_MAX: usize = 1_000;

/// Maximum length of a name with separate series, in bytes.
const NAME_MAX: usize = 128;

/// The measurements of a worker thread since the last scrape.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Indices by name; 0 is the absent name, 1 combines all names above the limit.
    names: QuickMap<Box<str>, u16>,
    series: QuickMap<Series<u16>, Histogram>,
    /// The only series without labels, which every call counts in.
    overhead: Histogram,
}

const NO_NAME: u16 = 0;
const OTHER_NAME: u16 = 1;

impl Shard {
    pub(super) fn add(
        &mut self,
        series: Series<Option<&str>>,
        duration: Duration,
        exemplar: Option<(SpanNumbers, u64)>,
    ) {
        let bounds = series.measure.bounds();
        if series.measure == Measure::Overhead {
            return self.overhead.add(duration, bounds, exemplar);
        }
        let series = series.with_names(|name| self.number(name));
        if let Some(histogram) = self.series.get_mut(&series) {
            return histogram.add(duration, bounds, exemplar);
        }
        let series = match self.series.len() < SERIES_MAX {
            true => series,
            false => series.overflow(OTHER_NAME),
        };
        let histogram = self.series.entry(series).or_default();
        histogram.add(duration, bounds, exemplar);
    }

    fn number(&mut self, name: Option<&str>) -> u16 {
        let Some(name) = name else { return NO_NAME };
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        if self.names.len() >= NAMES_MAX || name.len() > NAME_MAX {
            return OTHER_NAME;
        }
        let number = u16::try_from(self.names.len()).map_or(OTHER_NAME, |count| count + 2);
        self.names.insert(name.into(), number);
        number
    }
}

/// Everything measured so far.
#[derive(Debug, Default)]
pub(super) struct Totals {
    names: HashSet<Arc<str>>,
    series: HashMap<Series<Option<Arc<str>>>, Histogram>,
}

impl Totals {
    pub(super) fn merge(&mut self, shard: Shard) {
        let mut names = HashMap::from([(OTHER_NAME, Arc::from(OTHER))]);
        for (name, number) in shard.names {
            names.insert(number, self.name(&name));
        }
        if shard.overhead != Histogram::default() {
            let overhead = self.series.entry(Series::of(Measure::Overhead));
            overhead.or_default().merge(&shard.overhead);
        }
        for (series, histogram) in shard.series {
            let series = series.with_names(|number| names.get(&number).cloned());
            let has_place = self.series.len() < SERIES_MAX || self.series.contains_key(&series);
            let series = match has_place {
                true => series,
                false => series.overflow(Some(Arc::from(OTHER))),
            };
            self.series.entry(series).or_default().merge(&histogram);
        }
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        if self.names.len() >= NAMES_MAX {
            return Arc::from(OTHER);
        }
        let name: Arc<str> = Arc::from(name);
        self.names.insert(name.clone());
        name
    }

    pub(super) fn view(&self) -> Vec<(Series<Option<Arc<str>>>, HistogramView)> {
        let all = self.series.iter();
        let view = |(series, histogram): (&Series<_>, &Histogram)| {
            (series.clone(), histogram.view(series.measure.bounds()))
        };
        all.map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    fn call<'n>(server: &'n str, item: &'n str) -> Series<Option<&'n str>> {
        Series {
            server: Some(server),
            item: Some(item),
            ..Series::of(Measure::ServerOperation)
        }
    }

    fn total(view: &[(Series<Option<Arc<str>>>, HistogramView)]) -> u64 {
        view.iter().map(|(_, histogram)| histogram.count).sum()
    }

    #[test]
    fn shards_are_added_up_by_their_names() {
        let mut totals = Totals::default();
        for names in [["a", "b"], ["b", "a"]] {
            let mut shard = Shard::default();
            for name in names {
                shard.add(call("s", name), SHORT, None);
            }
            shard.add(Series::of(Measure::Overhead), SHORT, None);
            totals.merge(shard);
        }
        let view = totals.view();
        assert_eq!(view.len(), 3);
        assert!(view.iter().all(|(_, histogram)| histogram.count == 2));
    }

    #[test]
    fn names_above_the_limits_are_combined() {
        let mut totals = Totals::default();
        let long = "n".repeat(NAME_MAX + 1);
        for round in 0..2 {
            let mut shard = Shard::default();
            for number in 0..NAMES_MAX {
                shard.add(call("s", &format!("{round}-{number}")), SHORT, None);
            }
            shard.add(call("s", &long), SHORT, None);
            totals.merge(shard);
        }
        let view = totals.view();
        assert_eq!(view.len(), NAMES_MAX);
        assert_eq!(total(&view), 2 * NAMES_MAX as u64 + 2);
        let mut other = view
            .iter()
            .filter(|(series, _)| series.item.as_deref() == Some(OTHER));
        assert_eq!(other.next().unwrap().1.count, NAMES_MAX as u64 + 3);
    }

    #[test]
    fn series_above_the_limit_are_combined() {
        let mut totals = Totals::default();
        for round in 0..2 {
            let mut shard = Shard::default();
            for server in 0..70 {
                for item in 0..50 {
                    shard.add(
                        call(&format!("{round}-{server}"), &item.to_string()),
                        SHORT,
                        None,
                    );
                }
            }
            assert_eq!(shard.series.len(), SERIES_MAX + 1);
            totals.merge(shard);
        }
        let view = totals.view();
        assert!(view.len() <= SERIES_MAX + 1);
        assert_eq!(total(&view), 7_000);
    }
}
