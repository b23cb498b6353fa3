//! Headers of a client's HTTP request that servers receive (`forward_headers`).

use std::fmt;
use std::sync::Arc;

use super::{HttpHeaders, UserClaims};
use crate::protocol::{ErrorKind, Failure, sole_header};

/// Maximum total size of the forwarded headers of one request, in bytes.
const FORWARDED_BYTES_MAX: usize = 16 * 1024;

/// The forwarded headers of one client request; no other client header reaches a server
/// (C-AUTH-34). They and the user's identity are sent only with requests of that client's call,
/// because other clients share the connection.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientHeaders {
    said: Vec<(String, String)>,
    user: UserClaims,
    traceparent: Option<String>,
}

impl ClientHeaders {
    /// Reads the headers with these names; `None` if the request has none of them and no server
    /// needs the user's identity.
    ///
    /// # Errors
    ///
    /// Returns the 400 for the client if a header occurs more than once or is not ASCII, or if
    /// their total size is too large.
    pub fn read(
        names: &[String],
        headers: &dyn HttpHeaders,
        user: Option<UserClaims>,
    ) -> Result<Option<Arc<Self>>, Failure> {
        let mut said = Vec::new();
        let mut bytes = 0;
        for name in names {
            let Some((value, is_more)) = headers.first(name) else {
                continue;
            };
            let again = is_more.then_some(value);
            let Some(value) = sole_header(name, std::iter::once(value).chain(again))? else {
                continue;
            };
            bytes += name.len() + value.len();
            if bytes > FORWARDED_BYTES_MAX {
                let message = format!(
                    "the headers that are forwarded to servers exceed \
                     the limit of {FORWARDED_BYTES_MAX} bytes"
                );
                return Err(Failure::new(ErrorKind::InvalidRequest, message));
            }
            said.push((name.clone(), value.to_owned()));
        }
        let is_read = user.is_some() || !said.is_empty();
        let user = user.unwrap_or_default();
        Ok(is_read.then(|| {
            Arc::new(Self {
                said,
                user,
                traceparent: None,
            })
        }))
    }

    /// The user of the request, according to its credentials.
    pub const fn user(&self) -> &UserClaims {
        &self.user
    }

    /// These headers with the trace context for the server.
    pub fn traced(headers: Option<&Self>, traceparent: String) -> Arc<Self> {
        Arc::new(Self {
            said: headers.map_or_else(Vec::new, |headers| headers.said.clone()),
            user: headers.map_or_else(UserClaims::default, |headers| headers.user.clone()),
            traceparent: Some(traceparent),
        })
    }

    /// The trace context to send to every server; a client's own `traceparent` is an ordinary
    /// header.
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// The value of a header, by its configured name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut all = self.said.iter();
        let (_, value) = all.find(|(other, _)| other == name)?;
        Some(value)
    }
}

/// Values are secret.
impl fmt::Debug for ClientHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.said.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sent(Vec<(&'static str, String)>);

    impl HttpHeaders for Sent {
        fn first(&self, name: &str) -> Option<(&[u8], bool)> {
            let mut values = self.0.iter().filter(|(other, _)| *other == name);
            let (_, value) = values.next()?;
            Some((value.as_bytes(), values.next().is_some()))
        }

        fn params(&self) -> Vec<(&str, &[u8])> {
            Vec::new()
        }
    }

    fn read(sent: &[(&'static str, &str)]) -> Result<Option<Arc<ClientHeaders>>, ErrorKind> {
        let names = ["x-one".to_owned(), "x-two".to_owned()];
        let sent = sent
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let read = ClientHeaders::read(&names, &Sent(sent.collect()), None);
        read.map_err(|failure| {
            assert!(!failure.message.contains("s3cret"), "{failure}");
            failure.kind
        })
    }

    #[test]
    fn only_configured_headers_are_read_and_never_printed() {
        let sent = [("x-one", "s3cret"), ("authorization", "Bearer s3cret")];
        let headers = read(&sent).unwrap().unwrap();
        assert_eq!(headers.get("x-one"), Some("s3cret"));
        assert_eq!(headers.get("x-two"), None);
        assert_eq!(headers.get("authorization"), None);
        assert_eq!(format!("{headers:?}"), r#"["x-one"]"#);
        assert_eq!(read(&[("other", "s3cret")]), Ok(None));
        let traced = ClientHeaders::traced(Some(&headers), "00-a".to_owned());
        assert_eq!(traced.get("x-one"), Some("s3cret"));
        let contexts = (traced.traceparent(), headers.traceparent());
        assert_eq!(contexts, (Some("00-a"), None));
    }

    #[test]
    fn headers_that_cannot_be_read_are_refused() {
        let long = "s3cret".repeat(FORWARDED_BYTES_MAX / 6 + 1);
        let refused: [&[(&str, &str)]; 4] = [
            &[("x-one", "s3cret"), ("x-one", "s3cret")],
            &[("x-one", "s3cret\u{e9}")],
            &[("x-two", "s3cret\r\nX-Evil: 1")],
            &[("x-one", &long)],
        ];
        for sent in refused {
            assert_eq!(read(sent), Err(ErrorKind::InvalidRequest));
        }
    }
}
