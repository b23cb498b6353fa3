//! Plots of calls, durations, sessions and memory, which the script draws, and their numbers in a
//! table for browsers without it.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde::Serialize;
use url::form_urlencoded::Serializer;

use super::page::View;
use super::recent::percentile;
use super::traffic::Look;
use super::{response, text};
use crate::history::{CallTiming, HistoryQuery};
use crate::telemetry::unix_millis;

/// Number of points in a plot.
const POINTS: u64 = 90;

/// Minimum distance of two points, in seconds: the distance of two samples.
const STEP_MIN: u64 = 10;

/// Maximum calls of an interval whose durations are read.
const CALLS_OF_INTERVAL: usize = 50;

const MIB: f64 = 1024.0 * 1024.0;

/// The ranges by their names in a query. The seconds of the last one are those since the start.
const RANGES: [(&str, &str, u64); 4] = [
    ("15m", "15 min", 900),
    ("1h", "1 hour", 3600),
    ("6h", "6 hours", 6 * 3600),
    ("start", "Since start", u64::MAX),
];

/// Titles and units of the plots of the gateway; a server has the first two.
const TITLES: [(&str, &str); 4] = [
    ("Calls", "per minute"),
    ("Duration", "ms"),
    ("Sessions", ""),
    ("Memory", "MiB"),
];

/// A line of a plot, with a value for each time.
#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    /// The colour, by its name in the style sheet.
    style: &'static str,
    values: Vec<Option<f64>>,
}

#[derive(Debug, Serialize)]
struct Plot {
    title: &'static str,
    unit: &'static str,
    lines: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Plots {
    /// Ends of the intervals, in seconds since 1970.
    times: Vec<u64>,
    plots: Vec<Plot>,
}

/// Intervals of equal length, in milliseconds since 1970. They end at multiples of the length, so
/// that an interval stays the same while time passes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Steps {
    end: u64,
    length: u64,
}

impl Steps {
    fn of(seconds: u64, now: u64) -> Self {
        let length = seconds.div_ceil(POINTS).max(STEP_MIN) * 1000;
        Self {
            end: now / length * length,
            length,
        }
    }

    fn start(self) -> u64 {
        self.end.saturating_sub(POINTS * self.length)
    }

    fn ends(self) -> impl Iterator<Item = u64> {
        (1..=POINTS).map(move |number| self.start() + number * self.length)
    }

    /// The increase of a count in each interval, per minute.
    fn rates(self, looks: &[Look], count: fn(&Look) -> u64) -> Vec<Option<f64>> {
        let minutes = self.length as f64 / 60_000.0;
        let rate = |end: u64| {
            let before = between(looks, end - self.length, count)?;
            Some((between(looks, end, count)? - before) / minutes)
        };
        self.ends().map(rate).collect()
    }

    fn gauges(self, looks: &[Look], gauge: fn(&Look) -> u64, unit: f64) -> Vec<Option<f64>> {
        let value = |end| between(looks, end, gauge).map(|value| value / unit);
        self.ends().map(value).collect()
    }
}

/// The recorded calls of an interval: the last ones, and the number of all.
#[derive(Clone, Debug, Default)]
struct Interval {
    calls: Vec<CallTiming>,
    total: u64,
}

/// The recorded calls of one server, or of all, in each interval. Those of a search that takes too
/// long are only counted.
async fn recorded(view: &View<'_>, server: Option<&str>, steps: Steps) -> Vec<Interval> {
    let query = |end: u64| {
        let mut query = HistoryQuery {
            limit: CALLS_OF_INTERVAL,
            ..HistoryQuery::default()
        };
        query.filter.server = server.map(str::to_owned);
        query.filter.since = Some(end - steps.length);
        query.filter.until = Some(end);
        query
    };
    let queries = steps.ends().map(query).collect();
    let pages = view.operator.state.history.pages(queries).await;
    let pages = pages.unwrap_or_default().into_iter().map(|page| Interval {
        calls: page.timings(),
        total: page.total.unwrap_or_default(),
    });
    let none = std::iter::repeat(Interval::default());
    let all = usize::try_from(POINTS).unwrap_or_default();
    pages.chain(none).take(all).collect()
}

/// A count at a time between samples; `None` before the first and after the last one.
fn between(looks: &[Look], at: u64, count: fn(&Look) -> u64) -> Option<f64> {
    let next = looks.partition_point(|look| look.at < at);
    let after = looks.get(next)?;
    if after.at == at {
        return Some(count(after) as f64);
    }
    let before = looks.get(next.checked_sub(1)?)?;
    let part = (at - before.at) as f64 / (after.at - before.at) as f64;
    let (first, last) = (count(before) as f64, count(after) as f64);
    Some(first + (last - first) * part)
}

/// The chosen range.
fn range(view: &View<'_>) -> (&'static str, u64) {
    let wanted = view.query("range").unwrap_or_default();
    let found = RANGES.iter().find(|(name, ..)| *name == wanted);
    let (name, _, seconds) = found.unwrap_or(&RANGES[0]);
    let uptime = || view.operator.state.started.elapsed().as_secs();
    (
        name,
        if *seconds == u64::MAX {
            uptime()
        } else {
            *seconds
        },
    )
}

fn line(name: &'static str, style: &'static str, mut values: Vec<Option<f64>>) -> Line {
    for value in values.iter_mut().flatten() {
        *value = (*value * 100.0).round() / 100.0;
    }
    Line {
        name,
        style,
        values,
    }
}

fn durations(intervals: &[Interval]) -> Vec<Line> {
    let of = |percent| {
        let intervals = intervals.iter();
        let value = |interval: &Interval| {
            let mut all: Vec<f64> = interval.calls.iter().map(|call| call.millis).collect();
            percentile(&mut all, percent)
        };
        intervals.map(value).collect()
    };
    vec![line("p50", "accent", of(50)), line("p95", "second", of(95))]
}

/// Calls of one server. Before its first recorded call nothing is known.
fn rates(intervals: &[Interval], steps: Steps) -> Vec<Line> {
    let first = intervals.iter().position(|interval| interval.total > 0);
    let minutes = steps.length as f64 / 60_000.0;
    let of = |fits: fn(&CallTiming) -> bool| {
        let rate = |(index, interval): (usize, &Interval)| {
            let Interval { calls, total } = interval;
            let count = calls.iter().filter(|call| fits(call)).count();
            let share = count as f64 / calls.len().max(1) as f64;
            (first? <= index).then_some(share * *total as f64 / minutes)
        };
        intervals.iter().enumerate().map(rate).collect()
    };
    vec![
        line("calls", "accent", of(|_| true)),
        line("failed", "bad", of(CallTiming::is_failed)),
        line("tool errors", "warn", of(CallTiming::is_tool_error)),
    ]
}

impl Plots {
    async fn of(view: &View<'_>, server: Option<&str>) -> Self {
        let (_, seconds) = range(view);
        let steps = Steps::of(seconds, unix_millis());
        let intervals = recorded(view, server, steps).await;
        let lines = match server {
            Some(_) => vec![rates(&intervals, steps), durations(&intervals)],
            None => {
                let looks = view.traffic.since(steps.start());
                let rates = |count| steps.rates(&looks, count);
                vec![
                    vec![
                        line("calls", "accent", rates(|it| it.calls)),
                        line("failed", "bad", rates(|it| it.failed)),
                        line("tool errors", "warn", rates(|it| it.tool_errors)),
                    ],
                    durations(&intervals),
                    vec![line(
                        "sessions",
                        "accent",
                        steps.gauges(&looks, |it| it.sessions, 1.0),
                    )],
                    vec![
                        line(
                            "servers",
                            "accent",
                            steps.gauges(&looks, |it| it.of_servers, MIB),
                        ),
                        line("gateway", "second", steps.gauges(&looks, |it| it.own, MIB)),
                    ],
                ]
            }
        };
        let plots = TITLES.into_iter().zip(lines);
        let plot = |((title, unit), lines)| Plot { title, unit, lines };
        Self {
            times: steps.ends().map(|end| end / 1000).collect(),
            plots: plots.map(plot).collect(),
        }
    }

    /// The numbers of all plots, newest first, without the times of which nothing is known.
    fn table(&self) -> Markup {
        let lines = || self.plots.iter().flat_map(|plot| &plot.lines);
        let values = |index: usize| lines().map(move |it| it.values.get(index).copied().flatten());
        let known = |index: &usize| values(*index).any(|value| value.is_some());
        html! {
            div .table tabindex="0" role="region" aria-label="Numbers of the plots" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Until" }
                            @for plot in &self.plots {
                                @for line in &plot.lines {
                                    th .number scope="col" { (line.name) @if !plot.unit.is_empty() { ", " (plot.unit) } }
                                }
                            }
                        }
                    }
                    tbody {
                        @for index in (0..self.times.len()).rev().filter(known) {
                            tr {
                                td .nowrap { (text::moment(self.times[index] * 1000)) }
                                @for value in values(index) {
                                    td .number { @if let Some(value) = value { (format!("{value:.1}")) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The plots as data for the script.
pub(super) async fn answer(view: &View<'_>) -> HttpResponse {
    response::json(StatusCode::OK, &Plots::of(view, view.query("server")).await)
}

/// The plots of the gateway or of one server, with the choice of their range.
pub(super) async fn section(view: &View<'_>, server: Option<&str>) -> Markup {
    let (chosen, _) = range(view);
    let plots = Plots::of(view, server).await;
    let mut source = Serializer::new("/ui/plots?".to_owned());
    source.append_pair("range", chosen);
    source.extend_pairs(server.map(|server| ("server", server)));
    html! {
        section .plots data-source=(source.finish()) aria-labelledby="plots" {
            header .heading {
                h2 #plots { "Traffic" }
                div .choice role="group" aria-label="Range" {
                    @for (name, words, _) in RANGES {
                        a href={ (view.path) "?range=" (name) } aria-current=[(name == chosen).then_some("true")] { (words) }
                    }
                }
            }
            div .grid {
                @for plot in &plots.plots {
                    div .card.plot {
                        p { span .strong { (plot.title) } " " span .hint { (plot.unit) } }
                        div .canvas role="img" aria-label={ "Plot: " (plot.title) } {}
                    }
                }
            }
            details .numbers {
                summary { "Numbers" }
                (plots.table())
            }
            p .hint {
                "Durations are of the last " (CALLS_OF_INTERVAL) " recorded calls of each point."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: u64, calls: u64) -> Look {
        Look {
            at,
            calls,
            ..Look::default()
        }
    }

    #[test]
    fn counts_between_samples_are_in_proportion() {
        let looks = [look(10_000, 0), look(20_000, 10), look(40_000, 10)];
        let table = [
            (9_999, None),
            (10_000, Some(0.0)),
            (15_000, Some(5.0)),
            (30_000, Some(10.0)),
            (40_000, Some(10.0)),
            (40_001, None),
        ];
        for (at, expected) in table {
            assert_eq!(between(&looks, at, |it| it.calls), expected, "{at}");
        }
    }

    #[test]
    fn a_range_has_its_points_at_even_times() {
        let table = [(1, 10), (900, 10), (3600, 40), (21_600, 240)];
        for (seconds, length) in table {
            let steps = Steps::of(seconds, 100_007_000_123);
            assert_eq!(steps.length, length * 1000);
            let ends: Vec<u64> = steps.ends().collect();
            assert_eq!(ends.len() as u64, POINTS);
            assert_eq!(ends.last(), Some(&steps.end));
            assert!(ends.iter().all(|end| end % steps.length == 0));
        }
    }

    #[test]
    fn calls_are_counted_per_minute() {
        let steps = Steps::of(900, 1_000_000);
        let looks = [look(980_000, 4), look(990_000, 4), look(1_000_000, 7)];
        let rates = steps.rates(&looks, |it| it.calls);
        assert_eq!(rates[87..], [None, Some(0.0), Some(18.0)]);
    }

    #[test]
    fn recorded_calls_become_rates_and_durations() {
        let steps = Steps::of(900, 1_000_000);
        let call = |millis, outcome: &str| CallTiming {
            at: 1,
            millis,
            server: "a".to_owned(),
            outcome: outcome.to_owned(),
        };
        let interval = |calls: Vec<CallTiming>, total| Interval { calls, total };
        let intervals = [
            Interval::default(),
            interval(vec![call(4.0, "failed")], 1),
            interval(vec![call(1.0, "ok"), call(3.0, "tool_error")], 4),
            Interval::default(),
        ];
        let lines = rates(&intervals, steps);
        assert_eq!(lines[0].values, [None, Some(6.0), Some(24.0), Some(0.0)]);
        assert_eq!(lines[1].values, [None, Some(6.0), Some(0.0), Some(0.0)]);
        assert_eq!(lines[2].values, [None, Some(0.0), Some(12.0), Some(0.0)]);
        let lines = durations(&intervals);
        assert_eq!(lines[0].values, [None, Some(4.0), Some(1.0), None]);
        assert_eq!(lines[1].values, [None, Some(4.0), Some(3.0), None]);
    }
}
