//! Decides when an ended stream is reopened. Pure.

use std::time::Duration;

use crate::supervision::Backoff;

/// Delays after streams without events. The first is the minimum, whatever the server asks for.
const FRUITLESS: Backoff = Backoff::doubling(Duration::from_millis(250), Duration::from_secs(30));

/// Delays after streams that end at once, even with events: a server can make its clients poll, but
/// not without a pause.
const HASTY: Backoff = Backoff::doubling(Duration::from_millis(250), Duration::from_secs(2));

/// Lifetime below which a stream counts as ended at once.
const HASTY_MAX: Duration = Duration::from_secs(1);

/// Counters of the recent streams.
#[derive(Debug, Default)]
pub(super) struct Reconnects {
    /// Attempts in a row without new events.
    fruitless: u32,
    /// Streams in a row that ended at once.
    hasty: u32,
}

impl Reconnects {
    pub(super) fn ended(&mut self, lasted: Duration, brought_events: bool) {
        if brought_events {
            self.fruitless = 0;
        }
        self.hasty = match lasted < HASTY_MAX {
            true => self.hasty.saturating_add(1),
            false => 0,
        };
    }

    pub(super) fn fruitless(&self) -> u32 {
        self.fruitless
    }

    /// Delay before the next attempt: the time that the server asked for, or more if earlier
    /// streams require it.
    pub(super) fn next_delay(&mut self, retry: Option<Duration>) -> Duration {
        let fruitless = FRUITLESS.delay(self.fruitless);
        let hasty = HASTY.delay(self.hasty.saturating_sub(1));
        self.fruitless = self.fruitless.saturating_add(1);
        retry.unwrap_or_default().max(fruitless).max(hasty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(1);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn delays_grow_from_what_the_server_asked_for() {
        let cases = [
            (None, 0, ms(250)),
            (None, 1, ms(500)),
            (None, 3, ms(2000)),
            (None, 100, ms(30_000)),
            (None, u32::MAX, ms(30_000)),
            (Some(ms(0)), 0, ms(250)),
            (Some(ms(0)), 1, ms(500)),
            (Some(ms(1500)), 0, ms(1500)),
            (Some(ms(1500)), 1, ms(1500)),
            (Some(ms(60_000)), 9, ms(60_000)),
        ];
        for (retry, fruitless, expected) in cases {
            let mut reconnects = Reconnects {
                fruitless,
                hasty: 0,
            };
            assert_eq!(
                reconnects.next_delay(retry),
                expected,
                "{retry:?} {fruitless}"
            );
        }
    }

    /// Regression test: a server that sent `retry: 0` caused 226 reconnects in 5 seconds.
    #[test]
    fn no_server_makes_us_reconnect_without_a_pause() {
        let mut reconnects = Reconnects::default();
        let mut delays = Vec::new();
        for _ in 0..6 {
            reconnects.ended(SHORT, true);
            delays.push(reconnects.next_delay(Some(Duration::ZERO)));
        }
        let expected = [250, 500, 1000, 2000, 2000, 2000].map(ms);
        assert_eq!(delays, expected);
        // A stream that lasts resets the delay.
        reconnects.ended(LONG, true);
        assert_eq!(reconnects.next_delay(Some(ms(10))), ms(250));
    }
}
