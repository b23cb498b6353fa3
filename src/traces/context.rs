//! The trace context of requests (W3C Trace Context).

use std::fmt;

/// Length of a `traceparent` of version 00, in bytes.
const LENGTH: usize = 55;

/// A trace, a span in it, and whether it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Never 0.
    pub trace: u128,
    /// Never 0.
    pub span: u64,
    pub is_sampled: bool,
}

impl TraceContext {
    /// Parses a `traceparent`; `None` if it must be ignored. Later versions can have more after the
    /// known fields.
    pub fn parse(text: &str) -> Option<Self> {
        let known = text.get(..LENGTH)?;
        let rest = text.get(LENGTH..)?;
        let mut parts = known.split('-');
        let version = hex(parts.next()?, 2)?;
        let trace = hex(parts.next()?, 32)?;
        let span = u64::try_from(hex(parts.next()?, 16)?).ok()?;
        let flags = hex(parts.next()?, 2)?;
        let is_known = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        (is_known && trace != 0 && span != 0).then_some(Self {
            trace,
            span,
            is_sampled: flags & 1 == 1,
        })
    }
}

/// Parses a number of this many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_hex = text.len() == digits && text.bytes().all(is_digit);
    is_hex.then(|| u128::from_str_radix(text, 16).ok())?
}

/// Formats a `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.is_sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let context = TraceContext::parse(EXAMPLE).unwrap();
        assert_eq!(context.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(context.span, 0xb7ad_6b71_6920_3331);
        assert!(context.is_sampled);
        assert_eq!(context.to_string(), EXAMPLE);
    }

    #[test]
    fn later_versions_are_read_up_to_the_known_fields() {
        let with = |version: &str, flags: &str, rest: &str| {
            let middle = EXAMPLE.get(2..53).unwrap();
            TraceContext::parse(&format!("{version}{middle}{flags}{rest}"))
        };
        let table = [
            ("00", "00", "", Some(false)),
            ("00", "03", "", Some(true)),
            ("cc", "01", "", Some(true)),
            ("cc", "01", "-more", Some(true)),
            ("cc", "01", "more", None),
            ("00", "01", "-more", None),
            ("ff", "01", "", None),
            ("00", "0x", "", None),
            ("0A", "01", "", None),
        ];
        for (version, flags, rest, expected) in table {
            let read = with(version, flags, rest).map(|context| context.is_sampled);
            assert_eq!(read, expected, "{version} {flags} {rest}");
        }
    }

    #[test]
    fn a_broken_traceparent_is_ignored() {
        let broken = [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
            "+0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319\u{e9}-b7ad6b716920333-01",
        ];
        for text in broken {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }
}
