//! Which servers the first list waits for, and until when. Pure.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::id::ServerName;
use crate::publisher::start_times::StartTimes;

/// How long the first list waits for servers that were never listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstListWait {
    /// For any of them; zero waits for none.
    pub usual: Duration,
    /// At most, for those of a kind that took longer before.
    pub max: Duration,
    /// The kind of each server.
    pub kinds: BTreeMap<ServerName, &'static str>,
}

/// Servers that are on their way to their first listing.
#[derive(Default)]
pub(super) struct FirstListing {
    wait: FirstListWait,
    begun: Option<Instant>,
    /// Since when each is on its way.
    starting: HashMap<ServerName, Instant>,
}

impl FirstListing {
    /// Servers were configured, of which these were never listed.
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

    /// A server was listed. Its kind and the time that it took, if that is the first time.
    pub(super) fn listed(
        &mut self,
        server: &ServerName,
        now: Instant,
    ) -> Option<(&'static str, Duration)> {
        let since = self.starting.remove(server)?;
        Some((self.wait.kinds.get(server)?, now - since))
    }

    /// The start of a server failed: nobody knows how long the next attempt takes.
    pub(super) fn failed(&mut self, server: &ServerName) {
        self.starting.remove(server);
    }

    /// When the first list waits no longer; `None` as long as no servers are known.
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
