//! Reads a request header as text.

use super::{ErrorKind, Failure};

/// Returns the value of a header that controls what a request may do, so that an unreadable value
/// must not count as absent. `values` are all values that the request has for this name.
///
/// # Errors
///
/// Returns the 400 for the client if the header occurs more than once or is not ASCII.
pub fn sole_header<'a>(
    name: &str,
    values: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Option<&'a str>, Failure> {
    let mut values = values.into_iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let is_text = |byte: &u8| *byte == b'\t' || (b' '..=b'~').contains(byte);
    let text = str::from_utf8(value).ok();
    let text = text.filter(|_| value.iter().all(is_text) && values.next().is_none());
    text.map(Some).ok_or_else(|| {
        let message = format!("header `{name}` cannot be read: send it once, in ASCII");
        Failure::new(ErrorKind::InvalidRequest, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_header_does_not_count_as_absent() {
        let (readable, unreadable): (&[u8], &[u8]) =
            (b"http://localhost", "http://\u{f6}".as_bytes());
        let table: [(&[&[u8]], _); 6] = [
            (&[], Ok(None)),
            (&[readable], Ok(Some("http://localhost"))),
            (&[unreadable], Err(ErrorKind::InvalidRequest)),
            (&[b"a\x7f"], Err(ErrorKind::InvalidRequest)),
            (&[readable, unreadable], Err(ErrorKind::InvalidRequest)),
            (&[readable, readable], Err(ErrorKind::InvalidRequest)),
        ];
        for (values, expected) in table {
            let read = sole_header("origin", values.iter().copied());
            assert_eq!(read.map_err(|failure| failure.kind), expected);
        }
    }
}
