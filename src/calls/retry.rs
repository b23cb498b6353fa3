//! Retries of calls, with or without a session: decides whether and when a failed call is sent
//! again, and keeps the state that this requires.

use std::time::Duration;

use tokio::time::Instant;

use crate::calls::call_context::CallContext;
use crate::calls::call_target::CallTarget;
use crate::catalog::ToolHints;
use crate::downstream::Deadline;
use crate::protocol::{ErrorKind, Failure, Request};
use crate::telemetry::Counter;

/// Maximum number of retries of one call.
const TIMES_MAX: u32 = 3;
/// Delay before the first retry; each further delay is four times as long.
const DELAY: Duration = Duration::from_millis(100);

/// Returns the delay before a call that failed with `kind` is sent again; `None` if it must not be.
/// `hints` are the hints of the called tool, if any; `times` is the number of earlier retries. The
/// caller checks whether the server is trusted and has retry budget left.
fn retry_delay(kind: ErrorKind, hints: Option<ToolHints>, times: u32) -> Option<Duration> {
    let harmless = hints.is_some_and(|hints| hints.read_only || hints.idempotent);
    let may = match kind {
        // The call was never written, so it did not run.
        ErrorKind::ServerUnavailable => true,
        // The call may have run, even if a proxy reports the server as busy.
        ErrorKind::ServerLost | ErrorKind::ServerBusy => harmless,
        _ => false,
    };
    (may && times < TIMES_MAX).then(|| DELAY * 4_u32.pow(times))
}

/// The state that is needed to send a call again. Kept only if the server allows retries, and only
/// while a retry is still possible.
pub(crate) struct RetryState {
    pub(crate) request: Request,
    pub(crate) target: CallTarget,
    pub(crate) deadline: Deadline,
    hints: Option<ToolHints>,
    /// Number of retries so far.
    times: u32,
    /// Whether an earlier attempt reached the server.
    pub(crate) may_have_run: bool,
}

impl RetryState {
    /// If the call is not `repeatable`, it is sent again only if it was not written, regardless of
    /// the tool's hints.
    pub(crate) fn new(
        request: &Request,
        target: &CallTarget,
        deadline: Deadline,
        repeatable: bool,
    ) -> Self {
        let tool = target.tool.as_ref().filter(|_| repeatable);
        Self {
            request: request.clone(),
            target: target.clone(),
            deadline,
            hints: tool.map(|tool| tool.hints),
            times: 0,
            may_have_run: false,
        }
    }

    /// Returns the delay before the failed call is sent again, and counts the retry; `None` if the
    /// call must not be sent again.
    pub(crate) fn next_delay(
        &mut self,
        failure: &Failure,
        context: &CallContext,
    ) -> Option<Duration> {
        let delay = retry_delay(failure.kind, self.hints, self.times)?;
        let wait = Duration::from_millis(failure.retry_after_ms.unwrap_or_default());
        let delay = delay.max(wait);
        let server = context.downstreams.get(&self.target.server)?;
        let in_time = Instant::now() + delay < self.deadline.latest;
        // The server's settings can have changed since the call was sent.
        if !in_time || server.is_halted() || !server.may_retry() {
            return None;
        }
        self.times += 1;
        self.may_have_run |= !failure.kind.says_not_run();
        context.counters.add(Counter::CallsRepeated);
        log::info!(
            server = self.target.server.as_str(), code = failure.kind.as_str();
            "retrying a failed call"
        );
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_did_not_run_or_may_run_twice_is_sent_again() {
        let plain = ToolHints::default();
        let read_only = ToolHints {
            read_only: true,
            ..plain
        };
        let idempotent = ToolHints {
            idempotent: true,
            ..plain
        };
        let some = [Some(plain), None, Some(read_only), Some(idempotent)];
        for kind in ErrorKind::ALL {
            let expected = match kind {
                ErrorKind::ServerUnavailable => [true; 4],
                ErrorKind::ServerLost | ErrorKind::ServerBusy => [false, false, true, true],
                _ => [false; 4],
            };
            let kind = *kind;
            let may = some.map(|hints| retry_delay(kind, hints, 0).is_some());
            assert_eq!(may, expected, "{kind:?}");
        }
    }

    #[test]
    fn each_time_it_takes_longer_and_it_ends() {
        let delay = |times| {
            let delay = retry_delay(ErrorKind::ServerUnavailable, None, times);
            delay.map(|delay| delay.as_millis())
        };
        let delays = [0, 1, 2, 3, 100].map(delay);
        assert_eq!(delays, [Some(100), Some(400), Some(1600), None, None]);
    }
}
