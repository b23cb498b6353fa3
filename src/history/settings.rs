//! Which parts of calls are kept, and for how long.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    pub enabled: bool,
    /// Bytes that are kept of the parameters of a call, and of its result.
    pub body_max: usize,
    /// Records that are older are removed.
    pub age_max: Duration,
    /// Bytes of all records in the file; the oldest make room.
    pub bytes_max: u64,
    /// Bytes of records that may wait to be written; more are lost, and counted.
    pub queue_max: usize,
}

impl Default for HistorySettings {
    fn default() -> Self {
        Self {
            enabled: false,
            body_max: 4 << 10,
            age_max: Duration::from_secs(30 * 24 * 60 * 60),
            bytes_max: 512 << 20,
            queue_max: 16 << 20,
        }
    }
}
