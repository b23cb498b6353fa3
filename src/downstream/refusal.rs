//! Outcomes of calls that a server, or a proxy in front of it, refused with an HTTP status. Pure.

use std::time::Duration;

use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::millis;

/// Outcome of a call that was refused with this status.
struct StatusRule {
    status: u16,
    /// Determines whether the caller can repeat the call and whether a breaker counts it.
    kind: ErrorKind,
    /// Meaning of the status, including whether the call ran.
    meaning: &'static str,
}

/// Statuses of a server that is busy, restarting or unreachable for its proxy (RFC 9110, RFC 6585).
const RULES: [StatusRule; 6] = [
    StatusRule {
        status: 404,
        kind: ErrorKind::ServerProtocol,
        meaning: "does not know the address or the session; the call did not run",
    },
    StatusRule {
        status: 408,
        kind: ErrorKind::ServerBusy,
        meaning: "did not receive the whole request in time; the call did not run",
    },
    StatusRule {
        status: 429,
        kind: ErrorKind::RateLimited,
        meaning: "limits how often it is called; the call did not run",
    },
    StatusRule {
        status: 502,
        kind: ErrorKind::ServerLost,
        meaning: "could not be reached by its proxy; the call may have run, so it is not repeated",
    },
    StatusRule {
        status: 503,
        kind: ErrorKind::ServerBusy,
        meaning: "is overloaded or under maintenance and did not take the call",
    },
    StatusRule {
        status: 504,
        kind: ErrorKind::ServerLost,
        meaning: "did not answer its proxy in time; the call may have run, so it is not repeated",
    },
];

fn rule(status: u16) -> Option<&'static StatusRule> {
    RULES.iter().find(|rule| rule.status == status)
}

/// Failure of a call that was refused with `status`.
pub(crate) fn failure(server: &ServerName, status: u16, retry_after: Option<Duration>) -> Failure {
    let rule = rule(status);
    let kind = rule.map_or(ErrorKind::ServerProtocol, |rule| rule.kind);
    let message = match rule {
        Some(rule) => format!("server `{server}` {} (HTTP status {status})", rule.meaning),
        None => format!("server `{server}` answered with HTTP status {status}"),
    };
    let failure = Failure::new(kind, message).server(server.as_str());
    match retry_after {
        Some(wait) => failure.retry_after_ms(millis(wait)),
        None => failure,
    }
}

/// Failure of a call whose session the server refused, even after a new session was opened.
pub(crate) fn session_refused(server: &ServerName, status: &str) -> Failure {
    let message = format!(
        "server `{server}` refused the session of the gateway ({status}); the call did not run"
    );
    Failure::new(ErrorKind::ServerUnavailable, message).server(server.as_str())
}

/// State of the server, as revealed by the status of a request of the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusSign {
    /// The server works, and only limits requests.
    Alive,
    /// The server is out of service: other requests would fail as well.
    Away,
    /// The server works, but does not accept the session or the method.
    Refused,
}

impl StatusSign {
    pub(crate) fn of(status: u16) -> Self {
        match status {
            408 | 429 => Self::Alive,
            502..=504 => Self::Away,
            _ => Self::Refused,
        }
    }
}

/// Whether other requests would be refused in the same way for now, so that a connection that is
/// being opened waits for its next attempt.
pub(crate) fn holds_for_now(status: u16) -> bool {
    StatusSign::of(status) != StatusSign::Refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_one_outcome() {
        let server = ServerName::try_new("web").unwrap();
        let table = [
            (404, "server_protocol", false, "did not run"),
            (408, "server_busy", true, "did not run"),
            (429, "rate_limited", true, "did not run"),
            (502, "server_lost", false, "may have run"),
            (503, "server_busy", true, "did not take the call"),
            (504, "server_lost", false, "may have run"),
            (400, "server_protocol", false, "HTTP status 400"),
            (500, "server_protocol", false, "HTTP status 500"),
        ];
        for (status, code, retryable, words) in table {
            for wait in [None, Some(Duration::from_secs(7))] {
                let failure = failure(&server, status, wait);
                assert_eq!(failure.kind.as_str(), code, "{status}");
                assert_eq!(failure.kind.retryable(), retryable, "{status}");
                assert_eq!(failure.retry_after_ms, wait.map(millis), "{status}");
                assert!(failure.message.contains(words), "{failure}");
                assert!(failure.message.contains(&status.to_string()), "{failure}");
            }
        }
    }
}
