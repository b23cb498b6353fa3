//! The chart in the README: the results of some scenarios, as bars in an SVG.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Fallible;
use crate::measure::Figure;

/// Path of the chart: of a complete run, and of any other run.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/benchmark.svg");
const ASIDE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/benchmark.svg");

/// A scenario that the chart shows.
struct Shown {
    scenario: &'static str,
    title: &'static str,
    value: fn(&Figure) -> f64,
    unit: &'static str,
}

const SHOWN: [Shown; 4] = [
    Shown {
        scenario: "calls-64",
        title: "Calls, 64 connections (more is better)",
        value: |figure| figure.per_second,
        unit: "/s",
    },
    Shown {
        scenario: "calls-1",
        title: "Call, 1 connection, median (less is better)",
        value: |figure| figure.p50_us,
        unit: " µs",
    },
    Shown {
        scenario: "sessions",
        title: "Whole sessions of 5 requests, 16 connections (more is better)",
        value: |figure| figure.per_second,
        unit: "/s",
    },
    Shown {
        scenario: "list-4",
        title: "Lists of 4 tools, 64 connections (more is better)",
        value: |figure| figure.per_second,
        unit: "/s",
    },
];

/// Targets in the order of their bars, with the labels.
const TARGETS: [(&str, &str); 4] = [
    ("direct", "the server alone"),
    ("nginx", "nginx in front"),
    ("pass-through", "bare actix proxy"),
    ("gateway", "mcpvisor"),
];

/// Sizes in pixels.
const WIDTH: f64 = 760.0;
const LABELS: f64 = 140.0;
const VALUES: f64 = 100.0;
const ROW: f64 = 24.0;
const TITLE: f64 = 34.0;
const MARGIN: f64 = 20.0;

/// The bars of one scenario, with label and value.
pub(crate) type Bars = Vec<(&'static str, f64)>;

#[derive(Default)]
pub(crate) struct Chart {
    /// Bars of each measured scenario in [`SHOWN`].
    panels: Vec<(usize, Bars)>,
}

impl Chart {
    /// Keeps the figures of a scenario that the chart shows.
    pub(crate) fn add(&mut self, scenario: &str, figures: &[Figure]) {
        let Some(index) = SHOWN.iter().position(|shown| shown.scenario == scenario) else {
            return;
        };
        let bars = TARGETS.iter().filter_map(|(target, label)| {
            let figure = figures.iter().find(|figure| figure.target == *target)?;
            Some((*label, (SHOWN.get(index)?.value)(figure)))
        });
        self.panels.push((index, bars.collect()));
        self.panels.sort_by_key(|(index, _)| *index);
    }

    /// Writes the chart to the documentation after a complete run with nginx, otherwise to the
    /// target directory. `None` if no scenario of the chart was measured.
    pub(crate) fn write(&self, is_whole: bool, made_with: &str) -> Fallible<Option<PathBuf>> {
        if self.panels.is_empty() {
            return Ok(None);
        }
        let has_all = |(_, bars): &(usize, Bars)| bars.len() == TARGETS.len();
        let is_whole =
            is_whole && self.panels.len() == SHOWN.len() && self.panels.iter().all(has_all);
        let path = Path::new(if is_whole { CHART } else { ASIDE });
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, self.svg(made_with))?;
        Ok(Some(path.to_owned()))
    }

    pub(crate) fn svg(&self, made_with: &str) -> String {
        let mut y = MARGIN;
        let mut body = String::new();
        for (index, bars) in &self.panels {
            let Some(shown) = SHOWN.get(*index) else {
                continue;
            };
            panel(&mut body, &mut y, shown, bars);
        }
        let height = y + 36.0;
        let made_with = escaped(made_with);
        let footer = y + 14.0;
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="mcpvisor beside nginx, a bare proxy and the server alone">
<style>
text {{ font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2a37 }}
.title {{ font-weight: bold }} .note {{ font-size: 11px; fill: #56657a }}
.panel {{ fill: #ffffff; stroke: #c9d3df }} .bar {{ fill: #a9b8c9 }} .ours {{ fill: #2f6fde }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #d6deeb }} .note {{ fill: #93a1b5 }}
.panel {{ fill: #0d1726; stroke: #44546a }} .bar {{ fill: #55677e }} .ours {{ fill: #5c9bff }}
}}
</style>
<rect class="panel" x="0.5" y="0.5" width="{right}" height="{bottom}" rx="8"/>
{body}<text class="note" x="{MARGIN}" y="{footer}">{made_with}</text>
</svg>
"##,
            right = WIDTH - 1.0,
            bottom = height - 1.0,
        )
    }
}

fn panel(body: &mut String, y: &mut f64, shown: &Shown, bars: &Bars) {
    let longest = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let title = escaped(shown.title);
    let base = *y + 16.0;
    let _ = writeln!(
        body,
        r#"<text class="title" x="{MARGIN}" y="{base}">{title}</text>"#
    );
    *y += TITLE;
    for (label, value) in bars {
        let room = WIDTH - LABELS - VALUES - 2.0 * MARGIN;
        let length = if longest > 0.0 {
            value / longest * room
        } else {
            0.0
        };
        let class = if *label == "mcpvisor" { "ours" } else { "bar" };
        let (left, base) = (MARGIN + LABELS, *y + 12.0);
        let behind = left + length + 8.0;
        let (label, text) = (escaped(label), thousands(*value) + shown.unit);
        let _ = writeln!(
            body,
            r#"<text x="{MARGIN}" y="{base}">{label}</text><rect class="{class}" x="{left}" y="{y}" width="{length:.1}" height="16" rx="3"/><text x="{behind:.1}" y="{base}">{text}</text>"#
        );
        *y += ROW;
    }
    *y += 10.0;
}

/// Formats a number with thousands separators.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let count = digits.len();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (count - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Describes the machine, the build and the date in one line.
pub(crate) fn made_with(plan: &str, nginx: Option<&Path>) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let nginx = nginx.and_then(|nginx| {
        let output = std::process::Command::new(nginx).arg("-v").output().ok()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Some(said.trim().rsplit('/').next()?.to_owned())
    });
    let day = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let parts = [
        Some(format!("mcpvisor {}", env!("CARGO_PKG_VERSION"))),
        Some(format!("profile {}", profile())),
        nginx.map(|version| format!("nginx {version}")),
        Some(plan.to_owned()),
        Some(format!(
            "{cores} cores of {}",
            processor.unwrap_or_else(|| "an unknown processor".to_owned())
        )),
        day.get(..10).map(str::to_owned),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// Build profile, which is the name of the program's directory.
fn profile() -> String {
    let directory = Path::new(env!("CARGO_BIN_EXE_mcpvisor")).parent();
    let name = directory.and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
