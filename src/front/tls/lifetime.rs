//! The validity period of a certificate. Parses only the DER elements that lead to its two times
//! (RFC 5280, 4.1). Pure.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Remaining lifetime below which a certificate counts as expiring soon, unless its total lifetime
/// is short.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// A short-lived certificate counts as expiring soon in the last fifth of its lifetime. Automatic
/// renewal happens earlier.
const LAST_PART: u64 = 5;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// A validity period, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub not_before: u64,
    pub not_after: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    NotYetValid,
    Valid,
    EndsSoon,
    Expired,
}

impl Lifetime {
    /// Parses a certificate in DER; `None` if it is malformed.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        let (certificate, _) = expect(der, SEQUENCE)?;
        let (mut fields, _) = expect(certificate, SEQUENCE)?;
        if let Some((_, rest)) = expect(fields, VERSION) {
            fields = rest;
        }
        // Skips the serial number, signature algorithm and issuer.
        for _ in 0..3 {
            (_, _, fields) = element(fields)?;
        }
        let (validity, _) = expect(fields, SEQUENCE)?;
        let (not_before, rest) = time(validity)?;
        let (not_after, _) = time(rest)?;
        Some(Self {
            not_before,
            not_after,
        })
    }

    pub fn standing(self, now: u64) -> Standing {
        let whole = self.not_after.saturating_sub(self.not_before);
        let soon = u64::try_from(SOON.as_millis()).unwrap_or(u64::MAX);
        let soon = soon.min(whole / LAST_PART);
        if now < self.not_before {
            Standing::NotYetValid
        } else if now > self.not_after {
            Standing::Expired
        } else if self.not_after - now < soon {
            Standing::EndsSoon
        } else {
            Standing::Valid
        }
    }
}

/// Splits off an element: returns its tag, its content, and the remaining bytes.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => {
            let (&[length], rest) = rest.split_first_chunk()?;
            (usize::from(length), rest)
        }
        0x82 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        // Larger than any certificate in use.
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn expect(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(der)?;
    (tag == wanted).then_some((content, rest))
}

/// Parses a time in milliseconds since 1970, and returns it with the remaining bytes. Earlier times
/// count as 0.
fn time(der: &[u8]) -> Option<(u64, &[u8])> {
    let (tag, content, rest) = element(der)?;
    let digits = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let (year, digits) = match tag {
        UTC_TIME => {
            let (year, digits) = digits.split_at_checked(2)?;
            let year: i16 = number(year)?;
            let century = if year < 50 { 2000 } else { 1900 };
            (century + year, digits)
        }
        GENERALIZED_TIME => {
            let (year, digits) = digits.split_at_checked(4)?;
            (number(year)?, digits)
        }
        _ => return None,
    };
    if digits.len() != 10 {
        return None;
    }
    let part = |at: usize| number::<i8>(digits.get(at..at + 2)?);
    let [month, day, hour, minute, second] = [part(0)?, part(2)?, part(4)?, part(6)?, part(8)?];
    let time = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some((u64::try_from(time.as_millisecond()).unwrap_or(0), rest))
}

fn number<T: std::str::FromStr>(digits: &str) -> Option<T> {
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    are_digits.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::telemetry::rfc3339;

    const DAY: u64 = 24 * 3600 * 1000;

    fn certificate(from: (i32, u8, u8), to: (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["mcp.example.com".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(to.0, to.1, to.2);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn both_forms_of_time_are_read() {
        // Years up to 2049 have two digits, later ones four.
        let cases = [
            ((2026, 1, 2), (2026, 4, 2), "2026-01-02", "2026-04-02"),
            ((1999, 12, 31), (2049, 12, 31), "1999-12-31", "2049-12-31"),
            ((2050, 2, 28), (4096, 1, 1), "2050-02-28", "4096-01-01"),
            ((1960, 1, 1), (2030, 1, 1), "1970-01-01", "2030-01-01"),
        ];
        for (from, to, not_before, not_after) in cases {
            let lifetime = Lifetime::of_certificate(&certificate(from, to)).unwrap();
            let shown = [lifetime.not_before, lifetime.not_after].map(rfc3339);
            assert!(shown[0].starts_with(not_before), "{shown:?}");
            assert!(shown[1].starts_with(not_after), "{shown:?}");
        }
    }

    #[test]
    fn half_a_certificate_has_no_lifetime() {
        let der = certificate((2026, 1, 2), (2026, 4, 2));
        for length in 0..der.len() {
            assert_eq!(Lifetime::of_certificate(&der[..length]), None, "{length}");
        }
        for at in 0..der.len() {
            let mut garbled = der.clone();
            garbled[at] ^= 0xff;
            // Malformed input must not cause a panic.
            let _ = Lifetime::of_certificate(&garbled);
        }
    }

    #[test]
    fn a_certificate_ends_soon_in_the_last_part_of_its_life() {
        // whole life and age, in days
        let cases = [
            (90, 0, Standing::Valid),
            (90, 75, Standing::Valid),
            (90, 77, Standing::EndsSoon),
            (90, 91, Standing::Expired),
            (6, 4, Standing::Valid),
            (6, 5, Standing::EndsSoon),
        ];
        let not_before = 20_000 * DAY;
        for (whole, age, expected) in cases {
            let lifetime = Lifetime {
                not_before,
                not_after: not_before + whole * DAY,
            };
            let standing = lifetime.standing(not_before + age * DAY);
            assert_eq!(standing, expected, "{age} of {whole}");
            assert_eq!(lifetime.standing(not_before - 1), Standing::NotYetValid);
        }
    }
}
