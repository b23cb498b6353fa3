//! What the gateway tells of itself: its log, its counters, and the last words of servers.

mod clock;
mod counters;
mod logging;
mod ring;

pub use clock::{rfc3339, unix_millis};
pub use counters::{Counter, Counters};
pub use logging::init_logging;
pub use ring::{LogCounters, LogLine, LogRing, LogRingSettings, LogSource};
