//! The gateway's log and counters, and the last lines that servers wrote.

mod clock;
mod counters;
mod log_ring;
mod logging;

pub use clock::{rfc3339, unix_millis};
pub use counters::{Counter, Counters};
pub use log_ring::{LogCounters, LogLine, LogRing, LogRingSettings, LogSource};
pub use logging::init_logging;
