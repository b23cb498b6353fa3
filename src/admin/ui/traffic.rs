//! Samples of the gateway for its plots: many of the last hour, fewer of the time before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

use crate::admin::Status;
use crate::admin::operator::Operator;
use crate::telemetry::unix_millis;
use crate::transport::ProcessUsage;

/// Interval between two samples.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Number of samples kept at each distance.
const LOOKS_MAX: usize = 361;

/// A sample of the gateway, with counts since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Look {
    /// In milliseconds since 1970.
    pub(super) at: u64,
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) tool_errors: u64,
    pub(super) sessions: u64,
    /// Memory of all server processes, in bytes.
    pub(super) of_servers: u64,
    /// Memory of the gateway, in bytes.
    pub(super) own: u64,
}

/// Samples at a minimum distance, oldest first.
#[derive(Debug)]
struct Looks {
    /// In milliseconds.
    distance: u64,
    kept: VecDeque<Look>,
    /// Whether the distance doubles instead of the oldest samples being lost.
    is_whole: bool,
}

impl Looks {
    fn every(distance: Duration, is_whole: bool) -> Self {
        Self {
            distance: u64::try_from(distance.as_millis()).unwrap_or(u64::MAX),
            kept: VecDeque::new(),
            is_whole,
        }
    }

    fn note(&mut self, look: Look) {
        let is_early = |last: &Look| look.at < last.at.saturating_add(self.distance);
        if self.kept.back().is_some_and(is_early) {
            return;
        }
        self.kept.push_back(look);
        if self.kept.len() <= LOOKS_MAX {
            return;
        }
        if !self.is_whole {
            self.kept.pop_front();
            return;
        }
        self.distance = self.distance.saturating_mul(2);
        let mut is_odd = true;
        self.kept.retain(|_| {
            is_odd = !is_odd;
            !is_odd
        });
    }
}

/// The samples of a gateway.
#[derive(Debug)]
pub(super) struct Traffic {
    /// Samples of the last hour, of the last six hours, and since the start.
    looks: Mutex<[Looks; 3]>,
    /// The memory of each process group in the last sample, in bytes.
    groups: Mutex<HashMap<u32, u64>>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            looks: Mutex::new([
                // Timers are late rather than early, but clocks are not exact.
                Looks::every(LOOK_EVERY / 2, false),
                Looks::every(Duration::from_secs(60), false),
                Looks::every(Duration::from_secs(60), true),
            ]),
            groups: Mutex::default(),
        }
    }
}

impl Traffic {
    /// Takes a sample of the counters and of the memory of these processes.
    pub(super) fn look(&self, operator: &Operator, processes: &[ProcessUsage]) {
        let status = operator.status();
        let (mut groups, mut own) = (HashMap::new(), 0);
        for process in processes {
            *groups.entry(process.group).or_default() += process.rss_bytes;
            if process.pid == status.pid {
                own = process.rss_bytes;
            }
        }
        let count = |name| status.counters.get(name).copied().unwrap_or(0);
        self.note(Look {
            at: unix_millis(),
            calls: count("calls_started"),
            failed: count("calls_failed"),
            tool_errors: count("tool_errors"),
            sessions: status.sessions as u64,
            of_servers: memory_of(&groups, groups_of(&status)),
            own,
        });
        *self.groups.lock() = groups;
    }

    fn note(&self, look: Look) {
        for looks in self.looks.lock().iter_mut() {
            looks.note(look);
        }
    }

    /// The samples since a time, and the one before it: the finest that reach so far back.
    pub(super) fn since(&self, at: u64) -> Vec<Look> {
        let looks = self.looks.lock();
        let [fine, .., whole] = &*looks;
        // A young gateway has no samples from before its start.
        let at_least = at.max(whole.kept.front().map_or(0, |first| first.at));
        let reaches =
            |looks: &&Looks| (looks.kept.front()).is_some_and(|first| first.at <= at_least);
        let kept = &looks.iter().find(reaches).unwrap_or(whole).kept;
        let first = kept.partition_point(|look| look.at <= at).saturating_sub(1);
        let mut found: Vec<Look> = kept.range(first..).copied().collect();
        let last = fine.kept.back().filter(|last| found.last() != Some(last));
        found.extend(last);
        found
    }

    /// Memory of these process groups in the last sample, in bytes.
    pub(super) fn memory(&self, groups: &[u32]) -> u64 {
        memory_of(&self.groups.lock(), groups.iter().copied().collect())
    }
}

fn groups_of(status: &Status) -> HashSet<u32> {
    let servers = status.servers.iter();
    let connections = servers.filter_map(|it| it.connection.as_ref());
    connections
        .flat_map(|connection| connection.process_groups.iter().copied())
        .collect()
}

fn memory_of(all: &HashMap<u32, u64>, groups: HashSet<u32>) -> u64 {
    groups.iter().filter_map(|group| all.get(group)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(seconds: u64) -> Traffic {
        let traffic = Traffic::default();
        for second in (0..=seconds).step_by(10) {
            traffic.note(Look {
                at: second * 1000,
                calls: second,
                ..Look::default()
            });
        }
        traffic
    }

    #[test]
    fn samples_are_finer_where_they_are_newer() {
        const HOUR: u64 = 3600;
        let traffic = traffic(48 * HOUR);
        let now = 48 * HOUR * 1000;
        for (hours, distance) in [(1, 10), (6, 60), (48, 480)] {
            let found = traffic.since(now - hours * HOUR * 1000);
            assert!(found.len() <= LOOKS_MAX + 1, "{}", found.len());
            assert_eq!(found[0].at, now - hours * HOUR * 1000);
            assert_eq!(found[1].at - found[0].at, distance * 1000, "{hours}");
            assert_eq!(found.last().unwrap().at, now);
        }
    }

    #[test]
    fn a_young_gateway_has_all_its_samples() {
        let traffic = traffic(30);
        let at = |since| -> Vec<u64> { traffic.since(since).iter().map(|it| it.at).collect() };
        assert_eq!(at(10_000), [10_000, 20_000, 30_000]);
        assert_eq!(at(15_000), [10_000, 20_000, 30_000]);
        assert_eq!(at(99_000), [30_000]);
        assert!(Traffic::default().since(0).is_empty());
    }

    #[test]
    fn a_group_is_counted_once() {
        let all = HashMap::from([(1, 10), (2, 5), (3, 1)]);
        assert_eq!(memory_of(&all, [1, 1, 3, 9].into_iter().collect()), 11);
    }
}
