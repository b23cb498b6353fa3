//! Plots of the last hour for the overview, from samples in memory.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use maud::{Markup, html};
use parking_lot::Mutex;

use super::text;
use crate::admin::Status;
use crate::admin::operator::Operator;
use crate::transport::process_usage;

/// Interval between two samples.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Number of samples kept, which span one hour.
const LOOKS_MAX: usize = 361;

/// Samples per minute.
const PER_MINUTE: u64 = 6;

/// Height of a plot, in its own units.
const HEIGHT: u64 = 40;

/// Minimum width of a plot in intervals; each interval is one unit wide.
const WIDTH_MIN: usize = 36;

const MIB: u64 = 1024 * 1024;

/// A sample of the gateway, with counts since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Look {
    calls: u64,
    failed: u64,
    tool_errors: u64,
    /// Closed connections to servers.
    lost: u64,
    /// Memory of all server processes, in bytes.
    memory: u64,
    /// Requests per histogram bucket, by upper bound in seconds; empty without measurements.
    requests: Vec<(f64, u64)>,
}

impl Look {
    pub(super) fn at(operator: &Operator) -> Self {
        let status = operator.status();
        let count = |name| status.counters.get(name).copied().unwrap_or(0);
        Self {
            calls: count("calls_started"),
            failed: count("calls_failed"),
            tool_errors: count("tool_errors"),
            lost: count("servers_lost"),
            memory: memory_of_servers(&status),
            requests: operator.state.metrics.requests().unwrap_or_default(),
        }
    }

    /// The changes since an earlier sample.
    fn since(&self, before: &Self) -> Self {
        let requests = self.requests.iter().enumerate();
        let requests = requests.map(|(index, (bound, count))| {
            let before = before.requests.get(index).map_or(0, |(_, count)| *count);
            (*bound, count.saturating_sub(before))
        });
        Self {
            calls: self.calls.saturating_sub(before.calls),
            failed: self.failed.saturating_sub(before.failed),
            tool_errors: self.tool_errors.saturating_sub(before.tool_errors),
            lost: self.lost.saturating_sub(before.lost),
            memory: self.memory,
            requests: requests.collect(),
        }
    }
}

fn memory_of_servers(status: &Status) -> u64 {
    let connections = status
        .servers
        .iter()
        .filter_map(|it| it.connection.as_ref());
    let groups: HashSet<u32> = connections
        .flat_map(|connection| connection.process_groups.iter().copied())
        .collect();
    if groups.is_empty() {
        return 0;
    }
    let processes = process_usage().into_iter();
    let of_servers = processes.filter(|process| groups.contains(&process.group));
    of_servers.map(|process| process.rss_bytes).sum()
}

/// The bucket within which this percentage of the requests was answered; `None` without requests.
fn percentile(requests: &[(f64, u64)], percent: u64) -> Option<usize> {
    let all: u64 = requests.iter().map(|(_, count)| count).sum();
    let wanted = (all * percent).div_ceil(100).max(1);
    let mut so_far = 0;
    requests.iter().position(|(_, count)| {
        so_far += count;
        so_far >= wanted
    })
}

/// The samples, oldest first.
#[derive(Debug, Default)]
pub(super) struct Traffic(Mutex<VecDeque<Look>>);

impl Traffic {
    pub(super) fn note(&self, look: Look) {
        let mut looks = self.0.lock();
        if looks.len() >= LOOKS_MAX {
            looks.pop_front();
        }
        looks.push_back(look);
    }

    /// The changes between consecutive samples.
    fn intervals(&self) -> Vec<Look> {
        let looks = self.0.lock();
        let pairs = looks.iter().zip(looks.iter().skip(1));
        pairs.map(|(before, after)| after.since(before)).collect()
    }

    /// The changes over the whole hour.
    fn hour(&self) -> Look {
        let looks = self.0.lock();
        match (looks.front(), looks.back()) {
            (Some(first), Some(last)) => last.since(first),
            _ => Look::default(),
        }
    }

    /// Plots of the hour, without those that would be empty.
    pub(super) fn plots(&self) -> Markup {
        let (intervals, hour) = (self.intervals(), self.hour());
        html! {
            div .plots {
                (calls(&intervals, &hour))
                (durations(&intervals, &hour))
                (memory(&intervals))
                (losses(&intervals, &hour))
            }
        }
    }
}

fn calls(intervals: &[Look], hour: &Look) -> Markup {
    let values = |count: fn(&Look) -> u64| intervals.iter().map(count).collect::<Vec<u64>>();
    let (calls, failed) = (values(|it| it.calls), values(|it| it.failed));
    let tool_errors = values(|it| it.tool_errors);
    let most = calls.iter().chain(&failed).copied().max().unwrap_or(0);
    let words = format!(
        "{} in the last hour, up to {} a minute, {} failed, {}",
        text::many(hour.calls, "call", "calls"),
        text::count(most * PER_MINUTE),
        text::count(hour.failed),
        text::many(hour.tool_errors, "tool error", "tool errors"),
    );
    let lines = [
        ("calls", "calls", calls),
        ("errors", "failed", failed),
        ("p95", "tool errors", tool_errors),
    ];
    let is_any = hour.calls + hour.failed > 0;
    html! { @if is_any { div .card.wide { (plot(&lines, &words)) } } }
}

/// Request durations, in the buckets of the histograms.
fn durations(intervals: &[Look], hour: &Look) -> Markup {
    let within = |percent| {
        let bucket = percentile(&hour.requests, percent)?;
        let bound = |bucket: usize| {
            let (bound, _) = hour.requests.get(bucket)?;
            let bound = Duration::try_from_secs_f64(*bound).ok()?;
            Some(humantime::format_duration(bound).to_string())
        };
        // The last bucket has no upper bound.
        match bound(bucket) {
            Some(bound) => Some(format!("up to {bound}")),
            None => Some(format!("more than {}", bound(bucket.checked_sub(1)?)?)),
        }
    };
    let line = |percent| -> Vec<u64> {
        let steps = intervals.iter().map(|it| percentile(&it.requests, percent));
        steps
            .map(|step| step.map_or(0, |step| step as u64 + 1))
            .collect()
    };
    let (Some(half), Some(most), Some(nearly_all)) = (within(50), within(95), within(99)) else {
        return html! {};
    };
    let words = format!("Half of the requests took {half}, 95 % {most}, 99 % {nearly_all}");
    let lines = [
        ("p99", "99 %", line(99)),
        ("p95", "95 %", line(95)),
        ("calls", "half", line(50)),
    ];
    html! { div .card { (plot(&lines, &words)) } }
}

fn memory(intervals: &[Look]) -> Markup {
    let memory: Vec<u64> = intervals.iter().map(|it| it.memory).collect();
    let now = memory.last().copied().unwrap_or(0);
    let most = memory.iter().copied().max().unwrap_or(0);
    let words = format!(
        "Processes of servers use {} MiB, at most {} MiB in the last hour",
        text::count(now.div_ceil(MIB)),
        text::count(most.div_ceil(MIB)),
    );
    html! { @if most > 0 { div .card { (plot(&[("calls", "memory", memory)], &words)) } } }
}

fn losses(intervals: &[Look], hour: &Look) -> Markup {
    let lost: Vec<u64> = intervals.iter().map(|it| it.lost).collect();
    let count = text::many(hour.lost, "connection", "connections");
    let words = format!("{count} to servers ended in the last hour");
    html! { @if hour.lost > 0 { div .card { (plot(&[("errors", "ends", lost)], &words)) } } }
}

/// Overlaid lines, each with its style and name, and a description in words.
fn plot(lines: &[(&str, &str, Vec<u64>)], words: &str) -> Markup {
    let values = || lines.iter().flat_map(|(_, _, values)| values);
    let most = values().copied().max().unwrap_or(0);
    let length = lines.iter().map(|(_, _, values)| values.len()).max();
    let width = length.unwrap_or(0).max(WIDTH_MIN) - 1;
    let drawn = lines
        .iter()
        .filter(|(_, _, values)| values.iter().any(|it| *it > 0));
    html! {
        svg .spark viewBox=(format!("0 -1 {width} {}", HEIGHT + 2)) preserveAspectRatio="none"
            role="img" aria-label=(words) {
            @for (style, _, values) in drawn.clone() { path .(style) d=(line(values, most)) {} }
        }
        p .hint { (words) }
        @if drawn.clone().count() > 1 {
            p .hint { @for (style, name, _) in drawn { span .key.(style) { (name) } " " } }
        }
    }
}

/// A path through the intervals, with the newest at the right edge.
fn line(values: &[u64], most: u64) -> String {
    let start = WIDTH_MIN.saturating_sub(values.len());
    let points = values.iter().enumerate().map(|(index, value)| {
        let verb = if index == 0 { 'M' } else { 'L' };
        let height = u128::from(*value) * u128::from(HEIGHT) / u128::from(most.max(1));
        let height = u64::try_from(height).unwrap_or(HEIGHT);
        format!("{verb}{} {}", start + index, HEIGHT - height.min(HEIGHT))
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(looks: &[(u64, u64)]) -> Traffic {
        let traffic = Traffic::default();
        for (calls, failed) in looks {
            let (calls, failed) = (*calls, *failed);
            traffic.note(Look {
                calls,
                failed,
                ..Look::default()
            });
        }
        traffic
    }

    #[test]
    fn the_hour_is_a_line() {
        assert_eq!(line(&[0, 20, 10], 20), "M33 40L34 0L35 20");
        assert_eq!(line(&[u64::MAX, 0], u64::MAX), "M34 0L35 40");
        let traffic = traffic(&[(5, 0), (5, 0), (25, 10), (35, 10)]);
        let plots = traffic.plots().into_string();
        assert!(
            plots.contains(
                "30 calls in the last hour, up to 120 a minute, 10 failed, 0 tool errors"
            ),
            "{plots}"
        );
        assert!(plots.contains("M33 40L34 20L35 40"), "{plots}");
    }

    #[test]
    fn requests_are_told_by_the_steps_of_their_durations() {
        let bounds = [0.01, 0.02, f64::INFINITY];
        let look = |counts: [u64; 3]| Look {
            requests: bounds.into_iter().zip(counts).collect(),
            ..Look::default()
        };
        let table = [
            ([0, 0, 0], [None; 3]),
            ([1, 0, 0], [Some(0); 3]),
            ([50, 50, 0], [Some(0), Some(1), Some(1)]),
            ([50, 48, 2], [Some(0), Some(1), Some(2)]),
        ];
        for (counts, expected) in table {
            let requests = look(counts).requests;
            let found = [50, 95, 99].map(|percent| percentile(&requests, percent));
            assert_eq!(found, expected, "{counts:?}");
        }
        let traffic = Traffic::default();
        traffic.note(look([7, 0, 0]));
        assert!(!traffic.plots().into_string().contains("Half"));
        traffic.note(look([57, 48, 2]));
        let plots = traffic.plots().into_string();
        let words = "Half of the requests took up to 10ms, 95 % up to 20ms, 99 % more than 20ms";
        assert!(plots.contains(words), "{plots}");
    }

    #[test]
    fn memory_and_lost_connections_are_plotted_where_there_are_any() {
        let traffic = Traffic::default();
        for (memory, lost) in [(0, 4), (3 * MIB, 4), (2 * MIB - 1, 6)] {
            traffic.note(Look {
                memory,
                lost,
                ..Look::default()
            });
        }
        let plots = traffic.plots().into_string();
        assert!(plots.contains("use 2 MiB, at most 3 MiB"), "{plots}");
        assert!(plots.contains("2 connections to servers ended"), "{plots}");
    }

    #[test]
    fn nothing_is_plotted_without_calls() {
        for looks in [&[][..], &[(7, 1)], &[(7, 1), (7, 1)]] {
            let plots = traffic(looks).plots().into_string();
            assert!(!plots.contains("svg"), "{plots}");
        }
    }

    #[test]
    fn looks_are_bounded() {
        let looks: Vec<(u64, u64)> = (0..1000).map(|number| (number, 0)).collect();
        let traffic = traffic(&looks);
        assert_eq!(traffic.intervals().len(), LOOKS_MAX - 1);
        assert!(traffic.plots().into_string().contains("d=\"M0 0L1 0"));
    }
}
