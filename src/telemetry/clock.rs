//! The time of day, for times that outlive the process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 on a machine whose clock is before that.
pub fn unix_millis() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// A time as people write it, in UTC: `2026-11-20T19:00:00.000Z`.
pub fn rfc3339(unix_millis: u64) -> String {
    // Times that no calendar holds are shown as the last one that it does.
    const LAST: u64 = 253_402_300_799_999;
    let time = UNIX_EPOCH + Duration::from_millis(unix_millis.min(LAST));
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_for_people() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert!(rfc3339(u64::MAX).starts_with("9999-12-31"));
    }
}
