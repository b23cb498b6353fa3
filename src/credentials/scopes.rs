//! Scopes of an access token, and which ones to request.

use std::fmt;

/// Maximum length of a list of scopes, in bytes.
const SCOPES_BYTES_MAX: usize = 4096;
/// Maximum number of scopes in one list.
const SCOPES_MAX: usize = 128;

/// A list of unique scopes, in the order of their first occurrence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(Vec<String>);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidScope {
    #[error("the list of scopes is longer than {SCOPES_BYTES_MAX} bytes or {SCOPES_MAX} scopes")]
    TooMany,
    #[error("a scope contains an invalid character")]
    Character,
}

impl Scopes {
    /// Parses a space-separated list.
    ///
    /// # Errors
    ///
    /// Returns why the list is refused.
    pub fn parse(text: &str) -> Result<Self, InvalidScope> {
        Self::of(text.split(' ').filter(|scope| !scope.is_empty()))
    }

    /// # Errors
    ///
    /// Returns why the list is refused.
    pub fn of<'a>(list: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidScope> {
        let mut scopes = Self::default();
        let mut bytes = 0;
        for scope in list {
            if scope.is_empty() || !scope.bytes().all(is_scope_byte) {
                return Err(InvalidScope::Character);
            }
            bytes += scope.len() + 1;
            if bytes > SCOPES_BYTES_MAX || scopes.0.len() >= SCOPES_MAX {
                return Err(InvalidScope::TooMany);
            }
            scopes.add(scope);
        }
        Ok(scopes)
    }

    /// The scopes of a first sign-in: from the configuration, else from the challenge, else all
    /// that the server supports. An empty list requests no scopes.
    pub fn first(configured: Option<&Self>, challenged: Option<&Self>, supported: &Self) -> Self {
        configured.or(challenged).unwrap_or(supported).clone()
    }

    /// The scopes of a step-up: the union of the previously requested scopes and the challenge, so
    /// that no permission is lost.
    ///
    /// # Errors
    ///
    /// Fails if the union is too large.
    pub fn step_up(&self, challenged: &Self) -> Result<Self, InvalidScope> {
        Self::of(self.iter().chain(challenged.iter()))
    }

    /// Canonical text: the same for the same scopes in any order.
    pub fn sorted(&self) -> String {
        let mut sorted: Vec<&str> = self.iter().collect();
        sorted.sort_unstable();
        sorted.join(" ")
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, scope: &str) -> bool {
        self.iter().any(|known| known == scope)
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    fn add(&mut self, scope: &str) {
        if !self.contains(scope) {
            self.0.push(scope.to_owned());
        }
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// `scope-token` of RFC 6749, section 3.3.
fn is_scope_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'"' && byte != b'\\'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(text: &str) -> Scopes {
        Scopes::parse(text).unwrap()
    }

    #[test]
    fn scopes_are_unique_and_keep_their_order() {
        assert_eq!(scopes("b a  b").to_string(), "b a");
        assert!(scopes("").is_empty());
        for bad in ["a\"b", "a\\b", "a\tb", "ä", "a\r\nb"] {
            assert_eq!(Scopes::parse(bad), Err(InvalidScope::Character), "{bad}");
        }
        let long = "a".repeat(SCOPES_BYTES_MAX);
        assert_eq!(Scopes::parse(&long), Err(InvalidScope::TooMany));
        let many = (0..=SCOPES_MAX).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(Scopes::parse(&many.join(" ")), Err(InvalidScope::TooMany));
    }

    #[test]
    fn a_challenge_comes_before_what_the_server_supports() {
        let (configured, challenged, supported) = (scopes("c"), scopes("x"), scopes("s t"));
        let first = |configured, challenged| Scopes::first(configured, challenged, &supported);
        assert_eq!(first(Some(&configured), Some(&challenged)), configured);
        assert_eq!(first(None, Some(&challenged)), challenged);
        assert_eq!(first(None, None), supported);
    }

    #[test]
    fn a_step_up_loses_no_scope() {
        let both = scopes("a b").step_up(&scopes("b c")).unwrap();
        assert_eq!(both.to_string(), "a b c");
    }
}
