//! The kind of failure that stands behind a server that is not there.

use crate::protocol::ErrorKind;
use crate::supervision::ExitReason;
use crate::telemetry::Cause;

/// The cause for which a connection ended, where a program can tell.
pub(crate) fn cause_of_exit(why: &ExitReason) -> Option<ErrorKind> {
    why.known_cause().and_then(error_kind)
}

/// The kind of a failure to have a connection; `None` for what happens to one that is up.
pub(crate) fn error_kind(cause: Cause) -> Option<ErrorKind> {
    match cause {
        Cause::SpawnFailed => Some(ErrorKind::SpawnFailed),
        Cause::Refused => Some(ErrorKind::ConnectionRefused),
        Cause::TimedOut => Some(ErrorKind::ConnectionTimeout),
        Cause::Crashed => Some(ErrorKind::ProcessCrashed),
        Cause::Unresponsive => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::telemetry::Reason;

    #[test]
    fn an_end_tells_its_cause_if_it_has_one() {
        let crashed = Reason::quoting("process ended", "words").because(Cause::Crashed);
        let shown = crashed.map(|text| format!("server: {text}"));
        let table = [
            (
                ExitReason::Failed(Arc::new(shown.clone())),
                Some(ErrorKind::ProcessCrashed),
            ),
            (
                ExitReason::LimitReached(Arc::new(shown)),
                Some(ErrorKind::ProcessCrashed),
            ),
            (ExitReason::StartTimeout, Some(ErrorKind::ConnectionTimeout)),
            (ExitReason::Failed(Arc::new(Reason::from("odd"))), None),
            (ExitReason::failed("a text"), None),
            (ExitReason::Killed, None),
        ];
        for (why, expected) in table {
            assert_eq!(cause_of_exit(&why), expected, "{why}");
        }
    }
}
