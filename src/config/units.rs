//! Parses and formats durations and sizes.

use std::time::Duration;

pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
pub(crate) const KIB: usize = 1 << 10;
pub(crate) const MIB: usize = 1 << 20;
pub(crate) const GIB: usize = 1 << 30;

/// Reads `500ms`, `30s`, `1h 30m`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text.trim()).ok()
}

/// Reads `16MiB`, `512KiB`, `1MB` or a plain number of bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = text.strip_prefix(digits)?.trim();
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return None;
    }
    digits
        .replace('_', "")
        .parse::<u64>()
        .ok()?
        .checked_mul(factor)
}

/// Formats a duration in its largest whole unit.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
    ];
    match units
        .iter()
        .find(|(_, size)| millis >= *size && millis.is_multiple_of(*size))
    {
        Some((unit, size)) => format!("{}{unit}", millis / size),
        None if millis == 0 => "0s".to_owned(),
        None => format!("{millis}ms"),
    }
}

/// Formats a number of bytes in its largest whole unit.
pub(crate) fn show_size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units
        .iter()
        .find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size))
    {
        Some((unit, size)) => format!("{}{unit}", bytes / size),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        let good = [
            ("0", 0),
            ("1024", 1024),
            ("16MiB", 16 << 20),
            ("16 mib", 16 << 20),
            ("1MB", 1_000_000),
            ("512KiB", 512 << 10),
            ("7b", 7),
            ("1_000", 1000),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for bad in [
            "",
            "MiB",
            "-1",
            "1TiBB",
            "1 2",
            "1e3",
            "1.5MB",
            "_",
            "99999999999999999999",
            "1..5",
        ] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
        assert_eq!(parse_size(&format!("{}GiB", u64::MAX)), None);
    }

    #[test]
    fn durations_need_their_unit() {
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration(" 1h 30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_duration("0s"), Some(Duration::ZERO));
        for bad in ["", "5", "-5s", "5 parsecs", "s"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn shown_values_are_read_back() {
        for millis in [
            0, 1, 500, 1000, 1500, 60_000, 90_000, 3_600_000, 86_400_000, 86_400_001,
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
        }
        for bytes in [0, 1, 1024, 1025, 1 << 20, 1 << 30, (1 << 30) + 1] {
            assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
        }
    }
}
