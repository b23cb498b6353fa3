//! The log: on stderr, for people or as JSON lines.

use std::io::{IsTerminal as _, Write as _};

use env_logger::{Builder, Env, Logger};
use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, Log, Metadata, Record};
use serde_json::{Map, json};

use super::clock::{ClockForm, local_time, unix_millis};
use super::log_line::{Fields, LogLineParts, human_line, is_own};
use super::one_line::escaped_json;
use super::paint::Paint;

/// Sets up the log. `RUST_LOG` says what is logged, by default everything from `info` up.
/// A second call does nothing.
pub fn init_logging(as_json: bool) {
    let mut builder = Builder::from_env(Env::default().default_filter_or("info"));
    // Colours are ours: nothing is to be added or removed on the way.
    builder.write_style(env_logger::WriteStyle::Always);
    if as_json {
        builder.format(|out, record| {
            writeln!(out, "{}", escaped_json(&json_line(record).to_string()))
        });
    } else {
        let is_terminal = std::io::stderr().is_terminal();
        let paint = Paint::of_process(is_terminal);
        let form = if is_terminal {
            ClockForm::Time
        } else {
            ClockForm::DateAndTime
        };
        builder.format(move |out, record| {
            let time = local_time(unix_millis(), form);
            let mut fields = Fields::default();
            // A field that cannot be read is left out.
            let _ = record.key_values().visit(&mut fields);
            let parts = LogLineParts {
                time: &time,
                level: record.level(),
                target: record.target(),
                message: record.args().to_string(),
                fields,
            };
            writeln!(out, "{}", human_line(&parts, paint))
        });
    }
    let logger = OwnLinesFirst(builder.build());
    let level = logger.0.filter();
    // Fails when there is a logger already, as in tests.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
}

/// Shows what libraries say at `info` only where `debug` is shown: it is about threads and
/// sockets, which nobody asked for.
struct OwnLinesFirst(Logger);

impl Log for OwnLinesFirst {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = shown_at(metadata.target(), metadata.level());
        let metadata = Metadata::builder()
            .level(level)
            .target(metadata.target())
            .build();
        self.0.enabled(&metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.log(record);
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// The level from which on a line is shown.
fn shown_at(target: &str, level: Level) -> Level {
    match level {
        Level::Info if !is_own(target) => Level::Debug,
        _ => level,
    }
}

fn json_line(record: &Record<'_>) -> serde_json::Value {
    let mut line = Map::new();
    line.insert("ts".to_owned(), json!(unix_millis()));
    line.insert(
        "level".to_owned(),
        json!(record.level().as_str().to_lowercase()),
    );
    line.insert("target".to_owned(), json!(record.target()));
    line.insert("message".to_owned(), json!(record.args().to_string()));
    let mut fields = JsonFields(line);
    // A field that cannot be read is left out.
    let _ = record.key_values().visit(&mut fields);
    serde_json::Value::Object(fields.0)
}

struct JsonFields(Map<String, serde_json::Value>);

impl<'kvs> VisitSource<'kvs> for JsonFields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let value = match (value.to_u64(), value.to_i64(), value.to_bool()) {
            (Some(number), _, _) => json!(number),
            (_, Some(number), _) => json!(number),
            (_, _, Some(truth)) => json!(truth),
            _ => json!(value.to_string()),
        };
        self.0.insert(key.to_string(), value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_heard_at_debug() {
        let table = [
            ("actix_server::server", Level::Info, Level::Debug),
            ("actix_server::server", Level::Warn, Level::Warn),
            ("mcpvisor::gateway", Level::Info, Level::Info),
        ];
        for (target, level, expected) in table {
            assert_eq!(shown_at(target, level), expected, "{target}");
        }
    }

    #[test]
    fn programs_read_one_object_a_line() {
        let record = Record::builder()
            .args(format_args!("one\ntwo"))
            .level(Level::Warn)
            .target("mcpvisor::x")
            .key_values(&("server", "files"))
            .build();
        let mut line = json_line(&record);
        line["ts"] = json!(0);
        let expected = r#"{"ts":0,"level":"warn","target":"mcpvisor::x","message":"one\ntwo","server":"files"}"#;
        assert_eq!(line.to_string(), expected);
    }
}
