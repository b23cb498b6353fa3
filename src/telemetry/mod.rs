//! The gateway's log and counters, and the last lines that servers wrote.

mod audit;
mod clock;
mod counted;
mod counters;
mod event_feed;
mod exit_diagnosis;
mod log_line;
mod log_records;
mod log_ring;
mod log_scope;
mod log_writer;
mod logging;
mod one_line;
mod otel;
mod paint;
mod reason;

pub use audit::Denial;
pub use clock::{ClockForm, even_millis, http_date, local_time, millis, rfc3339, unix_millis};
pub use counted::counted;
pub use counters::{Counter, CounterLabels, Counters};
pub use event_feed::{Event, EventBatch, EventFeed, EventKind, EventListener};
pub use exit_diagnosis::exit_diagnosis;
pub use log_records::{LogEntry, LogPage, LogQuery, LogRecords};
pub use log_ring::{LogCounters, LogLine, LogRing, LogRingSettings, LogSource};
pub use log_scope::{LogScope, SpanNumbers};
pub use logging::{
    count_lost_lines, flush_log, init_logging, log_level, print_line, set_log_level,
};
pub use one_line::{is_unprintable, one_line, pretty_json, printable};
pub use otel::{InvalidVariable, OtelSignal, OtelVariables, OtlpProtocol};
pub use paint::{Paint, Style};
pub use reason::{Cause, Reason};
