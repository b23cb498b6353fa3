//! Sets up the log on stderr, for people or as JSON lines.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::panic;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use env_logger::{Builder, Env, Logger, Target};
use log::{Level, LevelFilter, Log, Metadata, Record};

use super::clock::{ClockForm, local_time, unix_millis};
use super::counted::counted;
use super::counters::Counters;
use super::log_line::{Fields, LogLineParts, human_line, is_own};
use super::log_records::{LogRecord, LogRecords};
use super::log_writer::LogQueue;
use super::one_line::escaped_json;
use super::paint::Paint;
use crate::masking::{LiveSecrets, MASK};

/// How long the end of the process waits for a stderr that is not read.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The queue of the log; unset while logging is off, as in tests.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// Sets up the log. `RUST_LOG` selects what is logged; if unset, `LOG_LEVEL` sets the level, `info`
/// by default. Returns the kept records; a second call does nothing.
pub fn init_logging(as_json: bool) -> LogRecords {
    let records = LogRecords::default();
    let form = LineForm::of_process(as_json);
    let lost_line = Box::new(move |lost| lost_line(form, lost));
    let Ok(queue) = LogQueue::start(io::stderr(), lost_line) else {
        return records;
    };
    let level = std::env::var("LOG_LEVEL").ok();
    let level = level.and_then(|text| text.trim().parse().ok());
    let level = level.unwrap_or(LevelFilter::Info);
    let env = Env::default().default_filter_or(level.as_str());
    let mut own = Builder::new();
    own.filter_module(env!("CARGO_PKG_NAME"), LevelFilter::Trace);
    let logger = GatewayLogger::new(
        with_form(Builder::from_env(env), form, &queue, records.secrets()).build(),
        with_form(own, form, &queue, records.secrets()).build(),
        records.clone(),
    );
    let level = logger.configured_level;
    // Fails if there already is a logger, as in tests.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
        log_panics(form, queue.clone());
        let _ = QUEUE.set(queue);
    }
    records
}

/// Prints a line for people beside the log, in order with it; never blocks on stderr once the log
/// has started.
pub fn print_line(line: &str) {
    match QUEUE.get() {
        Some(queue) => queue.push(format!("{line}\n").as_bytes()),
        None => eprintln!("{line}"),
    }
}

/// Waits until the log is written, up to a limit if stderr is not read.
pub fn flush_log() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_MAX);
    }
}

/// Counts the lines of the log that are lost.
pub fn count_lost_lines(counters: &Counters) {
    if let Some(queue) = QUEUE.get() {
        queue.count_in(counters.clone());
    }
}

/// The format of log lines.
#[derive(Clone, Copy)]
enum LineForm {
    Json,
    Human { paint: Paint, clock: ClockForm },
}

impl LineForm {
    fn of_process(as_json: bool) -> Self {
        if as_json {
            return Self::Json;
        }
        let is_terminal = io::stderr().is_terminal();
        Self::Human {
            paint: Paint::of_process(is_terminal),
            clock: match is_terminal {
                true => ClockForm::Time,
                false => ClockForm::DateAndTime,
            },
        }
    }

    /// The line without its line break.
    fn line(self, record: &Record<'_>, secrets: &LiveSecrets) -> String {
        let (paint, clock) = match self {
            Self::Json => {
                let mut line = LogRecord::of(record).to_line();
                secrets.mask_json(&mut line);
                return escaped_json(&line.to_string());
            }
            Self::Human { paint, clock } => (paint, clock),
        };
        let parts = LogLineParts {
            time: &local_time(unix_millis(), clock),
            level: record.level(),
            target: record.target(),
            message: record.args().to_string(),
            fields: Fields::of(record),
        };
        let line = human_line(&parts, paint);
        secrets.replaced(&line, MASK).unwrap_or(line)
    }
}

fn with_form(
    mut builder: Builder,
    form: LineForm,
    queue: &LogQueue,
    secrets: &LiveSecrets,
) -> Builder {
    let secrets = secrets.clone();
    // Colours are added elsewhere, and must not be added or removed here.
    builder.write_style(env_logger::WriteStyle::Always);
    builder.target(Target::Pipe(Box::new(queue.clone())));
    builder.format(move |out, record| writeln!(out, "{}", form.line(record, &secrets)));
    builder
}

fn lost_line(form: LineForm, lost: u64) -> String {
    let lines = counted(lost, "line", "lines");
    own_line(
        form,
        Level::Warn,
        format_args!("{lines} of the log lost: stderr was not read"),
    )
}

/// A line, with its line break, that bypasses the logger. It is not searched for secrets, because
/// the thread can hold the lock of their registry.
fn own_line(form: LineForm, level: Level, message: fmt::Arguments<'_>) -> String {
    let mut record = Record::builder();
    let record = record.level(level).target(module_path!()).args(message);
    form.line(&record.build(), &LiveSecrets::default()) + "\n"
}

/// Logs panics. The standard library's hook would block the panicking thread, and each one that
/// panics later, if stderr is not read.
fn log_panics(form: LineForm, queue: LogQueue) {
    panic::set_hook(Box::new(move |panicked| {
        let thread = thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let backtrace = Backtrace::capture();
        let message = match backtrace.status() {
            BacktraceStatus::Captured => format!("thread `{name}` {panicked}\n{backtrace}"),
            _ => format!("thread `{name}` {panicked}"),
        };
        // Bypasses the logger, whose locks the thread can hold.
        queue.push(own_line(form, Level::Error, format_args!("{message}")).as_bytes());
    }));
}

/// The current log level, in lower case.
pub fn log_level() -> String {
    log::max_level().as_str().to_lowercase()
}

/// Changes the log level until the end of the process; returns false if it is invalid. A more
/// verbose level than the initial one affects only the gateway's own lines.
pub fn set_log_level(level: &str) -> bool {
    let level: Option<Level> = level.parse().ok();
    if let Some(level) = level {
        log::set_max_level(level.to_level_filter());
    }
    level.is_some()
}

/// Shows `info` lines of libraries only at `debug`, because they are about threads and sockets.
/// Everything printed is also kept.
struct GatewayLogger {
    /// Logs what the environment selects.
    configured: Logger,
    configured_level: LevelFilter,
    /// Logs all of the gateway's own lines.
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

    /// The logger for a line. Lines beyond `level` never get here.
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

/// The level at which a line is shown.
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
    fn library_lines_appear_at_debug() {
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
