//! One run of the benchmark: its options, and the parts that all scenarios use.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::Fallible;
use crate::chart::{Chart, made_with};
use crate::client::Ids;
use crate::measure::Plan;
use crate::report::Report;
use crate::targets;

const FULL: Plan = Plan {
    rounds: 5,
    slice: Duration::from_secs(1),
};
const SMOKE: Plan = Plan {
    rounds: 2,
    slice: Duration::from_millis(150),
};

pub(crate) struct Bench {
    pub(crate) smoke: bool,
    pub(crate) plan: Plan,
    pub(crate) dir: TempDir,
    pub(crate) nginx: Option<PathBuf>,
    /// Another build of the gateway, measured for comparison.
    pub(crate) before: Option<PathBuf>,
    pub(crate) ids: Ids,
    pub(crate) report: Report,
    pub(crate) chart: Chart,
    filters: Vec<String>,
}

impl Bench {
    /// `filters` are substrings of scenario names; an empty list selects all scenarios.
    pub(crate) fn new(
        smoke: bool,
        before: Option<PathBuf>,
        filters: Vec<String>,
    ) -> Fallible<Self> {
        let mut report = Report::default();
        let nginx = targets::find_nginx();
        if nginx.is_none() {
            let text = "nginx is NOT installed: nothing is compared with it";
            // In CI, the comparison is required.
            if std::env::var_os("CI").is_some() {
                report.error(text);
            } else {
                report.line(&format!("!!! {text}"));
            }
        }
        let plan = if smoke { SMOKE } else { FULL };
        let cores = std::thread::available_parallelism()?;
        report.line(&format!(
            "{} rounds of {:?}, {cores} cores",
            plan.rounds, plan.slice
        ));
        Ok(Self {
            smoke,
            plan,
            dir: tempfile::tempdir()?,
            nginx,
            before,
            ids: Ids::default(),
            report,
            chart: Chart::default(),
            filters,
        })
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.filters.is_empty()
            || self
                .filters
                .iter()
                .any(|filter| name.contains(filter.as_str()))
    }

    /// Writes the chart and prints its path.
    pub(crate) fn draw(&self) -> Fallible<()> {
        let Plan { rounds, slice } = self.plan;
        let made_with = made_with(
            &format!("{rounds} rounds of {slice:?}"),
            self.nginx.as_deref(),
        );
        let is_whole = !self.smoke && self.filters.is_empty();
        if let Some(path) = self.chart.write(is_whole, &made_with)? {
            self.report.line(&format!("chart: {}", path.display()));
        }
        Ok(())
    }

    pub(crate) fn wants_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.wants(name))
    }
}
