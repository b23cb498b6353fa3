//! Finds the lines of a program's standard error that explain why it ended.
//!
//! The last line rarely does: traces, runtime versions and locations of log files follow the
//! reason.

use super::one_line::is_unprintable;

/// Maximum number of lines in a reason.
const LINES_MAX: usize = 3;

/// Maximum number of lines after a trace for it to count as the end of the program.
const AFTER_TRACE_MAX: usize = 10;

/// Separates the lines of a reason.
const SEPARATOR: &str = " / ";

/// The reason in the last lines of a program, oldest first; `None` if they contain no text.
pub fn exit_diagnosis<'l>(lines: impl IntoIterator<Item = &'l str>) -> Option<String> {
    let lines = without_usage(lines.into_iter().map(clean).collect());
    let trace = python_exception(&lines).max(stack_trace(&lines));
    let is_last = |found: &Diagnosis| {
        let after = lines.iter().skip(found.end);
        after.filter(|line| !is_noise(line)).count() <= AFTER_TRACE_MAX
    };
    let found = trace
        .filter(is_last)
        .map(|found| found.texts)
        .or_else(|| npm_error(&lines))
        .or_else(|| failure_line(&lines))
        .or_else(|| last_line(&lines))?;
    Some(found.join(SEPARATOR))
}

/// Lines that explain an exit, and the position where they end; later positions compare greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Diagnosis {
    end: usize,
    texts: Vec<String>,
}

/// A line without colours, and without the frame that Python draws around exception groups.
fn clean(line: &str) -> String {
    let plain = without_colours(line);
    let inner = plain.trim_start();
    let is_framed = inner.len() < plain.len();
    let framed = [("| ", ""), ("+ ", ""), ("|", "")].iter();
    let unframed = framed
        .filter(|_| is_framed)
        .find_map(|(frame, _)| inner.strip_prefix(frame));
    unframed.unwrap_or(&plain).trim_end().to_owned()
}

fn without_colours(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match character {
            '\x1b' => {
                // `ESC [ … letter`
                rest.find(char::is_ascii_alphabetic);
            }
            '\t' => out.push(' '),
            _ if is_unprintable(character) => {}
            _ => out.push(character),
        }
    }
    out
}

/// Removes usage help, which describes options with words of failure. Returns all lines if nothing
/// else is left.
fn without_usage(lines: Vec<String>) -> Vec<String> {
    let mut kept = Vec::with_capacity(lines.len());
    let mut is_usage = false;
    for line in &lines {
        let begins = line.trim_start().to_lowercase().starts_with("usage:");
        is_usage = begins || (is_usage && is_help(line));
        if !is_usage {
            kept.push(line.clone());
        }
    }
    match kept.iter().all(String::is_empty) {
        true => lines,
        false => kept,
    }
}

/// Whether a line after the usage belongs to it: an option, an example or a heading.
fn is_help(line: &str) -> bool {
    let is_title = line.ends_with(':') && !mentions_failure(line) && !is_noise(line);
    line.is_empty() || line.starts_with([' ', '-']) || is_title
}

/// The exception at the end of the last traceback.
fn python_exception(lines: &[String]) -> Option<Diagnosis> {
    let is_start = |line: &String| {
        line.trim_start()
            .ends_with("Traceback (most recent call last):")
    };
    let start = lines.iter().rposition(is_start)?;
    let is_unindented = |line: &&String| !line.is_empty() && !line.starts_with(' ');
    let length = lines
        .iter()
        .skip(start + 1)
        .take_while(|line| !is_unindented(line))
        .count();
    let first = start + 1 + length;
    let texts: Vec<String> = lines
        .iter()
        .skip(first)
        .take_while(|line| !is_noise(line))
        .take(LINES_MAX)
        .map(|line| line.trim().to_owned())
        .collect();
    let end = first + 1;
    (!texts.is_empty()).then_some(Diagnosis { end, texts })
}

/// The header of the last stack trace as Node and Java write them.
fn stack_trace(lines: &[String]) -> Option<Diagnosis> {
    let is_start = |at: &usize| is_frame(&lines[*at]) && *at > 0 && !is_frame(&lines[*at - 1]);
    let starts = (0..lines.len()).rev().filter(is_start);
    let mut headers = starts.filter_map(|end| {
        let mut texts = Vec::new();
        for line in lines[..end].iter().rev() {
            let is_other = is_noise(line) || line.starts_with(' ') || line.starts_with("Emitted ");
            if is_other || texts.len() == LINES_MAX {
                break;
            }
            texts.push(line.clone());
            if names_error(line) {
                break;
            }
        }
        texts.reverse();
        (!texts.is_empty()).then_some(Diagnosis { end, texts })
    });
    let mut found = headers.next()?;
    found.end += lines[found.end..]
        .iter()
        .take_while(|line| belongs_to_trace(line))
        .count();
    Some(found)
}

fn is_frame(line: &str) -> bool {
    let inner = line.trim_start();
    inner.len() < line.len() && (inner.starts_with("at ") || inner.starts_with("... "))
}

/// Whether a line is a frame, or one of the fields that Node prints after the frames.
fn belongs_to_trace(line: &str) -> bool {
    line.starts_with(' ') || line == "}" || line.starts_with("Emitted ")
}

/// Whether a line starts with an error name, such as `TypeError: x` or `a.b.FooException: x`.
fn names_error(line: &str) -> bool {
    let name = line.split([':', ' ']).next().unwrap_or_default();
    let caused = line.starts_with("Caused by") || line.starts_with("Exception in thread");
    caused || name.ends_with("Error") || name.ends_with("Exception")
}

/// The error that npm reports, without the boilerplate lines of every report.
fn npm_error(lines: &[String]) -> Option<Vec<String>> {
    const EVERY_TIME: [&str; 14] = [
        "A complete log of this run",
        "Note that you can also install",
        "tarball, folder",
        "This is related to npm",
        "Log files were not written",
        "You can rerun",
        "Lifecycle script",
        "code 1",
        "errno ",
        "path ",
        "syscall ",
        "command ",
        "workspace ",
        "location ",
    ];
    let mut code = String::new();
    let mut texts = Vec::new();
    for line in lines.iter().filter_map(|line| of_npm(line)) {
        if let Some(named) = line.strip_prefix("code ") {
            code = named.trim_start_matches('E').to_lowercase();
        }
        // Most lines repeat the code at the start.
        let said_again = line.split_once(' ').filter(|(first, _)| {
            !code.is_empty() && first.trim_start_matches(['e', 'E']).to_lowercase() == code
        });
        let line = said_again.map_or(line, |(_, rest)| rest.trim());
        let is_code_again = line.trim_start_matches(['e', 'E']).to_lowercase() == code;
        let is_usual = EVERY_TIME.iter().any(|usual| line.starts_with(usual));
        if !line.is_empty() && !is_usual && !is_code_again {
            texts.push(line.to_owned());
        }
    }
    texts.truncate(LINES_MAX);
    (!texts.is_empty()).then_some(texts)
}

fn of_npm(line: &str) -> Option<&str> {
    let said = line
        .strip_prefix("npm error")
        .or(line.strip_prefix("npm ERR!"));
    said.map(str::trim)
}

/// Whether a line contains a word of failure.
fn mentions_failure(line: &str) -> bool {
    const WORDS: [&str; 20] = [
        "error",
        "fatal",
        "panic",
        "exception",
        "cannot ",
        "can't ",
        "could not",
        "failed",
        "failure",
        "not found",
        "no such",
        "denied",
        "refused",
        "missing",
        "invalid",
        "unable",
        "required",
        "unknown",
        "unsupported",
        "not set",
    ];
    let text = line.to_lowercase();
    !is_noise(line) && WORDS.iter().any(|word| text.contains(word))
}

/// The last line that mentions a failure, with the lines that it continues or announces.
fn failure_line(lines: &[String]) -> Option<Vec<String>> {
    let at = lines.iter().rposition(|line| mentions_failure(line))?;
    let before = at.checked_sub(1).map(|before| &lines[before]);
    let before = before.filter(|before| {
        !is_noise(before) && (before.ends_with(':') || lines[at].starts_with([' ', '╰', '│']))
    });
    let mut texts: Vec<&String> = before.into_iter().chain([&lines[at]]).collect();
    for line in &lines[at + 1..] {
        let is_announced = texts.last().is_some_and(|last| last.ends_with(':'));
        let belongs = is_announced || line.starts_with(' ');
        if is_noise(line) || !belongs || texts.len() == LINES_MAX {
            break;
        }
        texts.push(line);
    }
    Some(
        texts
            .into_iter()
            .map(|line| line.trim().to_owned())
            .collect(),
    )
}

fn last_line(lines: &[String]) -> Option<Vec<String>> {
    let says = lines.iter().rev().find(|line| !is_noise(line));
    let any = || lines.iter().rev().find(|line| !line.is_empty());
    says.or_else(any).map(|line| vec![line.trim().to_owned()])
}

/// Lines that do not mention a cause: frames, marks below source code, versions, notices.
fn is_noise(line: &str) -> bool {
    const STARTS: [&str; 14] = [
        "Node.js v",
        "Traceback (most recent",
        "Exception Group Traceback",
        "During handling of the above",
        "The above exception was",
        "File \"",
        "note: run with `RUST_BACKTRACE",
        "npm warn",
        "npm WARN",
        "npm notice",
        "npm error",
        "npm ERR!",
        "----- Native stack",
        "<--- ",
    ];
    let text = line.trim();
    text.chars()
        .all(|character| "^~-+|{}<> ".contains(character))
        || is_frame(line)
        || is_native_frame(text)
        || STARTS.iter().any(|start| text.starts_with(start))
}

/// A line such as ` 1: 0xb78db3 node::OOMErrorHandler(…)`.
fn is_native_frame(text: &str) -> bool {
    let (number, rest) = text.split_once(": 0x").unwrap_or_default();
    !rest.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
