//! Whether the gateway currently owns its data directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The right to use the files of the data directory, held while the directory is locked. Clones
/// share the lease. The default is held permanently.
#[derive(Clone, Debug)]
pub struct DirectoryLease(Arc<AtomicU64>);

impl Default for DirectoryLease {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1)))
    }
}

impl DirectoryLease {
    /// A lease that is not held yet.
    pub fn unheld() -> Self {
        Self(Arc::default())
    }

    /// The number of the directory that can be used now. It changes if a different directory is at
    /// the path: files that were opened before are not in it.
    pub fn number(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|number| number % 2 == 1)
    }

    /// Records that a directory is locked.
    pub fn hold(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that no directory is locked.
    pub fn give_up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_has_a_unique_number() {
        let lease = DirectoryLease::unheld();
        assert_eq!(lease.number(), None);
        lease.hold();
        let first = lease.number();
        lease.give_up();
        assert_eq!(lease.number(), None);
        lease.hold();
        assert!(first.is_some() && lease.number().is_some() && lease.number() != first);
    }
}
