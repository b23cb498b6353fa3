//! Formats a log line for people: time, severity, subject, event and reason.

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, Record};

use super::log_scope::span_fields;
use super::one_line::one_line;
use super::paint::{Paint, Style};

/// Fields that name the subject of a line.
const WHO: [&str; 3] = ["server", "child", "url"];

/// Fields that state the reason; they end the line, since they are the longest.
const WHY: [&str; 5] = ["error", "reason", "why", "failure", "panic"];

/// The previous line about the same child had the same reason.
const REPEATED: &str = "repeated";

/// Fields only for programs.
const HIDDEN: [&str; 3] = ["generation", "report", REPEATED];

/// Width of the name column; a longer name shifts the rest of its line.
const NAME_WIDTH: usize = 12;

/// The subject of lines that are not about a server.
const GATEWAY: &str = "mcpvisor";

/// The parts of a line.
pub(super) struct LogLineParts<'a> {
    pub(super) time: &'a str,
    pub(super) level: Level,
    pub(super) target: &'a str,
    pub(super) message: String,
    pub(super) fields: Fields,
}

/// The fields of a line, in order.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(super) fn of(record: &Record<'_>) -> Self {
        let mut fields = Self::default();
        // An unreadable field is omitted.
        let _ = record.key_values().visit(&mut fields);
        let span = span_fields().into_iter().flatten();
        fields
            .0
            .extend(span.map(|(key, value)| (key.to_owned(), value)));
        fields
    }
}

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        self.0.push((key.to_string(), value.to_string()));
        Ok(())
    }
}

/// Whether a line comes from this program rather than a library.
pub(super) fn is_own(target: &str) -> bool {
    target.split("::").next() == Some(GATEWAY)
}

/// The line without its line break.
pub(super) fn human_line(parts: &LogLineParts<'_>, paint: Paint) -> String {
    let fields = &parts.fields.0;
    let who = fields.iter().find(|(key, _)| WHO.contains(&key.as_str()));
    let who = match who {
        Some((_, name)) => one_line(name.strip_prefix("server/").unwrap_or(name)),
        None if is_own(parts.target) => GATEWAY.to_owned(),
        None => one_line(parts.target),
    };
    let mut what = one_line(&parts.message);
    for (_, why) in fields.iter().filter(|(key, _)| WHY.contains(&key.as_str())) {
        let is_repeated = fields.iter().any(|(key, _)| key == REPEATED);
        what.push_str(": ");
        match is_repeated {
            true => what.push_str("same error"),
            false => what.push_str(&one_line(why)),
        }
    }
    let is_other = |key: &str| !WHO.contains(&key) && !WHY.contains(&key) && !HIDDEN.contains(&key);
    let others = fields.iter().filter(|(key, _)| is_other(key));
    let others: Vec<String> = others
        .map(|(key, value)| format!("{}={}", one_line(key), one_line(value)))
        .collect();
    let others = match others.as_slice() {
        [] => String::new(),
        others => format!("  ({})", others.join(", ")),
    };
    let (word, style) = level(parts.level);
    let padding = " ".repeat(NAME_WIDTH.saturating_sub(who.chars().count()));
    let what = match parts.level {
        Level::Error => paint.apply(Style::Bad, &what),
        Level::Debug | Level::Trace => paint.apply(Style::Dim, &what),
        Level::Warn | Level::Info => what,
    };
    format!(
        "{} {} {}{padding} {what}{}",
        paint.apply(Style::Dim, parts.time),
        paint.apply(style, word),
        paint.apply(Style::Name, &who),
        paint.apply(Style::Dim, &others),
    )
}

fn level(level: Level) -> (&'static str, Style) {
    match level {
        Level::Error => ("ERROR", Style::Bad),
        Level::Warn => ("WARN ", Style::Warning),
        Level::Info => ("INFO ", Style::Good),
        Level::Debug => ("DEBUG", Style::Dim),
        Level::Trace => ("TRACE", Style::Dim),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(level: Level, target: &str, message: &str, fields: &[(&str, &str)]) -> String {
        let fields = fields
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let parts = LogLineParts {
            time: "20:03:12",
            level,
            target,
            message: message.to_owned(),
            fields: Fields(fields.collect()),
        };
        human_line(&parts, Paint::default())
    }

    #[test]
    fn a_line_names_who_and_why() {
        type Row<'a> = (Level, &'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);
        let table: [Row<'_>; 6] = [
            (
                Level::Warn,
                "mcpvisor::supervision::supervisor",
                "down, next attempt in 4s",
                &[
                    ("child", "server/files"),
                    ("why", "process exited with code 1"),
                    ("repeated", "true"),
                ],
                "20:03:12 WARN  files        down, next attempt in 4s: same error",
            ),
            (
                Level::Warn,
                "mcpvisor::supervision::supervisor",
                "down, next attempt in 2s",
                &[
                    ("child", "server/files"),
                    ("generation", "7"),
                    ("index", "3"),
                    ("report", "/data/crashes/files.1.json"),
                    ("why", "process exited with code 1"),
                ],
                "20:03:12 WARN  files        down, next attempt in 2s: process exited with code 1  (index=3)",
            ),
            (
                Level::Info,
                "mcpvisor::gateway",
                "serves http://127.0.0.1:12006/mcp",
                &[],
                "20:03:12 INFO  mcpvisor     serves http://127.0.0.1:12006/mcp",
            ),
            (
                Level::Error,
                "mcpvisor::downstream",
                "a call ended",
                &[("panic", "one\ntwo"), ("server", "a\u{1b}[1m")],
                "20:03:12 ERROR a\\u{1b}[1m   a call ended: one\\ntwo",
            ),
            (
                Level::Debug,
                "actix_server::worker",
                "starting",
                &[],
                "20:03:12 DEBUG actix_server::worker starting",
            ),
            (
                Level::Info,
                "mcpvisor::x",
                "m",
                &[("server", "a-name-longer-than-its-column")],
                "20:03:12 INFO  a-name-longer-than-its-column m",
            ),
        ];
        for (level, target, message, fields, expected) in table {
            assert_eq!(shown(level, target, message, fields), expected);
        }
    }

    #[test]
    fn only_own_modules_count_as_own() {
        let table = [
            ("mcpvisor", true),
            ("mcpvisor::gateway", true),
            ("mcpvisor_other", false),
            ("actix_server::server", false),
        ];
        for (target, expected) in table {
            assert_eq!(is_own(target), expected, "{target}");
        }
    }
}
