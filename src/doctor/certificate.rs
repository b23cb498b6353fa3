//! The end of a certificate's validity (RFC 5280, section 4.1.2.5), read from its DER.

use std::time::Duration;

const SEQUENCE: u8 = 0x30;
const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When a certificate ends, in Unix seconds; `None` if it is not understood.
pub(super) fn not_after(certificate: &[u8]) -> Option<u64> {
    let (_, certificate, _) = element(certificate)?;
    let (tag, mut fields, _) = element(certificate)?;
    if tag != SEQUENCE {
        return None;
    }
    // The version may be left out.
    if let (EXPLICIT_VERSION, _, rest) = element(fields)? {
        fields = rest;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (_, validity, _) = element(fields)?;
    let (_, _, after_first) = element(validity)?;
    let (tag, time, _) = element(after_first)?;
    unix_seconds(tag, time)
}

/// The tag and the content of the first element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let count = usize::from(first & 0x7f);
        if count > 4 {
            return None;
        }
        let digits = rest.get(..count)?;
        rest = rest.get(count..)?;
        length = digits
            .iter()
            .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
    }
    let content = rest.get(..length)?;
    Some((tag, content, rest.get(length..)?))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn unix_seconds(tag: u8, time: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(time).ok()?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let short = text.get(..2)?;
            let century = if short >= "50" { "19" } else { "20" };
            (format!("{century}{short}"), text.get(2..)?)
        }
        GENERALIZED_TIME => (text.get(..4)?.to_owned(), text.get(4..)?),
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at + 2);
    let (month, day) = (part(0)?, part(2)?);
    let (hour, minute, second) = (part(4)?, part(6)?, part(8)?);
    let time = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    let time = humantime::parse_rfc3339(&time).ok()?;
    let since: Duration = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        for (year, expected) in [(2031, 1_924_992_000), (2061, 2_871_763_200)] {
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            assert_eq!(not_after(certificate.der()), Some(expected), "{year}");
            // Cut anywhere, it is no certificate; and nothing panics.
            for length in 0..certificate.der().len() {
                assert_eq!(not_after(&certificate.der()[..length]), None);
            }
        }
        assert_eq!(not_after(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
