//! Which parts of calls are kept, and for how long.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySettings {
    pub enabled: bool,
    /// Whether calls are written to a file of the data directory; otherwise the last ones are kept
    /// in memory.
    pub file: bool,
    /// Maximum size of stored parameters, and of a stored result, in bytes.
    pub body_max: usize,
    /// Maximum age of records; older ones are removed.
    pub age_max: Duration,
    /// Maximum size of all records in the file, in bytes; the oldest are removed first.
    pub bytes_max: u64,
    /// Maximum size of records waiting to be written, in bytes; further ones are dropped and
    /// counted.
    pub queue_max: usize,
}

impl Default for HistorySettings {
    fn default() -> Self {
        Self {
            enabled: true,
            file: false,
            body_max: 4 << 10,
            age_max: Duration::from_secs(30 * 24 * 60 * 60),
            bytes_max: 512 << 20,
            queue_max: 16 << 20,
        }
    }
}
