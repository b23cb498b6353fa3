//! Why orders about a server are refused.

use std::fmt;

use crate::protocol::{ErrorKind, Failure};

/// Why a server cannot be operated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum Inoperable<'a> {
    /// No server has this name; lists the configured names.
    Unknown(&'a [&'a str]),
    Disabled,
    /// The text names the missing setting.
    Misconfigured(&'a str),
    /// The server is being added or removed.
    Absent,
}

impl Inoperable<'_> {
    /// The failure for an operator who named the server. The name is arbitrary input.
    pub(in crate::admin) fn failure(&self, server: &str) -> Failure {
        let name: String = server.chars().take(64).collect();
        let message = format!("server {name:?} {self}");
        let kind = match self {
            Self::Unknown(_) => return Failure::new(ErrorKind::ServerNotFound, message),
            Self::Disabled => ErrorKind::Conflict,
            Self::Misconfigured(_) => ErrorKind::ServerMisconfigured,
            Self::Absent => ErrorKind::ServerUnavailable,
        };
        Failure::new(kind, message).server(name)
    }
}

impl fmt::Display for Inoperable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown([]) => f.write_str("is not configured, and neither is any other server"),
            Self::Unknown(known) => {
                write!(f, "is not configured; configured are: {}", known.join(", "))
            }
            Self::Disabled => {
                f.write_str("is disabled: remove `enabled = false` from the configuration")
            }
            Self::Misconfigured(why) => write!(f, "is misconfigured: {why}"),
            Self::Absent => f.write_str("is being added or removed; try again in a moment"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_be_operated_is_reported_with_the_reason() {
        let table = [
            (Inoperable::Unknown(&["a", "b"]), "configured are: a, b"),
            (Inoperable::Unknown(&[]), "neither is any other server"),
            (Inoperable::Disabled, "enabled = false"),
            (
                Inoperable::Misconfigured("`T` is not set"),
                "`T` is not set",
            ),
            (Inoperable::Absent, "try again"),
        ];
        for (why, word) in table {
            let sentence = why.failure("x\u{1b}[1m").message;
            assert!(sentence.contains(word), "{sentence}");
            assert!(!sentence.contains('\u{1b}'), "{sentence}");
        }
        let long = Inoperable::Disabled.failure(&"x".repeat(10_000)).message;
        assert!(long.len() < 200, "{long}");
    }
}
