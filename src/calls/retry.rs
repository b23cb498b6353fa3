//! Calls that are sent once more, whether their client has a session or not: the decision, which
//! is pure, and what is kept of a call to carry it out.

use std::time::Duration;

use tokio::time::Instant;

use crate::calls::call_context::CallContext;
use crate::calls::call_target::CallTarget;
use crate::catalog::ToolHints;
use crate::downstream::Deadline;
use crate::protocol::{ErrorKind, Failure, Request};
use crate::telemetry::Counter;

/// How often one call is sent again.
const TIMES_MAX: u32 = 3;
/// Time before it is sent again the first time; each further one takes four times as long.
const DELAY: Duration = Duration::from_millis(100);

/// After which time a call that failed so may be sent again; `None` if it may not. `hints` are
/// those of its tool, if it calls one; `times` is how often it was sent again already. Whether its
/// server is trusted and has a budget left is asked elsewhere.
fn retry_delay(kind: ErrorKind, hints: Option<ToolHints>, times: u32) -> Option<Duration> {
    let harmless = hints.is_some_and(|hints| hints.read_only || hints.idempotent);
    let may = match kind {
        // It was never written, so it did not run.
        ErrorKind::ServerUnavailable => true,
        // Possibly it ran: a proxy can be wrong about it.
        ErrorKind::ServerLost | ErrorKind::ServerBusy => harmless,
        _ => false,
    };
    (may && times < TIMES_MAX).then(|| DELAY * 4_u32.pow(times))
}

/// The state that a call needs to be sent again. Kept where its server allows that, and as long as
/// it may still happen.
pub(crate) struct RetryState {
    pub(crate) request: Request,
    pub(crate) target: CallTarget,
    pub(crate) deadline: Deadline,
    hints: Option<ToolHints>,
    /// How often it was sent again.
    times: u32,
    /// An earlier attempt reached the server.
    pub(crate) may_have_run: bool,
}

impl RetryState {
    pub(crate) fn new(request: &Request, target: &CallTarget, deadline: Deadline) -> Self {
        Self {
            request: request.clone(),
            target: target.clone(),
            deadline,
            hints: target.tool.as_ref().map(|tool| tool.hints),
            times: 0,
            may_have_run: false,
        }
    }

    /// From now on the call is sent again only if it was not written, whatever its tool's hints.
    pub(crate) fn retry_only_if_unsent(&mut self) {
        self.hints = None;
    }

    /// After which time a call that failed so is sent once more; it is counted, unless something
    /// speaks against it.
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
        // The settings may have changed since it was sent.
        if !in_time || server.is_halted() || !server.may_retry() {
            return None;
        }
        self.times += 1;
        self.may_have_run |= !failure.kind.says_not_run();
        context.counters.add(Counter::CallsRepeated);
        log::info!(
            server = self.target.server.as_str(), code = failure.kind.as_str();
            "a call is sent once more"
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
