//! Startup progress of all servers.

use std::fmt;

use crate::telemetry::counted;

/// Number of servers per state, without idle ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    pub up: usize,
    pub starting: usize,
    pub failed: usize,
}

impl ServerCounts {
    /// Counts the states of servers.
    pub fn of<'s>(states: impl Iterator<Item = &'s str>) -> Self {
        let mut counts = Self::default();
        for state in states {
            match state {
                "up" => counts.up += 1,
                "starting" | "waiting" => counts.starting += 1,
                "backoff" | "broken" | "misconfigured" => counts.failed += 1,
                _ => {}
            }
        }
        counts
    }
}

impl fmt::Display for ServerCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.up + self.starting + self.failed;
        write!(
            f,
            "{} of {} up",
            self.up,
            counted(all as u64, "server", "servers")
        )?;
        if self.starting > 0 {
            write!(f, ", {} starting", self.starting)?;
        }
        if self.failed > 0 {
            write!(f, ", {} failed: `mcpvisor status` says why", self.failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_counted_in_words() {
        let table: [(&[&str], &str); 4] = [
            (&["up", "up", "idle", "disabled"], "2 of 2 servers up"),
            (&["up", "starting"], "1 of 2 servers up, 1 starting"),
            (
                &["up", "backoff", "misconfigured"],
                "1 of 3 servers up, 2 failed: `mcpvisor status` says why",
            ),
            (&[], "0 of 0 servers up"),
        ];
        for (states, expected) in table {
            assert_eq!(
                ServerCounts::of(states.iter().copied()).to_string(),
                expected
            );
        }
    }
}
