//! Detects that the machine slept, after which connections can be dead without any notice.
//!
//! While a machine sleeps, the monotonic clock stops and the wall clock continues; a process that
//! was stopped finds that more time has passed than it waited for. After either, every live
//! connection is pinged at once instead of at its next interval.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::downstream::connection::spec::ConnectionCommand;
use crate::downstream::pool::Downstreams;
use crate::downstream::pool::server::Server;
use crate::telemetry::{Counter, Counters};

/// How often the clocks are compared.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Minimum gap that counts as sleep: more than a busy machine or a clock adjustment can cause
/// between two comparisons.
const SLEEP_MIN: Duration = Duration::from_secs(5);

/// Both clocks at the same moment.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    monotonic: Instant,
    /// Milliseconds since 1970.
    wall: u64,
}

/// How long the process was away between two readings that were scheduled `every` apart; `None` if
/// not long enough to matter.
fn away(before: ClockReading, now: ClockReading, every: Duration) -> Option<Duration> {
    let monotonic = now.monotonic.saturating_duration_since(before.monotonic);
    let wall = Duration::from_millis(now.wall.saturating_sub(before.wall));
    let asleep = wall.saturating_sub(monotonic);
    let stopped = monotonic.saturating_sub(every);
    let away = asleep.max(stopped);
    (away >= SLEEP_MIN).then_some(away)
}

impl Downstreams {
    /// Compares the clocks forever, and has every live connection checked after a jump. `wall`
    /// returns the milliseconds since 1970.
    pub async fn watch_clocks(self, wall: impl Fn() -> u64, counters: Counters) {
        let read = || ClockReading {
            monotonic: Instant::now(),
            wall: wall(),
        };
        let mut before = read();
        loop {
            sleep(LOOK_EVERY).await;
            let now = read();
            if let Some(away) = away(before, now, LOOK_EVERY) {
                log::info!(seconds = away.as_secs(); "machine was asleep; checking connections");
                counters.add(Counter::ClockJumps);
                for server in self.all().values() {
                    server.check();
                }
            }
            before = now;
        }
    }
}

impl Server {
    /// Pings every live connection now, unless pings are disabled for the server.
    pub(crate) fn check(&self) {
        if !self.settings().limits.ping_every.is_zero() {
            self.each_connection(|_, child| {
                if let Ok(up) = child.current() {
                    up.value.command(ConnectionCommand::Check);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_clock_jump_is_distinguished_from_time_that_passes() {
        let begin = Instant::now();
        let at = |monotonic: u64, wall: u64| ClockReading {
            monotonic: begin + Duration::from_millis(monotonic),
            wall,
        };
        let before = at(0, 1_000_000);
        let table = [
            // Monotonic and wall clock at the second reading, in milliseconds since the first.
            (2_000, 2_000, None),
            (2_500, 2_400, None),
            (6_900, 6_900, None),
            (2_000, 6_900, None),
            // Asleep: only the wall clock advanced.
            (2_000, 62_000, Some(60_000)),
            (2_000, 7_000, Some(5_000)),
            // Stopped, or on a system whose clock counts sleep.
            (62_000, 62_000, Some(60_000)),
            (32_000, 62_000, Some(30_000)),
            // A clock that was set back proves nothing.
            (2_000, -500_000, None),
            (2_000, -2_000_000, None),
        ];
        for (monotonic, wall, expected) in table {
            let wall = 1_000_000_u64.saturating_add_signed(wall);
            let found = away(before, at(monotonic, wall), Duration::from_secs(2));
            let expected: Option<u64> = expected;
            assert_eq!(
                found,
                expected.map(Duration::from_millis),
                "{monotonic} {wall}"
            );
        }
    }
}
