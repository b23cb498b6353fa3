//! ReportedProgress on a terminal, as a single line that is updated in place.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use mcpvisor::telemetry::one_line;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

/// Width of the bar.
const BAR_WIDTH: usize = 24;

/// Width of the whole line, which fits every terminal.
const LINE_WIDTH: usize = 79;

/// Minimum duration before progress is shown.
const SLOW: Duration = Duration::from_secs(1);

/// The state of some work.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReportedProgress {
    progress: Option<f64>,
    total: Option<f64>,
    message: Option<String>,
}

pub(super) struct ProgressLine {
    begun: Instant,
    is_terminal: bool,
    is_shown: bool,
}

impl ProgressLine {
    /// A display that shows nothing if stderr is not a terminal.
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            is_terminal: std::io::stderr().is_terminal(),
            is_shown: false,
        }
    }

    /// Shows progress from the parameters of `notifications/progress`.
    pub(super) fn show(&mut self, params: Value) {
        self.show_progress(&serde_json::from_value(params).unwrap_or_default());
    }

    fn show_progress(&mut self, progress: &ReportedProgress) {
        if self.is_terminal {
            self.is_shown = true;
            write(&format!("\r{}\x1b[K", progress_line(progress)));
        }
    }

    /// Shows a count of completed work, once it takes long.
    pub(super) fn show_when_slow(&mut self, done: usize, total: usize, message: &str) {
        if self.begun.elapsed() > SLOW {
            self.show_progress(&ReportedProgress {
                progress: Some(done as f64),
                total: Some(total as f64),
                message: Some(message.to_owned()),
            });
        }
    }

    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            write("\r\x1b[K");
        }
    }
}

/// Ignores errors: a closed terminal needs no progress.
fn write(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    let _ = err.flush();
}

/// A bar if the total is known, otherwise the raw progress and message.
fn progress_line(shown: &ReportedProgress) -> String {
    let (progress, total) = (shown.progress, shown.total);
    let share = progress.zip(total).filter(|(_, total)| *total > 0.0);
    let share = share.map(|(progress, total)| (progress / total).clamp(0.0, 1.0));
    let message = shown.message.as_deref().map(one_line);
    let line = match share {
        Some(share) => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the share is between 0 and 1"
            )]
            let (filled, percent) = (
                (share * BAR_WIDTH as f64) as usize,
                (share * 100.0) as usize,
            );
            let bar = format!("{}{}", "#".repeat(filled), "-".repeat(BAR_WIDTH - filled));
            format!("[{bar}] {percent:>3} %  {}", message.unwrap_or_default())
        }
        None => message.unwrap_or_else(|| {
            progress.map_or_else(|| "…".to_owned(), |progress| format!("{progress} …"))
        }),
    };
    line.trim_end().chars().take(LINE_WIDTH).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_is_a_bar_or_what_was_said() {
        let table = [
            (
                json!({"progress": 3, "total": 4, "message": "files\n"}),
                "[##################------]  75 %  files\\n",
            ),
            (
                json!({"progress": 9, "total": 4}),
                "[########################] 100 %",
            ),
            (json!({"progress": 2, "message": "reads"}), "reads"),
            (json!({"progress": 2.5, "total": 0}), "2.5 …"),
            (json!({}), "…"),
        ];
        for (params, expected) in table {
            let shown = serde_json::from_value(params.clone()).unwrap();
            assert_eq!(progress_line(&shown), expected, "{params}");
        }
        let long = progress_line(&ReportedProgress {
            message: Some("x".repeat(500)),
            ..ReportedProgress::default()
        });
        assert_eq!(long.chars().count(), LINE_WIDTH);
    }
}
