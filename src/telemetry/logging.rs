//! The log: on stderr, for people or as JSON lines.

use std::io::{IsTerminal as _, Write as _};

use env_logger::{Builder, Env, Logger};
use log::{Level, LevelFilter, Log, Metadata, Record};

use super::clock::{ClockForm, local_time, unix_millis};
use super::log_line::{Fields, LogLineParts, human_line, is_own};
use super::log_records::{LogRecord, LogRecords};
use super::one_line::escaped_json;
use super::paint::Paint;
use crate::masking::{LiveSecrets, MASK};

/// Sets up the log. `RUST_LOG` says what is logged, or else `LOG_LEVEL` from which level on; by
/// default it is `info`. Returns the records that are kept; a second call does nothing.
pub fn init_logging(as_json: bool) -> LogRecords {
    let level = std::env::var("LOG_LEVEL").ok();
    let level = level.and_then(|text| text.trim().parse().ok());
    let level = level.unwrap_or(LevelFilter::Info);
    let env = Env::default().default_filter_or(level.as_str());
    let mut own = Builder::new();
    own.filter_module(env!("CARGO_PKG_NAME"), LevelFilter::Trace);
    let records = LogRecords::default();
    let logger = GatewayLogger::new(
        with_form(Builder::from_env(env), as_json, records.secrets()).build(),
        with_form(own, as_json, records.secrets()).build(),
        records.clone(),
    );
    let level = logger.configured_level;
    // Fails when there is a logger already, as in tests.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
    records
}

fn with_form(mut builder: Builder, as_json: bool, secrets: &LiveSecrets) -> Builder {
    let secrets = secrets.clone();
    // Colours are ours: nothing is to be added or removed on the way.
    builder.write_style(env_logger::WriteStyle::Always);
    if as_json {
        builder.format(move |out, record| {
            let mut line = LogRecord::of(record).to_line();
            secrets.mask_json(&mut line);
            writeln!(out, "{}", escaped_json(&line.to_string()))
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
            let parts = LogLineParts {
                time: &time,
                level: record.level(),
                target: record.target(),
                message: record.args().to_string(),
                fields: Fields::of(record),
            };
            let line = human_line(&parts, paint);
            let line = secrets.replaced(&line, MASK).unwrap_or(line);
            writeln!(out, "{line}")
        });
    }
    builder
}

/// The level from which on something is logged, in small letters.
pub fn log_level() -> String {
    log::max_level().as_str().to_lowercase()
}

/// Changes that level until the end of the process; false if this is none. Another level than the
/// one at the start holds for the gateway's own lines; those of libraries become fewer only.
pub fn set_log_level(level: &str) -> bool {
    let level: Option<Level> = level.parse().ok();
    if let Some(level) = level {
        log::set_max_level(level.to_level_filter());
    }
    level.is_some()
}

/// Shows what libraries say at `info` only where `debug` is shown: it is about threads and
/// sockets, which nobody asked for. What is printed is kept, too.
struct GatewayLogger {
    /// Logs what the environment asks for.
    configured: Logger,
    configured_level: LevelFilter,
    /// Logs all that the gateway says itself.
    own: Logger,
    records: LogRecords,
}

impl GatewayLogger {
    fn new(configured: Logger, own: Logger, records: LogRecords) -> Self {
        Self {
            records,
            configured_level: configured.filter(),
            configured,
            own,
        }
    }

    /// The logger for a line. What is beyond `level` does not come here.
    fn of(&self, level: LevelFilter, target: &str) -> &Logger {
        if level != self.configured_level && is_own(target) {
            &self.own
        } else {
            &self.configured
        }
    }
}

impl Log for GatewayLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let level = shown_at(metadata.target(), metadata.level());
        let logger = self.of(log::max_level(), metadata.target());
        let metadata = Metadata::builder()
            .level(level)
            .target(metadata.target())
            .build();
        logger.enabled(&metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.records.push(LogRecord::of(record));
            self.of(log::max_level(), record.target()).log(record);
        }
    }

    fn flush(&self) {
        self.configured.flush();
    }
}

/// The level from which on a line is shown.
fn shown_at(target: &str, level: Level) -> Level {
    match level {
        Level::Info if !is_own(target) => Level::Debug,
        _ => level,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn another_level_holds_for_the_gateway_itself() {
        let logger = |filters: &str| Builder::new().parse_filters(filters).build();
        let logger = GatewayLogger::new(
            logger("info"),
            logger("mcpvisor=trace"),
            LogRecords::default(),
        );
        let shown = |max: LevelFilter, target: &str, level: Level| {
            let metadata = Metadata::builder().target(target).level(level).build();
            logger.of(max, target).enabled(&metadata)
        };
        let own = "mcpvisor::gateway";
        assert!(!shown(LevelFilter::Info, own, Level::Debug));
        assert!(shown(LevelFilter::Debug, own, Level::Debug));
        assert!(!shown(LevelFilter::Debug, "actix_server", Level::Debug));
    }

    #[test]
    fn programs_read_one_object_a_line() {
        let record = Record::builder()
            .args(format_args!("one\ntwo"))
            .level(Level::Warn)
            .target("mcpvisor::x")
            .key_values(&("server", "files"))
            .build();
        let mut line = LogRecord::of(&record).to_line();
        line["ts"] = json!(0);
        let expected = r#"{"ts":0,"level":"warn","serverId":"files","type":"app","message":"one\ntwo","data":{"module":"mcpvisor::x"}}"#;
        assert_eq!(line.to_string(), expected);
    }
}
