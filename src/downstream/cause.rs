//! Maps the cause of a lost or failed connection to the error kind that callers receive.

use crate::protocol::ErrorKind;
use crate::supervision::ExitReason;
use crate::telemetry::Cause;

/// Error kind of a supervisor's exit reason; `None` if the reason has no known cause.
pub(crate) fn cause_of_exit(why: &ExitReason) -> Option<ErrorKind> {
    why.known_cause().and_then(error_kind)
}

/// Error kind of a connection that could not be opened or crashed; `None` for causes that only
/// affect an open connection.
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
    fn an_exit_reason_has_an_error_kind_if_its_cause_is_known() {
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
