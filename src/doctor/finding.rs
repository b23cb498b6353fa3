//! A finding of a check, and its output formats.

use serde::Serialize;
use serde_json::{Value, json};

use crate::telemetry::{Paint, Style, one_line, printable};

/// Severity of a finding; only an error makes the command fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warning,
    /// Informational.
    Note,
    Ok,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// Kind of check, such as `config`, `port` or `url`.
    pub check: &'static str,
    pub message: String,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    fn new(level: Level, check: &'static str, message: impl Into<String>) -> Self {
        Self {
            level,
            check,
            message: message.into(),
            advice: None,
        }
    }

    pub(super) fn good(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Ok, check, message)
    }

    pub(super) fn note(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Note, check, message)
    }

    pub(super) fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Warning, check, message)
    }

    pub(super) fn error(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(Level::Error, check, message)
    }

    pub(super) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// All findings with the number per level, worst first.
pub fn report_json(findings: &[Finding]) -> Value {
    json!({
        "errors": count(findings, Level::Error),
        "warnings": count(findings, Level::Warning),
        "findings": findings,
    })
}

/// The findings for people, with the worst last, next to the prompt.
pub fn report_text(findings: &[Finding], paint: Paint) -> String {
    let mut text = String::new();
    for finding in findings.iter().rev() {
        let (word, style) = match finding.level {
            Level::Error => ("error", Style::Bad),
            Level::Warning => ("warning", Style::Warning),
            Level::Note => ("note", Style::Dim),
            Level::Ok => ("ok", Style::Good),
        };
        let message = printable(finding.message.trim_end()).replace('\n', "\n         ");
        let word = paint.apply(style, &format!("{word:<7}"));
        text.push_str(&format!("{word}  {}: {message}\n", finding.check));
        if let Some(advice) = &finding.advice {
            text.push_str(&format!("         → {}\n", one_line(advice)));
        }
    }
    let (errors, warnings) = (
        count(findings, Level::Error),
        count(findings, Level::Warning),
    );
    text.push_str(&match (errors, warnings) {
        (0, 0) => "no problems found\n".to_owned(),
        _ => format!("errors: {errors}, warnings: {warnings}\n"),
    });
    text
}

fn count(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|it| it.level == level).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_ends_with_the_worst() {
        let findings = [
            Finding::error("port", "taken\u{1b}[2J").advice("free it"),
            Finding::good("config", "a\nb"),
        ];
        let expected = "\
ok       config: a
         b
error    port: taken\\u{1b}[2J
         → free it
errors: 1, warnings: 0
";
        assert_eq!(report_text(&findings, Paint::default()), expected);
        assert_eq!(report_text(&[], Paint::default()), "no problems found\n");
        let json = report_json(&findings);
        assert_eq!(json["errors"], 1);
        assert_eq!(json["findings"][0]["advice"], "free it");
    }
}
