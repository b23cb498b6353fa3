//! (being built)

mod ring;

pub use ring::{LogCounters, LogLine, LogRing, LogRingSettings, LogSource};
