//! The printed report: a table for each scenario, ratios, and the targets for each figure.

use crate::measure::{Figure, median};

/// A minimum or maximum for a value.
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) value: Option<f64>,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Default)]
pub(crate) struct Report {
    errors: usize,
    missed: Vec<String>,
    met: usize,
    open: usize,
}

/// Selects the compared figures of a target, one per round.
type Reading = fn(&Figure) -> Vec<f64>;

pub(crate) const PER_SECOND: Reading =
    |figure| figure.rounds.iter().map(|round| round.per_second).collect();
pub(crate) const P50: Reading = |figure| figure.rounds.iter().map(|round| round.p50_us).collect();
pub(crate) const CPU: Reading = |figure| figure.rounds.iter().map(|round| round.cpu_us).collect();

/// Median of the ratios in the rounds that measured both targets.
pub(crate) fn ratio(figures: &[Figure], of: &str, to: &str, reading: Reading) -> Option<f64> {
    let find = |name: &str| figures.iter().find(|figure| figure.target == name);
    let (of, to) = (reading(find(of)?), reading(find(to)?));
    let pairs = of
        .into_iter()
        .zip(to)
        .filter(|(of, to)| *of > 0.0 && *to > 0.0);
    let ratios: Vec<f64> = pairs.map(|(of, to)| of / to).collect();
    (!ratios.is_empty()).then(|| median(ratios))
}

impl Report {
    pub(crate) fn title(&self, name: &str, text: &str) {
        println!("\n{name}: {text}");
    }

    pub(crate) fn table(&mut self, figures: &[Figure]) {
        println!(
            "  {:<13}{:>11}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}{:>10}{:>8}",
            "",
            "per s",
            "p50 us",
            "p99 us",
            "cpu us",
            "stub us",
            "/nginx",
            "/pass",
            "calls",
            "errors"
        );
        for figure in figures {
            let beside = |other| match ratio(figures, figure.target, other, PER_SECOND) {
                Some(ratio) => format!("{ratio:.2}"),
                None => "-".to_owned(),
            };
            println!(
                "  {:<13}{:>11.0}{:>10.0}{:>10.0}{:>10.1}{:>10.1}{:>8}{:>8}{:>10}{:>8}",
                figure.target,
                figure.per_second,
                figure.p50_us,
                figure.p99_us,
                figure.cpu_us,
                figure.server_us,
                beside("nginx"),
                beside("pass-through"),
                figure.calls,
                figure.errors,
            );
            self.errors += figure.errors;
            if let Some(error) = &figure.first_error {
                println!("    first error of {}: {error}", figure.target);
            }
        }
    }

    pub(crate) fn line(&self, text: &str) {
        println!("  {text}");
    }

    pub(crate) fn goal(&mut self, goal: Goal) {
        let Goal { what, value, bound } = goal;
        let (met, wanted) = match bound {
            Bound::AtLeast(least) => (value.map(|value| value >= least), format!(">= {least}")),
            Bound::AtMost(most) => (value.map(|value| value <= most), format!("<= {most}")),
        };
        let shown = value.map_or_else(|| "not measured".to_owned(), |value| format!("{value:.2}"));
        let verdict = match met {
            Some(true) => "ok",
            Some(false) => "MISS",
            None => "-",
        };
        println!("  {what:<58} {shown:>13}  {wanted:<10} {verdict}");
        match met {
            Some(true) => self.met += 1,
            Some(false) => self
                .missed
                .push(format!("{what}: {shown}, wanted {wanted}")),
            None => self.open += 1,
        }
    }

    /// Records an error.
    pub(crate) fn error(&mut self, text: &str) {
        self.errors += 1;
        println!("  ERROR: {text}");
    }

    /// Prints the summary and returns whether all answers were correct.
    pub(crate) fn end(&self) -> bool {
        println!(
            "\n{} targets met, {} missed, {} not measured, {} errors",
            self.met,
            self.missed.len(),
            self.open,
            self.errors
        );
        for missed in &self.missed {
            println!("  MISS  {missed}");
        }
        self.errors == 0
    }
}
