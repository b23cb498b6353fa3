//! Whether a call that failed is sent once more. Pure.

use std::time::Duration;

use crate::catalog::Hints;
use crate::protocol::ErrorKind;

/// How often one call is sent again.
const TIMES_MAX: u32 = 3;
/// Time before it is sent again the first time; each further one takes four times as long.
const DELAY: Duration = Duration::from_millis(100);

/// What is known of a call that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) kind: ErrorKind,
    /// What its tool says of itself; `None` for what is no tool call.
    pub(crate) hints: Option<Hints>,
    /// How often it was sent again already.
    pub(crate) times: u32,
}

impl Failed {
    /// After which time it may be sent again; `None` if it may not. Whether its server is trusted
    /// and has a budget left is asked elsewhere.
    pub(crate) fn again_in(self) -> Option<Duration> {
        let harmless = self
            .hints
            .is_some_and(|hints| hints.read_only || hints.idempotent);
        let may = match self.kind {
            // It was never written, so it did not run.
            ErrorKind::ServerUnavailable => true,
            // It may have run.
            ErrorKind::ServerLost => harmless,
            _ => false,
        };
        (may && self.times < TIMES_MAX).then(|| DELAY * 4_u32.pow(self.times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_did_not_run_or_may_run_twice_is_sent_again() {
        let plain = Hints::default();
        let read_only = Hints {
            read_only: true,
            ..plain
        };
        let idempotent = Hints {
            idempotent: true,
            ..plain
        };
        let some = [Some(plain), None, Some(read_only), Some(idempotent)];
        for kind in ErrorKind::ALL {
            let expected = match kind {
                ErrorKind::ServerUnavailable => [true; 4],
                ErrorKind::ServerLost => [false, false, true, true],
                _ => [false; 4],
            };
            let kind = *kind;
            let may = some.map(|hints| {
                let failed = Failed {
                    kind,
                    hints,
                    times: 0,
                };
                failed.again_in().is_some()
            });
            assert_eq!(may, expected, "{kind:?}");
        }
    }

    #[test]
    fn each_time_it_takes_longer_and_it_ends() {
        let delay = |times| {
            let failed = Failed {
                kind: ErrorKind::ServerUnavailable,
                hints: None,
                times,
            };
            failed.again_in().map(|delay| delay.as_millis())
        };
        let delays = [0, 1, 2, 3, 100].map(delay);
        assert_eq!(delays, [Some(100), Some(400), Some(1600), None, None]);
    }
}
