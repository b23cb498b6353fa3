//! The calls of the last hour, for the overview.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maud::{Markup, html};

use super::text;

/// Time between two looks at the counters.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Looks that are kept: those of an hour.
const LOOKS_MAX: usize = 361;

/// Looks in a minute.
const PER_MINUTE: u64 = 6;

/// Height of the plot, in its own units.
const HEIGHT: u64 = 40;

/// Intervals that a plot is wide at least; each is one unit.
const WIDTH_MIN: usize = 36;

/// Calls and failures since the start, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    pub(super) calls: u64,
    pub(super) failed: u64,
}

/// The looks, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Traffic(Mutex<VecDeque<Look>>);

impl Traffic {
    pub(super) fn note(&self, look: Look) {
        let mut looks = self.lock();
        if looks.len() >= LOOKS_MAX {
            looks.pop_front();
        }
        looks.push_back(look);
    }

    /// What happened between one look and the next.
    fn intervals(&self) -> Vec<Look> {
        let looks = self.lock();
        let pairs = looks.iter().zip(looks.iter().skip(1));
        pairs
            .map(|(before, after)| Look {
                calls: after.calls.saturating_sub(before.calls),
                failed: after.failed.saturating_sub(before.failed),
            })
            .collect()
    }

    /// A plot of the hour; nothing before there was a call.
    pub(super) fn plot(&self) -> Markup {
        let intervals = self.intervals();
        let sum = |count: fn(&Look) -> u64| intervals.iter().map(count).sum::<u64>();
        let (calls, failed) = (sum(|it| it.calls), sum(|it| it.failed));
        let most = intervals.iter().map(|it| it.calls.max(it.failed)).max();
        let most = most.unwrap_or(0);
        let words = format!(
            "{} in the last hour, up to {} a minute, {} failed",
            text::many(calls, "call", "calls"),
            text::count(most * PER_MINUTE),
            text::count(failed),
        );
        let width = intervals.len().max(WIDTH_MIN) - 1;
        html! {
            @if calls + failed > 0 {
                div .card.traffic {
                    svg .spark viewBox=(format!("0 -1 {width} {}", HEIGHT + 2)) preserveAspectRatio="none"
                        role="img" aria-label=(words) {
                        path .calls d=(line(&intervals, most, |it| it.calls)) {}
                        @if failed > 0 { path .errors d=(line(&intervals, most, |it| it.failed)) {} }
                    }
                    p .hint { (words) }
                }
            }
        }
    }

    /// A panic elsewhere leaves whole looks behind.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Look>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A path through the intervals, the newest at the right edge.
fn line(intervals: &[Look], most: u64, count: fn(&Look) -> u64) -> String {
    let start = WIDTH_MIN.saturating_sub(intervals.len());
    let points = intervals.iter().enumerate().map(|(index, interval)| {
        let verb = if index == 0 { 'M' } else { 'L' };
        let (x, height) = (start + index, count(interval) * HEIGHT / most.max(1));
        format!("{verb}{x} {}", HEIGHT - height.min(HEIGHT))
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
            traffic.note(Look { calls, failed });
        }
        traffic
    }

    #[test]
    fn the_hour_is_a_line() {
        let traffic = traffic(&[(5, 0), (5, 0), (25, 10), (35, 10)]);
        let intervals = traffic.intervals();
        assert_eq!(line(&intervals, 20, |it| it.calls), "M33 40L34 0L35 20");
        assert_eq!(line(&intervals, 20, |it| it.failed), "M33 40L34 20L35 40");
        let plot = traffic.plot().into_string();
        assert!(
            plot.contains("30 calls in the last hour, up to 120 a minute, 10 failed"),
            "{plot}"
        );
    }

    #[test]
    fn nothing_is_plotted_without_calls() {
        for looks in [&[][..], &[(7, 1)], &[(7, 1), (7, 1)]] {
            assert_eq!(traffic(looks).plot().into_string(), "");
        }
    }

    #[test]
    fn looks_are_bounded() {
        let looks: Vec<(u64, u64)> = (0..1000).map(|number| (number, 0)).collect();
        let traffic = traffic(&looks);
        assert_eq!(traffic.intervals().len(), LOOKS_MAX - 1);
        assert!(traffic.plot().into_string().contains("d=\"M0 0L1 0"));
    }
}
