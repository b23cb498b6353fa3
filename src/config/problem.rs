//! Problems of a configuration, each shown at its position in the file.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use strsim::osa_distance;

use crate::telemetry::{is_unprintable, printable};

/// Maximum number of problems shown per file; the rest are only counted.
const SHOWN_MAX: usize = 20;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The full key, such as `servers.docs.url`; empty if the file is not valid TOML.
    pub key: String,
    /// Description of the problem; never contains a value from the environment.
    pub message: String,
    /// How to fix it.
    pub help: Option<String>,
    /// Line in the file, starting at 1; `None` if the cause is outside the file.
    pub line: Option<usize>,
    pub(super) span: Option<Range<usize>>,
}

impl Problem {
    pub(super) fn new(key: &str, message: String) -> Self {
        Self {
            key: one_line(key),
            message: one_line(&message),
            help: None,
            line: None,
            span: None,
        }
    }

    pub(super) fn at(mut self, span: Option<Range<usize>>) -> Self {
        self.span = span;
        self
    }

    pub(super) fn help(mut self, help: impl Into<Option<String>>) -> Self {
        self.help = help.into();
        self
    }
}

/// Makes a key safe to display: it can contain control characters that would move a terminal's
/// cursor.
pub(super) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| {
            if is_unprintable(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// Why the configuration is unusable. `Display` is multi-line, with positions in the file;
/// [`ConfigError::summary`] is one line, for the log.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Invalid(Invalid),
}

impl ConfigError {
    /// The first problem and the number of others, in one line without values.
    pub fn summary(&self) -> String {
        let Self::Invalid(invalid) = self else {
            return self.to_string();
        };
        let Some(first) = invalid.problems.first() else {
            return invalid.file.clone();
        };
        let place = match first.line {
            Some(line) => format!("{}:{line}", invalid.file),
            None => invalid.file.clone(),
        };
        let others = match invalid.problems.len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        format!("{place}: {}{others}", first.message)
    }

    /// All problems, in file order.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Read { .. } => &[],
            Self::Invalid(invalid) => &invalid.problems,
        }
    }
}

/// A file that was read but refused.
#[derive(Debug)]
pub struct Invalid {
    file: String,
    problems: Vec<Problem>,
    rendered: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered)
    }
}

impl Invalid {
    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// `source` is displayed, so it must already be masked.
    pub(super) fn new(file: &str, source: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
        for problem in &mut problems {
            problem.span = problem.span.take().map(|span| clamp(source, span));
            problem.line = problem
                .span
                .as_ref()
                .map(|span| line_of(source, span.start));
        }
        let mut rendered: Vec<String> = problems
            .iter()
            .take(SHOWN_MAX)
            .map(|problem| render(file, source, problem))
            .collect();
        if problems.len() > SHOWN_MAX {
            rendered.push(format!("and {} more", problems.len() - SHOWN_MAX));
        }
        Self {
            file: file.to_owned(),
            problems,
            rendered: rendered.join("\n\n"),
        }
    }
}

/// Clamps a span to the text and to character boundaries.
fn clamp(source: &str, span: Range<usize>) -> Range<usize> {
    let start = source.floor_char_boundary(span.start);
    let end = source.ceil_char_boundary(span.end.max(start));
    start..end
}

pub(super) fn line_of(source: &str, offset: usize) -> usize {
    let before = source.as_bytes().iter().take(offset);
    before.filter(|byte| **byte == b'\n').count() + 1
}

fn render(file: &str, source: &str, problem: &Problem) -> String {
    let mut group = match &problem.span {
        Some(span) => Level::ERROR.primary_title(&problem.message).element(
            Snippet::source(source)
                .path(file)
                .annotation(AnnotationKind::Primary.span(first_line(source, span))),
        ),
        None => Level::ERROR
            .primary_title(&problem.message)
            .element(annotate_snippets::Origin::path(file)),
    };
    if let Some(help) = &problem.help {
        group = group.element(Level::HELP.message(help));
    }
    // The renderer shows C0 and direction marks as symbols, and leaves C1 as it is.
    let rendered = Renderer::plain()
        .decor_style(DecorStyle::Ascii)
        .render(&[group]);
    printable(&rendered)
}

/// Reduces a span to its first line: a caret under a whole table is less clear.
fn first_line(source: &str, span: &Range<usize>) -> Range<usize> {
    let length = source
        .get(span.clone())
        .and_then(|text| text.lines().next())
        .map_or(0, str::len);
    span.start..span.start + length
}

/// The candidate that was probably intended: at most a third of its letters differ.
pub(super) fn nearest<'c>(
    written: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let written: String = plain(written).chars().take(64).collect();
    candidates
        .into_iter()
        .map(|candidate| (osa_distance(&written, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_edits() {
        let cases = [
            ("", "", 0),
            ("a", "", 1),
            ("", "ab", 2),
            ("lisetn", "listen", 1),
            ("ab", "ca", 2),
        ];
        for (left, right, edits) in cases {
            assert_eq!(osa_distance(left, right), edits, "{left} {right}");
        }
    }

    #[test]
    fn the_nearest_key_is_suggested_only_when_it_is_near() {
        let keys = ["listen", "endpoint", "sse_after", "log"];
        let cases = [
            ("lisen", Some("listen")),
            ("Listen", Some("listen")),
            ("sse-after", Some("sse_after")),
            ("endpiont", Some("endpoint")),
            ("logs", Some("log")),
            ("colour", None),
            ("", None),
        ];
        for (written, meant) in cases {
            assert_eq!(nearest(written, keys), meant, "{written}");
        }
    }

    #[test]
    fn shown_lines_contain_no_control_characters() {
        let source = "k = '\u{93}\u{1b}\u{202e}\u{7f}'\n";
        let problem = Problem::new("k", "wrong".to_owned()).at(Some(0..1));
        let rendered = Invalid::new("config.toml", source, vec![problem]).to_string();
        let is_safe = |character| character == '\n' || !is_unprintable(character);
        assert!(rendered.chars().all(is_safe), "{rendered:?}");
    }

    #[test]
    fn a_span_outside_the_text_does_not_panic() {
        let source = "ä = 1\n";
        for span in [1..2, 0..100, 100..200, 6..6] {
            let problem = Problem::new("k", "wrong".to_owned()).at(Some(span));
            assert!(
                Invalid::new("f", source, vec![problem])
                    .to_string()
                    .contains("wrong")
            );
        }
    }
}
