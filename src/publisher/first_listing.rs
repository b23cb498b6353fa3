//! Which servers the first list waits for, and until when.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::id::ServerName;
use crate::publisher::start_times::StartTimes;

/// How long the first list waits for servers that were never listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstListWait {
    /// The wait for any of them; zero disables it.
    pub usual: Duration,
    /// The maximum wait, for servers of a kind that took longer before.
    pub max: Duration,
    /// The kind of each server.
    pub kinds: BTreeMap<ServerName, &'static str>,
}

/// Servers that are starting and were not listed yet.
#[derive(Default)]
pub(super) struct FirstListing {
    wait: FirstListWait,
    begun: Option<Instant>,
    /// Start time of each server.
    starting: HashMap<ServerName, Instant>,
}

impl FirstListing {
    /// Starts waiting for configured servers that were never listed.
    pub(super) fn begin<'n>(
        &mut self,
        wait: FirstListWait,
        missing: impl Iterator<Item = &'n ServerName>,
        now: Instant,
    ) {
        let before = std::mem::take(&mut self.starting);
        let since = |name| before.get(name).copied().unwrap_or(now);
        self.starting = missing.map(|name| (name.clone(), since(name))).collect();
        self.begun = Some(now);
        self.wait = wait;
    }

    /// Records that a server was listed. Returns its kind and start duration if it was the first
    /// time.
    pub(super) fn listed(
        &mut self,
        server: &ServerName,
        now: Instant,
    ) -> Option<(&'static str, Duration)> {
        let since = self.starting.remove(server)?;
        Some((self.wait.kinds.get(server)?, now - since))
    }

    /// Records that the start of a server failed: the duration of the next attempt cannot be
    /// predicted.
    pub(super) fn failed(&mut self, server: &ServerName) {
        self.starting.remove(server);
    }

    /// When the first list stops waiting; `None` while no servers are known.
    pub(super) fn until(&self, times: Option<&StartTimes>) -> Option<Instant> {
        let usual = self.begun? + self.wait.usual;
        if self.wait.usual.is_zero() {
            return Some(usual);
        }
        let learnt = self.starting.iter().filter_map(|(name, since)| {
            let expected = times?.expected(self.wait.kinds.get(name)?)?;
            Some(*since + expected.min(self.wait.max))
        });
        learnt.chain([usual]).max()
    }
}
