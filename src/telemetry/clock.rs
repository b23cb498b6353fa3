//! Wall-clock time, for timestamps that outlive the process.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_http::header::HttpDate;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::Instant;

/// Milliseconds since 1970; 0 if the system clock is before that.
pub fn unix_millis() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, millis)
}

/// Parses the date of an HTTP header into milliseconds since 1970; many servers write dashes in it.
pub fn http_date(text: &str) -> Option<u64> {
    let parsed = text.parse::<HttpDate>();
    let parsed = parsed.or_else(|_| text.replace('-', " ").parse());
    let since_epoch = SystemTime::from(parsed.ok()?).duration_since(UNIX_EPOCH);
    Some(since_epoch.map_or(0, millis))
}

/// Milliseconds since 1970 that start at the wall clock's time on the first call and then advance
/// steadily, even if the clock is set.
pub fn even_millis() -> u64 {
    static BEGIN: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), unix_millis()));
    let (begin, wall) = *BEGIN;
    wall.saturating_add(millis(begin.elapsed()))
}

/// Whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a time in UTC: `2026-11-20T19:00:00.000Z`.
pub fn rfc3339(unix_millis: u64) -> String {
    // Times beyond the calendar are shown as its last time.
    const LAST: u64 = 253_402_300_799_999;
    let time = UNIX_EPOCH + Duration::from_millis(unix_millis.min(LAST));
    humantime::format_rfc3339_millis(time).to_string()
}

/// How much of a time to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockForm {
    /// `20:03:12`
    Time,
    /// `2026-11-20 20:03:12 CET`
    DateAndTime,
}

/// Formats a time in this machine's time zone.
pub fn local_time(unix_millis: u64, form: ClockForm) -> String {
    time_in(unix_millis, form, TimeZone::system())
}

fn time_in(unix_millis: u64, form: ClockForm, zone: TimeZone) -> String {
    let millis = i64::try_from(unix_millis).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
    let pattern = match form {
        ClockForm::Time => "%H:%M:%S",
        ClockForm::DateAndTime => "%Y-%m-%d %H:%M:%S %Z",
    };
    time.to_zoned(zone).strftime(pattern).to_string()
}

#[cfg(test)]
mod tests {
    use jiff::tz::offset;

    use super::*;

    #[test]
    fn local_times_use_their_zone() {
        let table = [
            (0, 0, "00:00:00", "1970-01-01 00:00:00 UTC"),
            (1_700_000_000_123, 2, "00:13:20", "2023-11-15 00:13:20 +02"),
            (1_700_000_000_123, -5, "17:13:20", "2023-11-14 17:13:20 -05"),
        ];
        for (at, hours, time, date_and_time) in table {
            let shown = |form| time_in(at, form, TimeZone::fixed(offset(hours)));
            assert_eq!(shown(ClockForm::Time), time);
            assert_eq!(shown(ClockForm::DateAndTime), date_and_time);
        }
        assert!(!local_time(u64::MAX, ClockForm::DateAndTime).is_empty());
    }

    #[test]
    fn times_are_written_for_people() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert!(rfc3339(u64::MAX).starts_with("9999-12-31"));
    }
}
